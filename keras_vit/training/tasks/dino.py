"""DINO, "Emerging Properties in Self-Supervised Vision Transformers".

arXiv:2104.14294. A student sees several crops of an image, large and small; a
teacher, the moving average of the student, sees the large ones. The student
learns to say of each crop what the teacher says of another large one: the
cross-entropy of `losses.dino_loss`. The teacher's encoder is what a run saves,
as in the paper: it is better than the student's throughout the training
(section 5.1). The heads are dropped.

Two things keep the teacher from saying the same of every image (section 3.1):
its logits are centred, which keeps it from one prototype, and sharpened, which
keeps it from saying all equally. A `CollapseWatch` ends a run where one of
them is too weak.

With `ibot_weight` the student also sees its large crops with some patches
hidden, and learns what the teacher says of these patches, "iBOT"
(arXiv:2111.07832).

Crops are of two sizes, cut and coloured on the device (section 3 and appendix
A), with BYOL's colours (arXiv:2006.07733, appendix B). A crop is the product of
an image with two matrices, one of its rows and one of its columns, so that
every backend cuts the same views from the same numbers.

Axes: B images, G crops that the teacher sees, L others, V = G + L views, K
prototypes, D width of the model, N patches of a large crop, M of them that are
hidden at most. Of the crops S is the side of an image, N that of a view, C
channels, R numbers drawn for a view.
"""

import dataclasses
import functools
import math
import types
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.data import Share
from keras_vit.data.array_ops import ops_of
from keras_vit.data.seeds import key, uniform
from keras_vit.io.checks import (
    check_at_least,
    check_choice,
    check_limits,
    check_positive,
    check_types,
    check_unread,
)
from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.models.options import whole_grid
from keras_vit.runtime.workarounds import (
    after_step,
    move_towards,
    put_apart,
)
from keras_vit.training import build
from keras_vit.training.defaults import adamw_by_batch
from keras_vit.training.distribution.layouts import mean_of_replicas
from keras_vit.training.stages import at_size
from keras_vit.training.tasks.feature_watch import (
    collapsed_features,
    warn,
    watched,
)
from keras_vit.training.tasks.hidden_patches import (
    EVALUATION,
    TRAINING,
    hidden_source,
    streams_of,
    through_hidden,
)
from keras_vit.training.tasks.losses import (
    TINY,
    centered,
    cosine_schedule,
    dino_losses,
    ibot_loss,
    koleo_loss,
    moving_average,
    sinkhorn,
    warmed_up,
)

__all__ = [
    "DINO",
    "DINOBatches",
    "DINOConfig",
    "DINOHead",
    "DRAWS",
    "SelfDistillation",
    "Views",
    "canvas_side",
    "collapsed_teacher",
    "dino_network",
    "dino_schedules",
    "with_dino_defaults",
]

CENTERINGS = ("mean", "sinkhorn")
HEADS = ("shared", "own")
MASKS = ("random", "blocks")
BLUR_RATES = (1.0, 0.1)  # Of the large crops, the others as the last of them.
LOCAL_BLUR_RATE = 0.5
SOLARIZE_RATES = (0.0, 0.2)  # Not of small crops.
ASPECT_RATIO = 1 / 0.3  # Largest of a hidden block, and 0.3 the least.
BLOCKS = 20  # Places where one is tried.
LOCAL_SHARE = 96 / 224  # Side of a small crop to that of a large one.
CANVAS = 1.5  # Side of the image that crops are cut from to that of the model.
# What the training starts from -> what is left open. From scratch those of the
# paper's appendix A: a momentum of 0.996, a rate of 0.0005 for 256 images. With
# weights a fresh head and that rate ruin them within an epoch; those here are
# ours: a 20th of the rate, a slower teacher, and the head alone at first, as
# LightlyTrain's manual freezes the encoder for an epoch.
DEFAULTS = {
    "scratch": {"teacher_momentum": 0.996, "freeze_encoder_epochs": 0.0},
    "weights": {"teacher_momentum": 0.999, "freeze_encoder_epochs": 1.0},
}
RATES = {"scratch": 5e-4, "weights": 2.5e-5}  # of AdamW, for 256 images
WEIGHT_DECAY = 0.04
FEW_IMAGES = 32
# `centering` -> images below which a batch is warned of, the cause and cure.
SMALL_BATCHES = {
    "mean": (
        FEW_IMAGES,
        f"centre is the mean of a batch: try --training.batch_size "
        f"{2 * FEW_IMAGES} or more",
    ),
    "sinkhorn": (
        256,
        "Sinkhorn spreads a batch over the prototypes: try --dino.centering "
        "mean, or --training.batch_size 512 or more",
    ),
}
TEMPERATURES = ("teacher_temperature", "warmup_teacher_temperature")
HIGH_TEMPERATURE = 0.07  # Above it the authors found the training unstable.
# A teacher whose outputs are this near to uniform, or whose mean output has
# less than this share of the largest entropy, says nothing of an image.
UNIFORM, ONE_PROTOTYPE = 1e-3, 0.2


