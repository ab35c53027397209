"""A model of images and texts: two towers whose embeddings are compared.

Axes: B images, T texts, L context length, P embedding dimension; N images of
which texts are found.
"""

import math
import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.io.checks import check_kind, numbers_of
from keras_vit.models import NaFlexTransformer
from keras_vit.models.configured_model import keeping
from keras_vit.text.tokenizer import Tokenizer
from keras_vit.text.tower import TextConfig, TextTransformer
from keras_vit.trained_as import TrainedAs

__all__ = [
    "ImageTextModel",
    "checked_ids",
    "normalized",
    "retrieval_recall",
    "score_activation",
    "token_ids",
]

# 2.6592, what CLIP starts at; trained ones are at log(100).
LOGIT_SCALE = math.log(1 / 0.07)
ROWS = 1024  # of similarities at a time, for recall


def score_activation(logit_bias: Any) -> str:
    """Return what makes scores of logits, which have a bias or None."""
    return "softmax" if logit_bias is None else "sigmoid"


def normalized(x):
    """Scale vectors (..., P) to length 1, in float32 at least."""
    x = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
    return x / ops.sqrt(ops.sum(ops.square(x), axis=-1, keepdims=True))


@keras.saving.register_keras_serializable("keras_vit")
class ImageTextModel(keras.Model):
    """Image tower and text tower that were trained on pairs.

    "Learning Transferable Visual Models From Natural Language Supervision"
    (arXiv:2103.00020), and "Sigmoid Loss for Language Image Pre-Training"
    (arXiv:2303.15343), whose scores have a bias. `load_image_text` makes one
    of a file; `save` writes both towers and the tokenizer.

    Args:
        image_tower: a `keras_vit.models.VisionTransformer` from images to
            (B, P).
        text_tower: a `TextTransformer` to (T, P).
        logit_scale: float, the start of the logarithm of what cosines are
            multiplied by; log(1 / 0.07) by default, as in CLIP.
        logit_bias: None, or the start of what is added: then scores are
            independent sigmoids, otherwise one softmax over the texts.
        tokenizer: a `Tokenizer`, or None for ids of tokens alone.
        name: str, name of the model.

    Attributes:
        trained_as: what the image tower was trained on.

    Input shape:
        Images (B, H, W, C) as the image tower takes them, and ids (T, L).

    Output shape:
        (B, T), the logits.

    Raises:
        ValueError: for towers whose embeddings are of two sizes.

    Example:

    >>> pair = keras_vit.load_image_text("openai/clip-vit-base-patch32")
    >>> pair.encode_texts(["a photo of a cat", "a photo of a dog"]).shape
    (2, 512)
    """

    predict = keeping("predict")

    def __init__(
        self,
        image_tower: keras.Model,
        text_tower: TextTransformer,
        *,
        logit_scale=LOGIT_SCALE,
        logit_bias=None,
        tokenizer=None,
        name=None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        sizes = image_tower.output_shape[-1], text_tower.output_shape[-1]
        if sizes[0] != sizes[1] or len(image_tower.output_shape) != 2:
            raise ValueError(
                "Both towers give embeddings of one size. Received: "
                f"{image_tower.output_shape} of images, "
                f"{text_tower.output_shape} of texts. Load towers that were "
                "trained together, with the projection of the images."
            )
        self.image_tower = image_tower
        self.text_tower = text_tower
        self.tokenizer = tokenizer
        self.logit_scale = self._scalar("logit_scale", logit_scale)
        self.logit_bias = None
        if logit_bias is not None:
            self.logit_bias = self._scalar("logit_bias", logit_bias)
        self.built = True

    @property
    def trained_as(self) -> TrainedAs:
        """What the image tower was trained on."""
        return self.image_tower.trained_as

    @property
    def activation(self) -> str:
        """Return what makes scores of logits: "softmax" or "sigmoid"."""
        return score_activation(self.logit_bias)

    def encode_images(self, images: Any):
        """Compute the embeddings of images, of length 1.

        Args:
            images: (B, H, W, C) as the image tower takes them; or of any
                aspect ratio what `keras_vit.patch_sequences` returns, for the
                pairs that `keras_vit.models.NaFlexTransformer` runs.

        Returns:
            Tensor (B, P), float32 at least.
        """
        if isinstance(images, dict):
            return normalized(NaFlexTransformer(self.image_tower)(images))
        return normalized(self.image_tower(ops.convert_to_tensor(images)))

    def encode_texts(self, texts: Any):
        """Compute the embeddings of texts, of length 1.

        Args:
            texts: a text, a list of T texts, or ids of tokens (T, L) as the
                tokenizer of the model makes them, padding included.

        Returns:
            Tensor (T, P), float32 at least.

        Raises:
            ValueError: for texts without a tokenizer or without a token, and
                for ids that the tower does not have.
        """
        return normalized(self.text_tower(self.token_ids(texts)))

    def token_ids(self, texts: Any) -> np.ndarray:
        """Return the ids (T, L) of texts, or check those that are given.

        Args:
            texts: see `encode_texts`.

        Raises:
            ValueError: see `encode_texts`.
        """
        return token_ids(texts, self.tokenizer, self.text_tower.config)

    def logits(self, images: Any, texts: Any):
        """Compute what the scores of images and texts are made of.

        Args:
            images: see `encode_images`.
            texts: see `encode_texts`.

        Returns:
            Tensor (B, T): cosine times scale, plus bias.
        """
        return self.compared(
            self.encode_images(images), self.encode_texts(texts)
        )

    def scores(self, images: Any, texts: Any):
        """Compute the probabilities of texts, as the model was trained.

        Args:
            images: see `encode_images`.
            texts: see `encode_texts`.

        Returns:
            Tensor (B, T). With softmax its rows sum to 1, also over texts of
            which none fits; with sigmoid each is that of its text alone.
        """
        activate = getattr(ops, self.activation)
        return activate(self.logits(images, texts))

    def compared(self, images, texts):
        """Compute the logits of embeddings (B, P) and (T, P)."""
        scale = ops.exp(ops.cast(self.logit_scale, images.dtype))
        logits = ops.matmul(images, ops.transpose(texts)) * scale  # (B, T)
        if self.logit_bias is None:
            return logits
        return logits + ops.cast(self.logit_bias, logits.dtype)

    def call(self, inputs, training=None):
        images, ids = inputs
        return self.compared(
            normalized(self.image_tower(images, training=training)),
            normalized(self.text_tower(ids, training=training)),
        )  # (B, T)

    def get_config(self):
        towers = {"image_tower": self.image_tower}
        towers["text_tower"] = self.text_tower
        serialize = keras.saving.serialize_keras_object
        return {
            "name": self.name,
            **{name: serialize(tower) for name, tower in towers.items()},
            "logit_bias": None if self.logit_bias is None else 0.0,
            "tokenizer": self.tokenizer and self.tokenizer.rule,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        for name in ("image_tower", "text_tower"):
            config[name] = keras.saving.deserialize_keras_object(config[name])
        if config["tokenizer"] is not None:
            config["tokenizer"] = Tokenizer(config["tokenizer"], {})
        return cls(**config)

    def save_assets(self, inner_path):
        """Write the files of the tokenizer into a folder, as Keras saves it."""
        if self.tokenizer is not None:
            self.tokenizer.save(inner_path)

    def load_assets(self, inner_path):
        """Read the files of the tokenizer from a folder, as Keras loads it."""
        if self.tokenizer is not None:
            self.tokenizer = self.tokenizer.read(os.fspath(inner_path))

    def _scalar(self, name, value):
        return self.add_weight(
            name=name,
            shape=(),
            initializer=keras.initializers.Constant(float(value)),
            dtype="float32",
        )


def token_ids(
    texts: Any, tokenizer: Tokenizer | None, config: TextConfig
) -> np.ndarray:
    """Return the ids (T, L) of texts, or check those that are given.

    Args:
        texts: a text, a list of T texts, or ids of tokens (T, L).
        tokenizer: that of the tower, or None.
        config: that of the tower.

    Raises:
        ValueError: see `ImageTextModel.encode_texts`.
    """
    if not isinstance(texts, str) and not _are_texts(texts):
        return checked_ids(texts, config)
    if tokenizer is None:
        raise ValueError(
            "The model has no tokenizer, as none that is known here was "
            f"beside its weights. Received: texts, {str(texts)[:100]!r}. Give "
            "ids of tokens, or put the files of its tokenizer into the folder "
            "of the weights."
        )
    return checked_ids(tokenizer(texts, config.context_length), config)


def _are_texts(texts) -> bool:
    return isinstance(texts, (list, tuple)) and (
        not texts or any(isinstance(x, str) for x in texts)
    )


def checked_ids(ids: Any, config) -> np.ndarray:
    """Return ids of tokens (T, L) as int32, if they are of the tower.

    Raises:
        ValueError: for other shapes, ids that are not in the vocabulary, and
            texts without the token that is pooled.
    """
    ids = np.asarray(keras.ops.convert_to_numpy(ids))
    wanted = (len(ids), config.context_length) if ids.ndim else ()
    if ids.dtype.kind not in "iu" or ids.shape != wanted or not len(ids):
        raise ValueError(
            "Texts are texts, or integers (texts, "
            f"{config.context_length}), ids of tokens with padding. Received: "
            f"{ids.dtype} of shape {ids.shape}."
        )
    if ids.min() < 0 or ids.max() >= config.vocabulary_size:
        raise ValueError(
            f"The tower has a vocabulary of {config.vocabulary_size} tokens. "
            f"Received: ids from {ids.min()} to {ids.max()}. Take the "
            "tokenizer that belongs to its weights."
        )
    wanted = {}
    if config.pooling == "first_id":
        wanted = {"the end of the text": ids == config.pooled_id}
    if config.masked_id is not None:
        wanted = {"a token": ids != config.masked_id}
    for what, found in wanted.items():
        if not (has := found.any(axis=1)).all():
            raise ValueError(
                f"Text {int(np.argmin(has))} is without {what}, so that it has "
                "no embedding. Received: the ids "
                f"{ids[np.argmin(has)][:8].tolist()} ... Leave it out, or "
                "give another text."
            )
    return ids.astype("int32")


def retrieval_recall(
    images: Any,
    texts: Any,
    image_of_text: Any = None,
    *,
    at: Sequence[int] = (1, 5, 10),
) -> dict[str, float]:
    """Compute recall at k, from texts to images and from images to texts.

    An image with several texts counts as found where one of them is among its
    first k. Of equal similarities those with smaller numbers come first.

    Args:
        images: float array (N, P), embeddings of length 1.
        texts: float array (T, P), likewise.
        image_of_text: T numbers of images; None for text i of image i.
        at: the numbers k.

    Returns:
        Dict of "image_recall_at_k", the share of texts whose image is found,
        and "text_recall_at_k", that of images that have texts.

    Raises:
        ValueError: for arrays of other shapes, and numbers of no image.

    Example:
        >>> retrieval_recall(np.eye(3), np.eye(3), at=(1,))
        {'image_recall_at_1': 1.0, 'text_recall_at_1': 1.0}
    """
    images, texts = numbers_of("images", images), numbers_of("texts", texts)
    owner = np.arange(texts.shape[0] if texts.ndim else 0)
    if image_of_text is not None:
        owner = numbers_of("image_of_text", image_of_text, None)
    wrong = (
        images.ndim != 2
        or texts.shape[1:] != images.shape[1:]
        or owner.shape != texts.shape[:1]
        or owner.dtype.kind not in "iu"
        or not len(texts)
        or not (np.isfinite(images).all() and np.isfinite(texts).all())
    )
    if wrong or owner.min() < 0 or owner.max() >= len(images):
        raise ValueError(
            "images and texts are embeddings (N, P) and (T, P) without NaN, "
            "and image_of_text has for each text the number of its image. "
            f"Received: {images.shape}, "
            f"{texts.shape} and {owner.dtype} of shape {owner.shape}."
        )
    check_kind(tuple[int, ...], at=at)
    if any(k < 1 for k in at):
        raise ValueError(f"Recall is at 1 or more. Received: at={at!r}.")
    places = _places(texts, images, np.arange(len(images)), owner)
    # For an image the first of its texts.
    first = np.full(len(images), np.iinfo("int64").max)
    named = np.unique(owner)
    first[named] = _places(images[named], texts, owner, named)
    return {
        **{f"image_recall_at_{k}": float(np.mean(places < k)) for k in at},
        **{f"text_recall_at_{k}": float(np.mean(first[named] < k)) for k in at},
    }


def _places(queries, known, groups, wanted):
    """Return the place of the first of the wanted group for each query."""
    found = []
    for start in range(0, len(queries), ROWS):
        part = slice(start, start + ROWS)
        similarity = queries[part] @ known.T  # (Q, N)
        order = np.argsort(-similarity, axis=1, kind="stable")
        hits = groups[order] == wanted[part, None]  # (Q, N)
        found.append(hits.argmax(axis=1))
    return np.concatenate(found)
