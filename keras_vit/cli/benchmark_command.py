"""`keras-vit benchmark`."""

import json
import pathlib
import sys
import time

import numpy as np

from keras_vit.cli.model_commands import add_model
from keras_vit.exporting.runtimes_table import FORMATS
from keras_vit.io.atomic_files import replacing
from keras_vit.io.checks import PRECISIONS, check_installed
from keras_vit.io.tables import markdown_table

__all__ = ["benchmark"]

BATCHES = [1, 8, 32]
COMPARED_BATCHES = [1, 8]  # with formats, of which there are many
COLUMNS = (
    "images",
    "first call s",
    "median ms",
    "fastest ms",
    "images/s",
)
COMPARED = ("side", *COLUMNS, "times Keras")


def benchmark(parser):
    """Time a model on this machine, and its exports."""
    parser.set_defaults(run=_benchmark)
    add = parser.add_argument
    add_model(add)
    add("--batch", type=int, nargs="+", help="images (1 8 32; formats: 1 8)")
    add("--repeats", type=int, default=10, help="timed calls of each batch")
    add("--precision", choices=PRECISIONS, default="float32")
    add(
        "--formats",
        nargs="+",
        choices=("all", *FORMATS),
        metavar="FORMAT",
        help="export it and time each file as well, in turns: all or some of "
        + ", ".join(FORMATS),
    )
    add(
        "--output",
        type=pathlib.Path,
        metavar="FILE.json",
        help="with --formats: write the numbers, and a picture, FILE.png",
    )


def _benchmark(arguments):
    from keras_vit.prediction import load_network
    from keras_vit.runtime.machine import environment
    from keras_vit.runtime.platforms import compile_predictions

    default = COMPARED_BATCHES if arguments.formats else BATCHES
    batches = arguments.batch or default
    if min(*batches, arguments.repeats) < 1:
        raise ValueError(
            "--batch and --repeats must be above 0. Received: --batch "
            f"{batches} --repeats {arguments.repeats}."
        )
    _check_output(arguments)
    model = load_network(
        arguments.model,
        image_size=arguments.image_size,
        precision=arguments.precision,
    )
    compile_predictions(model)
    machine = environment()
    measure = _compared if arguments.formats else _alone
    found, lines = measure(arguments, model, batches)
    asked = {"model": arguments.model, "precision": arguments.precision}
    report = json.dumps({**asked, **found, **machine}, indent=2)
    if arguments.output is not None:
        _write(arguments, found, report)
    if arguments.format == "json":
        print(report)
        return
    height, width = model.input_shape[1:3]
    print(f"{arguments.model}, {height}x{width} pixels, {arguments.precision}")
    version = machine["versions"]["keras"]
    print(f"Keras {version} on {machine['backend']}, ", end="")
    print(f"{', '.join(map(str, machine['devices']))}, ", end="")
    print(f"{machine['processors']} processors, {machine['platform']}\n")
    print(*lines, sep="\n")


def _alone(arguments, model, batches):
    rows = [_timed(model, x, arguments.repeats) for x in batches]
    table = markdown_table(COLUMNS, map(_cells, rows), padded=True)
    lines = [
        *table,
        "",
        f"Median of {arguments.repeats} calls of predict_on_batch, pixels",
        "in memory, scores back in memory. The first call compiles.",
    ]
    return {"rows": rows}, lines


def _timed(model, batch, repeats):
    """Seconds of predict_on_batch, which returns when the scores are there."""
    from keras_vit.exporting.comparison import timing

    shape = (batch, *model.input_shape[1:])
    pixels = np.random.default_rng(0).integers(0, 256, shape)
    images = pixels.astype("float32")

    def seconds():
        begin = time.perf_counter()
        model.predict_on_batch(images)
        return time.perf_counter() - begin

    first = seconds()
    return timing(batch, first, [seconds() for _ in range(repeats)])


def _cells(row):
    return (
        str(row["batch"]),
        f"{row['first_call_seconds']:.2f}",
        f"{1000 * row['median_seconds']:.1f}",
        f"{1000 * row['fastest_seconds']:.1f}",
        f"{row['images_per_second']:.1f}",
    )


# --- With formats ---


def _check_output(arguments):
    path = arguments.output
    if path is None:
        return
    if not arguments.formats or path.suffix != ".json":
        raise ValueError(
            "--output is a file *.json, with --formats. Received: --output "
            f"{path} --formats {arguments.formats}."
        )
    if not path.parent.is_dir():
        raise ValueError(f"There is no folder {str(path.parent)!r}.")
    check_installed("The picture", "matplotlib")


def _compared(arguments, model, batches):
    from keras_vit.exporting.comparison import compare
    from keras_vit.prediction import as_classifier

    found = compare(
        as_classifier(model, needs_classes=False),
        arguments.formats,
        batches=batches,
        repeats=arguments.repeats,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    rows = [
        (row["side"], *_cells(row), _share(row["times_keras"]))
        for row in found["rows"]
    ]
    lines = [
        *markdown_table(COMPARED, rows, padded=True),
        "",
        f"Median of {arguments.repeats} calls, in turns, pixels in memory,",
        "scores back in memory; each side in a process of its own.",
        *(
            f"Not installed: {', '.join(formats)}: pip install {packages}"
            for packages, formats in found["missing"].items()
        ),
        *(f"Left out: {x}: {why}" for x, why in found["left_out"].items()),
    ]
    return found, lines


def _share(ratio):
    return "-" if ratio is None else f"{ratio:.2f}"


def _write(arguments, found, report):
    from keras_vit.exporting.comparison import draw

    with replacing(arguments.output) as temporary:
        temporary.write_text(report + "\n", encoding="utf-8")
    picture = arguments.output.with_suffix(".png")
    draw(found, picture, arguments.model)
    print(f"{arguments.output} and {picture}", file=sys.stderr)
