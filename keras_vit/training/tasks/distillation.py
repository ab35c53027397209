"""Distillation: a model learns to say what a teacher says of the same images.

The teacher is any model that loads; the student is of any size and patch. Both
see one crop, each in its own size and scale of pixels, as "Knowledge
distillation: A good teacher is patient and consistent" (arXiv:2106.05237)
found best. The loss is a weighted sum of

- 1 - cos(student, teacher) of the pooled features, and of the patch tokens,
  the teacher's standardised (see `Standardized`) and resampled to the grid of
  the student; a linear layer, dropped at the end, maps the student's to the
  width of the teacher;
- the Kullback-Leibler divergence of the logits, "Distilling the Knowledge in a
  Neural Network" (arXiv:1503.02531), or with labels one of the two losses of
  "Training data-efficient image transformers & distillation through attention"
  (DeiT, arXiv:2012.12877).

Axes: B images, H and W height and width, R and C rows and columns of a grid of
patches, D features, K classes.
"""

import dataclasses
import math
import warnings

import keras
from keras import ops

from keras_vit.checkpoints.engine.configure import configure
from keras_vit.checkpoints.engine.loading import (
    load_checkpoint,
    located,
    open_source,
)
from keras_vit.data.config import evaluation_of
from keras_vit.data.resizing import evaluation_fields
from keras_vit.evaluation.few_shot import feature_model
from keras_vit.interpolation import resize_matrix
from keras_vit.io.checks import (
    check_at_least,
    check_choice,
    check_limits,
    check_size,
    check_types,
    check_unread,
)
from keras_vit.models import BiT
from keras_vit.models.configured_model import BlockFeatures, check_blocks
from keras_vit.trained_as import TrainedAs
from keras_vit.training import build
from keras_vit.training.build import HEAD, Teacher
from keras_vit.training.distribution.layouts import mean_of_replicas
from keras_vit.training.tasks.feature_watch import watched
from keras_vit.training.tasks.losses import (
    cosine_loss,
    deit_hard_loss,
    deit_soft_loss,
    kl_loss,
    moving_average,
)

__all__ = [
    "DISTILLATION",
    "DISTILLATION_WITH_LABELS",
    "DistillConfig",
    "DistillationLoss",
    "Standardized",
    "distillation_network",
    "resized",
]

NUM_NAMED = 3  # classes that an error names
HEAD_OF_ZEROS = "The classification layer in"  # begins a warning.
MOMENTUM = 0.99  # Share of a running mean that stays at a step.
EPSILON = 1e-6  # Added to the variance of what a teacher says.


@dataclasses.dataclass(frozen=True)
class DistillConfig:
    """The teacher, and what is learned of it."""

    teacher: str | None = None
    """The model to learn from: a run folder, a file or folder of any known
    format, or a name of `keras-vit weights list`."""

    teacher_size: int | tuple[int, int] | None = None
    """Size of the images of the teacher, one side or [height, width] in
    pixels; null is the size that it was trained on. With as many patches as
    the student has, nothing is resampled."""

    features: float = 1.0
    """Weight of 1 - cosine of the pooled features."""

    patches: float = 1.0
    """Weight of 1 - cosine of the patch tokens."""

    standardize: bool = True
    """Whether each dimension of the teacher's features and patch tokens has
    mean 0 and deviation 1 over the images of the training. Features that lie
    near their mean teach a student little but that mean without it."""

    logits: float = 0.0
    """Weight of what the logits say. Without labels the student gets the
    classes of the teacher."""

    labels: str = "none"
    """What the logits learn: those of the teacher alone ("none"), or with
    labels as DeiT does: "soft", cross-entropy and divergence, or "hard",
    cross-entropy with the label and with the class that the teacher says."""

    temperature: float = 3.0
    """Of the softmax in the divergence: 3 in DeiT, 1 in arXiv:2106.05237."""

    teacher_share: float = 0.1
    """Share of the divergence with labels="soft", lambda of DeiT."""

    collapse_steps: int = 200
    """Steps, and two checkpoints at least, of a student whose features are the
    same for all images, after which the run ends; 0 never ends it."""

    def __post_init__(self):
        check_types(self)
        weights = ("features", "patches", "logits")
        check_at_least(self, 0, *weights, "collapse_steps")
        check_choice("labels", self.labels, LOGIT_LOSSES)
        check_limits(self, 1 + 1e-9, "teacher_share")
        if not any(getattr(self, x) for x in weights):
            raise ValueError(
                "Nothing is learned of the teacher. Received: features=0, "
                "patches=0, logits=0. Give one of them a weight above 0."
            )
        if not 0 < self.temperature < math.inf:
            raise ValueError(
                "temperature must be above 0. Received: "
                f"temperature={self.temperature!r}."
            )
        if self.teacher_size is not None:
            check_size("teacher_size", self.teacher_size)
        if not self.logits:
            names = ("labels", "temperature", "teacher_share")
            check_unread(self, "logits=0", *names)
        if not (self.features or self.patches):
            check_unread(self, "features=0 and patches=0", "standardize")
        if self.labels == "hard":
            check_unread(self, "labels='hard'", "temperature")
        if self.labels != "soft":
            check_unread(self, f"labels={self.labels!r}", "teacher_share")


