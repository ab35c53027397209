"""How a publisher's files hold a model: names, transforms, and what they tell.

A table maps the path of our weight to the file's name or names for it and
the name of a transform. `{i}` is a block, `{s}` and `{u}` a stage and a unit
from 1, `{s0}` and `{u0}` the same from 0, `{uu}` a unit of two digits.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from keras_vit.checkpoints.files.tensors import stacked

__all__ = [
    "Dialect",
    "Facts",
    "Layout",
    "NO_PLACE",
    "Row",
    "TRANSFORMS",
    "Transform",
    "expression",
    "flax_dense",
    "flax_norm",
    "listed",
    "matches",
    "paths_of",
    "row_of",
    "torch_convolution",
    "torch_dense",
    "torch_norm",
]

# How the problems of a layout begin that has other layers than the model.
NO_PLACE = "has no place for"


def _nothing(*args) -> None:
    """Do nothing, for a publisher without a function of its own."""


def _no_fields(*args) -> dict:
    return {}


def _no_problems(*args) -> list:
    return []


def _same_names(*args) -> Callable[[str], str]:
    return str


@dataclasses.dataclass(frozen=True)
class Dialect:
    """What one publisher's files have in common, beside their tensors.

    All but the name is optional. What returns problems returns reasons why a
    model cannot be written, each of which follows "it ".

    Args:
        name: str, for messages.
        config_name: str, what the file is called that tells the config of a
            folder's model.
        open_folder: from a path to a `TensorFile` where the folder is of a
            kind that only this publisher has, else None.
        is_config: from the content of a config.json to whether it is this
            publisher's.
        read_config: from the path of a config.json and its content to the
            fields of a config that it tells.
        read_preprocessing: from a folder and the content of its config.json
            to the fields of a config that tell how pixels are scaled.
        read_trained_as: from a folder and the content of its config.json to
            the fields of a `TrainedAs`: how images are resized and cropped,
            the kind of problem, the names of the classes.
        usual_images: from (layout, fields of the config) to the fields of a
            `TrainedAs` that say how images are usually prepared for its
            models, where no file says it.
        check_config: from the path of a config.json, its content and the
            names of the tensors beside it; raises where they contradict.
        folder_notes: from a folder and the fields that are known of its model
            to what a user should know of it.
        example_of_architecture: str, a name that the argument `architecture`
            takes, where this publisher names architectures.
        check_layout: from a recognised file and the name that was given of its
            architecture, or None; raises where what is said of it, there or in
            its config, is of other tensors.
        scales_pixels_variously: bool, whether only a config tells how pixels
            of its models are scaled.
        untold: fields of the config that only a config.json tells, so that a
            file without one is read as is usual, which is said.
        rename: from (layout, weights of the model, features) to a function
            of the names in the tables that returns those to write.
        companions: from (layout, weights of the model) to arrays that readers
            expect beside the model's, by name.
        metadata: from (weights of the model, names of classes) to texts for
            the header of a safetensors file.
        folder_problems: from the weights of a model to problems of a folder
            that a file does not have.
        folder_files: from (layout, weights of the model, features, names of
            classes) to the contents of the JSON files beside the tensors, by
            name.
    """

    name: str
    config_name: str = "config.json"
    open_folder: Callable = _nothing
    is_config: Callable = _nothing
    read_config: Callable = _no_fields
    read_preprocessing: Callable = _no_fields
    read_trained_as: Callable = _no_fields
    usual_images: Callable = _no_fields
    check_config: Callable = _nothing
    folder_notes: Callable = _no_problems
    example_of_architecture: str = ""
    check_layout: Callable = _nothing
    scales_pixels_variously: bool = False
    untold: tuple = ()
    rename: Callable = _same_names
    companions: Callable = _no_fields
    metadata: Callable = _no_fields
    folder_problems: Callable = _no_problems
    folder_files: Callable = _no_fields


@dataclasses.dataclass(frozen=True)
class Library:
    """A library of others that loads the folders of a format.

    Args:
        name: str, what is installed and imported.
        format: str, of `save_checkpoint`.
        frameworks: what its models are called on Kaggle, the closest first.
        usage: from (repository, branch or None, channels of an image, content
            of config.json) to Markdown with code that loads the folder.
        unloadable: from the config of a model to why the library does not
            load the folder that holds it, "" where it does.
        load_folder: None, or from a path to the library's torch module, for
            images (B, C, H, W), in evaluation mode.
    """

    name: str
    format: str
    frameworks: tuple[str, ...]
    usage: Callable[[str, str | None, int, dict], str]
    unloadable: Callable[[Any], str] = lambda config: ""
    load_folder: Callable | None = None


@dataclasses.dataclass(frozen=True)
class Layout:
    """One layout of files for one family of models.

    Args:
        dialect: the publisher's `Dialect`.
        name: str, of the format in messages and reports.
        family: "vit", "mixer", "bit" or "text".
        table: dict from our path to the file's names, see `rows`.
        marks: names, one tuple of which is complete in each such file.
        is_specific: bool, whether its files have the marks of other layouts
            too, so that it is tried before them.
        variants: dict from a feature to rows that take the place of others.
        signs: dict from a feature to the name whose presence shows it.
        aliases: pairs of a regular expression and what names in the file
            that match are to be read as.
        stacks: dict from a regular expression of names whose tensors hold all
            blocks to their axis, and the name of the part of block i.
        constants: dict, fields of the config that the layout fixes.
        implied: dict from one of our paths, or a feature, to the fields of
            the config that a file with this weight or feature has.
        ignored: regular expressions of names without influence.
        beside: regular expressions of names without influence, where what
            stands before the names of the model does not stand before them.
        unsupported: dict from a regular expression of names to what they
            belong to that the models here do not have.
        resampling: how its models resample position embeddings.
        has_fixed_positions: bool, whether its models may compute their
            positions, so that a file has none.
        optional: fields of the config for biases that files may lack.
        required: fields of the config that no tensor tells and in which
            published files differ, so that something must tell them.
        read_architecture: from (checkpoint, name of the architecture or None,
            names of known fields) to the fields that the publisher's list of
            architectures tells.
        find_pooling: from (checkpoint, fields) to the pooling that its code
            has for such a model, None where nothing is particular.
        check_values: from (checkpoint, fields) to an error where tensors that
            no model here reads contradict the fields.
        container: "npz", "safetensors", "folder" with a config.json, or
            "either" of these two, a folder where a path has no suffix; "" for
            what is only read.
        save_name: str, as in `save_checkpoint(..., format=...)`; "" for the
            name of the layout.
        options: fields of the config of which files hold any value, or
            another part of the table decides.
        settable: fields of `constants` that readers take from elsewhere, so
            that any value can be written.
        unwritable: regular expressions of our paths that files have, but
            today's readers do not take.
        needs: fields of the config that each model in the layout has, so
            that no other is written in it.
        poolings: how readers pool. Encoded tokens are what they have in any
            case: features without pooling can be written in all layouts.
        poolings_without_token: of these, those without a class token.
        unpositioned: str, the field of the config with which prefix tokens
            are written without positions.
        find_problems: from (layout, weights of the model) to problems that
            are particular to this layout.
        read_text: of a layout of text towers: from a `Checkpoint` to what no
            tensor tells of one, a dict with its config's "fields", the rule of
            its "tokenizer", and a "logit_scale" where no tensor has it; and
            the "sizes" of its config, which the tensors must show as well.
        model_class: what the functions of the dialect need to know of the
            publisher's class for such files. A model is read again from
            the names, shapes and config before it is written in such a layout.
    """

    dialect: Dialect
    name: str
    family: str
    table: dict
    marks: tuple
    is_specific: bool = False
    variants: dict = dataclasses.field(default_factory=dict)
    signs: dict = dataclasses.field(default_factory=dict)
    aliases: tuple = ()
    stacks: dict = dataclasses.field(default_factory=dict)
    constants: dict = dataclasses.field(default_factory=dict)
    implied: dict = dataclasses.field(default_factory=dict)
    ignored: tuple = ()
    beside: tuple = ()
    unsupported: dict = dataclasses.field(default_factory=dict)
    resampling: str = "linear_aligned"
    has_fixed_positions: bool = False
    optional: tuple = ()
    required: tuple = ()
    read_architecture: Callable | None = None
    find_pooling: Callable = _nothing
    check_values: Callable = _nothing
    container: str = "npz"
    save_name: str = ""
    options: frozenset = frozenset()
    settable: tuple = ()
    unwritable: tuple = ()
    needs: tuple = ()
    poolings: tuple = ()
    poolings_without_token: tuple = ()
    unpositioned: str = ""
    find_problems: Callable = _no_problems
    read_text: Callable = _no_fields
    model_class: Any = None

    @property
    def public_name(self) -> str:
        """Return what `save_checkpoint` calls it."""
        return self.save_name or self.name

    def rows(self, features) -> dict:
        """Return the table with the rows of the given features."""
        table = dict(self.table)
        for feature, rows in self.variants.items():
            if feature in features:
                table |= rows
        return table


DIGITS = {"uu": r"\d\d+"}
NUMBER = r"0|[1-9]\d{0,3}"


class Row(NamedTuple):
    """Where one weight of ours is in a file: tensors, and their transform."""

    names: tuple
    transform: str


def row_of(path: str, table: dict) -> Row | None:
    """Return the row of one weight of ours, placeholders filled in, or None."""
    for pattern in table:
        if match := expression(pattern).fullmatch(path):
            theirs, transform = table[pattern]
            values = _numbers(match.groupdict())
            names = tuple(name.format(**values) for name in _as_tuple(theirs))
            return Row(names, transform)
    return None


def paths_of(names: Iterable, table: dict) -> tuple[dict, list]:
    """Find the weights of ours that tensors of a file belong to.

    Returns:
        (dict from our path to `Row`, list of names that no row knows). A
        path is there when at least one of its tensors is.
    """
    found, unknown = {}, []
    for name in names:
        paths = _paths_of(name, table)
        if not paths:
            unknown.append(name)
        for path in paths:
            if row := row_of(path, table):
                found[path] = row
    return found, unknown


def _paths_of(name, table) -> list:
    """Return our weights that one tensor is for; of most there is one."""
    return [
        ours.format(**_numbers(match.groupdict()))
        for ours, (theirs, _) in table.items()
        for pattern in _as_tuple(theirs)
        if (match := expression(pattern).fullmatch(name))
    ]


def _as_tuple(theirs):
    return (theirs,) if isinstance(theirs, str) else theirs


@functools.cache
def expression(pattern):
    """Return the regular expression of a pattern with placeholders."""
    parts = re.split(r"\{(\w+)\}", pattern)
    parts[::2] = map(re.escape, parts[::2])
    parts[1::2] = [
        f"(?P<{key}>{DIGITS.get(key, NUMBER)})" for key in parts[1::2]
    ]
    return re.compile("".join(parts))


def _numbers(groups):
    """Return all placeholders from those that a pattern had."""
    values: dict = {key: int(text) for key, text in groups.items()}
    for key in ("s", "u"):
        if f"{key}0" in values:
            values[key] = values[f"{key}0"] + 1
        elif 2 * key in values:
            values[key] = values[2 * key]
        if key in values:
            values[f"{key}0"] = values[key] - 1
            values[2 * key] = f"{values[key]:02d}"
    return values


def listed(names) -> str:
    """Join names for a message, the first 20 of them."""
    names = sorted(names)
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return (", ".join(str(name)[:120] for name in names[:20]) or "none") + more


def matches(name, patterns) -> bool:
    """Return whether one of the regular expressions matches the whole name."""
    return any(re.fullmatch(pattern, name) for pattern in patterns)


@dataclasses.dataclass(frozen=True)
class Facts:
    """Sizes of a model that the shapes of its tensors do not tell."""

    num_heads: int = 1
    num_prefix_tokens: int = 0
    pool_num_heads: int = 0  # of the attention pooling, 0 for num_heads
    hidden_dim: int = 0  # 0 where no transform asks for it
    grid: tuple | None = None  # of the patches, for saving

    @property
    def of_pool(self) -> "Facts":
        """Return the facts of the attention pooling."""
        heads = self.pool_num_heads or self.num_heads
        return dataclasses.replace(self, num_heads=heads)


@dataclasses.dataclass(frozen=True)
class Transform:
    """A named, invertible change of layout.

    Args:
        load: from a list of the file's arrays and `Facts` to our array.
        save: from our array and `Facts` to the list of the file's arrays.
        place: int, the place of what is saved among the parts of a tensor,
            which are otherwise in the order of our weights.
        axis: int, along which such parts are joined.
    """

    load: Callable[[list, Facts], np.ndarray]
    save: Callable[[np.ndarray, Facts], list]
    place: int = 0
    axis: int = 0


def one(load: Callable, save: Callable) -> Transform:
    """Make a transform of one tensor that needs no facts."""

    def load_one(arrays, facts):
        (array,) = arrays
        return load(array)

    return Transform(load_one, lambda array, facts: [save(array)])


def to_columns(arrays, facts):
    """Bring n times (D, H, d), or (H, d), to columns by head (D, H * n * d)."""
    joined = stacked(arrays, axis=-2)  # (D, H, n, d)
    return joined.reshape(*joined.shape[:-3], -1)


def from_columns(count):
    """Make the inverse of `to_columns` for `count` projections."""

    def save(array, facts):
        heads = facts.num_heads
        split = array.reshape(*array.shape[:-1], heads, count, -1)
        return [split[..., i, :] for i in range(count)]

    return save


def split_heads(array, facts):
    """Split (..., D) to (..., H, d)."""
    return array.reshape(*array.shape[:-1], facts.num_heads, -1)


def join_heads(array):
    """Join (..., H, d) to (..., D)."""
    return array.reshape(*array.shape[:-2], -1)


def torch_heads(count):
    """Make that of `count` torch linears, (D, D) or (D,), to columns."""

    def load(arrays, facts):
        return to_columns([split_heads(x.T, facts) for x in arrays], facts)

    def save(array, facts):
        parts = from_columns(count)(array, facts)
        return [join_heads(part).T for part in parts]

    return Transform(load, save)


def dense_heads(count):
    """Make the transform of `count` dense layers of Keras, (D, D) or (D,)."""
    return Transform(
        lambda arrays, facts: to_columns(
            [split_heads(x, facts) for x in arrays], facts
        ),
        lambda array, facts: [
            join_heads(part) for part in from_columns(count)(array, facts)
        ],
    )


def grouped_heads() -> Transform:
    """Make that of torch linears of queries, keys and values of fewer heads.

    Weights (D, D) and twice (G * d, D), or biases, to columns by group: its
    queries, key, value.
    """

    def load(arrays, facts):
        heads = split_heads(arrays[0].T, facts)  # (D, H, d)
        dim = heads.shape[-1]
        parts = [x.T.reshape(*x.T.shape[:-1], -1, dim) for x in arrays[1:]]
        groups = parts[0].shape[-2]
        shape = (*heads.shape[:-2], groups, -1, dim)
        parts = [heads.reshape(shape), *(x[..., None, :] for x in parts)]
        joined = np.concatenate(parts, axis=-2)  # (D, G, Q + 2, d)
        return joined.reshape(*joined.shape[:-3], -1)

    def save(array, facts):
        dim = facts.hidden_dim // facts.num_heads
        groups = (array.shape[-1] - facts.hidden_dim) // (2 * dim)
        split = array.reshape(*array.shape[:-1], groups, -1, dim)
        parts = split[..., :-2, :], split[..., -2, :], split[..., -1, :]
        return [x.reshape(*array.shape[:-1], -1).T for x in parts]

    return Transform(load, save)


def without_key(load_all: Transform) -> Transform:
    """Make the transform of query and value alone; that of the key is zero."""
    return Transform(
        lambda arrays, facts: load_all.load(
            [arrays[0], np.zeros_like(arrays[0]), arrays[1]], facts
        ),
        lambda array, facts: load_all.save(array, facts)[::2],
    )


def torch_rows_without_key() -> Transform:
    """Make that of one bias (3 D,) whose key's third counts as zero."""
    separate = without_key(torch_heads(3))

    def load(arrays, facts):
        (rows,) = arrays
        return separate.load(np.split(rows, 3)[::2], facts)

    return Transform(load, read_only)