@dataclasses.dataclass(frozen=True)
class DINOConfig:
    """The crops, the head, and the teacher.

    The defaults are those of arXiv:2104.14294, appendix A and the code that it
    names, from scratch. Weight decay is constant, where the paper's rises from
    0.04 to 0.4.
    """

    global_crops: int = 2
    """Large crops, of the size of the model; the teacher sees these alone."""

    local_crops: int = 8
    """Small crops, which only the student sees."""

    local_size: int | None = None
    """Side of the small crops in pixels, a multiple of the patch; if null, 3/7
    of the image size, which is 96 for 224."""

    global_scale: tuple[float, float] = (0.4, 1.0)
    """Least and largest share of the area that a large crop covers; (0.14,
    1.0) is the paper's without small crops."""

    local_scale: tuple[float, float] = (0.05, 0.4)
    """The same of a small crop."""

    canvas_size: int | None = None
    """Side of the square that crops are cut from, a random one of the image at
    full height or width; one and a half times the image size if null."""

    color_jitter: float = 1.0
    """What the random changes of brightness, contrast, saturation and hue are
    multiplied by; 0 for none, and none made grey, where colour tells."""

    blur_sigma: float = 2.0
    """Largest standard deviation of the blur, in pixels; 0 for none."""

    solarize: bool = True
    """Whether a fifth of the second large crops are solarised."""

    head_dim: int = 2048
    """Hidden size of the head."""

    bottleneck_dim: int = 256
    """What the head projects to before its last layer."""

    out_dim: int = 65_536
    """Prototypes, K. 1,024 to 8,192 for up to 100,000 images."""

    norm_last_layer: bool = True
    """Whether the vectors of the prototypes have length 1. False learns their
    lengths: better for small models, and less stable."""

    freeze_last_layer_epochs: float = 1.0
    """Epochs at the beginning in which the prototypes stay as they are."""

    freeze_encoder_epochs: float | None = None
    """Epochs at the beginning in which the head alone is trained; if null, 1
    with pre-trained weights, else 0."""

    student_temperature: float = 0.1
    """Temperature of the student's softmax."""

    teacher_temperature: float = 0.04
    """That of the teacher, below the student's; up to 0.07 after a warm-up."""

    warmup_teacher_temperature: float = 0.04
    """That of the teacher at the beginning."""

    warmup_teacher_temperature_epochs: float = 0.0
    """Epochs in which it goes from the one to the other."""

    teacher_momentum: float | None = None
    """Share of the teacher that stays at a step, by half a cosine to 1 at the
    end; if null, 0.996, and 0.999 with pre-trained weights. 1 / (1 - momentum)
    steps should be one to three epochs: 0.99 for 10,000 images or less."""

    centering: str = "mean"
    """"mean" subtracts a moving average from the teacher's logits; "sinkhorn"
    spreads each batch evenly over the prototypes, for large batches."""

    center_momentum: float = 0.9
    """Share of the mean logits that stays at a step."""

    koleo_weight: float = 0.0
    """Weight of KoLeo, which spreads the features of a batch; DINOv2's is 0.1
    (arXiv:2304.07193)."""

    ibot_weight: float = 0.0
    """Weight of iBOT's loss of hidden patches, 1 in arXiv:2111.07832. Of
    weights that never saw hidden patches, raise it from 0 with care."""

    ibot_rate: float = 0.5
    """Share of the large crops of which patches are hidden from the student;
    the teacher sees whole ones."""

    ibot_ratio: tuple[float, float] = (0.1, 0.5)
    """Least and largest share of the patches that are hidden of such a crop:
    those of DINOv2 (arXiv:2304.07193)."""

    ibot_masks: str = "random"
    """"random", each patch by itself, or "blocks", rectangles at random places
    as in iBOT and DINOv2, see `block_masks`."""

    ibot_head: str = "shared"
    """"shared", the head of the crops says what patches are, or "own", one of
    its own does: better for large models (arXiv:2304.07193, section 4)."""

    collapse_steps: int = 200
    """Steps, and two checkpoints at least, of a teacher that says the same of
    all images, after which the run ends; 0 never ends it."""

    def __post_init__(self):
        check_types(self)
        check_at_least(
            self, 0, *("local_crops", "color_jitter", "blur_sigma"),
            *("freeze_last_layer_epochs", "freeze_encoder_epochs"),
            *("warmup_teacher_temperature_epochs", "koleo_weight"),
            "ibot_weight",
            "collapse_steps",
        )  # fmt: skip
        check_positive(
            self, *("local_size", "canvas_size", "head_dim", "bottleneck_dim"),
            *("student_temperature", "teacher_temperature"),
            "warmup_teacher_temperature",
        )  # fmt: skip
        check_at_least(self, 2, "out_dim")
        given = ("teacher_momentum",) * (self.teacher_momentum is not None)
        check_limits(self, 1, "center_momentum", *given)
        check_choice("centering", self.centering, CENTERINGS)
        if self.centering == "sinkhorn" and self.center_momentum != 0.9:
            raise ValueError(
                "Sinkhorn has no center. Received: center_momentum="
                f'{self.center_momentum}, centering="sinkhorn". Leave one out.'
            )
        self._check_patches()
        self._check_crops()
        self._check_temperatures()

    def _check_patches(self):
        check_choice("ibot_head", self.ibot_head, HEADS)
        check_choice("ibot_masks", self.ibot_masks, MASKS)
        least, largest = self.ibot_ratio
        if not 0 < least <= largest < 1 or not 0 < self.ibot_rate <= 1:
            raise ValueError(
                "Hidden patches are some of a crop, of some crops. Received: "
                f"ibot_ratio={self.ibot_ratio}, ibot_rate={self.ibot_rate}. "
                "Choose 0.1 to 0.5, and 0.5."
            )
        object.__setattr__(self, "ibot_ratio", (least, largest))
        if not self.ibot_weight:
            names = ("ibot_rate", "ibot_ratio", "ibot_masks", "ibot_head")
            check_unread(self, "ibot_weight=0", *names)

    def _check_crops(self):
        if self.global_crops < 2:
            raise ValueError(
                "The teacher sees large crops alone, and the student learns "
                "what it says of another one: two at least. Received: "
                f"global_crops={self.global_crops}, local_crops="
                f"{self.local_crops}. Set global_crops to 2."
            )
        for name in ("global_scale", "local_scale"):
            scale = getattr(self, name)
            if len(scale) != 2 or not 0 < scale[0] <= scale[1] <= 1:
                raise ValueError(
                    f"{name} is the least and the largest share of the area, "
                    f"above 0 and up to 1. Received: {name}={scale}."
                )
            object.__setattr__(self, name, tuple(scale))
        if self.local_crops and self.global_scale[1] <= self.local_scale[0]:
            raise ValueError(
                "The large crops are smaller than the small ones: all crops "
                f"are local. Received: global_scale={self.global_scale}, "
                f"local_scale={self.local_scale}. Raise global_scale."
            )
        if not self.local_crops:
            check_unread(self, "local_crops=0", "local_size", "local_scale")

    def _check_temperatures(self):
        for name in TEMPERATURES:
            if getattr(self, name) >= self.student_temperature:
                raise ValueError(
                    "The teacher is sharper than the student, or both come to "
                    f"say all equally. Received: {name}={getattr(self, name)}, "
                    f"student_temperature={self.student_temperature}. Lower "
                    f"{name}, 0.04 as a rule."
                )
        if not self.warmup_teacher_temperature_epochs:
            case = "warmup_teacher_temperature_epochs=0"
            check_unread(self, case, TEMPERATURES[1])

    def most_hidden(self, patches: int) -> int:
        """Return M, the largest number of hidden patches of so many."""
        return max(round(self.ibot_ratio[1] * patches), 1)

    def side_of_local(self, config: ViTConfig) -> int:
        """Return the side of the small crops for a model, in pixels."""
        if self.local_size is not None:
            return self.local_size
        patch = config.image_size[0] // config.grid[0]
        return max(round(LOCAL_SHARE * config.grid[0]), 1) * patch


