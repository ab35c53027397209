"""Options of a training run, as typed records.

A field's docstring is its text in `python recipes/finetune.py --help`.
"""

import dataclasses
from typing import Any

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
    check_size,
    check_types,
    check_unread,
)
from keras_vit.models import BiTConfig, MixerConfig, ViTConfig
from keras_vit.sizes import BIT, DIGITS, MIXER, TINY, TINY_MIXER, VIT, VIT_SIZES
from keras_vit.text.templates import templates_of
from keras_vit.training.defaults import BETA_2, SCRATCH, with_defaults
from keras_vit.variants import VariantConfig, VariantTransformerConfig

__all__ = [
    "AugmentationConfig",
    "DataConfig",
    "ModelConfig",
    "OptimizerConfig",
    "PLAIN_VARIANT",
    "PreprocessingConfig",
    "Recipe",
    "TrainingConfig",
    "config_class_of",
    "config_of",
    "options_of",
]


PLAIN_VARIANT = VariantConfig()
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
        check_types(self)
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
        check_types(self)
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
        check_at_least(self, 0, "lora_rank")
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


MODEL_CHOICES = {
    "name": (*VIT, *MIXER, *BIT),
    "head": ("new", "probe", "keep", "words"),
    # One prediction per image; all tokens would be many.
    "pooling": ("token", "mean", "max", "map"),
    "position_embedding": ("learned", "sincos2d"),
    "size": ("full", "tiny"),
}
# Fields that weights have their own of.
SIZES = (*VIT_SIZES["B"], "resnet_width", "resnet_units")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The model, by the name of an application of keras_vit or by its sizes.

    Null fields are as in the named model, or as in the weights.
    """

    name: str | None = None
    """Application of keras_vit, such as ViT_B16, ViT_R50_B16, Mixer_B16 or
    BiT_R50x1; null is the small Vision Transformer of the quick start, or the
    model of the weights."""

    weights: str | None = None
    """Initial weights: a run folder, a file of any known format, a name of
    `keras-vit weights list`, or "fractals", a small model that comes with the
    package; null initializes all weights at random."""

    head: str | None = None
    """"new" replaces the classification layer of the weights, and the layer
    before it, by zeros as the paper does; "probe" by a linear probe of the
    training images, from which all is trained (arXiv:2202.10054); "keep" keeps
    it; "words" makes one of the names of the classes, by the text half of an
    image-text model (arXiv:2109.01903). Null is "probe" where it can be
    fitted, and "new" for very many images, batches of your own, several
    processes or a head_bias."""

    template: str | None = None
    """With head "words", the sentence that the names are put in, or "openai"
    or "openai_best" for those of CLIP; null is "a photo of a {}."."""

    image_size: int | tuple[int, int] | None = None
    """Size of the images, one side or [height, width] in pixels; if null with
    weights, that which their publisher prepares images in, 224 for DINOv2.
    Position embeddings of weights for another size are resampled."""

    channels: int | None = None
    """1 for grey images, 3 for colour."""

    patch_size: int | tuple[int, int] | None = None
    """Size of a patch, one side or [height, width] in pixels."""

    hidden_dim: int | None = None
    """Size of a token."""

    num_layers: int | None = None
    """Number of transformer blocks."""

    mlp_dim: int | None = None
    """Hidden size of the MLPs."""

    num_heads: int | None = None
    """Attention heads; they divide hidden_dim."""

    resnet_units: tuple[int, ...] | None = None
    """Bottleneck units in each stage of the ResNet of a hybrid or a BiT; []
    is the root block alone. The patches of a hybrid are cut from its feature
    map, whose side is a quarter of the image's, halved by each stage after the
    first."""

    resnet_width: int | None = None
    """Channels of the root block of that ResNet, a multiple of 32."""

    pooling: str | None = None
    """Input of the classification layer: "token" for the class token, "mean"
    or "max" of the patch tokens, "map" for attention pooling."""

    position_embedding: str | None = None
    """"learned", or "sincos2d" for fixed sines and cosines."""

    representation_dim: int | None = None
    """Size of a tanh layer before the classification layer, which the paper
    pre-trains with; 0 for none."""

    dropout_rate: float = 0.0
    """Probability to drop a feature in training."""

    stochastic_depth_rate: float = 0.0
    """Probability to skip the last block in training; it increases linearly
    from 0 for the first."""

    variant: VariantConfig = PLAIN_VARIANT
    """Differences from the plain Vision Transformer; weights have a variant of
    their own."""

    size: str = "full"
    """"tiny" is the smallest model of the named kind, to try a recipe out."""

    def __post_init__(self):
        check_types(self)
        if self.weights == "":
            raise ValueError(
                "weights is not empty; an unset variable of the shell is. "
                "Received: weights=''. Leave it out to train from scratch."
            )
        if self.channels not in (1, 3, None):
            raise ValueError(
                "channels must be 1 (grey) or 3 (colour). Received: "
                f"channels={self.channels!r}."
            )
        for name, choices in MODEL_CHOICES.items():
            if getattr(self, name) is not None:
                check_choice(name, getattr(self, name), choices)
        for name in ("image_size", "patch_size"):
            if getattr(self, name) is not None:
                check_size(name, getattr(self, name))
        if any(units < 1 for units in self.resnet_units or ()):
            raise ValueError(
                "Each stage of a ResNet has at least one unit. Received: "
                f"resnet_units={self.resnet_units}. Leave the stage out."
            )
        check_limits(self, 1, "dropout_rate", "stochastic_depth_rate")
        self._check_weights()
        if self.weights is None:
            self.vit(num_classes=1)

    def _check_weights(self):
        given = [x for x in SIZES if getattr(self, x) is not None]
        if self.weights is not None and given:
            raise ValueError(
                "Weights have sizes of their own. Received: weights="
                f"{self.weights!r} and {', '.join(given)}. Leave those out."
            )
        if self.weights is not None:
            check_unread(self, f"weights={self.weights!r}", "size")
        if self.weights is None and self.head not in (None, "new"):
            raise ValueError(
                "There is no head to take without weights. Received: head="
                f"{self.head!r}, weights=None."
            )
        if self.head != "words":
            check_unread(self, f"head={self.head!r}", "template")
            return
        check_unread(self, 'head="words"', "name", "representation_dim")
        if self.template is not None:
            templates_of(self.template)

    def vit(self, num_classes: int):
        """Return the config of the model, see `config_of`.

        Example:
            >>> ModelConfig(image_size=32, patch_size=8).vit(10).grid
            (4, 4)
        """
        return config_of(self, num_classes)


TINY_WIDTH = 32  # GroupNormalization has 32 groups.

# Fields of ModelConfig with another name in the config of a BiT.
OF_BIT = {"resnet_units": "units", "resnet_width": "width"}

# Fields of ModelConfig that are not fields of the model.
ABOUT_WEIGHTS = ("name", "weights", "head", "template", "size")


def config_class_of(
    name: str | None, variant: VariantConfig = PLAIN_VARIANT
) -> type:
    """Return the class of the config of a named model.

    Args:
        name: an application; None is a Vision Transformer.
        variant: see `ModelConfig`.

    Example:
        >>> config_class_of("Mixer_B16").__name__
        'MixerConfig'
    """
    if name in MIXER or name in BIT:
        return MixerConfig if name in MIXER else BiTConfig
    is_plain = variant == PLAIN_VARIANT
    return ViTConfig if is_plain else VariantTransformerConfig


def options_of(model, config_class: type) -> dict:
    """Return the options that differ from the default, as fields of a config.

    Args:
        model: the `ModelConfig` of the recipe.
        config_class: the class of the model's config.

    Raises:
        ValueError: for an option that models of this family do not have.

    Example:
        >>> options_of(ModelConfig(num_heads=2), ViTConfig)
        {'num_heads': 2}
    """
    known = {field.name for field in dataclasses.fields(config_class)}
    options = {}
    for field in dataclasses.fields(model):
        value = getattr(model, field.name)
        if field.name in ABOUT_WEIGHTS or value == field.default:
            continue
        name = field.name if field.name in known else OF_BIT.get(field.name)
        if name not in known:
            raise ValueError(
                f"{model.name} is a "
                f"{config_class.__name__.removesuffix('Config')}, which has no "
                f"{field.name}. Received: model.{field.name}={value!r}."
            )
        options[name] = value
    return options


def config_of(model, num_classes: int, **options) -> Any:
    """Build the config of a model from its name and its options.

    Args:
        model: the `ModelConfig` of the recipe.
        num_classes: number of classes.
        **options: more fields of the config, such as head_bias.

    Returns:
        A `ViTConfig`, `VariantTransformerConfig`, `MixerConfig` or
        `BiTConfig`, for images in [0, 255] and logits.

    Raises:
        ValueError: for values that do not fit together.

    Example:
        >>> config_of(ModelConfig(image_size=32, patch_size=8), 10).grid
        (4, 4)
    """
    config_class = config_class_of(model.name, model.variant)
    fields = {**VIT, **MIXER, **BIT, None: DIGITS}[model.name]
    if model.size == "tiny":
        fields = {**fields, **tiny_fields(fields)}
    fields = {**fields, **options_of(model, config_class), **options}
    if "resnet_width" in fields and fields.get("resnet_units") is None:
        raise ValueError(
            "There is no ResNet before this model. Received: resnet_width="
            f"{fields['resnet_width']}, resnet_units=None. Give both, or "
            "leave it out."
        )
    if issubclass(config_class, ViTConfig):
        pooling = fields.setdefault("pooling", "token")
        fields["class_token"] = pooling == "token"
    return config_class(
        **fields, num_classes=num_classes, include_preprocessing=True
    )


def tiny_fields(fields: dict) -> dict:
    """Return the sizes of the smallest model of the same kind."""
    if "units" in fields:
        return {"units": (1,) * len(fields["units"]), "width": TINY_WIDTH}
    if "resnet_units" in fields:
        units = (1,) * len(fields["resnet_units"])
        return {**TINY, "resnet_units": units, "resnet_width": TINY_WIDTH}
    if "tokens_mlp_dim" in fields:
        return TINY_MIXER
    return {**TINY, "patch_size": (8, 8)}


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
        check_types(self)
        for name, group in with_defaults(self).items():
            object.__setattr__(self, name, group)
        check_at_least(self, 0, "seed")
        check_choice("distribution", self.distribution, DISTRIBUTIONS)
        if self.model.head not in (None, "new"):
            case = f'model.head="{self.model.head}"'
            check_unread(self.training, case, "head_bias")
        self._check_warmup()
        training, decay = self.training, self.optimizer.layer_decay
        only_head = training.trainable == "head" and not training.also_train
        if only_head and decay not in (None, 1):
            raise ValueError(
                "layer_decay slows the layers below the head, which are not "
                f"trained. Received: optimizer.layer_decay={decay}, "
                'training.trainable="head". Leave it out.'
            )
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