# `labels` -> the loss of each image from logits and labels, (B,).
LOGIT_LOSSES = {
    "none": lambda config, student, teacher, labels: kl_loss(
        student, teacher, config.temperature, each=True
    ),
    "soft": lambda config, student, teacher, labels: deit_soft_loss(
        student,
        teacher,
        labels,
        temperature=config.temperature,
        share=config.teacher_share,
        each=True,
    ),
    "hard": lambda config, student, teacher, labels: deit_hard_loss(
        student, student, teacher, labels, each=True
    ),
}


class DistillationLoss(keras.losses.Loss):
    """The loss of each image, from the output of a `distillation_network`.

    Args:
        config: a `DistillConfig`.
        label_smoothing: float in [0, 1), share of a label that is spread
            evenly over the classes.

    Call arguments:
        y_true: labels (B, K), one-hot or mixed; not read without labels.
        y_pred: (B, 1) or (B, 1 + 2 K).
    """

    def __init__(self, config: DistillConfig, label_smoothing: float = 0.0):
        super().__init__(name="distillation")
        self.config = config
        self.label_smoothing = label_smoothing

    def call(self, y_true, y_pred):
        found = y_pred[:, 0]  # (B,)
        if not self.config.logits:
            return found
        student, teacher = logits_in(y_pred)
        if self.config.labels != "none":
            spread = self.label_smoothing / student.shape[-1]
            y_true = y_true * (1 - self.label_smoothing) + spread
        loss = LOGIT_LOSSES[self.config.labels]
        taught = loss(self.config, student, teacher, y_true)  # (B,)
        return found + self.config.logits * taught


def logits_in(outputs) -> tuple:
    """Return those of student and teacher, (B, K) each, in (B, 1 + 2 K)."""
    count = outputs.shape[-1] // 2
    return outputs[:, 1 : 1 + count], outputs[:, 1 + count :]


class RunningMean(keras.layers.Layer):
    """The mean of what it was given in the training steps so far.

    From step 100 on a moving average. It is state of the run, is the same
    after a resume, and does not move in an evaluation.

    Input shape:
        Any, the mean of a batch, or of a replica's share of one.

    Output shape:
        The same, float32, without gradient.
    """

    def __init__(self, **kwargs):
        super().__init__(dtype="float32", **kwargs)

    def build(self, input_shape):
        state = {"trainable": False, "initializer": "zeros"}
        self.mean = self.add_weight(
            name="mean", shape=input_shape, aggregation="mean", **state
        )
        self.steps = self.add_weight(
            name="steps", aggregation="only_first_replica", **state
        )

    def call(self, x, training=False):
        if not training:
            return ops.convert_to_tensor(self.mean)
        stays = ops.minimum(self.steps / (self.steps + 1), MOMENTUM)
        mean = moving_average(self.mean, mean_of_replicas(x), stays)
        self.mean.assign(mean)
        self.steps.assign(self.steps + 1)
        return mean

    def compute_output_shape(self, input_shape):
        return input_shape