class DINOHead(keras.layers.Layer):
    """Compares features with prototypes: three dense layers, and cosines.

    Appendix C of arXiv:2104.14294: GELU between the dense layers, the result
    of length 1, then a product with the vectors of the prototypes, g v / |v|
    each.

    Args:
        head_dim: int, of the hidden layers.
        bottleneck_dim: int, of the result.
        out_dim: int, K.
        norm_last_layer: whether g stays 1.

    Input shape:
        (B, ..., D), and a bool scalar: whether the prototypes are trained.

    Output shape:
        float32 (B, ..., K).
    """

    def __init__(
        self,
        head_dim: int,
        bottleneck_dim: int,
        out_dim: int,
        norm_last_layer: bool = True,
        **kwargs,
    ):
        super().__init__(dtype="float32", **kwargs)
        self.bottleneck_dim = bottleneck_dim
        self.out_dim = out_dim
        self.norm_last_layer = norm_last_layer
        self.dense = [
            keras.layers.Dense(
                size,
                kernel_initializer=keras.initializers.TruncatedNormal(
                    stddev=0.02
                ),
                dtype=self.dtype_policy,
                name=f"dense_{i}",
            )
            for i, size in enumerate((head_dim, head_dim, bottleneck_dim))
        ]

    def build(self, input_shape):
        width = input_shape[-1]
        for layer in self.dense:
            layer.build((None, width))
            width = layer.units
        bound = width**-0.5  # As torch initialises a linear layer.
        self.kernel = self.add_weight(
            name="kernel",
            shape=(width, self.out_dim),
            initializer=keras.initializers.RandomUniform(-bound, bound),
        )
        self.length = None
        if not self.norm_last_layer:
            self.length = self.add_weight(
                name="length", shape=(self.out_dim,), initializer="ones"
            )

    def call(self, x, trains=True):
        x = ops.cast(x, "float32")
        *hidden, last = self.dense
        for layer in hidden:
            x = ops.gelu(layer(x), approximate=False)
        x = last(x)
        x = ops.normalize(x, axis=-1)  # (B, bottleneck)
        share = ops.cast(trains, "float32")
        kernel = gated(ops.convert_to_tensor(self.kernel), share)
        # The products are divided, and not the far larger kernel.
        lengths = ops.sqrt(ops.sum(ops.square(kernel), axis=0))  # (K,)
        factor = 1 / ops.maximum(lengths, 1e-12)
        if self.length is not None:
            length = ops.convert_to_tensor(self.length)
            factor = factor * gated(length, share)
        return ops.matmul(x, kernel) * factor  # (B, K)

    def compute_output_shape(self, input_shape):
        return *input_shape[:-1], self.out_dim


@ops.custom_gradient
def gated(x, share):
    """Return x, whose gradient is a share of what it would be.

    Args:
        x: tensor.
        share: float scalar, 0 for a constant.
    """

    def gradient(*inputs, upstream=None):
        # On torch Keras calls it with x and the share as well.
        upstream = inputs[0] if upstream is None else upstream
        return upstream * share, ops.zeros_like(share)

    return x, gradient


