"""Measures what two real encoders are worth on a few hundred images.

    python tools/real_weights.py build weights
    python benchmarks/with_real_weights.py weights \
        --output benchmarks/results/with_real_weights.json \
        --page docs/transfer.md

One row is one run: an encoder, a data set, a way to use the encoder, a seed.
Rows that the output has already are not run again, and a training that was
stopped resumes from its folder in `--runs`; `--rows 3` measures three more. The
page shows what the output has. Each number is the accuracy on 1,000 test
images; nothing is chosen on validation images. Fashion-MNIST is read from the
files of its authors (`--fashion_mnist`; the package dataset-fashion-mnist of
Debian has them).
"""

import argparse
import collections
import functools
import json
import pathlib
import sys
import time
from typing import Any

import keras
import numpy as np
from finetune_defaults import DATASETS as READERS
from finetune_defaults import SIZES, TEST

import keras_vit
from keras_vit import data
from keras_vit.evaluation.probes import fit_linear, fit_neighbours
from keras_vit.io.atomic_files import write_json
from keras_vit.io.tables import markdown_table
from keras_vit.runs import evaluated
from keras_vit.runtime.machine import versions
from keras_vit.training import (
    ModelConfig,
    Recipe,
    TrainingConfig,
    train,
)

IMAGES = {"digits": 200, "fashion_mnist": 300}
EPOCHS = 10
NAMES = {"dinov2": "ViT_S14", "clip": "ViT_B16"}  # the same, from scratch
NEIGHBOURS = 5
LORA_RANK = 8
SQUASH = data.PreprocessingConfig(
    train="squash", evaluation="squash", flip=False
)
KEY = ("encoder", "data", "way", "seed")
LABELS = {
    "pixels": "k-NN of the pixels",
    "k-NN": "frozen, k-NN",
    "probe": "frozen, linear probe",
    "LoRA": f"LoRA of rank {LORA_RANK}",
    "fine-tuned": "fine-tuned",
    "scratch": "from scratch",
}
TEXT = """\
# With real weights

{about}

Two encoders that anyone can rebuild with `tools/real_weights.py`, CLIP's
ViT-B/16 and a DINOv2 ViT-S/14 that was trained further, learn to classify from
{images}. The images are resized to
{sizes} pixels, 16 patches. Test accuracy in per cent on
{test} other images, mean over the seeds, with the standard deviation where
there are several. Trainings take {epochs} epochs with the defaults of
`keras-vit finetune`; nothing is chosen on validation images. "From scratch" is
the same network without weights, with the same number of epochs.

{table}

By `python benchmarks/with_real_weights.py weights` ({versions}). What has not
been measured yet is not shown. Results:
benchmarks/results/with_real_weights.json.
"""


def cases(seeds, encoders, ways):
    """Yield the rows in the order in which they are measured."""
    for seed in seeds:
        for encoder in encoders:
            for name in IMAGES:
                for way in ways:
                    yield dict(
                        zip(KEY, (encoder, name, way, seed), strict=True)
                    )


@functools.lru_cache(maxsize=1)
def read(name, seed, folder):
    return READERS[name](seed, folder, IMAGES[name])


@functools.lru_cache(maxsize=1)  # For both classifiers of frozen features.
def features(weights, size, *source):
    """Return the vectors of both parts: (N, D), (M, D)."""
    dataset = read(*source)
    return [
        keras_vit.embed(
            weights,
            list(part.contents),
            image_size=size,
            preprocessing=SQUASH,
            batch_size=64,
        )
        for part in (dataset.train, dataset.test)
    ]


def flat(weights, size, *source):
    dataset = read(*source)
    return [
        part.contents.reshape(len(part.contents), -1).astype("float32")
        for part in (dataset.train, dataset.test)
    ]


def fitted(vectors, fit):
    """Classify the test images by a classifier of the vectors of others."""

    def measure(case, arguments):
        weights = arguments.weights / case["encoder"]
        size = SIZES[case["encoder"]]
        source = (case["data"], case["seed"], arguments.fashion_mnist)
        known, asked = vectors(weights, size, *source)
        dataset = read(*source)
        scores = fit(known, dataset.train.labels).scores(asked)
        return float(np.mean(scores.argmax(1) == dataset.test.labels))

    return measure


