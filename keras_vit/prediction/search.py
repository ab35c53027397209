"""Nearest images by the angle between their embeddings.

Axes: N images, Q queries, K neighbours, D hidden dimension.
"""

import os
from typing import Any

import keras
import numpy as np

from keras_vit.data import PreprocessingConfig
from keras_vit.prediction.embeddings_file import Embeddings
from keras_vit.prediction.encoder import Encoder, as_encoder

__all__ = ["encoder_of", "nearest"]


def encoder_of(
    embeddings: Embeddings,
    model: str | os.PathLike | keras.Model | None = None,
    *,
    source: object = "the file",
) -> Encoder:
    """Makes the `Encoder` that a file of embeddings was written with.

    Args:
        embeddings: what `load_embeddings` returned.
        model: see `keras_vit.embed`; None for the model that the file names.
        source: the file, for messages.

    Raises:
        ValueError: when the file names no model, or the weights are others.
        OSError: when weights cannot be fetched.

    Example:
        >>> encoder_of(load_embeddings("photos.npz")).metadata["model"]
        'ViT_B16/imagenet21k'
    """
    about = embeddings.metadata
    model = about.get("model") if model is None else model
    if model is None:
        raise ValueError(
            f"{str(source)!r} does not name the model of its embeddings. Give "
            "the model, with --model on the command line."
        )
    named = isinstance(model, (str, os.PathLike))
    height, width = about["image_size"]
    encoder = as_encoder(
        model,
        kind=about["kind"],
        blocks=about["blocks"],
        image_size=(height, width) if named else None,
        preprocessing=PreprocessingConfig(**about["preprocessing"]),
    )
    embeddings.check_same(encoder.metadata, source)
    return encoder


def nearest(
    vectors: Any, queries: Any, *, top: int = 9
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the vectors with the largest cosine similarity to each query.

    Args:
        vectors: float array (N, D), or (N, L, D) of several blocks, which are
            joined.
        queries: float array of the same axes for Q queries.
        top: int, K; all of fewer vectors.

    Returns:
        Their numbers from 0 to N - 1, integers of shape (Q, K), the most
        similar first, of equals the first; and their similarities in
        [-1, 1], float32 of that shape.

    Raises:
        ValueError: for other axes, such as those of tokens, or a `top` below
            1.

    Example:
        >>> known = np.array([[1.0, 0.0], [0.0, 2.0]])
        >>> nearest(known, known[1:], top=1)[0].tolist()
        [[1]]
    """
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise ValueError(f"top must be an int above 0. Received: top={top!r}.")
    known, asked = _unit(vectors), _unit(queries)
    if known.shape[1] != asked.shape[1]:
        raise ValueError(
            "Vectors and queries must have the same size. Received: shapes "
            f"{np.shape(vectors)} and {np.shape(queries)}. Embed both with the "
            "same model."
        )
    similarity = asked @ known.T  # (Q, N)
    found = np.argsort(-similarity, axis=1, kind="stable")[:, :top]  # (Q, K)
    return found, np.take_along_axis(similarity, found, axis=1)


def _unit(vectors):
    """Vectors (N, D) of length 1; one of zeros stays as it is."""
    vectors = np.asarray(vectors, "float32")
    if vectors.ndim not in (2, 3) or not len(vectors):
        raise ValueError(
            "A search needs one vector per image, or one per block, an array "
            f"(N, D) or (N, L, D). Received: an array of shape "
            f'{vectors.shape}. Embed images with kind="pooled".'
        )
    flat = vectors.reshape(len(vectors), -1)
    lengths = np.linalg.norm(flat, axis=1, keepdims=True)
    return flat / np.maximum(lengths, np.finfo("float32").tiny)
