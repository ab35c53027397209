"""Matches the weights of a file with those of a model, also of another size.

Axes: R and C rows and columns of a grid of patches, D hidden dimension, h and w
height and width of a patch, K channels.
"""

import dataclasses
import functools
import math
import re
import warnings
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np

from keras_vit.checkpoints.engine.layout import Facts, listed
from keras_vit.checkpoints.engine.recognition import Checkpoint
from keras_vit.checkpoints.files.tensors import DAMAGED, refuse
from keras_vit.interpolation import RESAMPLINGS, SQUARE, resize_matrix
from keras_vit.io.checks import check_choice, check_kind
from keras_vit.models.options import AROUND, ATTENTION_POOLINGS, PLACES, RECORD
from keras_vit.trained_as import TrainedAs

__all__ = [
    "REGISTERED_NAMES",
    "LoadPlan",
    "LoadReport",
    "ModelWeights",
    "adapt_channels",
    "build",
    "checked_class",
    "plan_loading",
    "resample_position_embedding",
    "resize_patches",
    "weights_of",
]


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What was loaded from a file, resampled, dropped and left as it was.

    `print(report)` shows it as a table.

    Args:
        source: str, the file.
        format: str, its format.
        loaded: paths of the weights that were filled from the file.
        resampled: dict from path to how its weight was adapted; those paths
            are in `loaded` as well.
        dropped: names in the file that the model has no weight for.
        fresh: paths of weights that the file has nothing for; they were left
            as they were.
        notes: what was assumed, or differs from the file's family.
        resampling: str, how positions of the file are resampled to another
            size; None for a file without.
        grid: (rows, columns) of the patches that the file is for, or None.
        trained_as: what the file's model was trained on.
    """

    source: str
    format: str
    loaded: tuple = ()
    resampled: dict = dataclasses.field(default_factory=dict)
    dropped: tuple = ()
    fresh: tuple = ()
    notes: tuple = ()
    resampling: str | None = None
    grid: tuple | None = None
    trained_as: TrainedAs = TrainedAs()

    def __str__(self):
        lines = [
            f"{self.source} ({self.format})",
            f"images     {self.trained_as}",
            *(f"assumed    {x}" for x in self.trained_as.assumed),
            f"loaded     {len(self.loaded)} weights",
            *(f"resampled  {x}: {y}" for x, y in self.resampled.items()),
            *(f"dropped    {name}" for name in self.dropped),
            *(f"fresh      {path}" for path in self.fresh),
            *(f"note       {note}" for note in self.notes),
        ]
        return "\n".join(lines)


# The registered names of the models, so that they need not be imported here.
REGISTERED_NAMES = {
    "vit": "keras_vit>VisionTransformer",
    "mixer": "keras_vit>Mixer",
    "bit": "keras_vit>BiT",
    "variant": "keras_vit>VariantTransformer",
}


@dataclasses.dataclass(frozen=True)
class ModelWeights:
    """The weights of a model by path, and what their shapes do not tell.

    Args:
        name: str, the model's name.
        family: "vit", "mixer", "bit" or "variant".
        variables: dict from path to Keras variable.
        facts: for the transforms.
        grid: (rows, columns) of the patches, or None.
        config: dict of the model's config; empty for a model that was built
            on an input tensor of its own.
        defaults: dict of the config's fields to their defaults.
        trained_as: what the model was trained on.
    """

    name: str
    family: str
    variables: dict
    facts: Facts
    grid: tuple | None
    config: dict
    defaults: dict
    trained_as: TrainedAs = TrainedAs()

    def shape(self, path: str) -> tuple:
        """Return the shape of one weight."""
        return tuple(self.variables[path].shape)

    def read(self, path: str) -> np.ndarray:
        """Return one weight as a float32 array."""
        array = keras.ops.convert_to_numpy(self.variables[path])
        return np.asarray(array, "float32")


def weights_of(model: keras.Model) -> ModelWeights:
    """Collect from a model what loading and saving need.

    Raises:
        ValueError: for another model, or one whose weights are quantised.
    """
    check_kind(keras.Model, model=model)
    variables = {weight.path: weight for weight in model.weights}
    layers = {layer.name: layer for layer in model.layers}
    family = _family_of(variables)
    if family is None or len(variables) < len(model.weights):
        raise ValueError(
            f"{model.name!r} is no model of keras_vit: its weights are "
            f"{list(variables)[:3]} ... Expected a VisionTransformer, Mixer "
            "or BiT; of a model that contains one, pass the inner model."
        )
    for path, weight in variables.items():
        if "float" not in str(weight.dtype):
            raise ValueError(
                f"The weight {path} of {model.name!r} is of dtype "
                f"{weight.dtype}: the model is quantised. Load or save the "
                "weights before model.quantize(...)."
            )
    block, position = layers.get("block_0"), layers.get("position_embedding")
    grid = getattr(position, "grid", None)
    facts = Facts(
        getattr(block, "num_heads", 1),
        getattr(position, "num_prefix_tokens", 0),
        getattr(layers.get("pool"), "num_heads", 0),
        _hidden_dim(variables),
        grid,
    )
    config = getattr(model, "config", None)
    fields = dataclasses.fields(config) if config else ()
    defaults = {field.name: field.default for field in fields}
    config = dataclasses.asdict(config) if config else {}
    if "variant" in config:  # which has the paths of a Vision Transformer
        family = "variant"
    known = getattr(model, "trained_as", TrainedAs())
    return ModelWeights(
        model.name, family, variables, facts, grid, config, defaults, known
    )


def _hidden_dim(variables) -> int:
    """Return D, or 0 for a model without patches."""
    kernel = variables.get("patch_embed/projection/kernel")
    return 0 if kernel is None else kernel.shape[-1]


def _family_of(paths) -> str | None:
    """Return the family of a model by the paths of its weights."""
    for path, family in {
        "block_0/channel_norm/gamma": "mixer",
        "patch_embed/projection/kernel": "vit",
        "root_conv/kernel": "bit",
        "root_conv1/kernel": "bit",
    }.items():
        if path in paths:
            return family
    return None


def build(family: str, fields: dict, **kwargs) -> keras.Model:
    """Build a model from its family and the fields of its config.

    Raises:
        ValueError: for fields that the config does not have, or that do not
            fit together.
    """
    model_class = checked_class(family, fields)
    return model_class(model_class.config_class(**fields), **kwargs)


def checked_class(family: str, names) -> type:
    """Return the model of a family whose config has all the fields.

    Raises:
        ValueError: for fields that the config does not have.
    """
    model_class = keras.saving.get_registered_object(REGISTERED_NAMES[family])
    known = [x.name for x in dataclasses.fields(model_class.config_class)]
    strangers = sorted(set(names) - set(known))
    if strangers:
        raise ValueError(
            f"Unknown arguments {strangers} for a {model_class.__name__}. "
            f"Expected some of {known}."
        )
    return model_class


HEAD = ("predictions/kernel", "predictions/bias")
REPRESENTATION = ("pre_logits/kernel", "pre_logits/bias")
TOKEN = "class_token/token"
NORM = ("encoder_norm/gamma", "encoder_norm/beta")


@dataclasses.dataclass(frozen=True)
class LoadPlan:
    """How a model is loaded from a file.

    Args:
        steps: dict from our path to a function that returns the array for
            it, in the order in which they are best read.
        report: the `LoadReport` once it is done.
    """

    steps: dict[str, Callable]
    report: LoadReport


# What to do about weights that do not fit, by whether the model was built for
# the file.
ADVICE = {
    False: (
        "Build the model for the file with "
        "keras_vit.checkpoints.load_checkpoint, or with the arguments that "
        "the file was made with (the size of the model, classes, pooling, "
        "class_token, representation_dim)."
    ),
    True: (
        "The model was built from the shapes in the file and the arguments "
        "that were given: leave out what does not belong to the file. "
        "Otherwise the file is of an architecture that the models here do "
        "not have; choose another one."
    ),
}


def plan_loading(
    checkpoint: Checkpoint,
    target: ModelWeights,
    resampling: str | None = None,
    *,
    is_built: bool = False,
) -> LoadPlan:
    """Plan from names and shapes which weight is read from which tensors.

    Args:
        checkpoint: a recognised file with its config, see `configure`.
        target: the weights of the model.
        resampling: how position embeddings are resampled; by default as the
            file's family does it.
        is_built: bool, whether the model was built for the file.

    Raises:
        ValueError: one that lists all weights that are missing in the file,
            that the model has no use for, and that are of another shape.
    """
    _check_variant(checkpoint, target)
    have, want = set(checkpoint.rows), set(target.variables)
    fresh = _fresh_paths(checkpoint, target)
    dropped = _droppable(have, want, fresh) | (fresh & have)
    missing, unused = want - have - fresh, have - want - dropped
    if resampling is not None:
        check_kind(str, resampling=resampling)
        check_choice("resampling", resampling.removesuffix(SQUARE), RESAMPLINGS)
    resampling = resampling or checkpoint.file.config.get(
        "resampling", checkpoint.layout.resampling
    )
    steps, adapted, wrong = {}, {}, []
    for path in sorted((have & want) - fresh, key=_reading_order):
        shape = checkpoint.shape_of(path, checkpoint.facts)
        how = find_adaptation(path, shape, checkpoint, target, resampling)
        if how is None:
            wrong.append(f"{path} {shape} -> {target.shape(path)}")
            continue
        read = functools.partial(checkpoint.read, path, checkpoint.facts)
        steps[path] = _step(checkpoint, target, path, read, how.function)
        if how.description:
            adapted[path] = how.description
    if missing or unused or wrong:
        raise ValueError(
            f"The weights in {checkpoint.file.path!r} "
            f"({checkpoint.layout.name}) do not fit {target.name!r}. "
            f"Missing in the file: {listed(missing)}. "
            f"Unused of the file: {listed(unused)}. Of another shape (file -> "
            f"model): {listed(wrong)}. {ADVICE[is_built]}"
        )
    names = [x for path in sorted(dropped) for x in checkpoint.rows[path].names]
    report = LoadReport(
        checkpoint.file.path,
        checkpoint.layout.name,
        tuple(steps),
        adapted,
        tuple(names + checkpoint.dropped),
        tuple(sorted(fresh)),
        (*checkpoint.notes, *_differences(checkpoint, target)),
        resampling,
        checkpoint.grid,
        checkpoint.trained_as,
    )
    return LoadPlan(steps, report)


def _reading_order(path):
    """Order weights so that all blocks' share of one is read together."""
    return re.sub(r"\d+", "", path), len(path), path


