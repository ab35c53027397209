"""Options of masked patch prediction.

A field's docstring is its text in `python recipes/masked_patch.py --help`.
"""

import dataclasses

from keras_vit.io.checks import check_choice
from keras_vit.training import Recipe

__all__ = ["CELLS", "MaskedPatchConfig", "MaskedPatchRecipe"]

# Target to the rows and columns of the grid that a patch is downsized to.
CELLS = {"mean_colour": 1, "downsized": 4, "pixels": None}


@dataclasses.dataclass(frozen=True)
class MaskedPatchConfig:
    """Which patches are hidden, and what the model predicts of them.

    The defaults are those of "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929), appendix B.1.2.
    """

    target: str = "mean_colour"
    """What the model predicts of a hidden patch: its "mean_colour" in 3 bits
    per channel, 512 classes (8 for grey images); such colours of the patch
    "downsized" to 4x4, 16 at once; or all its "pixels", with their squared
    error as the loss."""

    corruption_rate: float = 0.5
    """Share of the patches of an image that are hidden."""

    mask_rate: float = 0.8
    """Share of the hidden patches whose embedding is replaced by a learned
    one."""

    random_rate: float = 0.1
    """Share of the hidden patches whose embedding is replaced by that of
    another patch of the image; the rest keep theirs."""

    def __post_init__(self):
        check_choice("target", self.target, CELLS)
        if not 0 < self.corruption_rate <= 1:
            raise ValueError(
                "corruption_rate must be above 0 and at most 1. Received: "
                f"corruption_rate={self.corruption_rate!r}."
            )
        rates = self.mask_rate, self.random_rate
        if min(rates) < 0 or sum(rates) > 1 + 1e-9:
            raise ValueError(
                "mask_rate and random_rate must not be negative and add up to "
                f"1 at most. Received: mask_rate={self.mask_rate!r}, "
                f"random_rate={self.random_rate!r}."
            )


@dataclasses.dataclass(frozen=True)
class MaskedPatchRecipe(Recipe):
    """The whole run: the same recipe on the same machine, the same result."""

    masked_patch: MaskedPatchConfig = MaskedPatchConfig()
