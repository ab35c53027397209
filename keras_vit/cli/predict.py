"""Name what is in images."""

import argparse
import csv
import io
import json
import sys

__all__ = ["add_arguments"]

STANDARD_INPUT = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command.

    Args:
        parser: of `keras-vit predict`.

    Example:
        >>> add_arguments(argparse.ArgumentParser())
    """
    parser.set_defaults(run=_run)
    add = parser.add_argument
    add(
        "model",
        help="weights by name (ViT_B16/imagenet), a run folder or a file",
    )
    add(
        "paths",
        nargs="+",
        help="image files and folders of them; - reads paths from standard "
        "input, one a line",
    )
    add("--top", type=int, default=5, help="classes to name (5)")
    add("--format", choices=FORMATS, default="table")
    add("--batch", type=int, default=32, help="images in a step (32)")
    add("--image_size", type=int, help="pixels; that of the weights by default")


def _run(arguments):
    # Help and wrong arguments need no model.
    from keras_vit import prediction

    classifier = prediction.load_classifier(
        arguments.model, arguments.image_size
    )
    found = prediction.predictions(
        classifier,
        prediction.images_of(_paths(arguments.paths)),
        top=arguments.top,
        batch_size=arguments.batch,
    )
    broken = []
    total = None
    if STANDARD_INPUT not in arguments.paths:
        total = sum(1 for _ in prediction.images_of(arguments.paths))
    FORMATS[arguments.format](_readable(_shown(found, total), broken))
    _report(broken)


def _paths(paths):
    for path in paths:
        if path != STANDARD_INPUT:
            yield path
            continue
        for line in sys.stdin:
            if name := line.rstrip("\r\n"):
                yield name


def _shown(found, total):
    """The same, with a progress bar where somebody looks on."""
    if not sys.stderr.isatty():
        yield from found
        return
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(
        console=Console(stderr=True),
        transient=True,
        # What is printed is for whoever reads standard output.
        redirect_stdout=False,
    )
    with bar:
        yield from bar.track(found, total=total, description="Images")


def _readable(found, broken):
    """Those that could be read; the errors of the others are kept."""
    for prediction in found:
        if prediction.error is None:
            yield prediction
        else:
            broken.append(prediction.error)


def _report(broken):
    if len(broken) > 1:
        print(*broken, sep="\n", file=sys.stderr)
        raise ValueError(f"{len(broken)} images could not be read, see above.")
    if broken:
        raise ValueError(broken[0])


def _print_table(found):
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("image", "class", "probability")
    for prediction in found:
        image = prediction.image
        for name, probability in prediction.classes:
            # As text: a name in square brackets is no markup.
            table.add_row(Text(image), Text(name), f"{probability:.1%}")
            image = ""
    if not table.row_count:
        return
    # A file or a pipe has no width: nothing needs to be cut short.
    on_terminal = sys.stdout.isatty()
    output = io.StringIO()
    width = None if on_terminal else 200
    Console(file=output, width=width, force_terminal=on_terminal).print(table)
    print(output.getvalue(), end="")


def _print_json(found):
    objects = [
        {
            "image": prediction.image,
            "classes": [
                {"class": name, "probability": probability}
                for name, probability in prediction.classes
            ],
        }
        for prediction in found
    ]
    print(json.dumps(objects, indent=2))


def _print_csv(found):
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("image", "rank", "class", "probability"))
    for prediction in found:
        for rank, (name, probability) in enumerate(prediction.classes, 1):
            writer.writerow((prediction.image, rank, name, probability))


FORMATS = {"table": _print_table, "json": _print_json, "csv": _print_csv}