class Standardized(keras.layers.Layer):
    """Gives each dimension of what a teacher says mean 0 and deviation 1.

    (x - mean) / sqrt(variance + 1e-6) over images and places, the
    "standardization" of "PHI-S" (arXiv:2410.01680), section 2, which names
    Theia (arXiv:2407.20179) and UNIC (arXiv:2408.05088) as its users. The
    moments are those of a `RunningMean`.

    Input shape:
        (B, ..., D).

    Output shape:
        (B, ..., D), float32.

    Example:

    >>> layer = Standardized()
    >>> x = np.array([[0.0, 10.0], [2.0, 30.0]])
    >>> layer(x, training=True).numpy()
    array([[-1., -1.],
           [ 1.,  1.]], dtype=float32)
    """

    def __init__(self, **kwargs):
        super().__init__(dtype="float32", **kwargs)
        self.running = RunningMean(name="running")

    def build(self, input_shape):
        self.running.build((2, input_shape[-1]))

    def call(self, x, training=False):
        axes = tuple(range(len(x.shape) - 1))
        # Of squares, as means of devices have a mean, which variances do not.
        moments = ops.stack([ops.mean(x, axes), ops.mean(x * x, axes)])
        mean, square = ops.unstack(self.running(moments, training=training))
        variance = ops.maximum(square - mean * mean, 0.0)
        return (x - mean) / ops.sqrt(variance + EPSILON)


