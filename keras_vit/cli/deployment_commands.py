"""Commands that take a model elsewhere: `push`, `serve`, `export`, `page`."""

import argparse

from keras_vit.cli.image_commands import add_labels, by_labels
from keras_vit.cli.terminal import print_table, waiting
from keras_vit.exporting import FORMATS
from keras_vit.exporting.runtimes_table import PRECISIONS

__all__ = [
    "export",
    "page",
    "push",
    "serve",
]

LAYOUTS = [x.layout for x in FORMATS.values() if x.layout]


def push(parser):
    """Share a model or a run on the Hugging Face Hub or on Kaggle."""
    from keras_vit.checkpoints.dialects import LIBRARIES

    add = parser.add_argument
    add("model", help="run folder, file or folder of weights, or their name")
    add("name", help="user/name, or kaggle://user/model/framework/variation")
    add(
        "--format",
        choices=(*(x.format for x in LIBRARIES), "keras"),
        help="of the weights; by default the first that can hold the model",
    )
    add(
        "--texts",
        action="store_true",
        help="share both towers of an image-text model",
    )
    add("--private", action="store_true", help="make a private repository")
    add("--revision", help="branch to upload to, made if need be")
    add("--message", help="commit message")
    add("--license", help="of the model, such as apache-2.0")
    add(
        "--overwrite",
        action="store_true",
        help="replace files that keras-vit did not upload",
    )
    add(
        "--dry_run",
        metavar="DIR",
        help="write and check the folder, and upload nothing",
    )
    parser.set_defaults(run=_push)


def _push(arguments):
    from keras_vit.sharing import push_to_hub

    print(
        push_to_hub(
            arguments.model,
            arguments.name,
            texts=arguments.texts,
            format=arguments.format,
            private=arguments.private or None,
            revision=arguments.revision,
            commit_message=arguments.message,
            license=arguments.license,
            overwrite=arguments.overwrite,
            dry_run=arguments.dry_run,
        )
    )


