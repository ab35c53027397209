"""Embeddings of images, with the preprocessing of the weights.

Axes: N images, B images of a batch, H and W height and width, C channels,
T tokens, D hidden dimension, L requested blocks.
"""

import dataclasses
import os
import zlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.data import PreprocessingConfig
from keras_vit.data.config import evaluation_of
from keras_vit.data.resizing import Geometry
from keras_vit.evaluation.few_shot import feature_model
from keras_vit.io.checks import check_choice, check_size, check_whole
from keras_vit.models import BiT
from keras_vit.models.configured_model import BlockFeatures, check_blocks
from keras_vit.prediction.classifier import Classifier, Prepared
from keras_vit.prediction.exported_model import ExportedModel
from keras_vit.prediction.images import images_of, read_batches, scaled
from keras_vit.prediction.networks import check_network, load_prepared, size_of
from keras_vit.text.image_text import ImageTextModel
from keras_vit.version import __version__

__all__ = ["Encoder", "as_encoder", "embed"]

KINDS = ("pooled", "tokens", "features")


@dataclasses.dataclass(frozen=True)
class Encoder(Prepared):
    """A model without its head, with its preprocessing; see `as_encoder`.

    Attributes:
        model: the Keras model of keras_vit, with its head if it has one.
        network: a Keras model from (B, H, W, C) to features, or to a list of
            them, one of each block.
        geometry: a `Geometry`, how images are resized and cropped.
        metadata: plain values that say what the embeddings are: of which
            "model" and weights ("weights_crc32"), their "kind" and "blocks",
            the "image_size" in pixels, the "preprocessing".

    Example:
        >>> as_encoder("ViT_B16/imagenet21k").metadata["image_size"]
        [224, 224]
    """

    model: keras.Model
    network: keras.Model
    geometry: Geometry
    metadata: dict[str, Any]

    def vectors(self, images: np.ndarray) -> np.ndarray:
        """Computes the embeddings of a batch.

        Args:
            images: array (B, H, W, C) in [0, 255], of what `read` returns.

        Returns:
            float32 array (B, ...), see `embed`.

        Raises:
            ValueError: when they are not finite.
        """
        inputs = scaled(self.model.config, images)
        found = self.network.predict_on_batch(inputs)
        # NumPy has no bfloat16, which a model may compute in.
        blocks = found if isinstance(found, list) else [found]
        arrays = [np.asarray(x).astype("float32") for x in blocks]
        several = self.metadata["blocks"] is not None
        vectors = np.stack(arrays, axis=1) if several else arrays[0]
        if not np.isfinite(vectors).all():
            raise ValueError(
                "The model returns features that are not finite. Check its "
                "weights."
            )
        return vectors


def embed(
    model: str | os.PathLike | keras.Model | Classifier | Encoder,
    images: Any,
    *,
    kind: str | None = None,
    blocks: int | Sequence[int] | None = None,
    image_size: int | tuple[int, int] | None = None,
    preprocessing: PreprocessingConfig | None = None,
    batch_size: int = 32,
) -> np.ndarray:
    """Computes embeddings of images, resized and cropped as for evaluation.

    Args:
        model: a name of `keras-vit weights list` such as
            "ViT_B16/imagenet21k", a run folder, a file or folder of weights
            with or without classification layer; a model of keras_vit; what
            `keras_vit.prediction.load_classifier` returns; or, to embed more
            than once, what `keras_vit.prediction.as_encoder` returns, whose
            options hold where no others are given.
        images: path of an image, or of a folder for all images below it; a
            Pillow image; an array or tensor (H, W), (H, W, C) or
            (N, H, W, C) in [0, 255], of any size; or a list of all these.
        kind: "pooled", the default, for one vector per image: what the
            classification layer sees, and of an image-text model the projected
            embedding, which texts are compared with; "features" for what is
            before the projection, too; "tokens" for all tokens as the model
            pools them: class token, distillation token and registers, then
            the patches row by row.
        blocks: None for the output of the model; or numbers of blocks, from
            0, negative ones from the end, for the features after each of
            them, normalised and pooled as those of the last block.
        image_size: pixels, one side or (height, width), where it is not that
            of the weights; with a model only where it takes any size.
        preprocessing: how images are resized and cropped, where it is not as
            the weights were evaluated: `keras_vit.data.PreprocessingConfig`.
        batch_size: int, images per step.

    Returns:
        float32 array (N, D) of kind "pooled" and "features", (N, T, D) of
        kind "tokens";
        with blocks (N, L, D) and (N, L, T, D).

    Raises:
        ValueError: when there is no such model, it has no such features, an
            image cannot be read, there is none, or an argument is out of
            range.
        OSError: when weights cannot be fetched.

    Example:
        >>> vectors = keras_vit.embed("ViT_B16/imagenet21k", "photos")
        >>> vectors.shape
        (12, 768)
    """
    check_whole(1, batch_size=batch_size)
    encoder = as_encoder(
        model,
        kind=kind,
        blocks=blocks,
        image_size=image_size,
        preprocessing=preprocessing,
    )
    parts = []
    for read, batch in read_batches(encoder, images_of(images), batch_size):
        for _, error in read:
            if error is not None:
                raise ValueError(error)
        parts.append(encoder.vectors(batch)[: len(read)])
    if not parts:
        raise ValueError(f"There is no image. Received: images={images!r}.")
    return np.concatenate(parts)


