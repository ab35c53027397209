"""Commands on images: `audit`, `predict`, `explain`, `embed`, `search`."""

import collections
import contextlib
import csv
import dataclasses
import json
import pathlib
import sys

import numpy as np

from keras_vit.cli.terminal import (
    counted,
    paths_of,
    print_table,
    skipping,
    with_progress,
)
from keras_vit.data.resizing import TTA
from keras_vit.io.atomic_files import (
    as_cell,
    open_page,
    printable,
    replacing,
)
from keras_vit.io.checks import check_installed

__all__ = [
    "add_labels",
    "audit",
    "by_labels",
    "embed",
    "explain",
    "predict",
    "search",
]

DOTS_PER_INCH = 150
PAGE = ".html"
INTERRUPTED = 130  # The exit code of a program that Ctrl-C ended.


def audit(parser):
    """Find duplicates, wrong labels and odd images in a data set."""
    parser.set_defaults(run=_audit)
    add = parser.add_argument
    add(
        "data",
        help="folder of classes, with or without parts, of images without "
        "classes, or a CSV file",
    )
    add(
        "model",
        nargs="?",
        help="weights by name (ViT_B16/imagenet21k), a run folder or a file, "
        "whose embeddings check the labels; pixels do without a model",
    )
    add(
        "-o",
        "--out",
        help="folder to write into (default: DATA_audit)",
    )
    add("--batch", type=int, default=32, help="images per step (32)")
    _add_image_size(add)
    add("--open", action="store_true", help="open the page in the browser")


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
    add(
        "--tta",
        choices=TTA[1:],
        help="average the scores of each image and of its mirror image, or of "
        "ten crops",
    )
    add_labels(add)
    add("--save_labels", help="file to write with what is computed of --labels")
    _add_image_size(add)


def explain(parser):
    """Draw a model's attention to images, as pictures and as a page."""
    parser.set_defaults(run=_explain)
    add = parser.add_argument
    _add_model(add)
    add("images", nargs="+", help="image files and folders of them")
    add("-o", "--out", required=True, help="folder to write into")
    add("--top", type=int, default=OF_ONE["top"], help="classes per image (5)")
    add(
        "--discard_ratio",
        type=float,
        default=OF_ONE["discard_ratio"],
        help="share of the weakest attention that the rollout leaves out (0)",
    )
    add(
        "--head_fusion",
        choices=("mean", "max", "min"),
        default=OF_ONE["head_fusion"],
        help="how the rollout fuses the heads of a layer (mean)",
    )
    add(
        "--checkpoints",
        action="store_true",
        help="of a run: the attention and the patches after each of its "
        "checkpoints",
    )
    add(
        "--texts",
        nargs="+",
        help="of an image-text model: where in the images texts are, such as "
        '"a red car"',
    )
    add("--open", action="store_true", help="open the page in the browser")
    _add_image_size(add)


def _add_model(add):
    add(
        "model",
        help="weights by name (ViT_B16/imagenet), a run folder or a file",
    )


def _add_image_size(add):
    add(
        "--image_size",
        type=int,
        help="pixels (default: the size of the weights)",
    )


def _explain(arguments):
    # Help and wrong arguments need no model.
    from keras_vit.explanation import explain

    if arguments.checkpoints or arguments.texts:
        _show(_explain_otherwise(arguments), arguments)
        return
    page = explain(
        arguments.model,
        arguments.images,
        arguments.out,
        top=arguments.top,
        discard_ratio=arguments.discard_ratio,
        head_fusion=arguments.head_fusion,
        image_size=arguments.image_size,
        name=arguments.model,
    )
    _show(page, arguments)


def _explain_otherwise(arguments):
    """Explain the checkpoints of a run, or texts; return the page."""
    from keras_vit.explanation import explain_texts
    from keras_vit.runs.explained_checkpoints import explain_checkpoints

    model, images, out = arguments.model, arguments.images, arguments.out
    what = "--checkpoints" if arguments.checkpoints else "--texts"
    given = [x for x in OF_ONE if getattr(arguments, x) != OF_ONE[x]]
    given += ["texts"] if arguments.checkpoints and arguments.texts else []
    if given:
        raise ValueError(
            f"{what} does not read {', '.join(given)}. Leave it out."
        )
    if arguments.checkpoints:
        return explain_checkpoints(model, images, out)
    return explain_texts(model, images, arguments.texts, out)


def _show(page, arguments):
    print(page)
    if arguments.open:
        open_page(page)


# Options of an explanation of one model, and their defaults.
OF_ONE = {
    "top": 5,
    "discard_ratio": 0.0,
    "head_fusion": "mean",
    "image_size": None,
}


def _audit(arguments):
    # Help and wrong arguments need no model.
    from keras_vit.auditing import audit

    found = audit(
        arguments.data,
        arguments.model,
        arguments.out,
        image_size=arguments.image_size,
        batch_size=arguments.batch,
        track=with_progress,
    )
    counts = collections.Counter(x.finding for x in found.findings)
    rows = [(kind, str(count)) for kind, count in counts.items()]
    print_table(("finding", "images"), rows)
    for note in found.notes:
        print(printable(note))
    print(found.page)
    print(found.table)
    if arguments.open:
        open_page(found.page)