class SelfDistillation(keras.layers.Layer):
    """Compares what student and teacher say, and watches the teacher.

    In training it also moves the centre, after it was used, and spreads the
    features of the batch (KoLeo). The teacher is moved by `move_teacher`, after
    the optimizer.

    Args:
        teacher: the encoder of the teacher, a Keras model to features (B, D),
            and with `ibot_weight` patch tokens (B, N, D) besides.
        config: a `DINOConfig`.

    Input shape:
        Features of the student (B, V, D), of which the large crops are the
        first; the large crops (B * G, H, W, C), image by image; schedules,
        float32 (B, 4), of which each row is that of `dino_schedules`. With
        `ibot_weight`, the student's patch tokens of the large crops
        (B * G, N, D), and their order and number hidden (B * G, N) and
        (B * G, 1), as in `DINOBatches`.

    Output shape:
        float32 (B, 4): of each image the loss and the entropy of the teacher's
        outputs; of the batch the entropy of their mean, and how the teacher's
        features spread, 0 for all the same and 1 for a mean of 0.
    """

    def __init__(self, teacher: keras.Model, config: DINOConfig, **kwargs):
        super().__init__(dtype="float32", **kwargs)
        self.config = config
        self.teacher = teacher
        # Not its layers: the model that is saved can be trained.
        for variable in teacher.variables:
            variable.trainable = False
        self.head, self.teacher_head = both_heads(config, "head")
        self.own_heads = ()
        if config.ibot_weight and config.ibot_head == "own":
            self.own_heads = both_heads(config, "patch_head")

    def build(self, features_shape, *others):
        del others
        for head in (self.head, self.teacher_head, *self.own_heads):
            head.build(features_shape)
        copy(self.heads())
        state = {"initializer": "zeros", "trainable": False}
        mean = {**state, "shape": (self.config.out_dim,), "aggregation": "mean"}
        if self.has_center:
            self.center = self.add_weight(name="center", **mean)
        if self.has_center and self.config.ibot_weight:
            self.patch_center = self.add_weight(name="patch_center", **mean)
        self.momentum = self.add_weight(
            name="momentum", aggregation="only_first_replica", **state
        )

    def heads(self) -> list[tuple]:
        """Return the pairs of a variable of the student's head and its own."""
        pairs = [(self.head, self.teacher_head)]
        pairs += [self.own_heads] if self.own_heads else []
        return [
            both
            for new, old in pairs
            for both in zip(new.variables, old.variables, strict=True)
        ]

    def call(self, features, views, schedules, *patches, training=False):
        config, count = self.config, self.config.global_crops
        temperature, momentum, trains, moves = ops.unstack(schedules[0])
        seen = ops.where(moves > 0, features, ops.stop_gradient(features))
        student = self.head(seen, trains > 0)  # (B, V, K)
        known, *maps = keras.tree.flatten(
            self.teacher(views, training=False)
        )  # (B * G, D), and (B * G, N, D)
        known = ops.cast(ops.stop_gradient(known), "float32")
        logits = ops.stop_gradient(self.teacher_head(known))  # (B * G, K)
        logits = ops.reshape(logits, (-1, count, config.out_dim))  # (B, G, K)
        said = self.probabilities(logits, temperature)
        teacher = by_view(said)  # (G, B, K)
        loss = dino_losses(
            by_view(student), teacher, config.student_temperature
        )
        if (
            config.koleo_weight and training
        ):  # What fills an evaluation is near.
            spread = [koleo_loss(features[:, i]) for i in range(count)]
            loss = loss + config.koleo_weight * sum(spread) / count
        if config.ibot_weight:
            patch_loss = self.of_patches(
                patches, maps[0], schedules[0], training
            )
            loss = loss + config.ibot_weight * patch_loss
        if training and self.has_center:
            mean = ops.mean(logits, axis=(0, 1))
            self.center.assign(
                moving_average(self.center, mean, config.center_momentum)
            )
        if training:
            self.momentum.assign(momentum)
        each = ops.mean(entropy(teacher), axis=0)  # (B,)
        of_mean = entropy(mean_of_replicas(ops.mean(said, axis=(0, 1))))
        columns = [
            loss,
            each,
            *(x + 0 * each for x in (of_mean, spread_of(known))),
        ]
        return ops.stack(columns, axis=-1)

    def of_patches(self, patches, maps, schedule, training):
        """Return iBOT's loss of each image, (B,), and move its centre.

        Equation 2 of arXiv:2111.07832, with the head's equation 3: hidden
        patches of the large crops, of which each image without any counts 0.
        """
        config = self.config
        tokens, order, hidden = patches
        temperature, _, trains, moves = ops.unstack(schedule)
        most = config.most_hidden(tokens.shape[1])
        places = ops.expand_dims(order[:, :most], -1)  # (B * G, M, 1)
        mask = ops.arange(most) < hidden  # (B * G, M)
        own, known = (
            ops.take_along_axis(ops.cast(x, "float32"), places, axis=1)
            for x in (tokens, ops.stop_gradient(maps))
        )  # (B * G, M, D)
        own = ops.where(moves > 0, own, ops.stop_gradient(own))
        head, teacher = self.own_heads or (self.head, self.teacher_head)
        student = head(own, trains > 0)  # (B * G, M, K)
        logits = ops.stop_gradient(teacher(known))
        said = self.said_of_patches(logits, mask, temperature)
        loss = ibot_loss(
            student, said, mask, config.student_temperature, each=True
        )
        if training and self.has_center:
            counted = ops.cast(mask, "float32")[..., None]
            # Replicas have other numbers of hidden patches.
            total = mean_of_replicas(ops.sum(counted))
            mean = mean_of_replicas(ops.sum(logits * counted, (0, 1)))
            mean = mean / ops.maximum(total, TINY)
            old = ops.convert_to_tensor(self.patch_center)
            center = moving_average(old, mean, config.center_momentum)
            self.patch_center.assign(ops.where(total > 0, center, old))
        loss = ops.reshape(loss, (-1, config.global_crops))  # (B, G)
        return ops.mean(loss, axis=1)

    def said_of_patches(self, logits, mask, temperature):
        """Return the teacher's outputs, (B * G, M, K).

        Sinkhorn spreads all hidden patches of the batch together, as DINOv2
        does (arXiv:2304.07193, section 4).
        """
        if self.has_center:
            return centered(logits, self.patch_center, temperature)
        flat = ops.reshape(logits, (-1, logits.shape[-1]))
        said = sinkhorn(flat, temperature, mask=ops.reshape(mask, (-1,)))
        return ops.reshape(said, ops.shape(logits))

    @property
    def has_center(self) -> bool:
        """Whether the teacher's logits are centred."""
        return self.config.centering == "mean"

    def probabilities(self, logits, temperature):
        """Return the teacher's outputs, (B, G, K)."""
        if self.has_center:
            return centered(logits, self.center, temperature)
        # Each large crop by itself, as samples of one image are alike.
        parts = ops.unstack(logits, self.config.global_crops, axis=1)
        return ops.stack([sinkhorn(x, temperature) for x in parts], axis=1)

    def move_teacher(self, pairs) -> None:
        """Move the teacher's variables towards those of the student.

        Args:
            pairs: of a variable of the student's encoder and the teacher's.
        """
        for new, old in [*pairs, *self.heads()]:
            move_towards(old, new, 1 - ops.cast(self.momentum, old.dtype))

    def compute_output_shape(self, features_shape, *others):
        del features_shape, others
        return None, 4


def both_heads(config: DINOConfig, name: str) -> tuple[DINOHead, DINOHead]:
    """Make a head of the student, and the teacher's, which is not trained."""
    sizes = config.head_dim, config.bottleneck_dim, config.out_dim
    student, teacher = (
        DINOHead(*sizes, norm_last_layer=config.norm_last_layer, name=x)
        for x in (name, f"teacher_{name}")
    )
    teacher.trainable = False
    return student, teacher


def copy(pairs) -> None:
    """Give the second variable of each pair the value of the first.

    A copy: two variables of JAX may not have one array.
    """
    for new, old in pairs:
        old.assign(ops.copy(new))


def by_view(x):
    """Return (V, B, K) of (B, V, K)."""
    return ops.transpose(x, (1, 0, 2))


def entropy(x):
    """Return the entropy of probabilities (..., K), (...)."""
    return -ops.sum(x * ops.log(ops.maximum(x, TINY)), axis=-1)


def spread_of(features):
    """Return the deviation of unit vectors (B, D) from their mean, in [0, 1].

    sqrt(sum_d var_d); over sqrt(D), the deviation of a feature.
    """
    x = ops.normalize(features, axis=-1)
    mean = mean_of_replicas(ops.mean(x, axis=0, keepdims=True))
    squares = ops.sum(ops.square(x - mean), axis=-1)  # (B,)
    return ops.sqrt(mean_of_replicas(ops.mean(squares)))


class DINONetwork(keras.Model):
    """The student with its head, and the teacher that follows it.

    Its layers are those of the student, and a `SelfDistillation`.
    """

    def __init__(self, *args, pairs=(), **kwargs):
        super().__init__(*args, **kwargs)
        self.pairs = Pairs(pairs)

    def train_step(self, *args, **kwargs):
        found = super().train_step(*args, **kwargs)
        layer = self.get_layer("self_distillation")
        return after_step(self, found, lambda: layer.move_teacher(self.pairs.x))


class Pairs:
    """Variables that Keras is not to track a second time."""

    def __init__(self, x):
        self.x = tuple(x)


