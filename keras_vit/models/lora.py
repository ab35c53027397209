"""A model whose low-rank adaptations (LoRA) are added to its kernels.

Axes: D input features of a dense layer, M its output features, r the rank.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_vit.models.configured_model import remade
from keras_vit.runtime.workarounds import sublayers

__all__ = ["merged"]

LORA = ("lora_kernel_a", "lora_kernel_b")  # Keras's names of A and B


def merged(
    model: Any,
    to_numpy: Callable[[Any], np.ndarray] = keras.ops.convert_to_numpy,
) -> Any:
    """Return the same model without LoRA, products added to their kernels.

    They are added in float32, whatever the precision of the model: Keras
    itself rounds a kernel that it saves to bfloat16 under mixed_bfloat16.

    Args:
        model: a model of keras_vit.
        to_numpy: returns the whole value of a variable.

    Returns:
        A new model, all of it trainable; the model itself if it has no LoRA.
    """
    if not any(_has_lora(x) for x in sublayers(model)):
        return model
    products = {
        f"{layer.path}/kernel": _product(layer, to_numpy)
        for layer in sublayers(model)
        if _has_lora(layer)
    }
    values = {
        x.path: to_numpy(x) + products.get(x.path, 0)
        for x in model.weights
        if x.name not in LORA
    }
    return remade(model, values)


def _product(layer, to_numpy):
    """alpha / rank * A B, float32 (D, M)."""
    by_name = {x.name: to_numpy(x) for x in layer.variables if x.name in LORA}
    a, b = (by_name[name].astype("float32") for name in LORA)
    return np.float32(layer.lora_alpha / layer.lora_rank) * (a @ b)


def _has_lora(layer):
    return isinstance(layer, keras.layers.Dense) and layer.lora_enabled
