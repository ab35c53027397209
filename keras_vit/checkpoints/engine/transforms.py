"""From tensors of a file to a weight of ours, and back.

A table maps the path of our weight to the file's name or names for it and
the name of a transform. `{i}` is a block, `{s}` and `{u}` a stage and a unit
from 1, `{s0}` and `{u0}` the same from 0, `{uu}` a unit of two digits.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from keras_vit.checkpoints.files.tensors import stacked

__all__ = [
    "Facts",
    "TRANSFORMS",
    "Transform",
    "flax_dense",
    "flax_norm",
    "torch_convolution",
    "torch_dense",
    "torch_norm",
]


@dataclasses.dataclass(frozen=True)
class Facts:
    """What the shapes of tensors do not tell of a model."""

    num_heads: int = 1
    num_prefix_tokens: int = 0
    pool_num_heads: int = 0  # of the attention pooling, 0 for num_heads
    hidden_dim: int = 0  # 0 where no transform asks for it
    grid: tuple | None = None  # of the patches, for saving

    @property
    def of_pool(self) -> "Facts":
        """The facts of the attention pooling."""
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
    """A transform of one tensor that needs no facts."""

    def load_one(arrays, facts):
        (array,) = arrays
        return load(array)

    return Transform(load_one, lambda array, facts: [save(array)])


def to_columns(arrays, facts):
    """n times (D, H, d), or (H, d), to columns by head: (D, H * n * d)."""
    joined = stacked(arrays, axis=-2)  # (D, H, n, d)
    return joined.reshape(*joined.shape[:-3], -1)


def from_columns(count):
    """Inverse of `to_columns` for `count` projections."""

    def save(array, facts):
        heads = facts.num_heads
        split = array.reshape(*array.shape[:-1], heads, count, -1)
        return [split[..., i, :] for i in range(count)]

    return save


def split_heads(array, facts):
    """(..., D) to (..., H, d)."""
    return array.reshape(*array.shape[:-1], facts.num_heads, -1)


def join_heads(array):
    """(..., H, d) to (..., D)."""
    return array.reshape(*array.shape[:-2], -1)


def torch_heads(count):
    """`count` torch linears, weights (D, D) or biases (D,), to columns."""

    def load(arrays, facts):
        return to_columns([split_heads(x.T, facts) for x in arrays], facts)

    def save(array, facts):
        parts = from_columns(count)(array, facts)
        return [join_heads(part).T for part in parts]

    return Transform(load, save)


def dense_heads(count):
    """`count` dense layers of Keras, kernels (D, D) or biases (D,)."""
    return Transform(
        lambda arrays, facts: to_columns(
            [split_heads(x, facts) for x in arrays], facts
        ),
        lambda array, facts: [
            join_heads(part) for part in from_columns(count)(array, facts)
        ],
    )


def grouped_heads() -> Transform:
    """torch linears of queries, and of keys and values with fewer heads.

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
    """Of the biases of query and value; that of the key is zero."""
    return Transform(
        lambda arrays, facts: load_all.load(
            [arrays[0], np.zeros_like(arrays[0]), arrays[1]], facts
        ),
        lambda array, facts: load_all.save(array, facts)[::2],
    )


def of_pool(transform: Transform) -> Transform:
    """The transform with the heads of the attention pooling."""
    return Transform(
        lambda arrays, facts: transform.load(arrays, facts.of_pool),
        lambda array, facts: transform.save(array, facts.of_pool),
    )


def torch_rows(count):
    """One torch linear whose rows are `count` projections in turn."""
    separate = torch_heads(count)

    def load(arrays, facts):
        (rows,) = arrays
        return separate.load(np.split(rows, count), facts)

    def save(array, facts):
        return [np.concatenate(separate.save(array, facts))]

    return Transform(load, save)


def torch_part(start, count):
    """`count` projections, from `start` thirds on, of one torch linear.

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
    """Rows of a torch linear of an MLP (M), then query, key, value (3 D)."""
    separate = torch_rows(3)

    def load(arrays, facts):
        (rows,) = arrays
        hidden, qkv = np.split(rows, [len(rows) - 3 * facts.hidden_dim])
        return separate.load([qkv], facts) if of_qkv else hidden.T

    def save(array, facts):
        return separate.save(array, facts) if of_qkv else [array.T]

    return Transform(load, save, place=int(of_qkv))


def fused_output(of_mlp: bool) -> Transform:
    """Columns of a torch linear of the attention (D), then of an MLP (M)."""

    def load(arrays, facts):
        (weight,) = arrays
        return np.split(weight, [facts.hidden_dim], axis=1)[of_mlp].T

    def save(array, facts):
        return [array.T]

    return Transform(load, save, place=int(of_mlp), axis=1)


def around_registers(arrays, facts):
    """(1, 1 + N, D) to (1, P + N, D), zeros after the first position."""
    (table,) = arrays
    zeros = np.zeros((1, max(facts.num_prefix_tokens - 1, 0), table.shape[2]))
    parts = [table[:, :1], zeros.astype(table.dtype), table[:, 1:]]
    return np.concatenate(parts, axis=1)


def patches(array):
    """(D, P * P * 3) of a dense layer of patches, as in SigLIP 2, to a kernel.

    Or a convolution (D, C, P, P), to (P, P, C, D).
    """
    if array.ndim == 4:
        return array.transpose(2, 3, 1, 0)
    side = math.isqrt(array.shape[1] // 3)
    return array.T.reshape(side, side, 3, -1)


def read_only(array, facts):
    raise ValueError("Such tensors are read and not written.")


def without_prefix(table, facts):
    """Inverse of `behind_prefix`."""
    patches = table[:, facts.num_prefix_tokens :]
    return [patches.reshape(1, *facts.grid, table.shape[-1])]


def behind_prefix(table, facts):
    """(1, R, C, D) to (1, P + R * C, D), zeros in front."""
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
    """Rows of a Flax dense layer or convolution."""
    return {
        f"{ours}/kernel": (f"{theirs}/kernel", kernel),
        f"{ours}/bias": (f"{theirs}/bias", bias),
    }


def flax_norm(ours: str, theirs: str, transform="same") -> dict:
    """Rows of a Flax layer or group normalisation."""
    return {
        f"{ours}/gamma": (f"{theirs}/scale", transform),
        f"{ours}/beta": (f"{theirs}/bias", transform),
    }


def torch_dense(ours: str, theirs: str, kernel="linear", bias="same") -> dict:
    """Rows of a torch linear layer."""
    return {
        f"{ours}/kernel": (f"{theirs}.weight", kernel),
        f"{ours}/bias": (f"{theirs}.bias", bias),
    }


def torch_convolution(ours: str, theirs: str) -> dict:
    """The row of a torch convolution without bias."""
    return {f"{ours}/kernel": (f"{theirs}.weight", "convolution")}


def torch_norm(ours: str, theirs: str) -> dict:
    """Rows of a torch layer or group normalisation."""
    return {
        f"{ours}/gamma": (f"{theirs}.weight", "same"),
        f"{ours}/beta": (f"{theirs}.bias", "same"),
    }
