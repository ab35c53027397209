"""Measures what features are worth before and after learning without labels.

    python benchmarks/without_labels.py --methods mae --seeds 0 1 2 \
        --out benchmarks/results/without_labels_mae.json

Fashion-MNIST at random places of a canvas of 40 pixels (on the plain one the
pixels themselves do), without labels: masked autoencoder with a class token
or the mean of its patches ("mae_mean"), DINO, and distillation from a real
DINOv2 S/14 and CLIP B/16, as `SETTINGS` has them, of four blocks, and of the
twelve of a Ti student ("distill_dinov2_ti").
`--steps`, `--batch` and `--rate` go before its numbers. `--runs` keeps the run
folders, and `--start` continues such a model in place of a new one, with the
defaults for weights. Seeds that `--out` already has of the same command are
kept, and the others added.

A k-NN is the share of 2,000 other images that the 20 most similar of the rest
classify right: of the features of the model, of the mean of its patch tokens,
of the images themselves ("pixels"), and of the teacher in the size in which it
teaches. A probe is the share of every second image of each class that a linear
layer, fitted to the others, classifies right (in results without "val_probe"
of every second of all). Fashion-MNIST is read from the files of its authors
(the package dataset-fashion-mnist of Debian has them), the teachers from
folders that `python tools/real_weights.py build weights` writes.

`--picture FILE` draws the results in `--drawn` instead: before, during and
after, a line for each seed.
"""

import argparse
import csv
import dataclasses
import gzip
import json
import pathlib
import re
import sys
import tempfile
from typing import Any

import keras
import numpy as np
from PIL import Image

from keras_vit import embed
from keras_vit.analysis.plots import new_figure
from keras_vit.data import DataConfig, PreprocessingConfig
from keras_vit.io.atomic_files import write_json
from keras_vit.prediction import as_encoder
from keras_vit.runtime.machine import versions
from keras_vit.training import ModelConfig, OptimizerConfig, TrainingConfig
from keras_vit.training.tasks import DINOConfig, DistillConfig, MAEConfig
from keras_vit.training.tasks.distillation import patch_map
from keras_vit.training.tasks.feature_watch import (
    half_probed_accuracy,
    left_out_accuracy,
)

ROOT = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "recipes")]

from recipe_scripts import script  # noqa: E402

