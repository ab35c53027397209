"""Measures what features are worth before and after learning without labels.

    python tools/real_weights.py build weights
    python benchmarks/without_labels.py weights/dinov2 --methods distill \
        --images 3000 --epochs 6 --seeds 0 \
        --out benchmarks/results/without_labels_distill_seed0.json

Fashion-MNIST at random places of a canvas of 40 pixels (on the plain one the
pixels themselves do), without labels: masked autoencoder, DINO, and
distillation from a real DINOv2 S/14, each into the same small Vision
Transformer. `val_knn` is the share of 1,000 other images that the 20 most
similar of the rest classify right; "pixels" is that of the images themselves,
"teacher" that of the DINOv2. Fashion-MNIST is read from the files of its
authors (the package dataset-fashion-mnist of Debian has them).
"""

import argparse
import gzip
import pathlib
import sys
import tempfile
from typing import Any

import keras
import numpy as np
from PIL import Image

import keras_vit
from keras_vit.data import DataConfig, PreprocessingConfig
from keras_vit.io.atomic_files import write_json
from keras_vit.runtime.machine import versions
from keras_vit.training import ModelConfig, OptimizerConfig, TrainingConfig
from keras_vit.training.build import headless, make_model
from keras_vit.training.tasks import DINOConfig, DistillConfig, MAEConfig
from keras_vit.training.tasks.neighbours import left_out_accuracy

ROOT = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "recipes")]

from recipe_scripts import script  # noqa: E402

PRETRAIN = script("pretrain")
FILES = "/usr/share/datasets/fashion-mnist"
SIDE, KNOWN = 40, 1000
TEACHER_SIDE = 42  # 3 x 3 patches of 14 pixels
MODEL = ModelConfig(
    image_size=SIDE,
    patch_size=8,
    channels=3,
    hidden_dim=96,
    num_layers=6,
    mlp_dim=192,
    num_heads=4,
)
METHODS: dict[str, dict[str, Any]] = {
    "mae": {
        "mae": MAEConfig(decoder_dim=64, decoder_layers=2, decoder_heads=4)
    },
    "dino": {
        "dino": DINOConfig(
            local_crops=4,
            local_size=16,
            out_dim=1024,
            head_dim=512,
            bottleneck_dim=128,
            teacher_momentum=0.99,
            blur_sigma=0.0,
            solarize=False,
        )
    },
    "distill": {},
    "distill_raw": {"standardize": False},
}


def written(folder: pathlib.Path, files: pathlib.Path, count: int) -> None:
    """Write images as two folders: without labels, and of known classes."""
    random = np.random.default_rng(0)
    for part, source, number in (
        ("photos", "train", count),
        ("known", "t10k", KNOWN),
    ):
        kinds = {"images": (16, (-1, 28, 28)), "labels": (8, (-1,))}
        arrays = {}
        for kind, (begin, shape) in kinds.items():
            name = f"{source}-{kind}-idx{len(shape)}-ubyte.gz"
            with gzip.open(files / name) as file:
                content = np.frombuffer(file.read(), "uint8")[begin:]
            arrays[kind] = content.reshape(shape)[:number]
        for i in range(number):
            canvas = np.zeros((SIDE, SIDE), "uint8")
            y, x = random.integers(0, SIDE - 28 + 1, 2)
            canvas[y : y + 28, x : x + 28] = arrays["images"][i]
            place = folder / part
            place /= str(arrays["labels"][i]) if part == "known" else ""
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(canvas).convert("RGB").save(place / f"{i}.png")


def recipe(method: str, folder, teacher, seed: int, epochs: int):
    options: dict[str, Any] = METHODS[method]
    crop: dict[str, Any] = {}
    folder_of_run = str(folder / f"{method}_{seed}")
    if method.startswith("distill"):
        crop = {"train": "squash"}  # The teacher is asked of whole images.
        config = DistillConfig(
            teacher=str(teacher), teacher_size=TEACHER_SIDE, **options
        )
        method, options = "distill", {"distill": config}
    return PRETRAIN.PretrainRecipe(
        data=DataConfig(
            folder=str(folder / "photos"),
            validation_fraction=0.02,
            test_fraction=0,
        ),
        model=MODEL,
        preprocessing=PreprocessingConfig(evaluation="squash", **crop),
        optimizer=OptimizerConfig(learning_rate=1e-3, warmup_epochs=1),
        training=TrainingConfig(
            epochs=epochs,
            batch_size=64,
            precision="mixed_bfloat16",
            keep="last",
        ),
        run_dir=folder_of_run,
        seed=seed,
        method=method,
        knn_folder=str(folder / "known"),
        **options,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("teacher", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--methods", nargs="+", default=[*METHODS])
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--files", type=pathlib.Path, default=FILES)
    parser.add_argument("--out", type=pathlib.Path)
    asked = parser.parse_args()
    found: dict = {"images": asked.images, "epochs": asked.epochs}
    found["versions"] = versions()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        written(folder, pathlib.Path(asked.files), asked.images)
        files = sorted((folder / "known").rglob("*.png"))
        paths = list(map(str, files))
        labels = np.array([int(x.parent.name) for x in files])
        pixels = np.stack([np.asarray(Image.open(x)).ravel() for x in files])
        found["pixels"] = left_out_accuracy(pixels / 255, labels)
        encoder = keras_vit.prediction.as_encoder(
            str(asked.teacher), image_size=TEACHER_SIDE
        )
        found["teacher"] = left_out_accuracy(
            keras_vit.embed(encoder, paths), labels
        )
        for seed in asked.seeds:
            for method in asked.methods:
                made = recipe(method, folder, asked.teacher, seed, asked.epochs)
                keras.utils.set_random_seed(seed)
                model = headless(make_model(made, ("",)))
                before = left_out_accuracy(
                    keras_vit.embed(model, paths), labels
                )
                result = PRETRAIN.run(made)
                found.setdefault(method, []).append(
                    {
                        "seed": seed,
                        "before": before,
                        "after": result["val_knn"],
                        "seconds": result["seconds"],
                    }
                )
                print(method, found[method][-1], flush=True)
                if asked.out:
                    write_json(asked.out, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
