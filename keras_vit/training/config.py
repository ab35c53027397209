"""Options of a training run, as typed records.

A field's docstring is its text in `python recipes/finetune.py --help`.
"""

import dataclasses

from keras_vit.data import (
    AugmentationConfig,
    DataConfig,
    PreprocessingConfig,
)
from keras_vit.evaluation.scores_of_classes import CLASS_METRICS
from keras_vit.io.checks import (
    DISTRIBUTIONS,
    PRECISIONS,
    check_at_least,
    check_choice,
    check_limits,
    check_multiple,
    check_positive,
    check_unread,
)
from keras_vit.training.defaults import BETA_2, SCRATCH, with_defaults
from keras_vit.training.model_config import ModelConfig

__all__ = [
    "AugmentationConfig",
    "DataConfig",
    "ModelConfig",
    "OptimizerConfig",
    "PreprocessingConfig",
    "Recipe",
    "TrainingConfig",
]


USUAL_BATCH = SCRATCH["batch_size"]  # where none was chosen yet
TRACKERS = ("wandb", "mlflow")
CHOICES = {
    "loss": ("auto", "softmax", "sigmoid", "squared"),
    "trainable": ("all", "head"),
    "class_weight": ("none", "balanced"),
    "precision": PRECISIONS,
    "best_metric": (
        *("auto", "val_accuracy", "val_loss", "val_mae", "val_r2", "val_knn"),
        "val_feature_spread",
        *(f"val_{name}" for name in CLASS_METRICS),
    ),
    "keep": ("best", "last"),
}
# An optimizer, and a schedule, to the fields that it does not read.
OPTIMIZERS = {
    "adamw": ("momentum",),
    "sgd": ("beta_1", "beta_2"),
    "lion": ("momentum", "beta_2"),
    "lamb": ("momentum",),
    "muon": ("momentum",),
    "schedule_free": ("momentum",),
}
SCHEDULES = {
    "cosine": ("end_learning_rate", "timescale"),
    "linear": ("timescale",),
    "constant": ("end_learning_rate", "timescale"),
    "rsqrt": ("end_learning_rate",),
}


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer, and its learning rate at each step."""

    name: str = "adamw"
    """"adamw", or "sgd" with momentum as the paper fine-tunes; "lion" (a
    learning rate of a third to a tenth, a weight decay of 3 to 10 times),
    "lamb" for large batches, "muon" for the matrices of the MLPs and AdamW for
    the rest, and "schedule_free" AdamW, which needs the schedule "constant"."""

    learning_rate: float | None = None
    """Highest learning rate, reached at the end of the warm-up; if null, for
    adamw 0.002 from scratch, 0.0001 with pre-trained weights and 0.0005 for
    LoRA, and for sgd 0.003 with pre-trained weights."""

    schedule: str = "cosine"
    """What follows the linear warm-up: "cosine" to 0, "linear" to
    end_learning_rate, "constant", or "rsqrt", the inverse square root."""

    end_learning_rate: float = 1e-5
    """Learning rate that the linear schedule ends at."""

    timescale: int = 10_000
    """Steps after the warm-up in which the rsqrt schedule falls to
    1 / sqrt(2)."""

    warmup_epochs: float | None = None
    """Length of the warm-up; 5, or half of a training shorter than 10, if
    null."""

    warmup_steps: int | None = None
    """Length of the warm-up in steps; replaces warmup_epochs."""

    cooldown_steps: int = 0
    """Steps at the end in which the learning rate falls linearly to 0."""

    weight_decay: float | None = None
    """Decoupled decay of the kernels, times the learning rate at each step;
    biases, normalisations and position embeddings have none. If null, 0.01,
    and with pre-trained weights 0.05 for adamw and 0 for sgd."""

    clip_norm: float | None = 1.0
    """Largest norm of all gradients together; larger ones are scaled down.
    null clips nothing."""

    momentum: float = 0.9
    """Momentum of sgd."""

    beta_1: float = 0.9
    """Decay of the average of gradients, not of sgd."""

    beta_2: float | None = None
    """Decay of the average of squared gradients, not of sgd and lion; if
    null, 0.999, and 0.95 for the adamw of masked autoencoders."""

    layer_decay: float | None = None
    """Factor of the learning rate from each block to the one below it; 1
    trains all layers alike. The classification layer has the full rate. If
    null, 0.75 for adamw with pre-trained weights of a model with blocks."""

    def __post_init__(self):
        check_choice("optimizer", self.name, OPTIMIZERS)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_positive(
            self, "learning_rate", "clip_norm", "timescale", "layer_decay"
        )
        check_at_least(
            self,
            0,
            "weight_decay",
            "warmup_epochs",
            "warmup_steps",
            "cooldown_steps",
            "end_learning_rate",
        )
        if self.beta_2 == BETA_2 and "beta_2" in OPTIMIZERS[self.name]:
            # A config for adamw may have it, and another optimizer be chosen.
            object.__setattr__(self, "beta_2", None)
        given = ("beta_2",) * (self.beta_2 is not None)
        check_limits(self, 1, "momentum", "beta_1", *given)
        case = f"schedule={self.schedule!r}"
        check_unread(self, case, *SCHEDULES[self.schedule])
        check_unread(self, f"name={self.name!r}", *OPTIMIZERS[self.name])
        if self.name == "schedule_free" and self.schedule != "constant":
            raise ValueError(
                "The average of the weights takes the place of a schedule. "
                f"Received: name='schedule_free', schedule={self.schedule!r}. "
                'Set schedule to "constant".'
            )


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """The length of the training, its loss, and what it writes.

    A step is one update of the weights from batch_size images.
    """

    epochs: int | None = None
    """Passes over the training images; if null, 60 from scratch and 30 with
    pre-trained weights."""

    steps: int | None = None
    """Length of the training in steps; replaces epochs."""

    batch_size: int | None = None
    """Images per step; if null, 64, or as many as fit four times into fewer
    images. The images that fill no batch at the end of an epoch are skipped,
    different ones in each epoch."""

    loss: str = "auto"
    """"softmax" cross-entropy; "sigmoid" cross-entropy of each class
    separately, summed over the classes; "squared" error of numbers, which are
    learned with a mean of 0 and a deviation of 1. "auto" takes softmax for
    one class per image, sigmoid for several, squared for numbers."""

    label_smoothing: float = 0.1
    """Probability that the target spreads evenly over all classes."""

    class_weight: str = "none"
    """"balanced" multiplies the loss of an image by N / (K n) with its class
    having n of the N training images, of K classes; "none" weighs all images
    alike."""

    head_bias: float = 0.0
    """Initial bias of a new classification layer; -10 or -6.9 for the sigmoid
    loss of many classes."""

    trainable: str = "all"
    """"all" layers, or only the classification "head" (a linear probe)."""

    lora_rank: int = 0
    """Rank of low-rank adaptations (LoRA), 4 to 16 as a rule: the dense layers
    of the blocks stay as they are and learn an added product of two matrices
    of that rank. Besides them, only the head is trained. The saved model has
    the products in its weights. 0 for none."""

    lora_alpha: float | None = None
    """The product is multiplied by lora_alpha / lora_rank; null is
    lora_rank."""

    also_train: tuple[str, ...] = ()
    """Layers to train besides the head, where trainable is "head" or with
    LoRA, such as ["encoder_norm"]."""

    precision: str = "float32"
    """"float32", "mixed_bfloat16" or "mixed_float16"; the weights, the
    classification layer and the loss stay in float32."""

    accumulation_steps: int = 1
    """Parts into which the batch of a step is split. Their gradients are
    averaged: less memory, the same update."""

    rematerialize: bool = False
    """Whether the backward pass recomputes the activations of each block
    instead of keeping them: less memory, about a third more time."""

    ema_decay: float = 0.0
    """Decay of a moving average of the weights, which replaces them at the
    end (Polyak averaging; the paper has 0.9999); 0 for none."""

    image_sizes: tuple[int, ...] = ()
    """Progressive resizing: ascending image sizes in pixels, the last of them
    model.image_size, each for an equal part of the training. () trains at
    model.image_size throughout."""

    steps_per_execution: int = 1
    """Batches that one call of the compiled function trains on."""

    evaluate_every_steps: int | None = None
    """Steps between two evaluations on the validation images, a multiple of
    checkpoint_every_steps; null evaluates at each checkpoint."""

    checkpoint_every_steps: int | None = None
    """Steps between two checkpoints; null is one pass over the data."""

    max_hours: float | None = None
    """Hours after which the training writes a checkpoint and ends, in time for
    both, with the exit code of SIGTERM: the same command continues. For
    machines that are lent for so long; each training of a sweep has them anew.
    Null never ends it early."""

    log_every_steps: int = 50
    """Steps between two lines in metrics.jsonl."""

    trackers: tuple[str, ...] = ()
    """Where the config, the metrics, the result and the report go besides the
    run folder: "wandb" (Weights & Biases) and "mlflow", as ["wandb"]. A run
    that resumes goes on in the same run there."""

    keep_checkpoints: int = 2
    """How many of the last checkpoints are kept, besides the best."""

    keep: str = "best"
    """The model of the run, model.keras: "best" is that of the best evaluation
    by best_metric, and "last", or without validation images, that of the last
    step."""

    early_stopping_patience: int | None = None
    """Evaluations without a better best_metric after which the training
    ends; null never ends it early."""

    best_metric: str = "auto"
    """Metric that selects the best model: "val_accuracy", "val_loss",
    "val_mae" or "val_r2" of numbers ("auto": val_mae of numbers, else
    val_accuracy), or one that weighs all classes alike, as scikit-learn
    computes it: "val_balanced_accuracy", "val_macro_f1", "val_auc" or
    "val_average_precision". With one of these, all four are logged, and an
    evaluation takes a second pass over its images. Without labels,
    "val_feature_spread" of DINO, its "auto"."""

    def __post_init__(self):
        check_positive(
            self,
            "epochs",
            "steps",
            "batch_size",
            "accumulation_steps",
            "steps_per_execution",
            "evaluate_every_steps",
            "checkpoint_every_steps",
            "max_hours",
            "log_every_steps",
            "keep_checkpoints",
            "early_stopping_patience",
        )
        for name, choices in CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        for tracker in self.trackers:
            check_choice("trackers", tracker, TRACKERS)
        check_multiple(self, "batch_size", "accumulation_steps")
        check_multiple(self, "evaluate_every_steps", "checkpoint_every_steps")
        check_limits(self, 1, "ema_decay", "label_smoothing")
        self._check_sizes()
        self._check_lora()

    def _check_lora(self):
        rank = self.lora_rank
        if not isinstance(rank, int) or isinstance(rank, bool) or rank < 0:
            raise ValueError(
                "lora_rank must be an int, above 0 for LoRA. Received: "
                f"lora_rank={rank!r}."
            )
        check_positive(self, "lora_alpha")
        if rank and self.trainable == "head":
            raise ValueError(
                'LoRA trains the blocks, and with trainable="head" they are '
                f"left as they are. Received: lora_rank={rank}, trainable="
                '"head". Leave one of them out.'
            )
        if self.lora_alpha is not None and not rank:
            raise ValueError(
                "lora_alpha scales LoRA, of which there is none. Received: "
                f"lora_alpha={self.lora_alpha}, lora_rank=0. Give a rank."
            )
        if self.also_train and self.trainable == "all" and not rank:
            raise ValueError(
                "All layers are trained already. Received: also_train="
                f'{list(self.also_train)}. Set trainable to "head", or give '
                "a lora_rank."
            )

    def _check_sizes(self):
        sizes = list(self.image_sizes)
        if sizes != sorted(set(sizes)) or min(sizes, default=1) < 1:
            raise ValueError(
                "image_sizes must be ascending and above 0. Received: "
                f"image_sizes={self.image_sizes!r}."
            )
        if sizes and self.early_stopping_patience is not None:
            raise ValueError(
                "What is best at one image size need not be at the next. "
                f"Received: image_sizes={self.image_sizes!r}, "
                f"early_stopping_patience={self.early_stopping_patience}. Set "
                "one of them to null."
            )

    @property
    def length(self) -> int:
        """Length of the training in its unit."""
        found = self.epochs if self.steps is None else self.steps
        return SCRATCH["training"]["epochs"] if found is None else found

    @property
    def unit(self) -> str:
        """Unit of the length, "epochs" or "steps"."""
        return "epochs" if self.steps is None else "steps"

    @property
    def micro_batch_size(self) -> int:
        """Images per forward pass: a part of the batch."""
        return (self.batch_size or USUAL_BATCH) // self.accumulation_steps


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The whole run: the same recipe on the same machine, the same result.

    Fields of the optimizer and the training that are null are filled in from
    `keras_vit.training.defaults`, by what the model starts from.

    It has what every recipe reads. A recipe with options of its own has a
    subclass with one more field, which `train` takes as well.
    """

    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    preprocessing: PreprocessingConfig = PreprocessingConfig()
    augmentation: AugmentationConfig = AugmentationConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingConfig = TrainingConfig()

    distribution: str = "auto"
    """Devices to use: "auto" takes all that divide a batch, "single" takes
    one. With jax also "data_parallel", "fsdp" and "model_parallel", with
    tensorflow "mirrored" and "tpu"."""

    seed: int = 0
    """Seed of the initial weights, the order of the images and their
    augmentation."""

    run_dir: str = "runs/finetune"
    """Folder for the results, on a disk or at gs://bucket/folder or
    s3://bucket/folder."""

    overwrite: bool = False
    """Whether a finished run in run_dir may be replaced."""

    smoke: bool = False
    """Whether to try the recipe out: two steps of a tiny model of the same
    kind on the digits, in the folder run_dir with "-smoke" behind it."""

    def __post_init__(self):
        for name, group in with_defaults(self).items():
            object.__setattr__(self, name, group)
        check_at_least(self, 0, "seed")
        check_choice("distribution", self.distribution, DISTRIBUTIONS)
        if self.model.head not in (None, "new"):
            case = f'model.head="{self.model.head}"'
            check_unread(self.training, case, "head_bias")
        self._check_warmup()
        if (
            self.training.class_weight == "balanced"
            and self.data.sampling == "balanced"
        ):
            raise ValueError(
                "Each of them makes up for classes with few images. Received: "
                'training.class_weight="balanced", data.sampling="balanced". '
                "Leave one of them out."
            )

    def _check_warmup(self):
        """Warm-up and length in different units are checked with the data."""
        unit, warmup = "epochs", self.optimizer.warmup_epochs
        if self.optimizer.warmup_steps is not None:
            unit, warmup = "steps", self.optimizer.warmup_steps
        length = self.training.length
        if warmup is None or unit != self.training.unit:
            return
        if warmup >= length:
            raise ValueError(
                "The warm-up must be shorter than the training. Received: "
                f"optimizer.warmup_{unit}={warmup}, training.{unit}={length}."
            )