def _step(checkpoint, target, path, read, adapt) -> Callable:
    """Return the function that reads a weight and adapts it to the model."""

    def stepped():
        array = adapt(read())
        if array.shape != target.shape(path):
            refuse(
                checkpoint.file.path,
                f"gives shape {array.shape}, {target.name!r} has "
                f"{target.shape(path)}",
                DAMAGED,
                path,
            )
        if path == HEAD[0] and not array.any():
            _warn_of_zero_head(checkpoint.file.path)
        return array

    return stepped


def _warn_of_zero_head(path):
    """Warn of files without their head, as the first of ImageNet-21k are."""
    warnings.warn(
        f"The classification layer in {path!r} is all zeros, so that every "
        "class gets the same score: these weights were published for "
        "fine-tuning only, or never trained. Give classes=... for a layer of "
        "your own, include_top=False for features, or take "
        'weights="augreg_imagenet21k" to classify.',
        UserWarning,
        stacklevel=2,
    )


def _fresh_paths(checkpoint, target) -> set:
    """Return weights of the model that keep their initial values."""
    have, want = set(checkpoint.rows), set(target.variables)
    fresh = set()
    if TOKEN in want and TOKEN not in have:
        fresh.add(TOKEN)
    if HEAD[0] in want:
        classes = target.shape(HEAD[0])[-1]
        if HEAD[0] not in have or (
            classes != checkpoint.fields.get("num_classes")
        ):
            fresh |= set(HEAD) & want
            # A pre-logits layer learns together with the head.
            if REPRESENTATION[0] not in have:
                fresh |= set(REPRESENTATION) & want
    return fresh


