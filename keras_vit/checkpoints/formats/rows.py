"""Rows that recur in the tables of the formats.

A table maps the path of our weight to the file's name or names for it and
the name of a transform. `{i}` is a block, `{s}` and `{u}` a stage and a unit
from 1, `{s0}` and `{u0}` the same from 0, `{uu}` a unit of two digits.
"""

__all__ = [
    "flax_dense",
    "flax_norm",
    "torch_convolution",
    "torch_dense",
    "torch_norm",
]


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