def _predict(arguments):
    from keras_vit.prediction import images_of, load_classifier, predictions

    if arguments.save_labels and arguments.labels is not None:
        classifier = _saving_labels(arguments)
    else:
        classifier = by_labels(arguments, arguments.save_labels)
        classifier = classifier or load_classifier(
            arguments.model, arguments.image_size
        )
    classifier = dataclasses.replace(classifier, tta=arguments.tta)
    found = predictions(
        classifier,
        images_of(paths_of(arguments.paths)),
        top=arguments.top,
        batch_size=arguments.batch,
    )
    found = with_progress(found, counted(arguments.paths))
    write = FORMATS[arguments.format]
    columns = COLUMNS.get(classifier.problem, COLUMNS["classification"])
    with skipping(found, lambda prediction: prediction.error) as readable:
        write(readable, columns)


def add_labels(add):
    """Add the options of a command that takes classes by words."""
    add(
        "--labels",
        help="classes by words, of an image-text model: a text file with one a "
        "line, what predict --save_labels wrote, or imagenet for CLIP's names "
        "of its 1,000 classes",
    )
    add(
        "--template",
        help='sentence with {} for the class ("a photo of a {}."), or openai '
        "or openai_best for those of CLIP",
    )


def by_labels(arguments, save_labels=None):
    """Load the classifier of --labels, None without."""
    if arguments.labels is None and not arguments.template and not save_labels:
        return None
    if arguments.labels is None:
        raise ValueError(
            "--template and --save_labels are of labels. Received: no "
            "--labels. Give the file that names the classes."
        )
    from keras_vit.prediction import load_zero_shot

    return load_zero_shot(
        arguments.model,
        arguments.labels,
        arguments.template,
        image_size=arguments.image_size,
    )


def _saving_labels(arguments):
    """Load the classifier of --labels, and write what it computed of them."""
    from keras_vit.prediction.by_labels import load_zero_shot, words_of
    from keras_vit.text.zero_shot import checked_path

    path = checked_path(arguments.save_labels)
    labels = words_of(arguments.model, arguments.labels, arguments.template)
    labels.save(path)
    return load_zero_shot(
        arguments.model, labels, image_size=arguments.image_size
    )


# Kind of problem -> what its answers are called and how one is shown.
COLUMNS = {
    "classification": ("classes", "class", "probability", ".1%"),
    "regression": ("numbers", "name", "number", ".6g"),
}


def _print_table(found, columns):
    _, *names, form = columns
    rows = []
    for prediction in found:
        image = prediction.image
        for name, value in prediction.classes:
            rows.append((image, name, format(value, form)))
            image = ""
    if rows:
        print_table(("image", *names), rows)


def _print_json(found, columns):
    answers, *names, _ = columns
    objects = [
        {
            "image": prediction.image,
            answers: [
                dict(zip(names, answer, strict=True))
                for answer in prediction.classes
            ],
        }
        for prediction in found
    ]
    print(json.dumps(objects, indent=2))


def _print_csv(found, columns):
    _, *names, _ = columns
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("image", "rank", *names))
    for prediction in found:
        for rank, (name, probability) in enumerate(prediction.classes, 1):
            cells = (printable(prediction.image), rank, printable(name))
            writer.writerow((*map(as_cell, cells), probability))


FORMATS = {"table": _print_table, "json": _print_json, "csv": _print_csv}


def embed(parser):
    """Compute embeddings of images and write them to a file."""
    parser.set_defaults(run=_embed)
    add = parser.add_argument
    add(
        "model",
        help="weights by name (ViT_B16/imagenet21k), a run folder or a file",
    )
    add(
        "paths",
        nargs="+",
        help="image files and folders of them; - reads paths from standard "
        "input, one per line",
    )
    add(
        "-o",
        "--out",
        required=True,
        help="file to write, .npz or .parquet; images that it holds are "
        "skipped",
    )
    add(
        "--kind",
        choices=("pooled", "tokens", "features"),
        default="pooled",
        help="one vector per image, or all tokens (pooled)",
    )
    add(
        "--features",
        dest="kind",
        action="store_const",
        const="features",
        help="of an image-text model the vector before the projection that "
        "texts are compared with",
    )
    add(
        "--blocks",
        type=int,
        nargs="+",
        help="features after these blocks, from 0, -1 for the last; those of "
        "the model's output by default",
    )
    add("--batch", type=int, default=32, help="images per step (32)")
    add(
        "--image_size",
        type=int,
        help="pixels (default: the size of the weights)",
    )


def search(parser):
    """Find the images that are most similar to others, or to words."""
    parser.set_defaults(run=_search)
    add = parser.add_argument
    add("embeddings", help="file of `keras-vit embed`")
    add(
        "queries",
        nargs="+",
        help="image files and folders of them; of an image-text model words, "
        'such as "a red car"',
    )
    add("--model", help="the model of the embeddings, if it has moved")
    add("--top", type=int, default=9, help="images per query (9)")
    add(
        "-o",
        "--out",
        help="what to write: a page, hits.html, or a picture, hits.png",
    )


