"""The pre-training runs of the paper's Table 2.

Sources: "An Image Is Worth 16x16 Words" (arXiv:2010.11929): Table 2 for
TPUv3-core-days, Table 3 for epochs, Table 6 for exaFLOPs, section 4.1 for the
sizes of the data sets; "Big Transfer" (arXiv:1912.11370), section 3.3, for the
40 epochs of BiT-L. Table 2 has a run of Noisy Student besides, an
EfficientNet that keras_vit does not have.
"""

import dataclasses

from keras_vit.models.sizes import BIT
from keras_vit.planning.counts import bit_multiply_adds, count, vit_config
from keras_vit.planning.devices_table import DEVICES
from keras_vit.planning.duration import FLOPS, PASSES, training_flops

__all__ = ["PaperRun", "paper_runs"]

# Images and classes.
DATASETS = {"JFT-300M": (303e6, 18_291), "ImageNet-21k": (14e6, 21_843)}
# Model, data set, epochs, exaFLOPs (Table 6), core-days (Table 2). Table 3
# has two lengths for L/16 on ImageNet-21k and Table 2 does not say which.
TABLE_2 = [
    ("ViT_H14", "JFT-300M", 14, 4262, 2500),
    ("ViT_L16", "JFT-300M", 14, 1567, 680),
    ("ViT_L16", "ImageNet-21k", 90, None, 230),
    ("ViT_L16", "ImageNet-21k", 30, None, 230),
    ("BiT_R152x4", "JFT-300M", 40, None, 9900),
]
IMAGE_SIZE = 224


@dataclasses.dataclass(frozen=True)
class PaperRun:
    """A run of the paper: our estimate, and what the paper says."""

    model: str
    dataset: str
    epochs: int
    exaflops: float
    """10^18 operations, ours."""
    paper_exaflops: float | None
    core_days: float
    """Of a TPUv3 core, ours, at the assumed share of its peak."""
    paper_core_days: float
    efficiency: float
    """The share of the peak at which ours would equal the paper's."""


def paper_runs(efficiency: float = 0.4) -> list[PaperRun]:
    """Estimates the runs of Table 2.

    Args:
        efficiency: float in (0, 1], the share of the peak that is assumed.

    Returns:
        A `PaperRun` each.

    Raises:
        ValueError: for an efficiency out of range.

    Example:
        >>> round(paper_runs()[0].core_days)
        2004
    """
    if not 0 < efficiency <= 1:
        raise ValueError(
            "efficiency is a share of the peak, above 0 and at most 1. "
            f"Received: efficiency={efficiency}."
        )
    return [_run(efficiency, *row) for row in TABLE_2]


def _run(efficiency, model, dataset, epochs, paper_exaflops, paper_core_days):
    images, classes = DATASETS[dataset]
    flops = _flops(model, classes) * images * epochs
    core_day = DEVICES["v3"].peak_tflops * 1e12 * 86_400
    return PaperRun(
        model,
        dataset,
        epochs,
        flops / 1e18,
        paper_exaflops,
        flops / (core_day * efficiency),
        paper_core_days,
        flops / (core_day * paper_core_days),
    )


def _flops(model, classes):
    if model in BIT:
        size = BIT[model]
        products = bit_multiply_adds(
            size["units"], size["width"], IMAGE_SIZE, classes
        )
        return FLOPS * PASSES * products
    config = vit_config(model, image_size=IMAGE_SIZE, num_classes=classes)
    return training_flops(count(config))
