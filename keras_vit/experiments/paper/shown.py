"""Figures that a command of keras-vit draws or times, run by hand."""

from collections.abc import Callable

from keras_vit.experiments.paper.cell import Cell
from keras_vit.experiments.paper.command import Command

__all__ = ["pictures", "speeds"]

SIZES = (64, 128, 224, 384, 512)
MODELS = ("ViT_B32", "ViT_B16", "ViT_L32", "ViT_L16", "ViT_H14")
PICTURES = {
    "figure6": ("attention rollout", "ViT_L16"),
    "figure7, centre": ("similarity of position embeddings", "ViT_L32"),
    "figure7, right": ("attention distance", "ViT_L16"),
    "figure11": ("attention distance by head", "ViT_L16"),
    "figure14": ("attention rollout", "ViT_L16"),
}
BY_HAND = "a picture, of images of your own in the place of IMAGES"


def speeds() -> list[Cell]:
    """Images a second and the largest batch, by image size."""
    return [
        Cell(
            "figure12",
            model,
            f"{size} pixels",
            None,
            unit="images/s",
            commands=(_timed("keras-vit benchmark", model, size),),
            note="a time of your own machine; the paper prints no number",
        )
        for model in MODELS
        for size in SIZES
        if size % int(model[-2:]) == 0
    ]


def _timed(name, model, size):
    words = (model, "--image_size", str(size), "--batch", "1", "8", "64")
    return Command("", name, options=tuple(("", word) for word in words))


def pictures(figure: str) -> Callable[[], list[Cell]]:
    """The pictures of a figure.

    Args:
        figure: such as "figure7".

    Returns:
        A function of its `Cell`s.
    """

    def cells() -> list[Cell]:
        return [
            Cell(
                figure,
                place,
                what,
                None,
                unit="",
                commands=(
                    Command(
                        "",
                        "keras-vit explain",
                        options=tuple(
                            ("", word)
                            for word in (
                                f"{model}/imagenet21k_imagenet2012",
                                "IMAGES",
                                "--out",
                                f"runs/{figure}",
                            )
                        ),
                    ),
                ),
                note=BY_HAND,
            )
            for place, (what, model) in PICTURES.items()
            if place.split(",")[0] == figure
        ]

    return cells