# What is drawn for a view, in order, each in [0, 1).
DRAWS = (
    *("area", "ratio", "top", "left", "flip"),
    *("jitter", "brightness", "contrast", "saturation", "hue"),
    *("grey", "blur", "sigma", "solarize"),
)
RATIO = 3 / 4  # The narrowest crop, width to height; the widest is 4 / 3.
JITTER_RATE = 0.8
# Largest relative changes, and of the hue as a share of the circle.
BRIGHTNESS, CONTRAST, SATURATION, HUE = 0.4, 0.4, 0.2, 0.1
GREY_RATE = 0.2
LEAST_SIGMA = 0.1  # Pixels, of the blur.
THRESHOLD = 128  # Solarising inverts the levels above it.
# To luminance and two axes of colour, in which a hue is an angle.
YIQ = np.array(
    [[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]]
)
GREY = YIQ[0]  # ITU-R BT.601


class Views(keras.layers.Layer):
    """Cuts views from square images and changes their colours.

    In the order of the paper: crop, flip, brightness, contrast, saturation,
    hue, grey, blur, solarise. A crop covers a drawn share of the area at a
    ratio of 3/4 to 4/3, at most the whole side, and is resized by a triangle
    filter that averages over all pixels. Hues turn in YIQ. Grey images keep
    saturation and hue.

    Args:
        size: int, N.
        scale: (least, largest) share of the area that a crop covers.
        blur_rates: probability of a blur, a number for each of the V views.
        solarize_rates: likewise of solarising.
        flip: whether half of the views are mirrored.
        jitter: float, what the changes of colours are multiplied by; 0
            leaves the colours, grey included, as they are.
        largest_sigma: float, of the blur, in pixels; 0 for none.

    Input shape:
        Images (B, S, S, C) in [0, 255], and what is drawn, float32
        (B, V, R) in [0, 1), the numbers of `DRAWS`.

    Output shape:
        float32 (B * V, N, N, C) in [0, 255], image by image: devices that share
        the images share the views.

    Example:

    >>> cut = Views(8, (0.4, 1.0), (1.0, 0.1), (0.0, 0.2))
    >>> cut(np.zeros((3, 16, 16, 3)), np.zeros((3, 2, len(DRAWS)))).shape
    (6, 8, 8, 3)
    """

    def __init__(
        self,
        size: int,
        scale,
        blur_rates,
        solarize_rates,
        *,
        flip: bool = True,
        jitter: float = 1.0,
        largest_sigma: float = 2.0,
        **kwargs,
    ):
        super().__init__(dtype=kwargs.pop("dtype", "float32"), **kwargs)
        self.size = size
        self.scale = tuple(scale)
        self.blur_rates = tuple(blur_rates)
        self.solarize_rates = tuple(solarize_rates)
        self.flip = flip
        self.jitter = jitter
        self.largest_sigma = largest_sigma

    def call(self, images, drawn):
        side, channels = images.shape[1], images.shape[-1]
        named = {x: drawn[..., i] for i, x in enumerate(DRAWS)}  # (B, V)
        rows, columns = self.cuts(named, side)  # (B, V, N, S)
        x = ops.cast(images, "float32")
        x = ops.einsum("bvis,bstc->bvitc", rows, x)
        x = ops.einsum("bvjt,bvitc->bvijc", columns, x)  # (B, V, N, N, C)
        if self.jitter:
            x = self.coloured(x, named)
        if self.largest_sigma:
            blur = self.blurs(named)  # (B, V, N, N)
            x = ops.einsum("bvki,bvijc->bvkjc", blur, x)
            x = ops.einsum("bvlj,bvkjc->bvklc", blur, x)
        if any(self.solarize_rates):
            chosen = named["solarize"] < tensor(self.solarize_rates)
            turned = ops.where(x >= THRESHOLD, 255 - x, x)
            x = ops.where(to_pixels(chosen), turned, x)
        return ops.reshape(x, (-1, self.size, self.size, channels))

    def cuts(self, drawn, side: int) -> list:
        """Return the matrices that cut rows and columns, (B, V, N, S)."""
        least, largest = self.scale
        area = least + (largest - least) * drawn["area"]
        ratio = ops.exp((2 * drawn["ratio"] - 1) * -math.log(RATIO))
        height = ops.minimum(ops.sqrt(area / ratio), 1.0)
        width = ops.minimum(ops.sqrt(area * ratio), 1.0)
        mirrored = drawn["flip"] < (0.5 if self.flip else 0.0)
        return [
            self.cut((1 - height) * drawn["top"], height, side),
            self.cut((1 - width) * drawn["left"], width, side, mirrored),
        ]

    def cut(self, start, length, side: int, mirrored=None):
        """Return the matrices that resize parts of a line, (B, V, N, S)."""
        places = tensor((np.arange(self.size) + 0.5) / self.size)
        places = ops.broadcast_to(places, (*ops.shape(start), self.size))
        if mirrored is not None:
            places = ops.where(mirrored[..., None], 1 - places, places)
        centre = (start[..., None] + length[..., None] * places) * side - 0.5
        reach = ops.maximum(length * side / self.size, 1.0)[..., None, None]
        distance = ops.abs(centre[..., None] - tensor(np.arange(side)))
        weights = ops.maximum(1 - distance / reach, 0.0)
        return weights / ops.sum(weights, axis=-1, keepdims=True)

    def coloured(self, x, drawn):
        """Change brightness, contrast, saturation and hue, and make grey."""
        applied = to_pixels(drawn["jitter"] < JITTER_RATE)

        def factor(name, most):
            change = (2 * drawn[name] - 1) * most * self.jitter
            return to_pixels(1 + change)

        y = clipped(x * factor("brightness", BRIGHTNESS))
        mean = ops.mean(luminance(y), axis=(-3, -2), keepdims=True)
        y = clipped(mean + (y - mean) * factor("contrast", CONTRAST))
        if x.shape[-1] != 3:
            return ops.where(applied, y, x)
        grey = luminance(y)
        y = clipped(grey + (y - grey) * factor("saturation", SATURATION))
        angle = (2 * drawn["hue"] - 1) * HUE * self.jitter * 2 * math.pi
        y = ops.where(applied, clipped(turned_hue(y, angle)), x)
        chosen = to_pixels(drawn["grey"] < GREY_RATE)
        return ops.where(chosen, luminance(y) + 0 * y, y)

    def blurs(self, drawn):
        """Return matrices of Gaussian blurs, or of none, (B, V, N, N)."""
        chosen = drawn["blur"] < tensor(self.blur_rates)
        sigma = (
            LEAST_SIGMA + (self.largest_sigma - LEAST_SIGMA) * (drawn["sigma"])
        )
        places = np.arange(self.size)
        squares = tensor((places[:, None] - places) ** 2)  # (N, N)
        weights = ops.exp(-squares / (2 * sigma[..., None, None] ** 2))
        weights = weights / ops.sum(weights, axis=-1, keepdims=True)
        same = tensor(np.eye(self.size))
        return ops.where(chosen[..., None, None], weights, same)

    def compute_output_shape(self, images_shape, drawn_shape):
        del drawn_shape
        return None, self.size, self.size, images_shape[-1]


