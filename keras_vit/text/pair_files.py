"""Loads image-text models from the files of their publishers."""

import os
from typing import Any

import keras

from keras_vit.checkpoints import load_checkpoint
from keras_vit.checkpoints.engine.loading import located_part
from keras_vit.checkpoints.engine.text_towers import (
    TextHalf,
    load_tower,
    open_text,
)
from keras_vit.checkpoints.public.catalog import pair_source
from keras_vit.text.image_text import ImageTextModel
from keras_vit.text.tokenizer import Tokenizer
from keras_vit.text.tower import TextConfig, TextTransformer

__all__ = ["load_image_text", "pair_file", "pair_of", "text_parts"]


def load_image_text(
    source: str | os.PathLike,
    *,
    name: str | None = None,
    dtype: Any = None,
    **image_options: Any,
) -> ImageTextModel:
    """Load both towers of an image-text model.

    CLIP, MetaCLIP 2, SigLIP, SigLIP 2 and TIPSv2 from folders of Hugging Face
    transformers; what open_clip saves with a text tower of its own; files of
    big_vision, a tokenizer beside them; and what `ImageTextModel.save` wrote.

    Args:
        source: path of a folder or file, a name of the catalogue, or what
            `keras_vit.push_to_hub` uploaded.
        name: str, name of the model.
        dtype: dtype policy of both towers.
        **image_options: those of `keras_vit.load_checkpoint` for the image
            tower, such as input_shape or include_preprocessing=True.

    Returns:
        An `ImageTextModel`. Its `image_tower` is what
        `keras_vit.load_checkpoint` returns of the source.

    Raises:
        ValueError: for a source that is damaged, holds no two towers, or does
            not fit.
        OSError: when it cannot be read.

    Example:

    >>> pair = keras_vit.load_image_text("openai/clip-vit-base-patch32")
    >>> pair.scores(images, ["a photo of a cat", "a photo of a dog"])
    """
    source = pair_source(source)
    if path := pair_file(source):
        return _saved(path, {"name": name, "dtype": dtype, **image_options})
    half = open_text(source)
    tower = load_checkpoint(source, dtype=dtype, **image_options)
    return pair_of(tower, half, name=name, dtype=dtype)


def pair_file(source: str | os.PathLike) -> str | None:
    """Return the `.keras` file of a source, None of a source of another kind.

    Args:
        source: see `load_image_text`; also a folder with `model.keras`.

    Raises:
        OSError: when it cannot be fetched.
    """
    path, _ = located_part(source, texts=True)
    return path if path.endswith(".keras") else None


def pair_of(
    image_tower: keras.Model, half: TextHalf, *, name=None, dtype=None
) -> ImageTextModel:
    """Make the model of an image tower and the text half of its file."""
    text_tower, tokenizer = text_parts(half, dtype)
    return ImageTextModel(
        image_tower,
        text_tower,
        logit_scale=half.logit_scale,
        logit_bias=half.logit_bias,
        tokenizer=tokenizer,
        name=name,
    )


def text_parts(
    half: TextHalf, dtype: Any = None
) -> tuple[keras.Model, Tokenizer | None]:
    """Load the tower of texts of a file, and its tokenizer if there is one."""
    config = TextConfig(**half.fields)

    def make():
        return TextTransformer(config, name="text_tower", dtype=dtype)

    tokenizer = Tokenizer.of_files(half.tokenizer) if half.tokenizer else None
    return load_tower(half, make), tokenizer


def _saved(path, options) -> ImageTextModel:
    given = {x: y for x, y in options.items() if y is not None}
    if given:
        raise ValueError(
            f"{path!r} holds both towers as they were saved. Received: "
            f"{', '.join(given)}. Leave these out, or load the source again."
        )
    found = keras.saving.load_model(path, compile=False)
    if not isinstance(found, ImageTextModel):
        raise ValueError(
            f"{path!r} holds a {type(found).__name__} and no ImageTextModel. "
            "Load it with keras_vit.load_checkpoint."
        )
    return found
