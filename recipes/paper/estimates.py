"""Numbers of the paper that follow from sizes and configs, without a run."""

import dataclasses
import functools
import pathlib

from sweep import SweepRecipe

from keras_vit.planning import count, paper_runs
from keras_vit.planning.estimate import (
    DATASETS,
    FLOPS,
    IMAGE_SIZE,
    PASSES,
    bit_multiply_adds,
    vit_config,
)
from keras_vit.runs.script import parse
from keras_vit.sizes import VIT
from paper.cells import Place

__all__ = ["SIZES", "config_value", "core_days", "exaflops", "size_of"]

SIZES = ("num_layers", "hidden_dim", "mlp_dim", "num_heads", "parameters")

BIT_UNITS = {
    "R50": (3, 4, 6, 3),
    "R101": (3, 4, 23, 3),
    "R152": (3, 8, 36, 3),
    "R200": (3, 24, 36, 3),
}
ROOT_WIDTH = 64
# A hybrid of one token for 16x16 pixels has the units of stage 4 in stage 3.
HYBRID_UNITS = {16: (3, 4, 9), 32: (3, 4, 6, 3)}


def size_of(application: str, column: str) -> float:
    """Return a size of a model in a column of Table 1, one of `SIZES`.

    Parameters are in millions, with 1000 classes.

    Example:
        >>> size_of("ViT_B16", "mlp_dim")
        3072
    """
    if column != "parameters":
        return VIT[application][column]
    config = vit_config(application, image_size=IMAGE_SIZE, num_classes=1000)
    return count(config).parameters / 1e6


def exaflops(model: str, epochs: int) -> float:
    """Operations of a pre-training on JFT-300M, as the paper counts them.

    Args:
        model: name in Table 6, such as "R50x1+ViT-B/16".
        epochs: passes over the data.

    Returns:
        10^18 operations: two per multiply-add, three passes per image.

    Example:
        >>> round(exaflops("ViT-B/32", 7))
        55
    """
    images, classes = DATASETS["JFT-300M"]
    products = _multiply_adds(model, classes)
    return FLOPS * PASSES * products * images * epochs / 1e18


def _multiply_adds(model, classes):
    resnet, _, vit = model.rpartition("+")
    if not vit.startswith("ViT"):
        depth, _, width = vit.partition("x")
        return bit_multiply_adds(
            BIT_UNITS[depth], ROOT_WIDTH * int(width), IMAGE_SIZE, classes
        )
    name, _, patch = vit.removeprefix("ViT-").partition("/")
    config = vit_config(
        f"ViT_{name}{patch}", image_size=IMAGE_SIZE, num_classes=classes
    )
    patch_size = int(patch)
    products = count(config).multiply_adds
    if not resnet:
        return products
    # The embedding sees the features of the ResNet, one pixel per patch.
    units = HYBRID_UNITS[patch_size]
    features = 4 * ROOT_WIDTH * 2 ** (len(units) - 1)
    tokens = (IMAGE_SIZE // patch_size) ** 2
    products += tokens * (features - 3 * patch_size**2) * config.hidden_dim
    return products + bit_multiply_adds(units, ROOT_WIDTH, IMAGE_SIZE, 0)


def core_days(model: str, dataset: str, epochs: int) -> float:
    """TPUv3-core-days of a pre-training, at an assumed 40 % of the peak."""
    wanted = (model, dataset, epochs)
    return next(
        run.core_days
        for run in paper_runs()
        if (run.model, run.dataset, run.epochs) == wanted
    )


def config_value(place: Place, config: str, field: str) -> float | str:
    """Return the value of a field in a config of recipes/configs.

    Args:
        place: where the recipes are.
        config: path below recipes/configs without its suffix.
        field: such as "optimizer.learning_rate".

    Returns:
        The value, or its default; several numbers as text.
    """
    path = pathlib.Path(place.recipes, "configs", f"{config}.yaml")
    group, name = field.split(".")
    found = dataclasses.asdict(_recipe(str(path)))[group][name]
    if isinstance(found, tuple):
        return ", ".join(f"{value:g}" for value in found)
    return found


@functools.cache
def _recipe(path):
    return parse(SweepRecipe, ["--config", path], "")