def serve(parser):
    """Serve a model over HTTP, with a page to try it."""
    parser.set_defaults(run=_serve)
    add = parser.add_argument
    add(
        "model",
        help="weights by name (ViT_B16/imagenet), a run folder or a file",
    )
    add("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    add("--port", type=int, default=8000, help="0 for a free one (8000)")
    add(
        "--image_size",
        type=int,
        help="pixels (default: the size of the weights)",
    )
    add(
        "--allowed_host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which clients may call it, besides that of --host, of "
        "this machine, localhost and addresses in digits; * for all",
    )
    add(
        "--embeddings",
        metavar="FILE",
        help="what keras-vit embed wrote with this model: /search finds images "
        "in it, by words and by images",
    )
    add_labels(add)
    for name, (kind, help_) in LIMITS.items():
        add(f"--{name}", type=kind, help=help_)


# Fields of `ServingLimits`, which has the defaults.
LIMITS = {
    "batch": (int, "images per step of the model (8)"),
    "wait_ms": (float, "how long an image waits for others to join it (0)"),
    "queue": (int, "images in work at a time; others get 503 (256)"),
    "timeout": (float, "seconds before a request gets 504 (30)"),
    "body_mb": (float, "MiB of a request; larger ones get 413 (16)"),
    "bodies_mb": (float, "MiB of all requests; more get 503 (256)"),
    "megapixels": (float, "of an image; larger ones get 413 (50)"),
}


def _serve(arguments):
    # Help and wrong arguments need no model.
    from keras_vit.serving import ServingLimits, serve

    given = {
        name: value
        for name in LIMITS
        if (value := getattr(arguments, name)) is not None
    }
    classifier = by_labels(arguments)
    code = serve(
        classifier or arguments.model,
        host=arguments.host,
        port=arguments.port,
        limits=ServingLimits(**given),
        image_size=None if classifier else arguments.image_size,
        name=classifier and classifier.model.name,
        allowed_hosts=arguments.allowed_host,
        embeddings=arguments.embeddings,
    )
    if code:
        raise SystemExit(code)


def export(parser):
    """Export a model to another runtime, and check what was written."""
    parser.set_defaults(run=_export)
    add = parser.add_argument
    add("model", help="weights by name (ViT_B16/imagenet), a run or a file")
    add("path", help="file to write, or folder of a SavedModel")
    add("--format", choices=FORMATS, help="default: by the suffix of the path")
    add("--precision", choices=PRECISIONS, default="float32")
    add("--batch", type=_batch, default="any", help="images of a call (any)")
    add(
        "--image_size",
        type=int,
        help="pixels (default: the size of the weights)",
    )
    add(
        "--include_preprocessing",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether the file takes pixels in [0, 255] (default: yes)",
    )
    add(
        "--include_resizing",
        action="store_true",
        help="the file takes images of any size, and resizes and crops them",
    )
    add("--images", nargs="+", help="images to compare the classes on")
    add(
        "--validation_images",
        type=int,
        default=0,
        metavar="N",
        help="of a run, to compare classes and accuracy on",
    )
    add(
        "--calibrate",
        action="store_true",
        help="measure the ranges of int8 on --images or the run's images",
    )
    add(
        "--largest_change",
        type=float,
        default=0.02,
        help="largest share of images whose class may change (0.02)",
    )
    add(
        "--texts",
        action="store_true",
        help="write both towers of an image-text model and the tokenizer into "
        "a folder; --format is of both (onnx)",
    )
    add("--layout", choices=LAYOUTS, help="write a folder for this server")
    add_labels(add)


def _batch(text):
    return text if text == "any" else int(text)


def _export(arguments):
    # Help and wrong arguments need no model.
    from keras_vit.exporting.export import export

    options = dict(vars(arguments))
    others = ("run", "verbose", "model", "path", "format", "labels", "template")
    for name in others:
        options.pop(name)
    if options.pop("texts"):
        _export_pair(arguments, options)
        return
    with waiting(f"Writing {arguments.path} and checking it"):
        model = arguments.model
        if (classifier := by_labels(arguments)) is not None:
            model = classifier
            options["image_size"] = None
        record = export(model, arguments.path, arguments.format, **options)
    print_table(("", ""), _rows(record))
    print(arguments.path)


def _export_pair(arguments, options):
    from keras_vit.exporting.export import export_pair

    wrong = [x for x in OF_CLASSES if getattr(arguments, x)]
    if wrong:
        raise ValueError(
            "Two towers are exported without classes, whose words are given "
            f"later. Received: --texts and --{', --'.join(wrong)}."
        )
    with waiting(f"Writing {arguments.path} and checking it"):
        record = export_pair(
            arguments.model,
            arguments.path,
            arguments.format or "onnx",
            precision=options["precision"],
            batch=options["batch"],
            include_preprocessing=options["include_preprocessing"],
            include_resizing=options["include_resizing"],
        )
    for half in ("image", "text"):
        found = record["check"][half]
        print(
            f"{record[half]}: {found['bytes'] / 2**20:.1f} MiB, vectors differ "
            f"by {found['relative_error']:.2g} of their size, "
            f"{found['tolerance']:g} is allowed"
        )
    print(arguments.path)


# Options of `export` that two towers have not.
OF_CLASSES = (
    *("labels", "template", "layout", "images", "validation_images"),
    *("calibrate", "image_size"),
)


def _rows(record):
    """Yield what was checked, for people."""
    check = record["check"]
    yield "format", f"{record['format']}, {record['precision']}"
    yield "size", f"{check['bytes'] / 2**20:.1f} MiB"
    yield (
        "largest difference of the scores",
        f"{check['largest_difference']:.2g}",
    )
    share = f"{check['relative_error']:.2g} of their size"
    yield "difference", f"{share}, {check['tolerance']:g} is allowed"
    if "same_class" in check:
        count = check["images"]
        yield "same class", f"{check['same_class']:.1%} of {count} images"
    if "accuracy" in check:
        both = check["accuracy"], check["model_accuracy"]
        yield "accuracy", "{:.2%}, of the model {:.2%}".format(*both)
    yield f"an image in {check['runtime']}", f"{1000 * check['seconds']:.1f} ms"
    keras_vit = f"{1000 * check['model_seconds']:.1f} ms"
    yield "an image in Keras's predict_on_batch", keras_vit


def page(parser):
    """Write a page that classifies pictures in the browser."""
    parser.set_defaults(run=_page)
    add = parser.add_argument
    add("model", help="ONNX file or folder that keras-vit export wrote")
    add(
        "path", nargs="?", help="page to write (default: vit.html for vit.onnx)"
    )
    add(
        "--runtime",
        help="address of a folder with the files of onnxruntime-web, such as "
        "onnxruntime-web/dist beside the page; a public network by default",
    )
    add_labels(add)


def _page(arguments):
    # Help and wrong arguments need no model.
    from keras_vit.exporting.browser_page import RUNTIME, write_page

    path = write_page(
        arguments.model,
        arguments.path,
        runtime=arguments.runtime or RUNTIME,
        labels=arguments.labels,
        template=arguments.template,
    )
    print(path)
