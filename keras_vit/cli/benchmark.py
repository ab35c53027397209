"""Time a model on this machine."""

import argparse
import json
import statistics
import time

import keras
import numpy as np

from keras_vit.cli.tables import markdown_table
from keras_vit.evaluation.config import PRECISIONS

__all__ = ["add_arguments"]

COLUMNS = ("images", "first call s", "median ms", "fastest ms", "images/s")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command.

    Args:
        parser: of `keras-vit benchmark`.

    Example:
        >>> add_arguments(argparse.ArgumentParser())
    """
    parser.set_defaults(run=_run)
    add = parser.add_argument
    add(
        "model",
        help="an application (ViT_B16), weights by name (ViT_B16/imagenet), a "
        "run folder or a file",
    )
    add("--batch", type=int, nargs="+", default=[1, 8, 32], help="images")
    add("--repeats", type=int, default=10, help="timed calls of each batch")
    add("--image_size", type=int, help="pixels; that of the weights by default")
    add("--precision", choices=PRECISIONS, default="float32")
    add("--format", choices=("table", "json"), default="table")


def _run(arguments):
    from keras_vit.prediction import load_network
    from keras_vit.training.distribution import environment

    if min(*arguments.batch, arguments.repeats) < 1:
        raise ValueError(
            "--batch and --repeats must be above 0. Received: --batch "
            f"{arguments.batch} --repeats {arguments.repeats}."
        )
    model = load_network(
        arguments.model,
        image_size=arguments.image_size,
        precision=arguments.precision,
    )
    rows = [_timed(model, x, arguments.repeats) for x in arguments.batch]
    machine = environment()
    if arguments.format == "json":
        asked = {"model": arguments.model, "precision": arguments.precision}
        print(json.dumps({**asked, "rows": rows, **machine}, indent=2))
        return
    height, width = model.input_shape[1:3]
    print(f"{arguments.model}, {height}x{width} pixels, {arguments.precision}")
    print(f"Keras {keras.__version__} on {machine['backend']}, ", end="")
    print(f"{', '.join(map(str, machine['devices']))}, ", end="")
    print(f"{machine['processors']} processors, {machine['platform']}\n")
    print(*markdown_table(COLUMNS, map(_cells, rows)), sep="\n")
    print(f"\nMedian of {arguments.repeats} calls of predict_on_batch, pixels")
    print("in memory, scores back in memory. The first call compiles.")


def _timed(model, batch, repeats):
    """Seconds of predict_on_batch, which returns when the scores are there."""
    shape = (batch, *model.input_shape[1:])
    pixels = np.random.default_rng(0).integers(0, 256, shape)
    images = pixels.astype("float32")

    def seconds():
        begin = time.perf_counter()
        model.predict_on_batch(images)
        return time.perf_counter() - begin

    first = seconds()
    found = [seconds() for _ in range(repeats)]
    median = statistics.median(found)
    return {
        "batch": batch,
        "first_call_seconds": first,
        "median_seconds": median,
        "fastest_seconds": min(found),
        "images_per_second": batch / median,
    }


def _cells(row):
    return (
        str(row["batch"]),
        f"{row['first_call_seconds']:.2f}",
        f"{1000 * row['median_seconds']:.1f}",
        f"{1000 * row['fastest_seconds']:.1f}",
        f"{row['images_per_second']:.1f}",
    )