def _droppable(have, want, fresh) -> set:
    """Return weights of the file that a model may do without."""
    dropped = set()
    if HEAD[0] not in want:
        dropped |= set(HEAD)
    if REPRESENTATION[0] not in want and HEAD[0] not in want - fresh:
        # A head that stays is one on the pre-logits.
        dropped |= set(REPRESENTATION)
    if TOKEN not in want:
        dropped.add(TOKEN)
    if NORM[0] not in want:
        dropped |= set(NORM)
    if "pool/probe" not in want:
        dropped |= {path for path in have if path.startswith("pool/")}
    return dropped & have


def _differences(checkpoint, target) -> list:
    """Describe what the model computes otherwise than the file's own."""
    zeros = [x for x, y in checkpoint.rows.items() if y.transform == "no_bias"]
    stored = {**target.defaults, **checkpoint.fields}
    names = [x for x in _compared(target) if x in target.config]
    return [
        *(f"{x} is zero: the file has no bias of this layer" for x in zeros),
        *(
            f"{name}={target.config[name]!r} in the model, {stored[name]!r} "
            "in the file's family: the outputs differ from its own"
            for name in names
            if target.config[name] != stored[name]
        ),
    ]


def _compared(target) -> list[str]:
    """List the fields that both read and that the weights do not show."""
    # The report shows sizes and scales by the weights.
    unread = {*AROUND, "image_size", "layer_scale_init"}
    if not target.config.get("include_preprocessing"):
        unread |= {"pixel_mean", "pixel_std"}
    pooling = target.config.get("pooling")
    if pooling == "none":
        unread |= {"pooling", "norm_after_pooling", "unit_features"}
    if pooling not in ATTENTION_POOLINGS:
        unread.add("pool_num_heads")
    if pooling in ("none", "token", "prefix", "prefix_mean"):
        unread.add("pool_prefix_tokens")
    if REPRESENTATION[0] not in target.variables:
        unread.add("representation_activation")
    # Both normalisations of a Mixer have weights of the same names here.
    return [
        name
        for name, place in PLACES.get(target.family, PLACES["vit"]).items()
        if place == RECORD and name not in unread or name == "normalization"
    ]