def _embed(arguments):
    # Help and wrong arguments need no model.
    from keras_vit.prediction import as_encoder, embed_files, images_of
    from keras_vit.prediction.embeddings_file import check_file, known_files

    path = check_file(arguments.out)
    encoder = as_encoder(
        arguments.model,
        kind=arguments.kind,
        blocks=arguments.blocks,
        image_size=arguments.image_size,
    )
    known = known_files(path)
    total = counted(arguments.paths, lambda x: x not in known)
    files = images_of(paths_of(arguments.paths))
    found = embed_files(encoder, files, path, batch_size=arguments.batch)
    try:
        # Closed, it writes what it has, wherever it is interrupted.
        with contextlib.closing(found):
            images = with_progress(found, total)
            with skipping(images, lambda image: image[1]) as readable:
                count = sum(1 for _ in readable)
                print(f"{path}: {count} new images")
    except KeyboardInterrupt:
        print(
            "keras-vit: interrupted; the same command continues.",
            file=sys.stderr,
        )
        raise SystemExit(INTERRUPTED) from None


def _search(arguments):
    from keras_vit.prediction import embed, images_of
    from keras_vit.prediction.embeddings_file import load_search

    path = arguments.embeddings
    out = _picture(arguments.out)
    found = load_search(path, arguments.model)
    known = found.embeddings
    words = [x for x in arguments.queries if _is_text(x)]
    paths = [x for x in arguments.queries if x not in words]
    queries = [*words, *images_of(paths)]
    vectors = [found.words(words)] if words else []
    if len(queries) > len(words):
        vectors.append(embed(found.encoder, queries[len(words) :]))
    numbers, scores = found.nearest(np.concatenate(vectors), arguments.top)
    print_table(
        ("query", "rank", "image", "cosine"),
        _rows(queries, known.files, numbers, scores),
    )
    if out is not None:
        hits = _hits(path, queries, known.files, numbers, scores)
        if out.suffix == PAGE:
            _write_page(out, hits, pathlib.Path(path).name)
        else:
            _draw(out, hits)
        print(out)


def _is_text(query):
    """Return whether a query is words, and no image or folder of them."""
    from keras_vit.data.image_folders import SUFFIXES

    name = query.lower()
    image = name.endswith(tuple(SUFFIXES)) or "://" in name
    return not image and not pathlib.Path(query).expanduser().exists()


def _picture(path):
    """Return the path of a page or picture that can be written, or None."""
    if path is None:
        return None
    path = pathlib.Path(path).expanduser()
    if path.suffix == PAGE and path.parent.is_dir() and not path.is_dir():
        check_installed("A page", "jinja2", "matplotlib")
        return path
    check_installed("A picture of the neighbours", "matplotlib")
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in kinds or not path.parent.is_dir():
        raise ValueError(
            "What is written is a page such as page.html, or a picture such as "
            "page.png, in a folder that exists. Received: "
            f"{str(path)!r}. Pictures end in {', '.join(sorted(kinds))}."
        )
    return path


def _rows(queries, files, numbers, scores):
    for query, found, values in zip(queries, numbers, scores, strict=True):
        name = query
        pairs = zip(found, values, strict=True)
        for rank, (number, value) in enumerate(pairs, 1):
            yield name, str(rank), files[number], f"{value:.4f}"
            name = ""


def _hits(path, queries, known, numbers, scores):
    """Return the picture of each query, and its hits (name, picture, score)."""
    folder = pathlib.Path(path).expanduser().parent
    return [
        (
            (query, _pixels(query, folder)),
            [
                (known[i], _pixels(known[i], folder), float(score))
                for i, score in zip(row, values, strict=True)
            ],
        )
        for query, row, values in zip(queries, numbers, scores, strict=True)
    ]


def _draw(out, hits):
    """Draw a row of pictures for each query."""
    from keras_vit.analysis import plot_neighbours

    figure = plot_neighbours(
        [(pathlib.Path(x).name, picture) for (x, picture), _ in hits],
        [
            [(pathlib.Path(x).name, *rest) for x, *rest in found]
            for _, found in hits
        ],
    )
    with replacing(out) as temporary:
        figure.savefig(temporary, dpi=DOTS_PER_INCH)


def _write_page(out, hits, name):
    """Write a page with a row of hits for each query."""
    from keras_vit.analysis import report

    rows = []
    for (query, shown), found in hits:
        cells = [] if shown is None else [(query, "query", shown)]
        for rank, (file, picture, score) in enumerate(found, 1):
            cells.append((file, f"{rank}. cosine {score:.4f}", picture))
        rows.append((query, cells))
    report.write_rows(
        out,
        f"Search of {printable(name)}",
        "Similar images",
        rows,
        kind="search",
        facts=(f"{len(hits)} queries", f"{len(hits[0][1])} hits each"),
    )


def _pixels(file, folder) -> np.ndarray | None:
    """Read an image by its path, as given or from a folder; None if gone."""
    from keras_vit.prediction.images import read_pixels

    for path in (pathlib.Path(file), folder / file):
        try:
            return read_pixels(str(path), 3)
        except ValueError:
            continue
    return None