def tensor(x):
    return ops.convert_to_tensor(np.asarray(x, "float32"))


def to_pixels(numbers):
    """Give numbers of views (B, V) the axes of their pixels."""
    return numbers[..., None, None, None]


def clipped(x):
    return ops.clip(x, 0, 255)


def luminance(x):
    """Return the grey levels of views (..., C), (..., 1)."""
    if x.shape[-1] != 3:
        return ops.mean(x, axis=-1, keepdims=True)
    return ops.sum(x * tensor(GREY), axis=-1, keepdims=True)


def turned_hue(x, angle):
    """Turn the hues of views (B, V, N, N, 3) by angles (B, V)."""
    cosine, sine = ops.cos(angle), ops.sin(angle)
    zero = ops.zeros_like(angle)
    turn = [zero + 1, zero, zero, zero, cosine, -sine, zero, sine, cosine]
    turn = ops.stack(turn, axis=-1)  # (B, V, 9)
    turn = ops.reshape(turn, (*ops.shape(angle), 3, 3))
    change = ops.matmul(
        ops.matmul(tensor(np.linalg.inv(YIQ)), turn), tensor(YIQ)
    )
    return ops.einsum("bvdc,bvijc->bvijd", change, x)


def dino_network(
    model: VisionTransformer, config: DINOConfig, *, flip: bool = True
) -> DINONetwork:
    """Build the network that is trained: crops, student and teacher.

    Args:
        model: a `VisionTransformer` without a classification layer, which
            becomes the teacher. The student begins as its copy.
        config: a `DINOConfig`.
        flip: whether half of the crops are mirrored.

    Returns:
        A Keras model from a dictionary of "image" (B, S, S, C), "drawn",
        float32 (B, V, R), and "schedules", float32 (B, 4), with `ibot_weight`
        "order" (B, G, N) and "hidden" (B, G, 1), int32, see `DINOBatches`,
        to the output of `SelfDistillation`.

    Raises:
        ValueError: for a model that does not take small crops, or has classes.

    Example:
        >>> network = dino_network(model, DINOConfig(out_dim=4096))
        >>> network.output_shape
        (None, 4)
    """
    check_model(model.config, config)
    if model.config.num_classes:
        raise ValueError(
            "DINO trains features. Received: a model of "
            f"{model.config.num_classes} classes. Build it with num_classes=0."
        )
    student = type(model)(
        model.config, name="student", dtype=model.dtype_policy
    )
    put_apart(student, "student")
    copy(zip(model.weights, student.weights, strict=True))
    side, channels = canvas_side(model.config, config), model.config.channels
    large, small = config.global_crops, config.local_crops
    image = keras.Input((side, side, channels), name="image")
    drawn = keras.Input((large + small, len(DRAWS)), name="drawn")
    schedules = keras.Input((4,), name="schedules")
    options = {
        "flip": flip,
        "jitter": config.color_jitter,
        "largest_sigma": config.blur_sigma,
    }
    views = Views(
        model.config.image_size[0],
        config.global_scale,
        of_views(BLUR_RATES, large),
        of_views(SOLARIZE_RATES if config.solarize else (0.0,), large),
        name="global_views",
        **options,
    )(image, drawn[:, :large])
    inputs = {"image": image, "drawn": drawn, "schedules": schedules}
    teacher, patches = model, ()
    if config.ibot_weight:
        count = math.prod(model.config.grid)
        inputs |= {
            "order": keras.Input((large, count), dtype="int32", name="order"),
            "hidden": keras.Input((large, 1), dtype="int32", name="hidden"),
        }
        order, hidden = (
            ops.reshape(inputs[x], (-1, inputs[x].shape[2]))
            for x in ("order", "hidden")
        )  # (B * G, N) and (B * G, 1)
        source = hidden_source(ops.argsort(order, axis=1) < hidden)
        features, tokens = through_hidden(student, views, source)
        patches = tokens, order, hidden
        after = model.get_layer("encoder_norm").output[:, -count:]
        teacher = keras.Model(model.input, [model.output, after])
    else:
        features = through(student, views)
    features = ops.reshape(features, (-1, large, features.shape[-1]))
    if small:
        size = config.side_of_local(model.config)
        crops = Views(
            size,
            config.local_scale,
            of_views((LOCAL_BLUR_RATE,), small),
            of_views((0.0,), small),
            name="local_views",
            **options,
        )(image, drawn[:, large:])
        others = through(at_size(student, size), crops)
        others = ops.reshape(others, (-1, small, others.shape[-1]))
        features = ops.concatenate([features, others], axis=1)  # (B, V, D)
    layer = SelfDistillation(teacher, config, name="self_distillation")
    result = layer(features, views, schedules, *patches)
    return DINONetwork(
        inputs,
        result,
        name="dino",
        pairs=zip(student.weights, model.weights, strict=True),
    )


def of_views(rates, count: int) -> tuple:
    """Return rates for so many views; the last one is repeated."""
    return tuple(rates[min(i, len(rates) - 1)] for i in range(count))


def through(model, x):
    """Return features of views; the layers become those of the network."""
    for layer in model.layers[1:]:
        x = layer(x)
    return x


def canvas_side(model_config: ViTConfig, config: DINOConfig) -> int:
    """Return the side of the images that crops are cut from."""
    if config.canvas_size is not None:
        return config.canvas_size
    return round(CANVAS * model_config.image_size[0])


def check_model(config, dino: DINOConfig) -> None:
    """Refuse a model whose weights do not take images of another size."""
    build.check_plain("dino", config)
    found = whole_grid(config)
    if dino.ibot_weight and not config.final_norm:
        found.append("final_norm=False")
    if dino.ibot_weight and config.norm_after_pooling:
        found.append("norm_after_pooling")
    if dino.local_crops and config.position_embedding == "none":
        found.append("position_embedding='none'")
    if found:
        raise ValueError(
            "method='dino' trains at two image sizes. Received: a model with "
            f"{', '.join(found)}. Choose a model with absolute position "
            "embeddings and one projection of patches, such as ViT_B16."
        )
    height, width = config.image_size
    patch = height // config.grid[0]
    size = dino.side_of_local(config)
    if height != width or size % patch or not patch <= size <= height:
        raise ValueError(
            "Crops are squares, the small ones a multiple of the patch up to "
            f"the image size. Received: images of {height} x {width}, patches "
            f"of {patch}, dino.local_size={size}. Change one of them."
        )


