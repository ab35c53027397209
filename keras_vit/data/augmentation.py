"""How to vary training images, as a typed record.

A field's docstring is its text in `--help` of a recipe.
"""

import dataclasses

from keras_vit.data.checks import check_at_least, check_fraction, check_limits

__all__ = ["AugmentationConfig"]


@dataclasses.dataclass(frozen=True)
class AugmentationConfig:
    """How training images are varied; zero everywhere leaves them as is.

    Raises:
        ValueError: for values out of range.

    Example:
        >>> light = AugmentationConfig(
        ...     rand_augment_layers=2, rand_augment_magnitude=10,
        ...     mixup_alpha=0.2,
        ... )  # "light2" of AugReg, arXiv 2106.10270, section 3.3.
    """

    shift: float = 0.0
    """Largest random shift along each axis, as a fraction of the side."""

    rotation: float = 0.0
    """Largest random angle to either side, in degrees below 180."""

    zoom: float = 0.0
    """Largest relative change of size: 0.1 draws factors in [0.9, 1.1]."""

    rand_augment_layers: int = 0
    """l of RandAugment(l, m): operations that an image goes through."""

    rand_augment_magnitude: float = 10.0
    """m of RandAugment(l, m): their strength, 10 is the whole range."""

    mixup_alpha: float = 0.0
    """Mixup: images of a batch are mixed with their neighbours at a weight
    drawn from Beta(alpha, alpha), labels as well; 0 for none."""

    cutmix_alpha: float = 0.0
    """CutMix: a box of an image is replaced by another image's, its area
    drawn from Beta(alpha, alpha), alpha at most 1, labels as well; 0 for
    none."""

    random_erasing_rate: float = 0.0
    """Probability that a box of an image is filled with noise."""

    keras_cv: str | None = None
    """Name of a layer in keras_cv.layers to run on batches instead; its
    random numbers are its own, so that a resumed run differs."""

    keras_cv_arguments: dict | None = None
    """Arguments of that layer; value_range is (0, 255) where it takes one."""

    def __post_init__(self):
        check_limits(self, 1, "shift", "zoom")
        check_limits(self, 180, "rotation")
        check_at_least(
            self,
            0,
            "rand_augment_layers",
            "rand_augment_magnitude",
            "mixup_alpha",
        )
        # Keras's CutMix takes no parameter above 1.
        check_fraction(self, "cutmix_alpha", "random_erasing_rate")
        if self.mixup_alpha and self.cutmix_alpha:
            raise ValueError(
                "Mixup and CutMix both mix the labels: set mixup_alpha or "
                f"cutmix_alpha to 0. Received: mixup_alpha={self.mixup_alpha}"
                f", cutmix_alpha={self.cutmix_alpha}."
            )
