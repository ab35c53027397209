"""Everything that defines a training run, as typed records.

A field's docstring is its text in `python recipes/finetune.py --help`.
"""

import dataclasses

from keras_vit.data.augment import RandomAffine
from keras_vit.models import ViTConfig
from keras_vit.models.base import check_choice
from keras_vit.training.checks import check_not_negative, check_positive
from keras_vit.training.optimizers import OptimizerConfig

__all__ = [
    "DataConfig",
    "ModelConfig",
    "OptimizerConfig",
    "Recipe",
    "TrainingConfig",
]

POOLINGS = ("token", "mean", "max", "map")  # One answer an image.


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Which images, and which of them are for what."""

    name: str = "digits"
    """Name of the data set; "digits" ships inside scikit-learn."""

    validation_fraction: float = 0.1
    """Share of all images that choices are made on."""

    test_fraction: float = 0.2
    """Share of all images that only the result is computed on."""

    split_seed: int = 0
    """Seed of the split; it stays when the seed of the run changes."""

    def __post_init__(self):
        check_positive(self, "validation_fraction", "test_fraction")
        check_not_negative(self, "split_seed")
        if self.validation_fraction + self.test_fraction >= 1:
            raise ValueError(
                "Nothing is left to train on: validation_fraction="
                f"{self.validation_fraction} and test_fraction="
                f"{self.test_fraction} must add up to less than 1."
            )


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The Vision Transformer, see keras_vit.models.ViTConfig."""

    image_size: int | tuple[int, int] = 16
    """Images are resized to this; one side or [height, width], in pixels."""

    channels: int = 1
    """1 for grey images, 3 for colour."""

    patch_size: int | tuple[int, int] = 4
    """Size of a patch; one side or [height, width], in pixels."""

    hidden_dim: int = 64
    """Size of a token."""

    num_layers: int = 4
    """Number of transformer blocks."""

    mlp_dim: int = 128
    """Hidden size of the MLPs."""

    num_heads: int = 4
    """Attention heads; they divide hidden_dim."""

    pooling: str = "mean"
    """What the classification layer sees: "token" for the class token,
    "mean" or "max" of the patch tokens, "map" for attention pooling."""

    dropout_rate: float = 0.0
    """Probability to drop a feature in training."""

    stochastic_depth_rate: float = 0.0
    """Probability to skip the last block in training; it grows linearly from
    0 for the first."""

    def __post_init__(self):
        if self.channels not in (1, 3):
            raise ValueError(
                "channels must be 1 (grey) or 3 (colour). Received: "
                f"channels={self.channels!r}."
            )
        check_choice("pooling", self.pooling, POOLINGS)
        check_positive(self, "hidden_dim", "num_layers", "mlp_dim")
        self.vit(num_classes=1)

    def vit(self, num_classes: int) -> ViTConfig:
        """The config of the model that takes images in [0, 255].

        Args:
            num_classes: int, number of classes.

        Returns:
            A `ViTConfig` for logits.

        Raises:
            ValueError: for values that do not fit together.

        Example:
            >>> ModelConfig(image_size=32, patch_size=8).vit(10).grid
            (4, 4)
        """
        return ViTConfig(
            **dataclasses.asdict(self),
            class_token=self.pooling == "token",
            num_classes=num_classes,
            include_preprocessing=True,
        )


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How long, and towards what."""

    epochs: int = 60
    """How often each training image is seen."""

    batch_size: int = 64
    """Images in a step; what is left over at the end of an epoch is skipped,
    other images in each epoch."""

    label_smoothing: float = 0.1
    """Probability that the target spreads evenly over all classes."""

    def __post_init__(self):
        check_positive(self, "epochs", "batch_size")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(
                "label_smoothing is a probability and must be at least 0 and "
                f"below 1. Received: label_smoothing={self.label_smoothing!r}."
            )


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A whole run: the same recipe on the same machine, the same result."""

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    augmentation: RandomAffine = dataclasses.field(default_factory=RandomAffine)
    optimizer: OptimizerConfig = dataclasses.field(
        default_factory=OptimizerConfig
    )
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)

    seed: int = 0
    """Seed of the first weights, of the order of the images and of their
    augmentation."""

    run_dir: str = "runs/finetune"
    """Folder that the results are written to."""

    overwrite: bool = False
    """Whether a finished run in run_dir may be replaced."""

    def __post_init__(self):
        check_not_negative(self, "seed")
        if self.optimizer.warmup_epochs >= self.training.epochs:
            raise ValueError(
                "The warm-up must be shorter than the training. Received: "
                f"optimizer.warmup_epochs={self.optimizer.warmup_epochs}, "
                f"training.epochs={self.training.epochs}."
            )
