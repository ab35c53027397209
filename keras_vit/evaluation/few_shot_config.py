"""Everything that defines a few-shot evaluation, as a typed record.

A field's docstring is its text in `python recipes/few_shot.py --help`.
"""

import dataclasses

from keras_vit.data import DataConfig
from keras_vit.data.checks import check_at_least, check_choice
from keras_vit.evaluation.config import DISTRIBUTIONS, ModelSource
from keras_vit.evaluation.few_shot import SHOTS

__all__ = ["FewShot"]

CROPS = ("resize_central_crop", "resize_small_central_crop", "squash")


@dataclasses.dataclass(frozen=True)
class FewShot:
    """Linear classifiers of a model's features, on few images a class.

    The defaults are those of big_vision's `evaluators/fewshot_lsr.py`.

    Raises:
        ValueError: for values that are out of range, or no model.

    Example:
        >>> FewShot(model=ModelSource(weights="runs/quickstart")).l2
        1024.0
    """

    model: ModelSource = dataclasses.field(default_factory=ModelSource)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)

    run_dir: str = "runs/few_shot"
    """Folder that the results are written to."""

    smoke: bool = False
    """Whether to try the recipe out: a tiny model without weights on some of
    the digits that ship with scikit-learn."""

    seed: int = 0
    """Seed of the first choice of images; the others follow it."""

    distribution: str = "auto"
    """Where it computes: "auto" takes all devices that divide a batch,
    "single" one. On jax also "data_parallel", "fsdp" and "model_parallel",
    on tensorflow "mirrored" and "tpu"."""

    overwrite: bool = False
    """Whether a finished run in run_dir may be replaced."""

    shots: tuple[int, ...] = SHOTS
    """Images of each class to fit to."""

    num_seeds: int = 3
    """How many choices of images the accuracy is averaged over."""

    l2: float = 1024.0
    """Strength of the regularisation."""

    layer: str | None = None
    """Layer whose output the features are; null is what the classification
    layer sees."""

    crop: str = "resize_central_crop"
    """How images are brought to the size of the model:
    "resize_central_crop", "resize_small_central_crop" or "squash"."""

    batch_size: int = 64
    """Images in a step; the last step is filled up."""

    def __post_init__(self):
        check_choice(self, "distribution", DISTRIBUTIONS)
        check_choice(self, "crop", CROPS)
        check_at_least(self, 0, "seed")
        check_at_least(self, 1, "num_seeds", "batch_size")
        if not self.shots or min(self.shots) < 1 or not self.l2 > 0:
            raise ValueError(
                "shots must be numbers above 0, and l2 above 0. Received: "
                f"shots={self.shots}, l2={self.l2}."
            )
        if self.model.weights is None and not self.smoke:
            raise ValueError(
                "There is no model. Give --model.weights: a run folder, a "
                "file, or a name of `keras-vit weights list`."
            )
