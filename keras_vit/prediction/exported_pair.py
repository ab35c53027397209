"""Both towers of an image-text model in a folder of another runtime.

Axes: B images, T texts, L context length, K classes, P embedding dimension.
"""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
from typing import Any

import numpy as np

from keras_vit.checkpoints.files.folders import PAIR
from keras_vit.data.resizing import Geometry
from keras_vit.prediction.classifier import Classifier, load_classifier
from keras_vit.prediction.encoder import Encoder
from keras_vit.prediction.exported_model import (
    check_installed,
    naming,
    runtime_of,
)
from keras_vit.text.tokenizer import Tokenizer
from keras_vit.text.tower import TextConfig
from keras_vit.text.zero_shot import ClassEmbeddings, TextEncoder

__all__ = ["ExportedPair", "digest_of", "exported_pair"]

TOKENIZER = "tokenizer"  # a folder, beside the files of the towers
LARGEST_RECORD = 2**20  # bytes
LARGEST_CONTEXT = 2**16  # tokens; ids of a batch are that long
LARGEST_SCALE = 100  # of which the exponential is taken; models have 5


def exported_pair(model: Any) -> "ExportedPair | None":
    """Return the pair in a folder that `export_pair` wrote, None of others."""
    if isinstance(model, ExportedPair):
        return model
    named = isinstance(model, (str, os.PathLike))
    if named and (pathlib.Path(model) / PAIR).is_file():
        return ExportedPair(model)
    return None


class ExportedPair:
    """An image-text model in two files of another runtime.

    The files are programs: open only what you trust. Each is opened when it
    is needed.

    Args:
        path: the folder that `keras_vit.exporting.export_pair` wrote.

    Attributes:
        record: dict, what the folder says of itself.

    Raises:
        ValueError: when it is no such folder.

    Example:
        >>> pair = ExportedPair("clip_onnx")
        >>> pair.texts.vectors(["a cat", "a dog"]).shape
        (2, 512)
    """

    def __init__(self, path: str | os.PathLike):
        self.path = pathlib.Path(path)
        self.record = _read(self.path / PAIR)

    @functools.cached_property
    def image(self) -> Classifier:
        """The image tower, a `Classifier` without classes."""
        return load_classifier(self._file("image"), needs_classes=False)

    @functools.cached_property
    def texts(self) -> TextEncoder:
        """The text half, as `keras_vit.text.as_text_encoder` makes it."""
        about, tokenizer = self.record, None
        if about["tokenizer"] is not None:
            known = Tokenizer(about["tokenizer"], {})
            tokenizer = known.read(str(self.path / TOKENIZER))
        config = TextConfig(**about["text_config"])
        tower: Any = ExportedTexts(self._file("text"), about, config)
        return TextEncoder(
            tower, tokenizer, about["logit_scale"], about["logit_bias"]
        )

    def encoder(self, image_size: Any = None, config: Any = None) -> Encoder:
        """Make the `Encoder` of the image tower.

        Args:
            image_size: pixels, or None; others than the file's are refused.
            config: how images are resized, where it is not as in the record.
        """
        geometry = self._geometry(config)
        network: Any = self.image.model
        network.check_image_size(image_size)
        about = self.record
        return Encoder(
            network,
            network,
            geometry,
            {
                "keras_vit": about["keras_vit"],
                "model": str(self.path),
                "weights_crc32": int(about["parts"][about["image"]][:8], 16),
                "kind": "pooled",
                "blocks": None,
                "image_size": list(geometry.image_size),
                "preprocessing": dataclasses.asdict(geometry.config),
            },
        )

    def _geometry(self, config) -> Geometry:
        found = self.image.geometry
        if config is None:
            return found
        return Geometry(found.image_size, found.channels, config)

    def classifier(
        self, classes: ClassEmbeddings, preprocessing: Any = None
    ) -> Classifier:
        """Make the `Classifier` of classes by words.

        Args:
            classes: what `keras_vit.text.class_embeddings` returned.
            preprocessing: see `keras_vit.prediction.load_classifier`.

        Raises:
            ValueError: for classes of another size.
        """
        image = self.image
        model: Any = image.model
        classes.check_images(model.record["output"]["shape"])
        kernel = classes.vectors.T * np.exp(classes.logit_scale)  # (P, K)
        bias = classes.logit_bias or 0.0

        def scores(found):  # (B, P) to (B, K)
            units = found / np.linalg.norm(found, axis=1, keepdims=True)
            return units @ kernel.astype("float32") + np.float32(bias)

        return Classifier(
            model.then(scores, len(classes.names)),
            classes.names,
            self._geometry(preprocessing),
            classes.activation,
        )

    def _file(self, half) -> str:
        """Return the path of a tower, whose checksum is that of the record."""
        name = self.record[half]
        path = self.path / name
        if not path.is_file() or digest_of(path) != self.record["parts"][name]:
            raise ValueError(
                f"{str(path)!r} is not the file that {PAIR} was written for. "
                "Export the model again."
            )
        return str(path)


