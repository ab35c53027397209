"""The model and the options of an evaluation, as typed records.

A field's docstring is its text in `python recipes/evaluate.py --help`.
"""

import dataclasses

from keras_vit.data import DataConfig, PreprocessingConfig
from keras_vit.data.resizing import TTA
from keras_vit.io import checks
from keras_vit.io.checks import (
    PRECISIONS,
    check_at_least,
    check_choice,
    check_types,
    check_unread,
)
from keras_vit.sizes import BIT, MIXER, VIT

__all__ = ["Evaluation", "ModelSource"]

SPLITS = ("test", "validation", "train")
ACTIVATIONS = ("softmax", "sigmoid", "linear")
# Of one process.
DISTRIBUTIONS = tuple(x for x in checks.DISTRIBUTIONS if x != "multiworker")


@dataclasses.dataclass(frozen=True)
class ModelSource:
    """A model to evaluate: its weights, and how it is run."""

    weights: str | None = None
    """A run folder, a file of any known format, or a name of
    `keras-vit weights list`."""

    name: str | None = None
    """Application that weights given by name are for, such as ViT_B16."""

    image_size: int | tuple[int, int] | None = None
    """Images are resized to this; one side or [height, width], in pixels.
    Null is what the weights were trained at."""

    activation: str | None = None
    """What makes probabilities of the scores, "softmax" or "sigmoid", or
    "linear" for scores as they are; null is what the weights were trained
    with."""

    precision: str = "float32"
    """"float32", "mixed_bfloat16" or "mixed_float16"."""

    def __post_init__(self):
        check_types(self)
        check_choice("name", self.name, (None, *VIT, *MIXER, *BIT))
        check_choice("activation", self.activation, (None, *ACTIVATIONS))
        check_choice("precision", self.precision, PRECISIONS)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """One model on one split.

    Without options of `data`, a run folder is evaluated on its own data, and
    without options of `preprocessing` any model as its record says: a run as
    it was validated, the files of others as their publisher prepares images.

    Raises:
        ValueError: for values that are out of range, or no model.

    Example:
        >>> Evaluation(model=ModelSource(weights="runs/quickstart")).batch_size
        256
    """

    model: ModelSource = dataclasses.field(default_factory=ModelSource)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    preprocessing: PreprocessingConfig = dataclasses.field(
        default_factory=PreprocessingConfig
    )

    run_dir: str = "runs/evaluate"
    """Folder that the results are written to, on a disk or at gs://bucket/folder
    or s3://bucket/folder."""

    smoke: bool = False
    """Whether to try the recipe out: a tiny model without weights on some of
    the digits that ship with scikit-learn."""

    seed: int = 0
    """Seed of the weights that smoke draws."""

    distribution: str = "auto"
    """Where it computes: "auto" takes all devices that divide a batch,
    "single" one. On jax also "data_parallel", "fsdp" and "model_parallel",
    on tensorflow "mirrored" and "tpu"."""

    overwrite: bool = False
    """Whether a finished run in run_dir may be replaced."""

    split: str | None = None
    """Which images: "test", "validation" or "train". Null is the test images,
    and all of a folder, a CSV file or shards that are given here and have no
    parts."""

    batch_size: int = 256
    """Images per step; the last step is padded."""

    tta: str | None = None
    """Test-time augmentation: "flip" averages the scores of each image and of
    its mirror image, which takes twice the time; "crops" those of the centre
    and the corners, 7/8 of each side, and their mirror images, ten times the
    time; null does not."""

    labels: str | None = None
    """Classes by words, of an image-text model (zero-shot): a text file with
    one a line, in any order, or what `keras-vit predict --save_labels` wrote.
    With a template alone they are the names of the data's classes."""

    template: str | None = None
    """Sentence with {} for the class, or "openai" or "openai_best" for those of
    CLIP's authors; with labels "a photo of a {}." by default."""

    real_labels: str | None = None
    """Path of real.json, ImageNet's reassessed labels, for a folder of the
    validation images."""

    num_pictures: int = 24
    """How many images, mistakes first, go into the report."""

    def __post_init__(self):
        check_types(self)
        check_choice("split", self.split, (None, *SPLITS))
        check_choice("distribution", self.distribution, DISTRIBUTIONS)
        check_choice("tta", self.tta, TTA)
        check_at_least(self, 1, "batch_size")
        check_at_least(self, 0, "seed", "num_pictures")
        if not self.smoke:
            check_unread(self, "weights", "seed")
        by_words = self.labels is not None or self.template is not None
        alone = self.model.name is None and self.model.precision == "float32"
        if by_words and (self.smoke or not alone):
            raise ValueError(
                "Labels are of an image-text model in float32, by the path or "
                f"name of its weights. Received: smoke={self.smoke}, name="
                f"{self.model.name!r}, precision={self.model.precision!r}. "
                "Leave these out, or labels and template."
            )
        if self.model.weights is None and not self.smoke:
            raise ValueError(
                "There is nothing to evaluate. Give --model.weights: a run "
                "folder, a file, or a name of `keras-vit weights list`."
            )
