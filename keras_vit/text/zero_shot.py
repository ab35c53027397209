"""Classes that are named by words: zero-shot classification.

Axes: T texts, K classes, L context length, P embedding dimension.
"""

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.checkpoints.engine.loading import open_source
from keras_vit.checkpoints.files.npz import open_npz
from keras_vit.checkpoints.files.tensors import DAMAGE
from keras_vit.checkpoints.public.catalog import pair_source
from keras_vit.io.atomic_files import replacing
from keras_vit.io.checks import check_kind, check_whole
from keras_vit.models.configured_model import remade
from keras_vit.runtime.machine import shortage
from keras_vit.text.image_text import (
    ImageTextModel,
    normalized,
    score_activation,
    token_ids,
)
from keras_vit.text.pair_files import (
    load_image_text,
    open_text,
    pair_file,
    text_parts,
)
from keras_vit.text.templates import (
    DEFAULT_TEMPLATE,
    imagenet_names,
    templates_of,
)
from keras_vit.text.tokenizer import Tokenizer

__all__ = [
    "ClassEmbeddings",
    "TextEncoder",
    "as_text_encoder",
    "class_embeddings",
    "labels_of",
    "load_class_embeddings",
    "zero_shot_model",
]

IMAGENET = "imagenet"  # the name of labels that come with the package
MAX_LABEL = 1000  # letters
MAX_LABELS_FILE = 2**26  # bytes
# What a file of classes says besides their names and vectors.
ABOUT = ("logit_scale", "logit_bias", "templates", "model", "image_crc32")
MARK = "encoder_norm/gamma"  # differs with models, not with the image size


@dataclasses.dataclass(frozen=True)
class TextEncoder:
    """The text half of an image-text model.

    Attributes:
        tower: a `TextTransformer`.
        tokenizer: its `Tokenizer`, or None.
        logit_scale: float, logarithm of what cosines are multiplied by.
        logit_bias: float that is added, or None.

    Example:
        >>> as_text_encoder("siglip").vectors(["a cat", "a dog"]).shape
        (2, 768)
    """

    tower: keras.Model
    tokenizer: Tokenizer | None
    logit_scale: float
    logit_bias: float | None

    def vectors(
        self, texts: Sequence[str], *, batch_size: int = 256
    ) -> np.ndarray:
        """Compute the embeddings of texts, of length 1.

        Args:
            texts: any number.
            batch_size: int, texts per step.

        Returns:
            float32 array (T, P).

        Raises:
            ValueError: for no text, no tokenizer, and texts without a token.
        """
        check_whole(1, batch_size=batch_size)
        texts = [texts] if isinstance(texts, str) else list(texts)
        rows = min(batch_size, max(len(texts), 1))
        found = []
        for start in range(0, max(len(texts), 1), rows):
            part = texts[start : start + rows]
            ids = self.ids(part)
            # Every size of a batch is compiled anew: the last is filled up.
            filled = np.resize(ids, (rows, ids.shape[1]))  # (B, L)
            vectors = normalized(self.tower.predict_on_batch(filled))
            found.append(ops.convert_to_numpy(vectors)[: len(part)])
        return np.concatenate(found).astype("float32")

    def ids(self, texts: Sequence[str]) -> np.ndarray:
        """Return the ids (T, L) of texts; see `vectors` for what it raises."""
        return token_ids(texts, self.tokenizer, self.tower.config)


def as_text_encoder(model: Any, *, dtype: Any = None) -> TextEncoder:
    """Make a `TextEncoder` of an image-text model, or load that of a source.

    Args:
        model: an `ImageTextModel`, or a source of `load_image_text`, of which
            the text tower alone is loaded.
        dtype: dtype policy of the tower of a source.

    Raises:
        ValueError: when the source has no text tower.
        OSError: when it cannot be read.
    """
    if isinstance(model, TextEncoder):
        return model
    if isinstance(model, (str, os.PathLike)):
        source = pair_source(model)
        if not pair_file(source):
            half = open_text(source)
            return TextEncoder(
                *text_parts(half, dtype), half.logit_scale, half.logit_bias
            )
        model = load_image_text(model, dtype=dtype)
    if not isinstance(model, ImageTextModel):
        raise ValueError(
            "Texts need an image-text model: what load_image_text returns, or "
            f"its source. Received: {model!r}."
        )
    bias = model.logit_bias
    return TextEncoder(
        model.text_tower,
        model.tokenizer,
        float(ops.convert_to_numpy(model.logit_scale)),
        None if bias is None else float(ops.convert_to_numpy(bias)),
    )


