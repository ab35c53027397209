"""`keras-vit predict` and `keras-vit explain`."""

import csv
import json
import sys

from keras_vit.cli.terminal import print_table

__all__ = ["explain", "predict"]

STANDARD_INPUT = "-"


def predict(parser):
    """Classify images."""
    parser.set_defaults(run=_predict)
    add = parser.add_argument
    _add_model(add)
    add(
        "paths",
        nargs="+",
        help="image files and folders of them; - reads paths from standard "
        "input, one per line",
    )
    add("--top", type=int, default=5, help="classes per image (5)")
    add("--format", choices=FORMATS, default="table")
    add("--batch", type=int, default=32, help="images per step (32)")
    _add_image_size(add)


def explain(parser):
    """Draw a model's attention to images, as pictures and as a page."""
    parser.set_defaults(run=_explain)
    add = parser.add_argument
    _add_model(add)
    add("images", nargs="+", help="image files and folders of them")
    add("-o", "--out", required=True, help="folder to write into")
    add("--top", type=int, default=5, help="classes per image (5)")
    add(
        "--discard_ratio",
        type=float,
        default=0.0,
        help="share of the weakest attention that the rollout leaves out (0)",
    )
    add(
        "--head_fusion",
        choices=("mean", "max", "min"),
        default="mean",
        help="how the rollout fuses the heads of a layer (mean)",
    )
    _add_image_size(add)


def _add_model(add):
    add(
        "model",
        help="weights by name (ViT_B16/imagenet), a run folder or a file",
    )


def _add_image_size(add):
    add("--image_size", type=int, help="pixels; that of the weights by default")


def _explain(arguments):
    # Help and wrong arguments need no model.
    from keras_vit.explanation import check_folder, explain
    from keras_vit.prediction import load_classifier

    check_folder(arguments.out)
    page = explain(
        load_classifier(arguments.model, arguments.image_size),
        arguments.images,
        arguments.out,
        top=arguments.top,
        discard_ratio=arguments.discard_ratio,
        head_fusion=arguments.head_fusion,
        name=arguments.model,
    )
    print(page)


def _predict(arguments):
    from keras_vit.prediction import images_of, load_classifier, predictions

    classifier = load_classifier(arguments.model, arguments.image_size)
    found = predictions(
        classifier,
        images_of(_paths(arguments.paths)),
        top=arguments.top,
        batch_size=arguments.batch,
    )
    total = None
    if STANDARD_INPUT not in arguments.paths:
        total = sum(1 for _ in images_of(arguments.paths))
    broken: list[str] = []
    write = FORMATS[arguments.format]
    write(_readable(_with_progress(found, total), broken))
    if len(broken) > 1:
        print(*broken, sep="\n", file=sys.stderr)
        raise ValueError(f"{len(broken)} images could not be read, see above.")
    if broken:
        raise ValueError(broken[0])


def _paths(paths):
    for path in paths:
        if path != STANDARD_INPUT:
            yield path
            continue
        for line in sys.stdin:
            if name := line.rstrip("\r\n"):
                yield name


def _with_progress(found, total):
    """The same, with a progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield from found
        return
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,  # which has the predictions.
    )
    with bar:
        yield from bar.track(found, total=total, description="Images")


def _readable(found, broken):
    """The predictions; errors are appended to `broken` instead."""
    for prediction in found:
        if prediction.error is None:
            yield prediction
        else:
            broken.append(prediction.error)


def _print_table(found):
    rows = []
    for prediction in found:
        image = prediction.image
        for name, probability in prediction.classes:
            rows.append((image, name, f"{probability:.1%}"))
            image = ""
    if rows:
        print_table(("image", "class", "probability"), rows)


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
