"""Show what a model sees in images, as pictures and as a page."""

import argparse

__all__ = ["add_arguments"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command.

    Args:
        parser: of `keras-vit explain`.

    Example:
        >>> add_arguments(argparse.ArgumentParser())
    """
    parser.set_defaults(run=_run)
    add = parser.add_argument
    add(
        "model",
        help="weights by name (ViT_B16/imagenet), a run folder or a file",
    )
    add("images", nargs="+", help="image files and folders of them")
    add("-o", "--out", required=True, help="folder to write into")
    add("--top", type=int, default=5, help="classes to name (5)")
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
        help="what the rollout makes of the heads of a layer (mean)",
    )
    add("--image_size", type=int, help="pixels; that of the weights by default")


def _run(arguments):
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