def dino_schedules(
    config: DINOConfig, total: int, steps_per_epoch: int
) -> np.ndarray:
    """Compute what changes from step to step.

    Args:
        config: a `DINOConfig`, whose null fields are filled in.
        total: steps of the whole training.
        steps_per_epoch: of them, in an epoch.

    Returns:
        float32 array (total, 4): the temperature and the momentum of the
        teacher, and 1 where the prototypes and the encoder are trained, else 0.
    """
    steps = np.arange(total)
    epoch = steps / steps_per_epoch
    columns = [
        warmed_up(
            steps,
            config.warmup_teacher_temperature,
            config.teacher_temperature,
            round(config.warmup_teacher_temperature_epochs * steps_per_epoch),
        ),
        cosine_schedule(steps, config.teacher_momentum or 0.0, 1.0, total),
        epoch >= config.freeze_last_layer_epochs,
        epoch >= (config.freeze_encoder_epochs or 0.0),
    ]
    found = [np.array(ops.convert_to_numpy(x), "float32") for x in columns]
    return np.stack(np.broadcast_arrays(*found), axis=1)


@dataclasses.dataclass(frozen=True)
class DINOBatches:
    """Turns images into what their views are cut by, from their number.

    Args:
        config: a `DINOConfig`.
        seed: non-negative int, of the run.
        batch_size: images in a whole batch.
        schedules: of `dino_schedules`; an evaluation has the last row.
        share: the `Share` of the batch that this process reads.
        grid: rows and columns of patches, of which iBOT hides some.
    """

    config: DINOConfig
    seed: int
    batch_size: int
    schedules: np.ndarray
    share: Share = Share()
    grid: tuple[int, int] = (0, 0)

    @classmethod
    def of_run(cls, recipe, model, *, batch_size: int, share=None, stream=None):
        """See `HiddenPatches.of_run`."""
        config = with_open_fields(recipe)
        if stream is None:
            config = dataclasses.replace(config, freeze_encoder_epochs=0)
            schedules = dino_schedules(config, 1, 1)
        else:
            check_batch(batch_size, config)
            an_epoch = stream.steps_per_epoch
            total = recipe.training.steps or recipe.training.epochs * an_epoch
            schedules = dino_schedules(config, total, an_epoch)
        share, grid = share or Share(), model.config.grid
        return cls(config, recipe.seed, batch_size, schedules, share, grid)

    def training(self, step, batch):
        """Return batch number `step` of the training."""
        images = batch[0]
        tf = ops_of(images)
        last = len(self.schedules) - 1
        row = tf.gather(self.schedules, tf.minimum(step, last))  # (4,)
        return self._views(TRAINING, step, images, row)

    def evaluation(self, number, batch):
        """Return the batch of an evaluation, (images, labels, weights (B,))."""
        images, _, weights = batch
        row = self.schedules[-1]
        return *self._views(EVALUATION, number, images, row), weights

    def _views(self, part, number, images, row) -> tuple[Mapping, Any]:
        """Return inputs, and labels (B, 4), which no loss reads."""
        tf = ops_of(images)
        views = self.config.global_crops + self.config.local_crops
        drawn = uniform(
            (self.batch_size, views, len(DRAWS)),
            key("dino", self.seed, part, number),
        )
        rows = self.share.rows(self.batch_size)
        drawn = tf.gather(drawn, rows)
        schedules = tf.zeros((len(rows), 1), "float32") + row
        inputs = {"image": images, "drawn": drawn, "schedules": schedules}
        if self.config.ibot_weight:
            inputs |= self._hidden(tf, part, number, rows)
        return inputs, tf.zeros((len(rows), 4), "float32")

    def _hidden(self, tf, part, number, rows) -> dict:
        """Return which patches of each large crop are hidden, the first ones.

        "order", int32 (B, G, N), and their number, "hidden", int32 (B, G, 1).
        """
        config, count = self.config, math.prod(self.grid)
        drawn = uniform(
            (self.batch_size, config.global_crops, count + 2),
            key("ibot", self.seed, part, number),
        )
        drawn = tf.gather(drawn, rows)
        least, largest = config.ibot_ratio
        share = least + (largest - least) * drawn[..., count : count + 1]
        hidden = tf.maximum(tf.floor(share * count + 0.5), 1.0)
        hidden = tf.minimum(hidden, float(config.most_hidden(count)))
        chosen = drawn[..., count + 1 :] < config.ibot_rate
        hidden = hidden * tf.cast(chosen, tf.float32)
        places = drawn[..., :count]
        if config.ibot_masks == "blocks":
            blocks = uniform(
                (self.batch_size, config.global_crops, BLOCKS, 4),
                key("ibot blocks", self.seed, part, number),
            )
            mask = block_masks(tf.gather(blocks, rows), hidden, self.grid)
            hidden = tf.reduce_sum(mask, -1, keepdims=True)
            places = 1 - mask
        order = tf.argsort(places, stable=True)
        return {
            "order": tf.cast(order, tf.int32),
            "hidden": tf.cast(hidden, tf.int32),
        }


