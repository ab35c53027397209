"""The points of the paper's figures, and what reproduces them.

Where a figure draws what a table prints, the number is that of the table.
The others have no printed number.
"""

import dataclasses
import statistics

from vtab.tasks import GROUPS, PAPER, TASKS

from paper import values_table as values
from paper.cells import Cell, Command, pre_trained, run_cell, vtab_runs
from paper.scaling_table import FIGURE_8
from paper.tables import (
    SEEDS,
    SOURCES,
    few_shot_cell,
    mean_of_five,
    table_5,
    transfer_cell,
)

__all__ = ["FIGURES"]

SUBSETS = {
    "9M": 9_000_000,
    "30M": 30_000_000,
    "90M": 90_000_000,
    "300M": None,
}
# ViT-b is ViT-B with all hidden sizes halved.
SMALL_B = (
    ("model.hidden_dim", "384"),
    ("model.mlp_dim", "1536"),
    ("model.num_heads", "6"),
    ("model.representation_dim", "384"),
)
MODELS_4 = {
    "ViT-b/32": ("ViT-B/32", "half", SMALL_B),
    "ViT-B/32": ("ViT-B/32", "", ()),
    "ViT-L/32": ("ViT-L/32", "", ()),
    "ViT-L/16": ("ViT-L/16", "", ()),
    "R50x1": ("R50x1", "", ()),
    "R152x2": ("R152x2", "", ()),
}
HEAD_DIM = 64  # Of figure 8; the paper prints no number of heads there.
SIZES_8 = ("num_layers", "hidden_dim", "mlp_dim", "patch_size")
LINES_9 = {
    "class token": ("token", ("8e-4",)),
    "mean of the patches": ("mean", ("8e-4", "3e-4")),
}
AXIAL = (
    ("model.variant.attention", "axial"),
    ("model.pooling", "mean"),  # It has no class token.
)
LINES_13 = (
    ("ViT-B/32", "full", ()),
    ("ViT-B/32", "axial", AXIAL),
    ("ViT-B/16", "full", ()),
    ("ViT-B/16", "axial", AXIAL),
    ("R50x1", "none", ()),
)


def figure_2() -> list[Cell]:
    """VTAB-1k by groups of tasks."""
    cells = []
    for row, (dataset, model) in SOURCES.items():
        source = pre_trained(dataset, model)
        commands = vtab_runs(source, SEEDS)
        tasks = list(zip(TASKS.values(), PAPER[row], strict=True))
        for group in GROUPS:
            printed = [value for task, value in tasks if task.group == group]
            cells.append(
                run_cell(
                    "figure2",
                    row,
                    group,
                    statistics.fmean(printed),
                    source,
                    commands,
                    f"groups:{group}",
                    seeds=SEEDS,
                    note="the paper's is the mean of Table 9",
                )
            )
    return cells


def figure_3() -> list[Cell]:
    """Accuracy on ImageNet by the data set of pre-training."""
    return [
        dataclasses.replace(cell, table="figure3", note="the number of Table 5")
        for cell in table_5()
        if cell.row.endswith(", ImageNet")
    ]


def figure_4() -> list[Cell]:
    """Few-shot accuracy by the size of the pre-training set."""
    cells = []
    for row, (model, variant, options) in MODELS_4.items():
        for column, images in SUBSETS.items():
            name, limited = variant, options
            if images is not None:
                name = f"{variant}_{column}".lstrip("_")
                limited = (*options, ("data.max_examples", str(images)))
            source = pre_trained(
                "JFT-300M", model, 7, variant=name, options=limited
            )
            note = "the paper stops early and prints no number"
            cells.append(
                few_shot_cell("figure4", row, column, None, source, note)
            )
    return cells


def figure_5() -> list[Cell]:
    """Five data sets and ImageNet, over the compute of pre-training."""
    cells = []
    for (model, epochs), printed in values.TABLE_6.items():
        compute = f"{printed[values.EXAFLOPS]} exaFLOPs"
        row = f"{model}, {epochs} epochs, {compute}"
        source = pre_trained("JFT-300M", model, epochs)
        mean = statistics.fmean(printed[name] for name in values.FIVE)
        note = "the paper's is the mean of Table 6"
        cells.append(
            mean_of_five("figure5", row, values.MEAN, mean, source, note)
        )
        paper, note = printed["ImageNet"], "the number of Table 6"
        cells.append(
            transfer_cell("figure5", row, "ImageNet", paper, source, note=note)
        )
    return cells