PRETRAIN = script("pretrain")
FILES = "/usr/share/datasets/fashion-mnist"
SIDE, KNOWN = 40, 2000
INTERVALS = 4  # after each of which the k-NN is taken
SIZES = {
    "hidden_dim": 96,
    "num_layers": 4,
    "mlp_dim": 192,
    "num_heads": 3,
    "channels": 3,
}
MAE: dict[str, Any] = {
    "model": {
        **SIZES,
        "image_size": SIDE,
        "patch_size": 5,
        "pooling": "token",
    },
    "learning_rate": 1e-3,
    "steps": 2000,
    "batch_size": 32,
    "options": MAEConfig(
        decoder_dim=64,
        decoder_layers=1,
        decoder_heads=4,
        decoder_mlp_dim=128,
    ),
}
DISTILL: dict[str, Any] = {
    "model": {
        "hidden_dim": 192,
        "num_layers": 4,
        "mlp_dim": 768,
        "num_heads": 3,
        "channels": 3,
        "image_size": SIDE,
        "patch_size": 8,
        "pooling": "mean",
    },
    "learning_rate": 1e-3,
    "steps": 1500,
    "batch_size": 32,
}
# Of a setting: model, highest rate, steps, batch and options.
SETTINGS: dict[str, dict[str, Any]] = {
    "mae": MAE,
    # The loss reaches the patches alone, and a class token by attention.
    "mae_mean": {
        **MAE,
        "model": {**MAE["model"], "pooling": "mean"},
        "steps": 4000,
    },
    "dino": {
        "model": {
            **SIZES,
            "channels": 1,
            "image_size": 32,
            "patch_size": 8,
            "pooling": "token",
        },
        "learning_rate": 1e-3,
        "steps": 3000,
        "batch_size": 32,
        "options": DINOConfig(
            canvas_size=SIDE,
            local_crops=4,
            local_size=16,
            local_scale=(0.2, 0.4),  # Smaller ones can be all black.
            out_dim=1024,
            head_dim=256,
            bottleneck_dim=64,
            teacher_momentum=0.99,
            freeze_last_layer_epochs=0.1,
            blur_sigma=0.0,
            solarize=False,
        ),
    },
    "distill_dinov2": {
        **DISTILL,
        "options": DistillConfig(teacher="weights/dinov2", teacher_size=42),
    },
    "distill_dinov2_ti": {
        **DISTILL,
        "model": {**DISTILL["model"], "num_layers": 12},
        "learning_rate": 4e-4,
        "steps": 2250,
        "options": DistillConfig(teacher="weights/dinov2", teacher_size=42),
    },
    "distill_clip": {
        **DISTILL,
        "options": DistillConfig(teacher="weights/clip", teacher_size=32),
    },
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


def recipe(name: str, folder: pathlib.Path, seed: int, asked):
    setting = SETTINGS[name]
    method = name.split("_")[0]
    steps = asked.steps or setting["steps"]
    model = ModelConfig(**setting["model"])
    rate, options = setting["learning_rate"], setting["options"]
    # A twentieth of a canvas can be black; DINO cuts its own crops.
    crop: dict = {} if method == "dino" else {"train": "squash"}
    if asked.start:  # With the defaults for weights.
        model = ModelConfig(weights=asked.start, image_size=SIDE)
        rate = None
    if asked.start and method == "dino":
        options = dataclasses.replace(
            options, local_size=None, teacher_momentum=None
        )
    return PRETRAIN.PretrainRecipe(
        data=DataConfig(
            folder=str(folder / "photos"),
            validation_fraction=0.02,
            test_fraction=0,
        ),
        model=model,
        preprocessing=PreprocessingConfig(evaluation="squash", **crop),
        optimizer=OptimizerConfig(
            learning_rate=asked.rate or rate, warmup_steps=steps // 20
        ),
        training=TrainingConfig(
            steps=steps,
            batch_size=asked.batch or setting["batch_size"],
            best_metric="val_knn",
            checkpoint_every_steps=-(-steps // INTERVALS),
            keep="last",
        ),
        run_dir=str((asked.runs or folder) / f"{name}_{seed}"),
        seed=seed,
        method=method,
        knn_folder=str(folder / "known"),
        **{method: options},
    )


def scores(features, labels) -> dict[str, float]:
    """Return the k-NN and the accuracy of the probe of features."""
    return {
        "knn": left_out_accuracy(features, labels),
        "probe": half_probed_accuracy(features, labels),
    }


def worth(model, images, labels) -> dict[str, dict[str, float]]:
    """Return what the features of a model and its mean patches are worth."""
    maps = keras.layers.GlobalAveragePooling2D()(patch_map(model))
    both = {"features": model.output, "mean_of_patches": maps}
    found = keras.Model(model.input, both).predict(images, verbose=0)
    return {x: scores(y, labels) for x, y in found.items()}


def measured(name, folder, known, seed: int, asked) -> dict:
    """Train once, and return what the features are worth on the way."""
    made = recipe(name, folder, seed, asked)
    size, channels = made.model.image_size, made.model.channels
    images, labels = known
    images = images[..., :channels]  # All are grey.
    images = np.asarray(keras.ops.image.resize(images, (size, size)))
    keras.utils.set_random_seed(seed)
    model = PRETRAIN.METHODS[made.method].task.make_model(made, ("",))
    before = worth(model, images, labels)
    result = PRETRAIN.run(made)
    run_dir = pathlib.Path(made.run_dir)
    model = keras.saving.load_model(run_dir / "model.keras")
    with open(run_dir / "history.csv") as file:
        rows = list(csv.DictReader(file))
    return {
        "seed": seed,
        "before": before,
        "after": worth(model, images, labels),
        **{
            name: {x["step"]: float(x[name]) for x in rows}
            for name in ("val_knn", "val_probe")
        },
        "seconds": round(result["seconds"]),
    }


def command_of(asked, seeds) -> str:
    """Return what measures the same, but for where files are."""
    names = ("methods", "seeds", "images", "steps", "batch", "rate")
    names = (*names, "runs", "start")
    given = {x: getattr(asked, x) for x in names if getattr(asked, x)}
    words = ["python", "benchmarks/without_labels.py"]
    for name, value in {**given, "seeds": seeds}.items():
        values = value if isinstance(value, list) else [value]
        words += [f"--{name}", *map(str, values)]
    return " ".join(words)


def measured_before(out: pathlib.Path | None, head: dict) -> dict:
    """Return what a file has of the same command, but for its seeds.

    Raises:
        ValueError: for a file of other settings or versions.
    """
    if out is None or not out.exists():
        return {}
    found = json.loads(out.read_text())

    def settings(record):
        command = re.sub(r" --seeds( \d+)*", "", record["command"])
        return {**{x: record[x] for x in head}, "command": command}

    if settings(found) != settings(head):
        raise ValueError(
            "Seeds are added to those of the same settings. Received: "
            f"{settings(head)}, and {out} has {settings(found)}. Give "
            "another --out."
        )
    return found


def draw(path: pathlib.Path, results: list[pathlib.Path]) -> None:
    """Draw k-NN and probe of the features over the training, of each seed."""
    from matplotlib.ticker import PercentFormatter

    figure = new_figure(9.0, 4.2)
    axes = figure.subplots(1, 2)
    for i, result in enumerate(results):
        found = json.loads(result.read_text())
        ((method, rows),) = [(x, y) for x, y in found.items() if x in SETTINGS]
        for j, row in enumerate(rows):
            for axis, name in zip(axes, ("knn", "probe"), strict=True):
                during = row[f"val_{name}"]
                steps = [0, *map(int, during)]
                start, end = (
                    row[x]["features"][name] for x in ("before", "after")
                )
                accuracy = [start, *list(during.values())[:-1], end]
                axis.plot(
                    np.array(steps) / steps[-1],
                    accuracy,
                    color=f"C{i}",
                    marker=".",
                    label=f"{method}, {steps[-1]:,} steps" if j == 0 else None,
                )
    for axis, title in zip(axes, ("k-NN", "linear probe"), strict=True):
        axis.set(title=title, xlabel="share of the training")
        axis.yaxis.set_major_formatter(PercentFormatter(xmax=1))
        axis.grid(alpha=0.3)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    figure.savefig(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--methods", nargs="+", default=[*SETTINGS])
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--start")
    parser.add_argument("--runs", type=pathlib.Path)
    parser.add_argument("--files", type=pathlib.Path, default=FILES)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--picture", type=pathlib.Path)
    parser.add_argument("--drawn", type=pathlib.Path, nargs="+", default=[])
    asked = parser.parse_args()
    if bool(asked.picture) != bool(asked.drawn):
        parser.error("--picture needs --drawn, and --drawn needs --picture")
    if asked.picture:
        draw(asked.picture, asked.drawn)
        return 0
    head = {"command": command_of(asked, []), "images": asked.images}
    head["versions"] = versions()
    found: dict = measured_before(asked.out, head) | head
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        written(folder, pathlib.Path(asked.files), asked.images)
        files = sorted((folder / "known").rglob("*.png"))
        labels = np.array([int(x.parent.name) for x in files])
        images = np.stack([np.asarray(Image.open(x)) for x in files])
        pixels = images[..., 0].reshape(len(files), -1) / 255
        found["pixels"] = scores(pixels, labels)
        for method in asked.methods:
            options = SETTINGS[method]["options"]
            if isinstance(options, DistillConfig):
                encoder = as_encoder(
                    options.teacher, image_size=options.teacher_size
                )
                features = embed(encoder, list(map(str, files)))
                found[f"teacher_{method}"] = scores(features, labels)
            rows = found.setdefault(method, [])
            for seed in sorted({*asked.seeds} - {x["seed"] for x in rows}):
                row = measured(method, folder, (images, labels), seed, asked)
                rows.append(row)
                rows.sort(key=lambda x: x["seed"])
                seeds = [x["seed"] for x in rows]
                found["command"] = command_of(asked, seeds)
                print(method, row, flush=True)
                if asked.out:
                    write_json(asked.out, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
