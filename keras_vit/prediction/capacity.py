"""Whether images of a size have room in memory, said before they take it."""

import math

from keras_vit.io.checks import check_size
from keras_vit.runtime import machine
from keras_vit.runtime.workarounds import backend_is

__all__ = ["check_image_size"]

FLOAT32 = 4  # bytes
GIGABYTE = 10**9


def check_image_size(fields: dict, image_size) -> tuple:
    """(height, width) of a size; a ValueError unless an image has room.

    What one image takes at least is compared with the memory that is free: on
    processors JAX and TensorFlow keep the attention of all pairs of tokens.

    Args:
        fields: fields of the config of the model; a model without patches is
            not looked at.
        image_size: one side or (height, width), in pixels.
    """
    height, width = check_size("image_size", image_size)
    if not {"patch_size", "hidden_dim"} <= fields.keys():
        return height, width
    free = machine.available_memory()
    needed = FLOAT32 * _numbers(fields, height, width)
    if free is None or needed < free:
        return height, width
    raise ValueError(
        f"There is no room for an image of {height}x{width} pixels: the model "
        f"takes {needed / GIGABYTE:,.1f} GB for one at least, and "
        f"{max(free, 0) / GIGABYTE:,.1f} GB are free. Received: "
        f"image_size={image_size!r}. Give a smaller one."
    )


def _numbers(fields, height, width) -> int:
    """Numbers that a block holds at least, or the pixels if they are more."""
    rows, columns = check_size("patch_size", fields["patch_size"])
    if fields.get("resnet_units") is not None:
        shrunk = 4 * 2 ** max(len(fields["resnet_units"]) - 1, 0)
        rows, columns = rows * shrunk, columns * shrunk
    tokens = (height // rows) * (width // columns)
    per_token = 4 * fields["hidden_dim"]  # The stream, query, key and value.
    numbers = tokens * per_token
    if fields.get("num_heads") and _keeps_attention():
        keys = tokens
        if fields.get("window_size") and not fields["global_attention_blocks"]:
            keys = min(keys, fields["window_size"] ** 2)
        numbers += fields["num_heads"] * tokens * keys
    return max(numbers, math.prod((height, width, fields["channels"])))


def _keeps_attention() -> bool:
    on_processor = all(x.startswith("cpu") for x in machine.devices())
    return on_processor and backend_is("jax", "tensorflow")