class ExportedTexts:
    """A tower of texts in a file of another runtime.

    Args:
        path: the file.
        record: dict, that of the folder.
        config: the `TextConfig` of the tower.
    """

    def __init__(self, path: str, record: dict, config: TextConfig):
        runtime = runtime_of(path)
        if runtime is None:
            raise ValueError(f"{path!r} is no exported model.")
        self.config, self.path, self.runtime = config, path, runtime
        size = config.projection_dim or config.hidden_dim
        self.output_shape = (None, size)
        check_installed(runtime)
        about = {**record, "input": {"name": "token_ids"}}
        with naming(runtime, pathlib.Path(path)):
            self._run = runtime.open(pathlib.Path(path), about)

    def predict_on_batch(self, ids: np.ndarray) -> np.ndarray:
        """Compute the vectors (T, P) of ids (T, L), of no length in
        particular.

        Raises:
            ValueError: when the file cannot be run, or gives another shape.
        """
        with naming(self.runtime, pathlib.Path(self.path), "run"):
            found = np.asarray(self._run(np.asarray(ids, "int32")), "float32")
        if found.shape != (len(ids), self.output_shape[1]):
            raise ValueError(
                f"{self.path!r} returns vectors of shape {found.shape}, and "
                f"{PAIR} says {self.output_shape}. Export the model again."
            )
        return found


def digest_of(path: pathlib.Path) -> str:
    """Return the SHA-256 of a file and of the weights beside it."""
    found = hashlib.sha256()
    for part in (path, path.with_suffix(".bin")):
        if part.is_file():
            with part.open("rb") as file:
                found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()


def _is_name(value):
    return isinstance(value, str) and pathlib.PurePath(value).name == value


def _is_number(value):
    return isinstance(value, float) and abs(value) <= LARGEST_SCALE


def _is_text_config(value):
    try:
        return TextConfig(**value).context_length <= LARGEST_CONTEXT
    except (TypeError, ValueError):
        return False


def _is_tokenizer(value):
    if value is None:
        return True
    try:
        Tokenizer(value, {})
    except (TypeError, KeyError, ValueError):
        return False
    names = value["files"]
    whole = isinstance(names, list) and names and "padding" in value
    return bool(whole) and all(map(_is_name, names))


# Field of a record -> whether a record has it as it should be.
FIELDS: dict = {
    "image": _is_name,
    "text": _is_name,
    "precision": lambda x: isinstance(x, str),
    "keras_vit": lambda x: isinstance(x, str),
    "text_config": _is_text_config,
    "logit_scale": _is_number,
    "logit_bias": lambda x: x is None or _is_number(x),
    "tokenizer": _is_tokenizer,
    "parts": lambda x: (
        isinstance(x, dict)
        and all(isinstance(y, str) and len(y) == 64 for y in x.values())
    ),
}


def _read(path):
    """Read the record of a pair; refuse one that is none of ours."""
    try:
        if path.stat().st_size > LARGEST_RECORD:
            raise ValueError
        record = json.loads(path.read_text("utf-8"))
        wrong = [x for x, fits in FIELDS.items() if not fits(record.get(x))]
        if wrong or {record["image"], record["text"]} - {*record["parts"]}:
            raise ValueError
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{str(path)!r} is no record of an exported image-text model, or "
            "a damaged one. Export the model again."
        ) from error
    return record