def as_encoder(
    model: str | os.PathLike | keras.Model | Classifier | Encoder,
    *,
    kind: str | None = None,
    blocks: int | Sequence[int] | None = None,
    image_size: int | tuple[int, int] | None = None,
    preprocessing: PreprocessingConfig | None = None,
) -> Encoder:
    """Makes an `Encoder` of what `embed` takes as a model.

    Args:
        model, kind, blocks, image_size, preprocessing: see `embed`.

    Raises:
        ValueError: when there is no such model, or it has no such features.
        OSError: when weights cannot be fetched.

    Example:
        >>> encoder = as_encoder("runs/flowers", kind="tokens")
        >>> keras_vit.embed(encoder, "photos").shape
        (12, 197, 768)
    """
    if isinstance(model, Encoder):
        return _with_options(model, kind, blocks, image_size, preprocessing)
    kind = "pooled" if kind is None else kind
    check_choice("kind", kind, KINDS)
    # It imports this module.
    from keras_vit.prediction.exported_pair import exported_pair

    if (pair := exported_pair(model)) is not None:
        if kind != "pooled" or blocks is not None:
            raise ValueError(
                "An exported model gives projected embeddings alone. Received: "
                f"kind={kind!r}, blocks={blocks!r}. Embed with the weights "
                "that it was exported from."
            )
        return pair.encoder(image_size, preprocessing)
    name, network, config = _resolved(model, image_size, preprocessing)
    height, width = size_of(network, image_size)
    if config is None:
        config = evaluation_of(network.trained_as, (height, width))
    channels = network.input_shape[3]
    numbers = None if blocks is None else check_blocks(network, blocks)
    features = _features(network, kind, numbers)
    return Encoder(
        network,
        features,
        Geometry((height, width), channels, config),
        {
            "keras_vit": __version__,
            "model": name,
            "weights_crc32": fingerprint(network),
            "kind": kind,
            "blocks": numbers,
            "image_size": [height, width],
            "preprocessing": dataclasses.asdict(config),
        },
    )


def _with_options(encoder, kind, blocks, image_size, preprocessing) -> Encoder:
    """Return an encoder of the same model, with its own options or others."""
    given = {
        "kind": kind,
        "blocks": None if blocks is None else np.asarray(blocks).tolist(),
        "image_size": None
        if image_size is None
        else check_size("image_size", image_size),
        "preprocessing": preprocessing,
    }
    own = {
        "kind": encoder.metadata["kind"],
        "blocks": encoder.metadata["blocks"],
        "image_size": tuple(encoder.geometry.image_size),
        "preprocessing": encoder.geometry.config,
    }
    others = {
        name: value
        for name, value in given.items()
        if value is not None and value != own[name]
    }
    if not others:
        return encoder
    if isinstance(encoder.model, ExportedModel):
        raise ValueError(
            "The encoder of an exported model has its own options. Received: "
            f"{', '.join(f'{x}={y!r}' for x, y in others.items())}."
        )
    found = as_encoder(encoder.model, **{**own, **others})
    found.metadata["model"] = encoder.metadata["model"]
    return found


def _resolved(model, image_size, preprocessing):
    """Return the name of a model, the model, and its preprocessing or None."""
    if isinstance(model, (str, os.PathLike)):
        source = os.fspath(model)
        loaded = load_prepared(
            source, image_size, preprocessing, needs_head=False
        )
        return source, loaded.model, loaded.preprocessing
    if isinstance(model, ImageTextModel):
        model = model.image_tower
    if isinstance(model, Classifier):
        return None, model.model, preprocessing or model.geometry.config
    check_network(model)
    return None, model, preprocessing


def _features(model, kind, blocks) -> keras.Model:
    """Build the network from images to the requested features."""
    if kind != "tokens" and blocks is None:
        projects = kind == "pooled" and is_projected(model)
        return model if projects else feature_model(model)
    if isinstance(model, BiT):
        raise ValueError(
            "A BiT has neither tokens nor transformer blocks. Received: "
            f'kind={kind!r}, blocks={blocks!r}. Use kind="pooled" without '
            "blocks."
        )
    numbers = check_blocks(model, -1) if blocks is None else blocks
    return BlockFeatures(model, numbers, pool=kind != "tokens")


def is_projected(model: keras.Model) -> bool:
    """Return whether the last layer is a projection for texts, as CLIP's.

    Then it has neither a bias nor names of classes.
    """
    config = model.config
    projected = config.num_classes and getattr(config, "head_bias", 0) is None
    return bool(projected) and model.trained_as.class_names is None


def fingerprint(model: keras.Model) -> int:
    """Compute a checksum of a model's weights, which differs with them."""
    found = 0
    for weight in model.weights:
        if weight.name != "seed_generator_state":
            value = keras.ops.convert_to_numpy(weight)
            found = zlib.crc32(value.tobytes(), found)
    return found
