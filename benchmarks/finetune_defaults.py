"""Compare the defaults of fine-tuning with other rates and a frozen encoder.

    python tools/real_weights.py build weights
    python benchmarks/finetune_defaults.py weights \
        --output benchmarks/results/finetune_defaults.json

Two real encoders (DINOv2 S/14 trained further, CLIP B/16) learn from a few
images at small sizes: digits of scikit-learn, Fashion-MNIST, and crops of
photographs of scikit-image, where training takes the left half of each
photograph and the test the right half. Nothing is chosen on validation images:
each number is the accuracy on the test images after the last epoch.
Fashion-MNIST is read from the files of its authors (`--fashion_mnist`; the
package dataset-fashion-mnist of Debian has them).
"""

import argparse
import gzip
import json
import pathlib
import sys
import tempfile

import keras
import numpy as np

from keras_vit import data
from keras_vit.io.atomic_files import write_json
from keras_vit.runs import evaluated
from keras_vit.runtime.machine import versions
from keras_vit.training import (
    ModelConfig,
    OptimizerConfig,
    Recipe,
    TrainingConfig,
    train,
)

TRAIN = {"digits": 60, "fashion_mnist": 200, "photographs": 60}  # images
TEST = 1000
CROP = 96  # pixels of a photograph
PHOTOGRAPHS = (
    *("astronaut", "chelsea", "coffee", "rocket", "hubble_deep_field"),
    *("immunohistochemistry", "retina"),
)
SIZES = {"dinov2": 56, "clip": 64}  # pixels: four patches on a side
# Of the optimizer, of the training. "before" were the defaults until then.
SETTINGS = {
    "default": ({}, {}),
    "head of zeros": ({}, {}),
    "frozen encoder": ({}, {"trainable": "head"}),
    "rate 1e-5": ({"learning_rate": 1e-5}, {}),
    "rate 3e-4": ({"learning_rate": 3e-4}, {}),
    "rate 1e-3": ({"learning_rate": 1e-3}, {}),
    "before": (
        {"learning_rate": 2e-3, "weight_decay": 0.01, "layer_decay": 1.0},
        {},
    ),
}
# Settings whose head begins with zeros; that of the others with a probe.
ZEROS = ("head of zeros", "before")
# The larger encoder has the settings that were in question.
CHOSEN = {
    "dinov2": tuple(SETTINGS),
    "clip": (
        "default",
        "head of zeros",
        "frozen encoder",
        "rate 1e-5",
        "before",
    ),
}


def digits(seed: int, folder: pathlib.Path, count=None) -> data.Dataset:
    """Return digits of scikit-learn."""
    del folder
    from sklearn.datasets import load_digits

    found = load_digits()
    images = (found.images * 255 / 16).astype("uint8")  # (N, 8, 8)
    order = np.random.default_rng(seed).permutation(len(images))
    count = count or TRAIN["digits"]
    parts = np.split(order, [count, count + TEST])[:2]
    return _gray([(images[x], found.target[x]) for x in parts])


def fashion_mnist(seed: int, folder: pathlib.Path, count=None) -> data.Dataset:
    """Return images of Fashion-MNIST, of its train and its test files."""
    random, parts = np.random.default_rng(seed), []
    known = count or TRAIN["fashion_mnist"]
    for part, count in (("train", known), ("t10k", TEST)):
        images, labels = (
            np.frombuffer(gzip.decompress(file.read_bytes()), "uint8", -1, skip)
            for file, skip in (
                (folder / f"{part}-images-idx3-ubyte.gz", 16),
                (folder / f"{part}-labels-idx1-ubyte.gz", 8),
            )
        )
        chosen = random.permutation(len(labels))[:count]
        parts.append((images.reshape(-1, 28, 28)[chosen], labels[chosen]))
    return _gray(parts)


def _gray(parts) -> data.Dataset:
    parts = [(np.repeat(x[..., None], 3, -1), y) for x, y in parts]
    return _dataset(*parts, [str(i) for i in range(10)])


def photographs(seed: int, folder: pathlib.Path) -> data.Dataset:
    """Return crops of the left halves of photographs, and of the right."""
    del folder
    import skimage.data

    random = np.random.default_rng(seed)
    halves = []
    for side, count in ((0, TRAIN["photographs"]), (1, TEST)):
        labels = np.arange(count) % len(PHOTOGRAPHS)
        images = [
            _crop(getattr(skimage.data, PHOTOGRAPHS[i])(), side, random)
            for i in labels
        ]
        halves.append((np.stack(images), labels))
    return _dataset(halves[0], halves[1], PHOTOGRAPHS)


def _crop(photograph, side, random):
    middle = photograph.shape[1] // 2
    half = photograph[:, :middle] if side == 0 else photograph[:, middle:]
    top, left = (random.integers(0, n - CROP + 1) for n in half.shape[:2])
    return half[top : top + CROP, left : left + CROP]


def _dataset(train_part, test_part, names) -> data.Dataset:
    parts = [
        data.Examples(images, labels.astype("int32"))
        for images, labels in (train_part, test_part)
    ]
    return data.Dataset(parts[0], None, parts[1], tuple(names))


def accuracy(
    weights, image_size, dataset, setting, epochs, seed, folder
) -> dict:
    """Train with a setting; return its accuracies and seconds."""
    optimizer, training = SETTINGS[setting]
    recipe = Recipe(
        model=ModelConfig(
            weights=str(weights),
            image_size=image_size,
            head="new" if setting in ZEROS else None,
        ),
        preprocessing=data.PreprocessingConfig(
            train="squash", evaluation="squash", flip=False
        ),
        optimizer=OptimizerConfig(**optimizer),
        training=TrainingConfig(epochs=epochs, **training),
        run_dir=str(folder),
        seed=seed,
    )
    run = train(recipe, dataset=dataset)
    return {
        "test": evaluated(run, recipe, "test")["top1"],
        "train": run.history["accuracy"][-1],
        "seconds": round(run.seconds, 1),
    }


DATASETS = {
    "digits": digits,
    "fashion_mnist": fashion_mnist,
    "photographs": photographs,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("weights", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--encoders", nargs="+", default=list(SIZES))
    parser.add_argument("--data", nargs="+", default=list(DATASETS))
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS))
    parser.add_argument("--epochs", type=int, help="in place of the default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--fashion_mnist",
        type=pathlib.Path,
        default="/usr/share/datasets/fashion-mnist",
    )
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for encoder in arguments.encoders:
            for name in arguments.data:
                make = DATASETS[name]
                dataset = make(arguments.seed, arguments.fashion_mnist)
                for setting in arguments.settings or CHOSEN[encoder]:
                    found = accuracy(
                        arguments.weights / encoder,
                        SIZES[encoder],
                        dataset,
                        setting,
                        arguments.epochs,
                        arguments.seed,
                        pathlib.Path(folder, f"{len(rows)}"),
                    )
                    case = {"encoder": encoder, "data": name}
                    rows.append({**case, "setting": setting, **found})
                    print(json.dumps(rows[-1]), flush=True)
    write_json(
        arguments.output,
        {
            "command": " ".join(["python", *sys.argv]),
            "backend": keras.backend.backend(),
            "image_sizes": {x: SIZES[x] for x in arguments.encoders},
            "images": {**TRAIN, "test": TEST},
            "epochs": arguments.epochs,
            "seed": arguments.seed,
            "versions": versions(),
            "results": rows,
        },
    )


if __name__ == "__main__":
    main()