def of_pool(transform: Transform) -> Transform:
    """Make the transform with the heads of the attention pooling."""
    return Transform(
        lambda arrays, facts: transform.load(arrays, facts.of_pool),
        lambda array, facts: transform.save(array, facts.of_pool),
    )


def torch_rows(count):
    """Make that of one torch linear whose rows are `count` projections."""
    separate = torch_heads(count)

    def load(arrays, facts):
        (rows,) = arrays
        return separate.load(np.split(rows, count), facts)

    def save(array, facts):
        return [np.concatenate(separate.save(array, facts))]

    return Transform(load, save)


def torch_part(start, count):
    """Make that of `count` projections, from `start` thirds on, of one linear.

    It has query, key and value under one another. What is saved is the part,
    to be joined with the others in their order.
    """
    part = torch_heads(count)

    def load(arrays, facts):
        (rows,) = arrays
        thirds = np.split(rows, 3)[start : start + count]
        return part.load(thirds, facts)

    def save(array, facts):
        return [np.concatenate(part.save(array, facts))]

    return Transform(load, save)


def fused_with_mlp(of_qkv: bool) -> Transform:
    """Make that of torch rows of an MLP (M), then query, key, value (3 D)."""
    separate = torch_rows(3)

    def load(arrays, facts):
        (rows,) = arrays
        hidden, qkv = np.split(rows, [len(rows) - 3 * facts.hidden_dim])
        return separate.load([qkv], facts) if of_qkv else hidden.T

    def save(array, facts):
        return separate.save(array, facts) if of_qkv else [array.T]

    return Transform(load, save, place=int(of_qkv))


