"""Section 4.6 and appendix B.1.2: self-supervision by masked patches."""

from keras_vit.experiments.paper import values_table as values
from keras_vit.experiments.paper.ablations import few_shot_cell
from keras_vit.experiments.paper.cell import Cell
from keras_vit.experiments.paper.command import Command
from keras_vit.experiments.paper.sources import Source, pre_trained
from keras_vit.experiments.paper.tables import transfer_cell

__all__ = ["section_4_6"]

SECTION = "section4.6"
MODEL = "ViT-B/16"
CONFIG = "paper/masked_patch_b16"
FEW_SHOT = "ImageNet, 5 images a class"
NO_NUMBER = "the paper prints no number"
SHORT = (("training.steps", "100000"),)
ON_IMAGENET = (("data.folder", "null"), ("data.name", "imagenet2012"))

# Targets and shares of hidden patches: the folder, the options and what the
# appendix says of them.
SETTINGS = {
    "mean colour, 50 % hidden": ("", (), "it had the best of the targets"),
    "mean colour, 15 % hidden": (
        "15percent",
        (("masked_patch.corruption_rate", "0.15"),),
        "it was slightly worse than 50 %",
    ),
    "4x4 downsized, 50 % hidden": (
        "downsized",
        (("masked_patch.target", "downsized"),),
        "it worked quite well",
    ),
    "pixels by L2, 50 % hidden": (
        "pixels",
        (
            ("masked_patch.target", "pixels"),
            # An error has no accuracy to choose weights by.
            ("training.best_metric", "val_loss"),
        ),
        "it was slightly worse than the colours",
    ),
}


def section_4_6() -> list[Cell]:
    """Masked patches, no pre-training and labels; then targets and shares."""
    fine_tuned = [
        transfer_cell(SECTION, row, "ImageNet", paper, source, note=note)
        for row, paper, source, note in _starts()
    ]
    few_shot = [
        few_shot_cell(
            SECTION,
            row,
            FEW_SHOT,
            None,
            _masked(variant, options),
            f"{NO_NUMBER} ({found}), nor whose features it took: ours are "
            "those of the class token",
        )
        for row, (variant, options, found) in SETTINGS.items()
    ]
    return [*fine_tuned, *few_shot]


def _starts():
    """What ViT-B/16 is fine-tuned on ImageNet from."""
    printed = {
        dataset: columns["ImageNet"][values.TRANSFERRED.index(MODEL)]
        for dataset, columns in values.TABLE_5.items()
    }
    return (
        (
            "from scratch",
            printed["ImageNet"],
            pre_trained("ImageNet", MODEL),
            "the number of Table 5; 2 % behind masked patches in the text",
        ),
        (
            "masked patches on JFT-300M",
            values.MASKED_PATCHES,
            _masked(),
            "",
        ),
        (
            "masked patches on JFT-300M, 100k steps",
            None,
            _masked("100k", SHORT),
            f"{NO_NUMBER}: more steps brought little",
        ),
        (
            "masked patches on ImageNet, 100k steps",
            None,
            _masked("100k", (*ON_IMAGENET, *SHORT), "imagenet"),
            f"{NO_NUMBER}, nor of steps: the gain was similar",
        ),
        (
            "supervised on JFT-300M",
            printed["JFT-300M"],
            pre_trained("JFT-300M", MODEL),
            "the number of Table 5; 4 % ahead of masked patches in the text",
        ),
    )


def _masked(variant="", options=(), dataset="jft300m"):
    name = MODEL.replace("/", "")
    folder = f"{dataset}/{name}_masked{variant and f'_{variant}'}"
    run = f"{folder}/pretraining"
    command = Command(run, "masked_patch", CONFIG, options, hardware="cluster")
    return Source(folder, weights=f"@{run}", commands=(command,))