def block_masks(drawn, most, grid: tuple[int, int]):
    """Hide patches in rectangles at random places.

    Algorithm 1 of "BEiT" (arXiv:2106.08254), for a number of patches that
    differs from crop to crop. As in the code of iBOT (arXiv:2111.07832), a
    block that would hide more than that is tried at another place, and the
    least size is a ninth of the square of the shorter side, 16 of 14 x 14.

    Args:
        drawn: float32 array or TensorFlow tensor (..., K, 4) in [0, 1): the
            size, aspect ratio, row and column of K blocks, one after the other.
        most: float32 (..., 1), the number of patches to hide.
        grid: rows and columns of patches, N together.

    Returns:
        float32 (..., N), 1 for what is hidden: that many patches, or fewer
        where no further block was found.
    """
    tf = ops_of(drawn)
    height, width = grid
    row, column = np.divmod(np.arange(height * width, dtype="float32"), width)
    least = (min(grid) // 3) ** 2 or 1
    mask = tf.zeros((*drawn.shape[:-2], height * width), "float32")
    for i in range(drawn.shape[-2]):
        size, ratio, top, left = (drawn[..., i, j, None] for j in range(4))
        rest = most - tf.reduce_sum(mask, -1, keepdims=True)
        area = least + (rest - least) * size
        ratio = tf.exp((2 * ratio - 1) * math.log(ASPECT_RATIO))
        rows = tf.floor(tf.sqrt(area * ratio) + 0.5)
        columns = tf.floor(tf.sqrt(area / ratio) + 0.5)
        top = tf.floor(top * (height - rows + 1))
        left = tf.floor(left * (width - columns + 1))
        block = (row >= top) & (row < top + rows)
        block &= (column >= left) & (column < left + columns)
        joined = tf.maximum(mask, tf.cast(block, tf.float32))
        fits = tf.reduce_sum(joined, -1, keepdims=True) <= most
        fits &= (rows <= height) & (columns <= width)
        mask = tf.where(fits, joined, mask)
    return mask


def _canvas(recipe, dataset, model) -> tuple[Any, Any, Any]:
    """Return recipe, data and shape of the images that crops are cut from."""
    if recipe.preprocessing.train != type(recipe.preprocessing)().train:
        raise ValueError(
            "method='dino' cuts its own crops, by dino.global_scale and "
            "dino.local_scale. Received: preprocessing.train="
            f"{recipe.preprocessing.train!r}. Leave it out."
        )
    side = canvas_side(model.config, recipe.dino)
    preprocessing = dataclasses.replace(
        recipe.preprocessing,
        train="resize_small_random_crop",
        evaluation="resize_small_central_crop",
        resize_size=side,
        padding_colour=None,
        flip=False,
    )
    shape = (None, side, side, model.config.channels)
    shaped = types.SimpleNamespace(input_shape=shape)
    recipe = dataclasses.replace(recipe, preprocessing=preprocessing)
    return recipe, dataset, shaped


def check_batch(size: int, config: DINOConfig) -> None:
    """Refuse and warn of few images in a batch and of a high temperature."""
    if size == 1:
        raise ValueError(
            "DINO learns what tells images apart, of which a batch has two at "
            f"least. Received: training.batch_size={size}. Set it to "
            f"{2 * FEW_IMAGES} or more."
        )
    warnings = []
    few, why = SMALL_BATCHES[config.centering]
    if size < few:
        warnings.append(
            f"a batch of {size} images is small for DINO, whose {why}"
        )
    for name in TEMPERATURES:
        if (value := getattr(config, name)) > HIGH_TEMPERATURE:
            warnings.append(
                f"dino.{name}={value} is above {HIGH_TEMPERATURE}, where the "
                "authors of DINO found the training unstable"
            )
    warn(warnings)


def start_of(recipe) -> str:
    """Return the row of `DEFAULTS` for a recipe."""
    return "scratch" if recipe.model.weights is None else "weights"


def with_open_fields(recipe) -> DINOConfig:
    """Return the options of DINO in a recipe, with those that are null."""
    row = DEFAULTS[start_of(recipe)]
    config = recipe.dino
    null = {k: x for k, x in row.items() if getattr(config, k) is None}
    return dataclasses.replace(config, **null)


def with_dino_defaults(recipe) -> dict:
    """Return the groups of a recipe, the rates that are null filled in.

    Example:
        >>> recipe = PretrainRecipe(method="dino")
        >>> with_dino_defaults(recipe)["optimizer"].learning_rate
        0.000125
    """
    return adamw_by_batch(recipe, RATES[start_of(recipe)], WEIGHT_DECAY)


def collapsed_teacher(config: DINOConfig, logs: Mapping) -> str | None:
    """Say how a teacher collapsed and what to try, None if it did not."""
    if "teacher_entropy" not in logs:
        return None
    largest = math.log(config.out_dim)
    entropy, of_mean = logs["teacher_entropy"], logs["mean_entropy"]
    if entropy > largest - UNIFORM:
        return (
            f"the teacher says all {config.out_dim} prototypes equally (an "
            f"entropy of {entropy:.4f}). Lower dino.teacher_temperature, 0.02 "
            "to 0.04, or dino.out_dim"
        )
    if of_mean < ONE_PROTOTYPE * min(largest, math.log(FEW_IMAGES)):
        return (
            "the teacher says one prototype of all images (an entropy of the "
            f"mean of {of_mean:.2g}). Lower dino.center_momentum, or raise "
            "dino.teacher_temperature or training.batch_size"
        )
    return None


def signs(recipe) -> tuple:
    """Return how a collapse of features or teacher is seen."""
    return collapsed_features, functools.partial(collapsed_teacher, recipe.dino)


class OutputLoss(keras.losses.Loss):
    """The first column of the output, a loss of each image."""

    def call(self, y_true, y_pred):
        del y_true
        return y_pred[:, 0]


class OutputMean(keras.metrics.Mean):
    """The mean of a column of the output.

    Args:
        column: int.
        name: str.
    """

    def __init__(self, column: int, name: str):
        super().__init__(name=name)
        self.column = column

    def update_state(self, y_true, y_pred, sample_weight=None):
        del y_true
        super().update_state(y_pred[:, self.column], sample_weight)


def _make_model(recipe, class_names):
    del class_names
    training = recipe.training
    build.check_trains_all("dino", training, with_classes=False)
    for name, usual, why in (
        ("ema_decay", 0.0, "The teacher is the average of the weights"),
        ("accumulation_steps", 1, "The centre is of whole batches"),
    ):
        if getattr(training, name) != usual:
            raise ValueError(
                f"{why} with method='dino'. Received: training.{name}="
                f"{getattr(training, name)}. Leave it out."
            )
    known = ("auto", "val_loss", "val_feature_spread", "val_knn")
    if training.best_metric not in known:
        raise ValueError(
            "DINO learns no classes. Received: training.best_metric="
            f"{training.best_metric!r}. Leave it out."
        )
    return build.make_encoder(recipe, lambda x: check_model(x, recipe.dino))


DINO = watched(
    "dino",
    build.Task(
        make_model=_make_model,
        make_network=lambda recipe, model: dino_network(
            model, recipe.dino, flip=recipe.preprocessing.flip
        ),
        **streams_of(DINOBatches, _canvas),
        make_loss=lambda recipe: OutputLoss(),
        make_metrics=lambda recipe: [
            OutputMean(i, name)
            for i, name in enumerate(
                ("teacher_entropy", "mean_entropy", "feature_spread"), start=1
            )
        ],
        names_classes=False,
        best_metric="val_feature_spread",
    ),
    signs,
)