def _check_variant(checkpoint, target) -> None:
    """Refuse variants, which compute others things with the same names."""
    stored, wanted = (
        f"the variant {fields['variant']}"
        if fields.get("variant")
        else "a model of keras_vit.models"
        for fields in (checkpoint.fields, target.config)
    )
    if stored != wanted:
        raise ValueError(
            f"The weights in {checkpoint.file.path!r} are of {stored}, "
            f"{target.name!r} is {wanted}. Build the model for the file "
            "with keras_vit.checkpoints.load_checkpoint."
        )


def resize_patches(kernel: np.ndarray, patch_size: tuple) -> np.ndarray:
    """Resize a patch embedding by the pseudo-inverse of resizing patches.

    "FlexiViT: One Model for All Patch Sizes" (arXiv:2212.08013, section
    3.4): the new weights give resized patches the embeddings that the old
    ones give the patches, exactly when patches grow, in the least squares
    otherwise. Patches are resized bilinearly.

    Args:
        kernel: float array (h, w, K, D).
        patch_size: (height, width) of the result.
    """
    # Resizing is separable, so its pseudo-inverse is too.
    rows, columns = (
        np.linalg.pinv(resize_matrix(old, new, "linear"))
        for old, new in zip(kernel.shape[:2], patch_size, strict=True)
    )  # (h, height), (w, width)
    resized = np.einsum("hH,wW,hwcd->HWcd", rows, columns, kernel)
    return resized.astype("float32")