class StudentAccuracy(build.Accuracy):
    """Share of images that the student classifies right."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        student, _ = logits_in(y_pred)
        super().update_state(y_true, student, sample_weight)


def distillation_network(
    model: keras.Model,
    teacher: keras.Model,
    config: DistillConfig,
    method: str | None = None,
) -> keras.Model:
    """Build the network from images to what a `DistillationLoss` takes.

    Args:
        model: the student, a model of keras_vit from images in [0, 255], whose
            layers the network shares.
        teacher: another one, in whatever size, which stays as it is.
        config: a `DistillConfig`.
        method: how images are brought to the size of the teacher, "bicubic"
            or bilinear.

    Returns:
        A Keras model from images (B, H, W, channels) to float32 (B, 1), the
        weighted distances of features and patches; with a weight of logits
        (B, 1 + 2 K), those of student and teacher behind it.

    Raises:
        ValueError: when one of the models has no patch tokens or no classes,
            or the other channels or classes.

    Example:
        >>> network = distillation_network(
        ...     keras_vit.ViT_Ti16(classes=0, include_preprocessing=True),
        ...     keras_vit.ViT_B16("imagenet21k", include_preprocessing=True),
        ...     DistillConfig())
        >>> network.output_shape
        (None, 1)
    """
    check_pair(model, teacher, config)
    wanted = [name for name in PARTS if getattr(config, name)]
    parts = keras.Model(teacher.input, [PARTS[x](teacher) for x in wanted])
    taught = Teacher(
        parts,
        lambda images: pixels_for(images, teacher.input_shape[1:3], method),
        name="teacher",
    )(model.input)
    taught = dict(zip(wanted, keras.tree.flatten(taught), strict=True))
    distance = 0.0
    for name in ("features", "patches"):
        if name in wanted:
            target = ops.cast(taught[name], "float32")
            if config.standardize:
                target = Standardized(name=f"standardize_{name}")(target)
            project = keras.layers.Dense(
                target.shape[-1], dtype="float32", name=f"project_{name}"
            )
            x = project(PARTS[name](model))
            if name == "patches":
                target = resized(target, x.shape[1:3])  # (B, R, C, D)
            loss = cosine_loss(x, target, each=True)  # (B,)
            distance = distance + getattr(config, name) * loss
    if "logits" not in wanted:
        outputs = ops.expand_dims(distance, -1)  # (B, 1)
    else:
        logits = [
            ops.cast(x, "float32") for x in (model.output, taught["logits"])
        ]
        distance = distance + 0 * logits[0][:, 0]  # There may be none.
        outputs = ops.concatenate(
            [ops.expand_dims(distance, -1), *logits], axis=-1
        )  # (B, 1 + 2 K)
    return keras.Model(model.input, outputs, name="distillation")


def patch_map(model):
    """Return the patch tokens after the last block, normalised: (B, R, C, D).

    Class and distillation token and registers are cut off.
    """
    after = BlockFeatures(model, check_blocks(model, -1))
    (x,) = keras.tree.flatten(after.states.output)
    for layer in after.after:
        x = layer(x)
    rows, columns = model.config.grid
    x = x[:, x.shape[1] - rows * columns :]
    return ops.reshape(x, (-1, rows, columns, x.shape[-1]))


# What of a model is learned -> its tensor in the graph of the model.
PARTS = {
    "features": lambda model: feature_model(model).output,
    "patches": patch_map,
    "logits": lambda model: model.get_layer(HEAD).output,
}


def resized(maps, size: tuple, method: str = "linear_antialiased"):
    """Resample maps, low-pass filtered where they shrink.

    As torch's `interpolate` with antialias and without align_corners, by a
    matrix for each axis: the same numbers on every backend.

    Args:
        maps: float tensor (B, H, W, D).
        size: (height, width) that is wanted.
        method: see `resample_position_embedding`.

    Returns:
        float tensor (B, height, width, D).
    """
    for axis, equation in ((1, "ij,bjwd->biwd"), (2, "ij,bhjd->bhid")):
        old, new = maps.shape[axis], size[axis - 1]
        if old != new:
            matrix = ops.cast(resize_matrix(old, new, method), maps.dtype)
            maps = ops.einsum(equation, matrix, maps)
    return maps


def pixels_for(images, size: tuple, method: str | None):
    """Return images (B, H, W, channels) in [0, 255] in another size."""
    kernel = "bicubic" if method == "bicubic" else "linear"
    images = resized(ops.cast(images, "float32"), size, f"{kernel}_antialiased")
    return ops.clip(images, 0, 255)


def check_pair(model, teacher, config: DistillConfig) -> None:
    """Raise a ValueError where a student cannot learn of a teacher."""
    both = {"teacher": teacher, "student": model}
    for what, found in both.items():
        if config.patches and isinstance(found, BiT):
            raise ValueError(
                f"A BiT has no patch tokens, and the {what} is one. Received: "
                f"distill.patches={config.patches}. Set it to 0."
            )
        names = [layer.name for layer in found.layers]
        if config.logits and HEAD not in names:
            raise ValueError(
                f"The {what} has no classification layer. Received: "
                f"distill.logits={config.logits}. Set it to 0."
            )
    channels = [x.input_shape[-1] for x in both.values()]
    if len(set(channels)) > 1:
        raise ValueError(
            f"The teacher takes images of {channels[0]} channel(s), and the "
            f"student of {channels[1]}. Give --model.channels {channels[0]}."
        )
    counts = [x.output_shape[-1] for x in both.values()]
    if config.logits and len(set(counts)) > 1:
        raise ValueError(
            f"The teacher has {counts[0]} classes, and the student "
            f"{counts[1]}. Received: distill.logits={config.logits}. Set it "
            "to 0, or choose a teacher of the same classes."
        )


def open_teacher(config: DistillConfig):
    """Open the weights of the teacher, of which nothing is read yet.

    Raises:
        ValueError: when there are none, or they have no head that is needed.
        OSError: when they cannot be fetched.
    """
    if config.teacher is None:
        raise ValueError(
            "method='distill' needs a teacher. Received: distill.teacher="
            "None. Give --distill.teacher a run folder, a file or a name of "
            "`keras-vit weights list`."
        )
    opened = open_source(located(config.teacher))
    fields = configure(opened).fields
    projects = fields.get("head_bias", 0) is None
    projects = projects and opened.trained_as.class_names is None
    if config.logits and (not fields.get("num_classes") or projects):
        raise ValueError(
            f"The teacher {config.teacher!r} has no classes"
            f"{', but a projection for texts' * projects}. Received: "
            f"distill.logits={config.logits}. Set it to 0, or choose another "
            "teacher."
        )
    return opened


def classes_for(recipe, class_names) -> tuple[str, ...]:
    """Return the classes of the student: none, the data's or the teacher's.

    Raises:
        ValueError: when the teacher has others than the data, whose labels
            are learned.
    """
    config = recipe.distill
    opened = None if recipe.smoke else open_teacher(config)
    if not config.logits:
        return build.NO_CLASS
    if opened is None:
        return tuple(class_names)
    count = configure(opened).fields["num_classes"]
    known = opened.trained_as.class_names
    theirs = known or tuple(map(str, range(count)))
    if config.labels == "none":
        return theirs
    names = tuple(class_names)
    if len(names) != count or known not in (None, names):
        raise ValueError(
            f"The teacher {config.teacher!r} has {count} classes, "
            f"{_first(theirs)}, and the data {len(names)}, {_first(names)}. "
            f"Received: distill.labels={config.labels!r}. Fine-tune the "
            'teacher on them first, or set labels to "none".'
        )
    return names


def _first(names) -> str:
    return ", ".join(map(repr, names[:NUM_NAMED])) + "..." * (
        len(names) > NUM_NAMED
    )


def load_teacher(recipe, num_classes: int) -> tuple[keras.Model, str | None]:
    """Load the teacher of a recipe, and how its images are resized.

    In its own size and scale of pixels, in the precision of the run. In a
    trial, a tiny model of the kind of the student, with as many classes.

    Raises:
        ValueError: when it cannot be loaded, or its head is all zeros.
        OSError: when it cannot be fetched.
    """
    config = recipe.distill
    if recipe.smoke:
        names = ("",) * (num_classes if config.logits else 1)
        return build.make_model(recipe, names), None
    opened = open_teacher(config)
    fields = configure(opened).fields
    usual = opened.trained_as.told_size or fields["image_size"]
    size = config.teacher_size or usual
    if size is None or None in (size if isinstance(size, tuple) else ()):
        raise ValueError(
            f"The teacher {config.teacher!r} takes images of any size. Give "
            "--distill.teacher_size, such as 224."
        )
    height, width = check_size("teacher_size", size)
    patch = fields.get("patch_size") or (1, 1)
    if height % patch[0] or width % patch[1]:
        raise ValueError(
            f"The teacher {config.teacher!r} has patches of {patch[0]}x"
            f"{patch[1]}, which divide its images. Received: "
            f"distill.teacher_size={config.teacher_size}. Leave it out, or "
            "set it to a multiple of them."
        )
    headless = bool(opened.other_head) and not config.logits
    with warnings.catch_warnings():
        action = "error" if config.logits else "ignore"
        warnings.filterwarnings(action, HEAD_OF_ZEROS)
        try:
            model = load_checkpoint(
                opened,
                input_shape=(height, width, fields["channels"]),
                classifier_activation=None,
                include_preprocessing=True,
                dtype=recipe.training.precision,
                classes=0 if headless else None,
            )
        except UserWarning as warning:
            raise ValueError(str(warning)) from warning
    images = evaluation_of(model.trained_as, (height, width))
    return model, images.resize_method


def _make_model(recipe, class_names) -> keras.Model:
    """Build the student, with classes where it learns logits."""
    config, training = recipe.distill, recipe.training
    labelled = config.labels != "none"
    build.check_trains_all("distill", training, with_classes=labelled)
    usual = ("val_loss", "val_accuracy" if labelled else "val_knn")
    check_choice("training.best_metric", training.best_metric, usual)
    if labelled and training.loss != "softmax":
        raise ValueError(
            "The losses of DeiT are for one class of each image. Received: "
            f'training.loss={training.loss!r}. Set distill.labels to "none".'
        )
    names = classes_for(recipe, class_names)
    model = build.make_model(recipe, names)
    if not config.logits:
        model = build.headless(model)
    size = model.input_shape[1:3]
    model.trained_as = TrainedAs(
        preprocessing=evaluation_fields(recipe.preprocessing, size),
        image_size=None if None in size else size,
        class_names=names if config.logits else None,
        source="a run of keras_vit",
    )
    return model


def _make_network(recipe, model) -> keras.Model:
    teacher, method = load_teacher(recipe, model.output_shape[-1])
    return distillation_network(model, teacher, recipe.distill, method)


DISTILLATION = watched(
    "distill",
    build.Task(
        make_model=_make_model,
        make_network=_make_network,
        make_stream=build.make_stream,
        make_validation=build.make_validation,
        make_loss=lambda recipe: DistillationLoss(
            recipe.distill, recipe.training.label_smoothing
        ),
        make_metrics=lambda recipe: [],
        names_classes=False,
    ),
)
# For `labels` "soft" and "hard".
DISTILLATION_WITH_LABELS = dataclasses.replace(
    DISTILLATION,
    make_metrics=lambda recipe: [StudentAccuracy("accuracy")],
    names_classes=True,
)