def neighbours(vectors, labels):
    return fit_neighbours(vectors, labels, 10, num_neighbours=NEIGHBOURS)


def linear(vectors, labels):
    return fit_linear(vectors, labels, 10)


def trained(with_weights=True, **training):
    """Train the network, or part of it, and classify the test images."""

    def measure(case, arguments):
        encoder = case["encoder"]
        start: Any = {"name": NAMES[encoder]}
        if with_weights:
            start = {"weights": str(arguments.weights / encoder)}
        run_dir = arguments.runs / "_".join(str(case[x]) for x in KEY)
        recipe = Recipe(
            model=ModelConfig(image_size=SIZES[encoder], **start),
            preprocessing=SQUASH,
            training=TrainingConfig(epochs=EPOCHS, **training),
            run_dir=str(run_dir),
            seed=case["seed"],
        )
        source = (case["data"], case["seed"], arguments.fashion_mnist)
        run = train(recipe, dataset=read(*source))
        return evaluated(run, recipe, "test")["top1"]

    return measure


WAYS = {
    "pixels": fitted(flat, neighbours),
    "k-NN": fitted(features, neighbours),
    "probe": fitted(features, linear),
    "LoRA": trained(lora_rank=LORA_RANK),
    "fine-tuned": trained(),
    "scratch": trained(with_weights=False),
}


def page(found) -> str:
    """Return the page of the rows that were measured."""
    groups = collections.defaultdict(list)
    for row in found["results"]:
        groups[row["encoder"], row["data"], row["way"]].append(row["test"])
    table = []
    for encoder in SIZES:
        for way, label in LABELS.items():
            cells = [_cell(groups[encoder, x, way]) for x in IMAGES]
            if any(cells):
                table.append([encoder, label, *cells])
    seeds = sorted({x["seed"] for x in found["results"]})
    counts = [f"{n} images of {x.replace('_', '-')}" for x, n in IMAGES.items()]
    sizes = [f"{n} ({x})" for x, n in SIZES.items()]
    return TEXT.format(
        about=(
            f"What transfer gives: seeds {', '.join(map(str, seeds))}, "
            f"{len(found['results'])} runs."
        ),
        images=" and ".join(counts),
        sizes=" and ".join(sizes),
        test=TEST,
        epochs=EPOCHS,
        table="\n".join(
            markdown_table(["encoder", "used as", *IMAGES], table, [*IMAGES])
        ),
        versions=f"Keras {found['versions']['keras']}, {found['backend']}",
    )


def _cell(shares) -> str:
    if not shares:
        return ""
    numbers = 100 * np.array(shares)
    spread = f" ± {numbers.std(ddof=1):.1f}" if len(numbers) > 1 else ""
    return f"{numbers.mean():.1f}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("weights", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--page", type=pathlib.Path)
    parser.add_argument(
        "--runs", type=pathlib.Path, default="runs/real_weights"
    )
    parser.add_argument("--rows", type=int, help="at most, of those missing")
    parser.add_argument("--ways", nargs="+", default=[*WAYS], choices=[*WAYS])
    parser.add_argument(
        "--encoders", nargs="+", default=[*SIZES], choices=[*SIZES]
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--fashion_mnist",
        type=pathlib.Path,
        default="/usr/share/datasets/fashion-mnist",
    )
    arguments = parser.parse_args()
    rows = []
    if arguments.output.exists():
        rows = json.loads(arguments.output.read_text())["results"]
    known = [tuple(x[key] for key in KEY) for x in rows]
    missing = [
        x
        for x in cases(arguments.seeds, arguments.encoders, arguments.ways)
        if tuple(x.values()) not in known
    ]
    for case in missing[: arguments.rows]:
        start = time.perf_counter()
        share = WAYS[case["way"]](case, arguments)
        seconds = round(time.perf_counter() - start, 1)
        rows.append({**case, "test": round(share, 4), "seconds": seconds})
        print(json.dumps(rows[-1]), flush=True)
        found = {
            "command": "python benchmarks/with_real_weights.py weights",
            "backend": keras.backend.backend(),
            "images": IMAGES,
            "image_sizes": SIZES,
            "epochs": EPOCHS,
            "versions": versions(),
            "results": rows,
        }
        write_json(arguments.output, found)
    if arguments.page and arguments.output.exists():
        found = json.loads(arguments.output.read_text())
        arguments.page.write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
