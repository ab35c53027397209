"""Figures that a command given by hand draws or times."""

from collections.abc import Callable

from keras_vit.experiments.paper.cell import Cell
from keras_vit.experiments.paper.command import Command
from keras_vit.experiments.paper.sources import pre_trained

__all__ = ["pictures", "speeds"]

SIZES = (64, 128, 224, 384, 512)
# Model to what divides its image sizes; keras_vit has no name for R50x2.
MODELS = {
    "BiT_R50x1": 1,
    "ViT_B32": 32,
    "ViT_L32": 32,
    "ViT_B16": 16,
    "ViT_L16": 16,
    "ViT_H14": 14,
    "BiT_R152x4": 1,
}
ROLLOUT = "attention rollout"
DISTANCE = "attention distance by head"
SIMILARITY = "similarity of position embeddings"
L16 = "ViT_L16/imagenet21k_imagenet2012"
BY_HAND = "a picture, of images of your own in the place of IMAGES"
UP_TO_32 = f"{BY_HAND}: 32 at most, the paper takes 128"
ANY_IMAGE = "position_similarity.png, the same with any image"
AS_PRE_TRAINED = "of public weights that are not fine-tuned: 7x7 patches"
# Draws what a function of keras_vit.analysis finds in weights; keras-vit
# explain takes none without a classification layer.
DRAWN = (
    "import keras_vit; from keras_vit import analysis; "
    'model = keras_vit.{model}(weights="imagenet21k", include_top=False); '
    'analysis.plot_{what}(analysis.{what}(model)).savefig("{what}.png")'
)
LESS = (
    ("optimizer.learning_rate", "0.0002"),
    ("optimizer.weight_decay", "0.01"),
)


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
        for model, divisor in MODELS.items()
        for size in SIZES
        if size % divisor == 0
    ]


def _timed(name, model, size):
    return _by_hand(
        name, model, "--image_size", str(size), "--batch", "1", "8", "64"
    )


def _by_hand(name, *words):
    return Command("", name, options=tuple(("", word) for word in words))


def pictures(figure: str) -> Callable[[], list[Cell]]:
    """The pictures of a figure.

    Args:
        figure: such as "figure7".

    Returns:
        A function of its `Cell`s.
    """
    return lambda: [
        Cell(figure, row, what, None, unit="", commands=commands, note=note)
        for row, what, commands, note in PICTURES[figure]
    ]


def _explained(weights, figure):
    out = f"runs/{figure}"
    return (_by_hand("keras-vit explain", weights, "IMAGES", "--out", out),)


def _trained(figure, model, epochs, name="", options=()):
    """Pre-training, since the weights are not public, and its pictures."""
    source = pre_trained(
        "JFT-300M", model, epochs, variant=name, options=options
    )
    out = f"{figure}/{source.folder.rpartition('/')[2]}"
    return (*source.commands, *_explained(source.weights, out))


def _drawn(model, what):
    return (_by_hand("python -c", DRAWN.format(model=model, what=what)),)


# Figure to its pictures: row, what is seen, commands and a note.
PICTURES = {
    "figure1": (
        (
            "figure1",
            "the layers of the model",
            (_by_hand("keras-vit summary", "ViT_B16"),),
            "the paper's is a drawing; pytest tests/models holds the model "
            "against its equations",
        ),
    ),
    "figure6": (("figure6", ROLLOUT, _explained(L16, "figure6"), BY_HAND),),
    "figure7": (
        (
            "figure7, left",
            "filters of the patch embedding",
            _drawn("ViT_L32", "patch_filters"),
            AS_PRE_TRAINED,
        ),
        (
            "figure7, centre",
            SIMILARITY,
            _drawn("ViT_L32", "position_similarity"),
            AS_PRE_TRAINED,
        ),
        (
            "figure7, right",
            DISTANCE,
            _explained(f"{L16}_224", "figure7"),
            UP_TO_32,
        ),
    ),
    "figure10": (
        (
            "7 epochs, rate 0.0002, decay 0.01",
            SIMILARITY,
            _trained("figure10", "ViT-L/16", 7, "2e-4_0.01", LESS),
            ANY_IMAGE,
        ),
        (
            "7 epochs, rate 0.0004, decay 0.1",
            SIMILARITY,
            _trained("figure10", "ViT-L/16", 7),
            ANY_IMAGE,
        ),
        (
            "14 epochs, rate 0.0004, decay 0.1",
            SIMILARITY,
            _trained("figure10", "ViT-L/16", 14),
            ANY_IMAGE,
        ),
    ),
    "figure11": (
        (
            "ViT-L/16",
            DISTANCE,
            _explained(f"{L16}_224", "figure11/ViT-L16"),
            UP_TO_32,
        ),
        (
            "R50x1+ViT-L/16",
            DISTANCE,
            _trained("figure11", "R50x1+ViT-L/16", 7),
            UP_TO_32,
        ),
    ),
    "figure14": (("figure14", ROLLOUT, _explained(L16, "figure14"), BY_HAND),),
}
