"""A search in a file of embeddings, by images and by words.

Axes: Q queries, K hits, H and W height and width, C channels, D embedding.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.prediction.by_labels import check_projected, texts_of
from keras_vit.prediction.embeddings_file import (
    Embeddings,
    encoder_of,
    load_embeddings,
    nearest,
)
from keras_vit.prediction.encoder import Encoder
from keras_vit.text.zero_shot import TextEncoder

__all__ = ["ImageSearch", "load_search"]


@dataclasses.dataclass
class ImageSearch:
    """Embeddings of images, and what embeds further images and words.

    Attributes:
        source: the file of the embeddings, for messages.
        embeddings: those that are searched.
        encoder: the `Encoder` that they were computed with.
        model: see `keras_vit.text.as_text_encoder`.
        texts: the text half of the model, None until `load_texts`.

    Example:
        >>> search = load_search("photos.npz")
        >>> numbers, cosines = search.nearest(search.words(["a red car"]), 9)
    """

    source: str | os.PathLike
    embeddings: Embeddings
    encoder: Encoder
    model: Any
    texts: TextEncoder | None = None

    def load_texts(self) -> TextEncoder:
        """Load the text half of the model, once.

        Raises:
            ValueError: for a model without texts, and vectors of images that
                are not compared with texts.
        """
        if self.texts is None:
            check_projected(self.encoder)
            self.texts = texts_of(self.model)
        return self.texts

    def words(self, texts: Sequence[str]) -> np.ndarray:
        """Compute vectors (Q, D) of texts; see `load_texts`.

        Raises:
            ValueError: for a text that the model does not read, too.
        """
        return self.load_texts().vectors(texts)

    def nearest(
        self, queries: np.ndarray, top: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return numbers (Q, K) of images, and cosines; see `nearest`."""
        return nearest(
            self.embeddings.vectors,
            queries,
            top=top,
            lengths=self.embeddings.lengths,
        )


def load_search(
    path: str | os.PathLike, model: str | os.PathLike | Any = None
) -> ImageSearch:
    """Load what a search needs, but for the text half of the model.

    Args:
        path: a file of `keras-vit embed`.
        model: the model of the embeddings, None for the one the file names.

    Raises:
        ValueError: when it is no such file, has several vectors per image, or
            is of another model.
        OSError: when weights cannot be fetched.

    Example:
        >>> load_search("photos.npz").encoder.metadata["kind"]
        'pooled'
    """
    known = load_embeddings(path)
    if known.metadata.get("kind") not in ("pooled", "features"):
        raise ValueError(
            f"A search needs one vector per image. Received: {str(path)!r} of "
            f"kind {known.metadata.get('kind')!r}. Write one with `keras-vit "
            "embed --kind pooled`."
        )
    encoder = encoder_of(known, model, source=path)
    named = known.metadata.get("model") if model is None else model
    return ImageSearch(path, known, encoder, named)
