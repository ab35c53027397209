"""`keras-vit predict` and `keras-vit explain`."""

import csv
import json
import sys

from keras_vit.cli.terminal import (
    counted,
    paths_of,
    print_table,
    skipping,
    with_progress,
)
from keras_vit.io.atomic_files import as_cell, open_page, printable

__all__ = ["explain", "predict"]


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
    add("--open", action="store_true", help="open the page in the browser")
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
        load_classifier(
            arguments.model, arguments.image_size, needs_classes=False
        ),
        arguments.images,
        arguments.out,
        top=arguments.top,
        discard_ratio=arguments.discard_ratio,
        head_fusion=arguments.head_fusion,
        name=arguments.model,
    )
    print(page)
    if arguments.open:
        open_page(page)


def _predict(arguments):
    from keras_vit.prediction import images_of, load_classifier, predictions

    classifier = load_classifier(arguments.model, arguments.image_size)
    found = predictions(
        classifier,
        images_of(paths_of(arguments.paths)),
        top=arguments.top,
        batch_size=arguments.batch,
    )
    found = with_progress(found, counted(arguments.paths))
    write = FORMATS[arguments.format]
    with skipping(found, lambda prediction: prediction.error) as readable:
        write(readable)


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
            cells = (printable(prediction.image), rank, printable(name))
            writer.writerow((*map(as_cell, cells), probability))


FORMATS = {"table": _print_table, "json": _print_json, "csv": _print_csv}