@dataclasses.dataclass(frozen=True)
class ClassEmbeddings:
    """Classes by words, and what makes scores of an image's embedding.

    Attributes:
        names: K names.
        vectors: float32 array (K, P), of length 1.
        logit_scale: float, logarithm of what cosines are multiplied by.
        logit_bias: float that is added, or None.
        templates: the sentences that the classes were named in.
        model: the name of the model, None of one in memory.
        image_crc32: see `image_checksum`.
    """

    names: tuple[str, ...]
    vectors: np.ndarray
    logit_scale: float
    logit_bias: float | None
    templates: tuple[str, ...] = ()
    model: str | None = None
    image_crc32: int | None = None

    @property
    def activation(self) -> str:
        """Return what makes scores of logits: "softmax" or "sigmoid"."""
        return score_activation(self.logit_bias)

    def check_images(self, shape) -> None:
        """Raise a ValueError unless images have embeddings of this size.

        Args:
            shape: of the embeddings of a batch, (B or None, P).
        """
        if tuple(shape[1:]) != self.vectors.shape[1:]:
            raise ValueError(
                f"The embeddings of the classes have {self.vectors.shape[1]} "
                f"numbers, those of the images {shape[-1]}. Take the model "
                "that the labels were computed with."
            )

    def save(self, path: str | os.PathLike) -> None:
        """Write a file that `keras_vit.predict` takes as its labels.

        Args:
            path: the file, which ends in .npz.

        Raises:
            ValueError: for another ending, or no folder to write into.
        """
        path = checked_path(path)
        about = {name: getattr(self, name) for name in ABOUT}
        content = io.BytesIO()
        np.savez(
            content,
            names=np.array(self.names),
            vectors=self.vectors,
            metadata=np.array(json.dumps(about)),
        )
        with replacing(path) as temporary:
            pathlib.Path(temporary).write_bytes(content.getvalue())


def checked_path(path: str | os.PathLike) -> pathlib.Path:
    """Return the path of a file of classes, if it can be written."""
    path = pathlib.Path(path).expanduser()
    if path.suffix != ".npz" or not path.parent.is_dir() or path.is_dir():
        raise ValueError(
            "Embeddings of classes are written to a file that ends in .npz, in "
            f"a folder that exists. Received: {str(path)!r}."
        )
    return path


def load_class_embeddings(path: str | os.PathLike) -> ClassEmbeddings:
    """Read what `ClassEmbeddings.save` wrote.

    Args:
        path: the file.

    Raises:
        ValueError: when it is no such file.
        OSError: when it cannot be opened.
    """
    try:
        file = open_npz(path)
        tensors = file.tensors
        if short := shortage(sum(x.nbytes for x in tensors.values())):
            raise ValueError(f"it takes {short}")
        with np.load(path, allow_pickle=False) as arrays:
            about = json.loads(str(arrays["metadata"]))
            names = tuple(map(str, arrays["names"]))
            vectors = arrays["vectors"]
        lengths = np.linalg.norm(vectors, axis=1)
        if vectors.shape[0] != len(names) or not np.allclose(lengths, 1, 0.01):
            raise ValueError("its vectors are not one of length 1 per name")
        bias = about["logit_bias"]
        return ClassEmbeddings(
            names,
            vectors.astype("float32"),
            float(about["logit_scale"]),
            None if bias is None else float(bias),
            tuple(about["templates"]),
            about["model"],
            about["image_crc32"],
        )
    except FileNotFoundError as error:
        raise ValueError(f"There is no file {str(path)!r}.") from error
    except DAMAGE as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(
            f"{str(path)!r} holds no embeddings of classes: {reason}. Write "
            "them with `keras-vit predict --save_labels`."
        ) from error


def labels_of(labels: str | os.PathLike | Sequence[str]) -> tuple[str, ...]:
    """Return the names of classes, checked.

    Args:
        labels: a list of them, the path of a text file with one a line, or
            "imagenet" for the names of CLIP's authors for ImageNet's 1,000
            classes, of which two are there twice.

    Raises:
        ValueError: for none, one twice, one without letters or of more than
            1,000, and a file that cannot be read.

    Example:
        >>> labels_of(["cat", "dog"])
        ('cat', 'dog')
    """
    named = isinstance(labels, str) and labels == IMAGENET
    if labels is imagenet_names() or named and not os.path.exists(IMAGENET):
        return imagenet_names()
    if isinstance(labels, (str, os.PathLike)):
        labels = _lines(pathlib.Path(labels).expanduser())
    check_kind(Iterable, labels=labels)
    found = tuple(x.strip() if isinstance(x, str) else x for x in labels)
    wrong = [
        x for x in found if not isinstance(x, str) or not 0 < len(x) < MAX_LABEL
    ]
    twice = len(found) - len({*map(str, found)})
    if wrong or twice or not found:
        seen: set = set()
        again = [x for x in found if str(x) in seen or seen.add(str(x))]
        what = repr((wrong or again or found)[:1])[:100]
        raise ValueError(
            "labels are texts of 1 to "
            f"{MAX_LABEL} letters, each there once. Received: {len(found)} "
            f"labels, {len(wrong)} that are none, {twice} twice, such as "
            f"{what}."
        )
    return found


def _lines(path):
    try:
        if path.stat().st_size > MAX_LABELS_FILE:
            raise ValueError(f"{str(path)!r} is too large for labels.")
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            "labels are a list, a text file with one a line, or a file that "
            f"`--save_labels` wrote. Received: {str(path)!r}, which cannot be "
            f"read: {error}."
        ) from error
    return [x for x in text.splitlines() if x.strip()]