def fused_output(of_mlp: bool) -> Transform:
    """Make that of torch columns of the attention (D), then of an MLP (M)."""

    def load(arrays, facts):
        (weight,) = arrays
        return np.split(weight, [facts.hidden_dim], axis=1)[of_mlp].T

    def save(array, facts):
        return [array.T]

    return Transform(load, save, place=int(of_mlp), axis=1)


def around_registers(arrays, facts):
    """Bring (1, 1 + N, D) to (1, P + N, D), zeros after the first position."""
    (table,) = arrays
    zeros = np.zeros((1, max(facts.num_prefix_tokens - 1, 0), table.shape[2]))
    parts = [table[:, :1], zeros.astype(table.dtype), table[:, 1:]]
    return np.concatenate(parts, axis=1)


def patches(array):
    """Bring (D, P * P * 3) of a dense layer of patches to a kernel (SigLIP 2).

    Or a convolution (D, C, P, P), to (P, P, C, D).
    """
    if array.ndim == 4:
        return array.transpose(2, 3, 1, 0)
    side = math.isqrt(array.shape[1] // 3)
    return array.T.reshape(side, side, 3, -1)


def read_only(array, facts):
    raise ValueError("Such tensors are read and not written.")


def without_prefix(table, facts):
    """Invert `behind_prefix`."""
    patches = table[:, facts.num_prefix_tokens :]
    return [patches.reshape(1, *facts.grid, table.shape[-1])]


def behind_prefix(table, facts):
    """Bring (1, R, C, D) to (1, P + R * C, D), zeros in front."""
    flat = table.reshape(1, -1, table.shape[-1])
    return np.pad(flat, [(0, 0), (facts.num_prefix_tokens, 0), (0, 0)])


TRANSFORMS = {
    "same": one(lambda x: x, lambda x: x),
    "vector": one(lambda x: x.reshape(-1), lambda x: x),
    "vector_3d": one(lambda x: x.reshape(-1), lambda x: x.reshape(1, 1, -1)),
    "vector_4d": one(lambda x: x.reshape(-1), lambda x: x.reshape(1, 1, 1, -1)),
    "matrix": one(lambda x: x.reshape(x.shape[-2:]), lambda x: x),
    # A table of embeddings without the axis of the batch.
    "rows": one(lambda x: x[None], lambda x: x[0]),
    "linear": one(lambda x: x.T, lambda x: x.T),
    # The bias of a linear layer that has none; it is not written.
    "no_bias": one(lambda x: np.zeros(len(x), x.dtype), lambda x: x),
    # (K, C, height, width) of torch to (height, width, C, K)
    "convolution": one(
        lambda x: x.transpose(2, 3, 1, 0), lambda x: x.transpose(3, 2, 0, 1)
    ),
    "patches": one(patches, lambda x: x.transpose(3, 2, 0, 1)),
    # 1x1 convolutions as dense layers
    "linear_1x1": one(
        lambda x: x.reshape(x.shape[:2]).T, lambda x: x.T[..., None, None]
    ),
    "dense_1x1": one(lambda x: x.reshape(x.shape[2:]), lambda x: x[None, None]),
    "heads": Transform(
        lambda arrays, facts: join_heads(*arrays),
        lambda array, facts: [split_heads(array, facts)],
    ),
    # (H, d, D) to (D, D)
    "heads_out": Transform(
        lambda arrays, facts: arrays[0].reshape(-1, arrays[0].shape[2]),
        lambda array, facts: [
            array.reshape(facts.num_heads, -1, array.shape[1])
        ],
    ),
    "heads_qkv": Transform(to_columns, from_columns(3)),
    "heads_kv": Transform(to_columns, from_columns(2)),
    "torch_qkv": torch_heads(3),
    "torch_kv": torch_heads(2),
    "torch_grouped_qkv": grouped_heads(),
    "mlp_before_qkv": fused_with_mlp(of_qkv=False),
    "qkv_behind_mlp": fused_with_mlp(of_qkv=True),
    "out_before_mlp": fused_output(of_mlp=False),
    "mlp_behind_out": fused_output(of_mlp=True),
    # Two biases that are added up
    "summed": Transform(
        lambda arrays, facts: arrays[0] + arrays[1],
        lambda array, facts: [array, np.zeros_like(array)],
    ),
    "stacked_vectors": Transform(
        lambda arrays, facts: np.stack(arrays),
        lambda array, facts: list(array),
    ),
    "heads_bias": one(lambda x: x.reshape(-1, 1, 1), lambda x: x.reshape(-1)),
    "torch_qkv_rows": torch_rows(3),
    "torch_kv_rows": of_pool(torch_rows(2)),
    "torch_query_value": without_key(torch_heads(3)),
    "torch_rows_query_value": torch_rows_without_key(),
    "dense_qkv": dense_heads(3),
    "dense_query_value": without_key(dense_heads(3)),
    # Gates (D, M) and values (D, M), or (M,) of both, side by side
    "columns": Transform(
        lambda arrays, facts: np.concatenate(arrays, axis=-1),
        lambda array, facts: np.split(array, 2, axis=-1),
    ),
    # Gates (M, D) and values (M, D) to one kernel (D, 2 M)
    "gates_and_values": Transform(
        lambda arrays, facts: np.concatenate(arrays).T,
        lambda array, facts: np.split(array.T, 2),
    ),
    "gate_and_value_biases": Transform(
        lambda arrays, facts: np.concatenate(arrays),
        lambda array, facts: np.split(array, 2),
    ),
    # Values and gates (2 M, D), in this order, to a kernel with gates first
    "gates_last": one(
        lambda x: np.roll(x, len(x) // 2, axis=0).T,
        lambda x: np.roll(x.T, len(x.T) // 2, axis=0),
    ),
    "gates_last_biases": one(
        lambda x: np.roll(x, len(x) // 2), lambda x: np.roll(x, len(x) // 2)
    ),
    "torch_query_of_rows": torch_part(0, 1),
    "torch_kv_of_rows": torch_part(1, 2),
    "single_token": one(
        lambda x: x.reshape(1, 1, x.shape[0]), lambda x: x.reshape(-1)
    ),
    "tokens": Transform(
        lambda arrays, facts: np.concatenate(arrays, axis=1),
        lambda array, facts: np.split(array, array.shape[1], axis=1),
    ),
    "token_and_registers": Transform(
        lambda arrays, facts: np.concatenate(arrays, axis=1),
        lambda array, facts: np.split(array, [1], axis=1),
    ),
    # (1, N, D) without prefix tokens to (1, P + N, D), zeros in front
    "behind_prefix": Transform(
        lambda arrays, facts: np.pad(
            arrays[0], [(0, 0), (facts.num_prefix_tokens, 0), (0, 0)]
        ),
        lambda array, facts: [array[:, facts.num_prefix_tokens :]],
    ),
    "grid_behind_prefix": Transform(
        lambda arrays, facts: behind_prefix(arrays[0], facts), without_prefix
    ),
    # (1, R, D) and (1, C, D), to be added
    "axes_behind_prefix": Transform(
        lambda arrays, facts: behind_prefix(
            arrays[0][:, :, None] + arrays[1][:, None], facts
        ),
        read_only,
    ),
    "around_registers": Transform(
        around_registers,
        lambda array, facts: [
            np.delete(array, np.arange(1, facts.num_prefix_tokens), axis=1)
        ],
    ),
    # Two torch heads (K, D), averaged, to one kernel (2 D, K)
    "average_heads": Transform(
        lambda arrays, facts: np.concatenate([x.T for x in arrays]) / 2,
        lambda array, facts: [2 * half.T for half in np.split(array, 2)],
    ),
    "average_biases": Transform(
        lambda arrays, facts: (arrays[0] + arrays[1]) / 2,
        lambda array, facts: [array, array],
    ),
}


def flax_dense(ours: str, theirs: str, kernel="same", bias="same") -> dict:
    """Return the rows of a Flax dense layer or convolution."""
    return {
        f"{ours}/kernel": (f"{theirs}/kernel", kernel),
        f"{ours}/bias": (f"{theirs}/bias", bias),
    }


def flax_norm(ours: str, theirs: str, transform="same") -> dict:
    """Return the rows of a Flax layer or group normalisation."""
    return {
        f"{ours}/gamma": (f"{theirs}/scale", transform),
        f"{ours}/beta": (f"{theirs}/bias", transform),
    }


def torch_dense(ours: str, theirs: str, kernel="linear", bias="same") -> dict:
    """Return the rows of a torch linear layer."""
    return {
        f"{ours}/kernel": (f"{theirs}.weight", kernel),
        f"{ours}/bias": (f"{theirs}.bias", bias),
    }


def torch_convolution(ours: str, theirs: str) -> dict:
    """Return the row of a torch convolution without bias."""
    return {f"{ours}/kernel": (f"{theirs}.weight", "convolution")}


def torch_norm(ours: str, theirs: str) -> dict:
    """Return the rows of a torch layer or group normalisation."""
    return {
        f"{ours}/gamma": (f"{theirs}.weight", "same"),
        f"{ours}/beta": (f"{theirs}.bias", "same"),
    }