def adapt_channels(kernel: np.ndarray, channels: int) -> np.ndarray:
    """Adapt the first convolution to another number of channels.

    One channel gets the sum over the old ones, so that a grey
    image gives what it gave as RGB; more get the old ones in turn, scaled so
    that the sum stays about the same. The kernel is (h, w, K, D).
    """
    old = kernel.shape[2]
    if channels == 1:
        adapted = kernel.sum(axis=2, keepdims=True)
    else:
        repeats = -(-channels // old)
        adapted = np.tile(kernel, (1, 1, repeats, 1))[:, :, :channels]
        adapted = adapted * (old / channels)
    return adapted.astype("float32")


class Adaptation(NamedTuple):
    """A change of shape: from the file's array, in our layout, to the model's.

    The description goes into the report, "" when nothing changes.
    """

    function: Callable
    description: str = ""


def find_adaptation(
    path, shape, checkpoint: Checkpoint, target, resampling
) -> Adaptation | None:
    """Find how a weight of some shape in the file is adapted to the model.

    None when the shapes cannot be brought together.
    """
    # A table before a later block is one like that before the first.
    named = re.sub(r"^position_embedding_\d+/", POSITION, path)
    adapt = ADAPTERS.get(re.sub(r"^block_\d+/", "", named))
    if adapt is not None:
        found = adapt(shape, checkpoint, target, path, resampling)
        if found is not None:
            return found
    return Adaptation(lambda x: x) if shape == target.shape(path) else None


def _adapt_position(shape, checkpoint, target, path, resampling):
    old_prefix = checkpoint.facts.num_prefix_tokens
    prefix = target.facts.num_prefix_tokens
    old, new = tuple(checkpoint.grid), tuple(target.grid)
    if (old, old_prefix) == (new, prefix):
        return None
    if shape[2] != target.shape(path)[2]:
        return None

    def function(table):
        kept, patches = table[:, :old_prefix][:, :prefix], table[:, old_prefix:]
        patches = resample_position_embedding(patches, old, new, resampling)
        missing = prefix - kept.shape[1]
        kept = np.pad(kept, [(0, 0), (0, missing), (0, 0)])
        return np.concatenate([kept, patches], axis=1)

    parts = []
    if old != new:
        parts.append(
            f"grid {old[0]}x{old[1]} -> {new[0]}x{new[1]} ({resampling})"
        )
    if old_prefix != prefix:
        parts.append(f"prefix tokens {old_prefix} -> {prefix}")
    return Adaptation(function, ", ".join(parts))


def _adapt_axis(shape, checkpoint, target, path, resampling):
    """Adapt a table with a vector for each row, or each column, of the grid."""
    old, new = shape[0], target.shape(path)[0]
    if old == new or shape[1] != target.shape(path)[1]:
        return None
    matrix = resize_matrix(old, new, resampling)  # (new, old)
    return Adaptation(
        lambda table: (matrix @ table).astype("float32"),
        f"{path.split('/')[-1]} {old} -> {new} ({resampling})",
    )


def _adapt_offsets(shape, checkpoint, target, path, resampling):
    """Refuse another grid, in which the same offset is another way."""
    old = tuple(checkpoint.grid), checkpoint.facts.num_prefix_tokens
    new = tuple(target.grid), target.facts.num_prefix_tokens
    if old == new:
        return None
    raise ValueError(
        "Relative positions are offsets in the sequence of tokens, row by "
        "row, and mean nothing in another grid. Received: weights of "
        f"{old[0][0]}x{old[0][1]} patches and {old[1]} prefix tokens for a "
        f"model of {new[0][0]}x{new[0][1]} and {new[1]}. Keep the image size "
        "and the pooling of the weights, or train a variant with 1-D or 2-D "
        "positions."
    )


def resample_position_embedding(
    table: np.ndarray,
    old_grid: tuple,
    new_grid: tuple,
    method: str = "linear_aligned",
) -> np.ndarray:
    """Resample the embeddings of patches from one grid to another.

    Args:
        table: float array (1, P + R * C, D), those of P prefix tokens first;
            they are kept.
        old_grid: (rows, columns) of the table.
        new_grid: (rows, columns) that are wanted.
        method: "linear_aligned": linear, corners on corners, as the original
            code does it (`scipy.ndimage.zoom` of order 1). "bicubic",
            "linear": between the centres of patches, as torch does it.
            "bicubic_antialiased", "linear_antialiased": likewise, low-pass
            filtered where the grid shrinks.
            Each with "_square": to a square grid as large as the longer side,
            of which the upper left is taken, as NaFlexViTs do it.

    Returns:
        float32 array (1, P + new rows * new columns, D).

    Raises:
        ValueError: for an unknown method, or a table without the rows of the
            grid.
    """
    check_choice("resampling", method.removesuffix(SQUARE), RESAMPLINGS)
    prefix = table.shape[1] - old_grid[0] * old_grid[1]
    if prefix < 0:
        raise ValueError(
            f"A position embedding of shape {table.shape} is too short for a "
            f"grid of {old_grid[0]}x{old_grid[1]} patches."
        )
    side = max(new_grid) if method.endswith(SQUARE) else None
    method = method.removesuffix(SQUARE)
    rows, columns = (
        resize_matrix(old, side or new, method)[:new]
        for old, new in zip(old_grid, new_grid, strict=True)
    )
    grid = table[0, prefix:].reshape(*old_grid, -1)  # (R, C, D)
    grid = np.einsum("rR,cC,RCD->rcD", rows, columns, grid, optimize=True)
    patches = grid.reshape(1, -1, grid.shape[-1])  # (1, r * c, D)
    joined = np.concatenate([table[:, :prefix], patches], axis=1)
    return joined.astype("float32")


def geometric_matrix(old: int, new: int) -> np.ndarray:
    """Return the linear map of distances along one axis, as BEiT does it.

    The old distances are put at 0, 1, 1 + q, 1 + q + q^2, ... to both sides,
    with a q above 1.01 by which the last one gets as far as the new ones go,
    and interpolated linearly: close to a token they stay as they are.

    Args:
        old: int, odd: the distances from -(old // 2) to old // 2.
        new: int, odd, likewise.

    Returns:
        float64 array (new, old) whose rows sum to 1.
    """
    left, right = 1.01, 1.5
    ratio = left
    while right - left > 1e-6:
        ratio = (left + right) / 2
        reach = (ratio ** (old // 2) - 1) / (ratio - 1)
        left, right = (left, ratio) if reach > new // 2 else (ratio, right)
    points = np.cumsum(ratio ** np.arange(old // 2))
    points = np.concatenate([-points[::-1], [0], points])
    wanted = np.arange(new) - new // 2
    each = np.eye(old)
    return np.stack([np.interp(wanted, points, x) for x in each], axis=1)


# How distances are resampled, by how positions are: between points that lie
# geometrically, otherwise linearly.
DISTANCES = {"bicubic_antialiased": ("geometric", geometric_matrix)}

LINEARLY = ("linear", functools.partial(resize_matrix, method="linear"))


def _adapt_distances(shape, checkpoint, target, path, resampling):
    """Adapt a number for each distance on the grid; those of tokens stay."""
    old, new = tuple(checkpoint.grid), tuple(target.grid)
    spans = [tuple(2 * x - 1 for x in grid) for grid in (old, new)]
    extra = shape[0] - math.prod(spans[0])
    wanted = (math.prod(spans[1]) + extra, shape[1])
    if old == new or target.shape(path) != wanted:
        return None
    # Also of a span that stays as it is, as the originals do it.
    method, matrix = DISTANCES.get(resampling, LINEARLY)
    rows, columns = (matrix(x, y) for x, y in zip(*spans, strict=True))

    def function(table):
        patches = table[: math.prod(spans[0])].reshape(*spans[0], -1)
        patches = np.einsum("rR,cC,RCh->rch", rows, columns, patches)
        patches = patches.reshape(-1, table.shape[1]).astype("float32")
        return np.concatenate([patches, table[math.prod(spans[0]) :]])

    return Adaptation(
        function,
        f"distances in {old[0]}x{old[1]} -> {new[0]}x{new[1]} ({method})",
    )


def _adapt_span(shape, checkpoint, target, path, resampling):
    """Adapt a vector for each distance along an axis, always linearly."""
    return _adapt_axis(shape, checkpoint, target, path, "linear")


def _adapt_patches(shape, checkpoint, target, path, resampling):
    """Adapt the channels first, then the patch size."""
    wanted = target.shape(path)
    hybrid = "root_conv/kernel" in target.variables
    if shape == wanted or shape[3] != wanted[3] or hybrid:
        return None

    def function(kernel):
        if kernel.shape[2] != wanted[2]:
            kernel = adapt_channels(kernel, wanted[2])
        if kernel.shape[:2] != wanted[:2]:
            kernel = resize_patches(kernel, wanted[:2])
        return kernel

    return Adaptation(function, _describe_kernel(shape, wanted))


def _adapt_root(shape, checkpoint, target, path, resampling):
    wanted = target.shape(path)
    if shape == wanted or (*shape[:2], shape[3]) != (*wanted[:2], wanted[3]):
        return None
    return Adaptation(
        lambda kernel: adapt_channels(kernel, wanted[2]),
        _describe_kernel(shape, wanted),
    )


def _describe_kernel(old, new) -> str:
    parts = []
    if old[2] != new[2]:
        parts.append(f"channels {old[2]} -> {new[2]}")
    if old[:2] != new[:2]:
        parts.append(
            f"patches {old[0]}x{old[1]} -> {new[0]}x{new[1]} "
            "(pseudo-inverse resize)"
        )
    return ", ".join(parts)


POSITION = "position_embedding/"

ADAPTERS = {
    f"{POSITION}embedding": _adapt_position,
    f"{POSITION}rows": _adapt_axis,
    f"{POSITION}columns": _adapt_axis,
    f"{POSITION}offsets": _adapt_offsets,
    "attention/position_bias/table": _adapt_distances,
    "position_bias/table": _adapt_distances,
    "attention/position_bias/rows": _adapt_span,
    "attention/position_bias/columns": _adapt_span,
    "patch_embed/projection/kernel": _adapt_patches,
    "root_conv/kernel": _adapt_root,
    "root_conv1/kernel": _adapt_root,
    "stem_conv1/kernel": _adapt_root,
}
