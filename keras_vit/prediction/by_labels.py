"""Classes by words: a classifier made of an image-text model and labels."""

import os
from collections.abc import Sequence
from typing import Any

from keras_vit.checkpoints.public.catalog import pair_source
from keras_vit.data.config import evaluation_of
from keras_vit.data.resizing import Geometry
from keras_vit.io.checks import check_kind, check_own_size
from keras_vit.prediction.classifier import Classifier
from keras_vit.prediction.encoder import Encoder
from keras_vit.prediction.exported_pair import exported_pair
from keras_vit.prediction.networks import load_prepared
from keras_vit.text.image_text import ImageTextModel
from keras_vit.text.templates import DEFAULT_TEMPLATE
from keras_vit.text.zero_shot import (
    ClassEmbeddings,
    TextEncoder,
    as_text_encoder,
    class_embeddings,
    labels_of,
    load_class_embeddings,
    zero_shot_model,
)

__all__ = [
    "check_projected",
    "classifier_of",
    "embed_texts",
    "load_zero_shot",
    "texts_of",
    "words_of",
]


def load_zero_shot(
    model: Any,
    labels: str | os.PathLike | Sequence[str] | ClassEmbeddings,
    template: str | Sequence[str] | None = None,
    *,
    image_size: int | tuple[int, int] | None = None,
    preprocessing: Any = None,
) -> Classifier:
    """Make the `Classifier` of an image-text model and of labels.

    Args:
        model: a source of `keras_vit.load_image_text`, what it returned, or
            what `keras_vit.exporting.export_pair` wrote.
        labels: names of the classes, the path of a text file with one a line,
            or embeddings of classes: a `keras_vit.text.ClassEmbeddings` or
            its file, which need no text tower.
        template: see `keras_vit.text.class_embeddings`; not with embeddings.
        image_size: see `load_classifier`.
        preprocessing: see `load_classifier`.

    Raises:
        ValueError: for labels that are none, one label of a softmax, whose
            score is 1 for any image, and a model without texts.
        OSError: when weights cannot be fetched.

    Example:
        >>> classifier = load_zero_shot("siglip", ["cat", "dog"])
        >>> keras_vit.predict(classifier, "photos")
    """
    labels = _read(labels)  # Before a model is loaded.
    pair = exported_pair(model)
    of_pair = isinstance(model, (str, os.PathLike, ImageTextModel))
    if pair is None and not of_pair:
        raise ValueError(
            "Labels need an image-text model: what keras_vit.load_image_text "
            f"returns, or its source. Received: {type(model).__name__}."
        )
    classes = words_of(model, labels, template)
    if pair is not None:
        pair.encoder(image_size)  # Another size is refused.
        return pair.classifier(classes, preprocessing)
    return classifier_of(
        model, classes, image_size=image_size, preprocessing=preprocessing
    )


def words_of(
    model: Any,
    labels: str | os.PathLike | Sequence[str] | ClassEmbeddings,
    template: str | Sequence[str] | None = None,
) -> ClassEmbeddings:
    """Compute or read the embeddings of classes by words.

    Args:
        model: see `texts_of`.
        labels: see `load_zero_shot`.
        template: see `load_zero_shot`.

    Raises:
        ValueError: see `load_zero_shot`.
    """
    classes = _read(labels)
    if not isinstance(classes, ClassEmbeddings):
        chosen = DEFAULT_TEMPLATE if template is None else template
        pair = exported_pair(model)
        given = model if pair is None else pair.texts
        classes = class_embeddings(given, classes, chosen)
    elif template is not None:
        raise ValueError(
            "The labels are embeddings, whose sentences are chosen. Received: "
            f"template={str(template)[:100]!r}. Leave it out."
        )
    if len(classes.names) == 1 and classes.activation == "softmax":
        raise ValueError(
            "The scores of this model are a softmax over the labels, which "
            f"is 1 of a single one. Received: {list(classes.names)}. Give a "
            'second one, such as "something else".'
        )
    return classes


def _read(labels) -> ClassEmbeddings | tuple[str, ...]:
    """Return embeddings of classes, read if need be, or names of classes."""
    if isinstance(labels, (str, os.PathLike)):
        path = os.path.expanduser(os.fspath(labels))
        if path.endswith(".npz"):
            return load_class_embeddings(path)
    known = isinstance(labels, ClassEmbeddings)
    return labels if known else labels_of(labels)


def classifier_of(
    model: Any,
    classes: ClassEmbeddings,
    *,
    image_size: int | tuple[int, int] | None = None,
    preprocessing: Any = None,
) -> Classifier:
    """Make the `Classifier` of an image tower and embeddings of classes.

    Args:
        model: an `ImageTextModel`, or the source of one.
        classes: the embeddings.
        image_size: see `load_classifier`.
        preprocessing: see `load_classifier`.

    Raises:
        ValueError: for classes of another model, and another size of images
            than that of a model that is loaded.
        OSError: when weights cannot be fetched.
    """
    if isinstance(model, ImageTextModel):
        check_own_size(model.image_tower.input_shape[1:3], image_size)
        tower, config = model.image_tower, preprocessing
    else:
        loaded = load_prepared(
            pair_source(model), image_size, preprocessing, needs_head=False
        )
        tower, config = loaded.model, loaded.preprocessing
    sides = tower.input_shape[1:3]
    return Classifier(
        zero_shot_model(tower, classes),
        classes.names,
        Geometry(
            sides,
            tower.input_shape[3],
            config or evaluation_of(tower.trained_as, sides),
        ),
        classes.activation,
    )


def embed_texts(encoder: Encoder, model: Any, texts: Sequence[str]):
    """Compute vectors of texts that are compared with those of images.

    Args:
        encoder: what gives the vectors of the images, of kind "pooled".
        model: see `keras_vit.text.as_text_encoder`.
        texts: any number.

    Returns:
        float32 array (T, P), of length 1.

    Raises:
        ValueError: for a model without texts, and vectors of images that are
            not compared with texts.

    Example:
        >>> encoder = keras_vit.prediction.as_encoder("siglip")
        >>> embed_texts(encoder, "siglip", ["a red car"]).shape
        (1, 768)
    """
    check_kind(Encoder, encoder=encoder)
    check_projected(encoder)
    return texts_of(model).vectors(texts)


def texts_of(model: Any) -> TextEncoder:
    """Return the text half of a model, an exported one as well.

    Args:
        model: see `keras_vit.text.as_text_encoder`, or what
            `keras_vit.exporting.export_pair` wrote.

    Raises:
        ValueError: for a model without texts.
    """
    pair = exported_pair(model)
    return as_text_encoder(model) if pair is None else pair.texts


def check_projected(encoder: Encoder) -> None:
    """Raise a ValueError unless the vectors are compared with texts."""
    about = encoder.metadata
    if about["kind"] != "pooled" or about["blocks"] is not None:
        raise ValueError(
            "Words are compared with projected embeddings of images, of kind "
            f"'pooled' and no blocks. Received: kind={about['kind']!r}, blocks="
            f"{about['blocks']}. Embed the images again."
        )