def class_embeddings(
    model: Any,
    labels: str | os.PathLike | Sequence[str],
    template: str | Sequence[str] = DEFAULT_TEMPLATE,
    *,
    batch_size: int = 256,
) -> ClassEmbeddings:
    """Compute the embeddings of classes that are named by words.

    Each class is named in each sentence; its embedding is the mean of theirs,
    of length 1 before and after ("Learning Transferable Visual Models",
    arXiv:2103.00020, section 3.1.4).

    Args:
        model: see `as_text_encoder`.
        labels: see `labels_of`.
        template: a sentence with {} for the class, several, or the name
            "openai" of CLIP's 80 or "openai_best" of the best seven.
        batch_size: int, texts per step.

    Returns:
        A `ClassEmbeddings`; its `save` writes a file for `keras_vit.predict`.

    Raises:
        ValueError: for labels or a template that are none, and a model
            without texts or tokenizer.

    Example:

    >>> pair = "openai/clip-vit-base-patch32"
    >>> classes = class_embeddings(pair, ["cat", "dog"])
    >>> classes.save("classes.npz")
    """
    check_whole(1, batch_size=batch_size)
    names, templates = labels_of(labels), templates_of(template)
    encoder = as_text_encoder(model)
    size = encoder.tower.output_shape[-1]
    if short := shortage(8 * len(names) * size):
        raise ValueError(f"{len(names)} labels take {short}.")
    total = np.zeros((len(names), size), "float32")
    for sentence in templates:
        texts = [sentence.replace("{}", name) for name in names]
        total += encoder.vectors(texts, batch_size=batch_size)  # (K, P)
    vectors = total / np.linalg.norm(total, axis=1, keepdims=True)
    return ClassEmbeddings(
        names,
        vectors,
        encoder.logit_scale,
        encoder.logit_bias,
        templates,
        os.fspath(model) if isinstance(model, (str, os.PathLike)) else None,
        image_checksum(model),
    )


def image_checksum(model: Any) -> int | None:
    """Compute a checksum of the last normalisation of a tower of images.

    Args:
        model: the tower, an `ImageTextModel`, or its source, of which no more
            is read.

    Returns:
        The CRC-32 of its scale in float32; None of a text tower alone.
    """
    if isinstance(model, (str, os.PathLike)):
        with contextlib.suppress(ValueError):  # It has no tower of images.
            opened = open_source(pair_source(model))
            if MARK in opened.rows:
                return zlib.crc32(opened.read(MARK, opened.facts).tobytes())
        return None
    tower = getattr(model, "image_tower", model)
    for weight in getattr(tower, "weights", ()):
        if weight.path.endswith(MARK):
            values = ops.convert_to_numpy(ops.cast(weight, "float32"))
            return zlib.crc32(values.tobytes())
    return None


def zero_shot_model(tower: Any, classes: ClassEmbeddings) -> Any:
    """Make the model from images to logits of classes.

    It is a model as any other: its classification layer has the embeddings of
    the classes times the scale, and takes features of length 1. Saved, it is
    what a fine-tuning starts from ("Robust fine-tuning of zero-shot models",
    arXiv:2109.01903, section 3).

    Args:
        tower: the image tower that the classes' text tower belongs to.
        classes: what `class_embeddings` returned.

    Raises:
        ValueError: when the embeddings of the two are of different sizes, or
            the classes' of another model.
    """
    classes.check_images(tower.output_shape)
    size = classes.vectors.shape[1]
    found = image_checksum(tower)
    both = found, classes.image_crc32
    if None not in both and both[0] != both[1]:
        raise ValueError(
            f"The embeddings of the classes are of the model {classes.model!r}"
            f" with checksum {classes.image_crc32:08x}, the images are given "
            f"to {tower.name!r} with checksum {found:08x}. Take the model that "
            "the labels were computed with, or compute them again."
        )
    values = {x.path: ops.convert_to_numpy(x) for x in tower.weights}
    changes = {"num_classes": len(classes.names), "unit_features": True}
    if tower.config.num_classes:  # The projection is before the layer.
        changes |= {
            "representation_dim": size,
            "representation_activation": "linear",
        }
        values["pre_logits/kernel"] = values["predictions/kernel"]
        values["pre_logits/bias"] = values.get(
            "predictions/bias", np.zeros(size, "float32")
        )
    bias = classes.logit_bias or 0.0
    kernel = classes.vectors.T * np.exp(classes.logit_scale)  # (P, K)
    values["predictions/kernel"] = kernel
    values["predictions/bias"] = np.full(len(classes.names), bias, "float32")
    model = remade(tower, values, head_bias=bias, **changes)
    # It says how positions are resampled, which NaFlexTransformer asks.
    model.load_report = getattr(tower, "load_report", None)
    model.trained_as = tower.trained_as.but(
        problem="classification",
        activation=classes.activation,
        class_names=classes.names,
    )
    return model
