"""Which position embeddings are alike.

Axes: R and C rows and columns of the grid of patches, P prefix tokens, D
hidden dimension.
"""

import numpy as np
from keras import ops

from keras_vit.analysis.blocks import check_model
from keras_vit.models import VisionTransformer

__all__ = ["position_similarity"]


def position_similarity(model: VisionTransformer) -> np.ndarray:
    """Cosine similarity of each patch's position embedding with all others.

    Figures 7 (centre) and 10 of "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929): close patches, and those of one row or column, tend to
    have similar embeddings. Those of the class token and other prefix tokens
    are left out.

    Args:
        model: a `VisionTransformer`.

    Returns:
        float32 array of shape (R, C, R, C) with values in [-1, 1]: [i, j] is
        the map of similarities of the patch in row i and column j.

    Raises:
        ValueError: for anything but a `VisionTransformer`.

    Example:
        >>> position_similarity(model)[0, 0, 0, 0]  # with itself
        1.0
    """
    check_model(model)
    config = model.config
    table = model.get_layer("position_embedding").embedding  # (1, T, D)
    table = np.asarray(ops.convert_to_numpy(table)[0], "float32")
    table = table[config.num_prefix_tokens :]  # (R * C, D)
    lengths = np.linalg.norm(table, axis=-1, keepdims=True)
    table = table / np.maximum(lengths, np.finfo("float32").tiny)
    return (table @ table.T).reshape(*config.grid, *config.grid)