def figure_8() -> list[Cell]:
    """Depth, width, MLP and patches scaled one at a time."""
    cells = []
    for name, model in FIGURE_8.items():
        sizes = {field: model[field] for field in SIZES_8}
        sizes["num_heads"] = sizes["hidden_dim"] // HEAD_DIM
        sizes["representation_dim"] = sizes["hidden_dim"]
        options = tuple(
            (f"model.{field}", str(size)) for field, size in sizes.items()
        )
        source = pre_trained(
            "JFT-300M", "ViT-L/32", 7, variant=name, options=options
        )
        note = "our points; the paper prints no number"
        row, _, column = name.partition("_")
        cells.append(few_shot_cell("figure8", row, column, None, source, note))
    return cells


def figure_9() -> list[Cell]:
    """Compare the class token and the mean of patches, by learning rate."""
    cells = []
    for row, (pooling, rates) in LINES_9.items():
        for rate in rates:
            plain = (pooling, rate) == ("token", "8e-4")
            options = (
                ("model.pooling", pooling),
                ("optimizer.learning_rate", rate),
            )
            source = pre_trained(
                "JFT-300M",
                "ViT-B/16",
                variant="" if plain else f"{pooling}_{rate}",
                options=() if plain else options,
            )
            note = "the paper draws it by epoch and prints no number"
            cells.append(
                few_shot_cell("figure9", row, rate, None, source, note)
            )
    return cells


def figure_13() -> list[Cell]:
    """Axial attention against full attention (appendix D.6)."""
    cells = []
    for model, attention, options in LINES_13:
        variant = attention if options else ""
        source = pre_trained(
            "JFT-300M", model, variant=variant, options=options
        )
        note = "the paper prints no number"
        cells.append(
            few_shot_cell("figure13", model, attention, None, source, note)
        )
    note = "keras_vit has no AxialResNet"
    return [*cells, Cell("figure13", "R50x1", "axial", None, note=note)]


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


def figure_12() -> list[Cell]:
    """Images per second and the largest batch, by image size."""
    return [
        Cell(
            "figure12",
            model,
            f"{size} pixels",
            None,
            unit="images/s",
            commands=_timed(model, size),
            note="a time of your own machine; the paper prints no number",
        )
        for model, divisor in MODELS.items()
        for size in SIZES
        if size % divisor == 0
    ]


def _timed(model, size):
    words = (model, "--image_size", str(size), "--batch", "1", "8", "64")
    return _by_hand("keras-vit benchmark", *words)


def _by_hand(name, *words):
    options = tuple(("", word) for word in words)
    return (Command("", name, options=options),)


ROLLOUT = "attention rollout"
DISTANCE = "attention distance by head"
SIMILARITY = "similarity of position embeddings"
L16 = "ViT_L16/imagenet21k_imagenet2012"
BY_HAND = "a picture, of images of your own in the place of IMAGES"
UP_TO_32 = f"{BY_HAND}: 32 at most, the paper takes 128"
ANY_IMAGE = "position_similarity.png, the same with any image"
AS_PRE_TRAINED = "of public weights that are not fine-tuned: 7x7 patches"
# Plots what a function of keras_vit.analysis finds in weights; keras-vit
# explain needs a classification layer.
DRAWN = (
    "import keras_vit; from keras_vit import analysis; "
    'model = keras_vit.{model}(weights="imagenet21k", include_top=False); '
    'analysis.plot_{what}(analysis.{what}(model)).savefig("{what}.png")'
)
LESS = (
    ("optimizer.learning_rate", "0.0002"),
    ("optimizer.weight_decay", "0.01"),
)


def _explained(weights, figure):
    out = f"runs/{figure}"
    return _by_hand("keras-vit explain", weights, "IMAGES", "--out", out)


def _trained(figure, model, epochs, name="", options=()):
    """Pre-training, since the weights are not public, and its pictures."""
    source = pre_trained(
        "JFT-300M", model, epochs, variant=name, options=options
    )
    out = f"{figure}/{source.folder.rpartition('/')[2]}"
    return (*source.commands, *_explained(source.weights, out))


def _drawn(model, what):
    return _by_hand("python -c", DRAWN.format(model=model, what=what))


# Figure to its pictures: row, what it shows, commands and a note.
PICTURES = {
    "figure1": (
        (
            "figure1",
            "the layers of the model",
            _by_hand("keras-vit summary", "ViT_B16"),
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


def _pictures(figure):
    """Return a function of the cells of a figure that is pictures."""
    return lambda: [
        Cell(figure, row, what, None, unit="", commands=commands, note=note)
        for row, what, commands, note in PICTURES[figure]
    ]


FIGURES = {
    "figure1": _pictures("figure1"),
    "figure2": figure_2,
    "figure3": figure_3,
    "figure4": figure_4,
    "figure5": figure_5,
    "figure6": _pictures("figure6"),
    "figure7": _pictures("figure7"),
    "figure8": figure_8,
    "figure9": figure_9,
    "figure10": _pictures("figure10"),
    "figure11": _pictures("figure11"),
    "figure12": figure_12,
    "figure13": figure_13,
    "figure14": _pictures("figure14"),
}
