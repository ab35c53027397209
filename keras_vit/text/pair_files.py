"""Loads image-text models from the files of their publishers."""

import dataclasses
import os
import re
from collections.abc import Callable
from typing import Any

import keras

from keras_vit.checkpoints import load_checkpoint
from keras_vit.checkpoints.dialects import TEXT_LAYOUTS
from keras_vit.checkpoints.engine.layout import Facts
from keras_vit.checkpoints.engine.loading import built_with, located_part
from keras_vit.checkpoints.engine.matching import ModelWeights, plan_loading
from keras_vit.checkpoints.engine.recognition import (
    OPENERS,
    Checkpoint,
    kind_of,
    recognise,
)
from keras_vit.checkpoints.files.tensors import refuse, refusing_damage
from keras_vit.checkpoints.public.catalog import pair_source
from keras_vit.text.image_text import ImageTextModel
from keras_vit.text.tokenizer import Tokenizer
from keras_vit.text.tower import TextConfig, TextTransformer

__all__ = [
    "TextHalf",
    "load_image_text",
    "load_tower",
    "open_text",
    "pair_file",
    "pair_of",
    "text_parts",
]

SCALE, BIAS = "logit_scale", "logit_bias"


@dataclasses.dataclass(frozen=True)
class TextHalf:
    """A file's tower of texts, and what makes scores of both towers.

    Args:
        checkpoint: the recognised file.
        fields: dict, the config of the tower.
        logit_scale: float, logarithm of what cosines are multiplied by.
        logit_bias: float that is added, None for none.
        tokenizer: dict, the rule of the tokenizer, empty where there is none.
    """

    checkpoint: Checkpoint
    fields: dict
    logit_scale: float
    logit_bias: float | None
    tokenizer: dict


def open_text(source: str | os.PathLike) -> TextHalf:
    """Recognise the tower of texts in a source; read its names and shapes.

    Args:
        source: path, or name of the catalogue, as in `load_checkpoint`.

    Raises:
        ValueError: for a source that is damaged or holds no such tower.
        OSError: when it cannot be read.

    Example:

    >>> open_text("openai/clip-vit-base-patch32").fields["context_length"]
    77
    """
    path, _ = located_part(source, texts=True)
    kind = kind_of(path)
    if kind not in OPENERS:
        raise ValueError(
            f"{path!r} is a file of Keras, of a model without texts. Expected "
            "a folder or file of an image-text pair by its publisher."
        )
    with refusing_damage(path):
        found = recognise(OPENERS[kind](path), "", TEXT_LAYOUTS)
        told = found.layout.read_text(found)
        fields = {**_shown(found, told["fields"]), **told["fields"]}
        for name, size in told.get("sizes", {}).items():
            if size != fields[name]:
                refuse(
                    path,
                    f"has {name}={fields[name]} by its tensors of texts, but "
                    f"{name}={size} by its config",
                    "The two belong to different models: fetch both again.",
                )
    found.facts = Facts(fields["num_heads"], hidden_dim=fields["hidden_dim"])
    found.fields = fields
    found.grid = (1, fields["context_length"])
    scores = {
        name: float(found.read(name, found.facts).reshape(-1)[0])
        for name in (SCALE, BIAS)
        if name in found.rows
    }
    found.rows = {x: y for x, y in found.rows.items() if x not in (SCALE, BIAS)}
    return TextHalf(
        found,
        fields,
        told[SCALE] if SCALE in told else scores[SCALE],
        scores.get(BIAS),
        told["tokenizer"],
    )


def _shown(found: Checkpoint, told: dict) -> dict:
    """Return the fields of a tower that its tensors show."""
    embedding = found.checked_shape("token_embedding/embeddings", 2)
    blocks = {x for x in found.rows if x.startswith("block_")}
    fields: dict[str, Any] = {
        "vocabulary_size": embedding[0],
        "hidden_dim": embedding[1],
        "num_layers": 1 + max(int(re.findall(r"\d+", x)[0]) for x in blocks),
        "mlp_dim": found.checked_shape("block_0/mlp/dense/bias", 1)[0],
        "projection_dim": 0,
        "embedding_bias": "projection/bias" in found.rows,
    }
    if "projection/kernel" in found.rows:
        kernel = found.checked_shape("projection/kernel", 2)
        fields["projection_dim"] = kernel[1]
    if "block_0/attention_scale/gamma" in found.rows:
        fields["layer_scale_init"] = 1.0
    if told.get("position_embedding", "learned") == "learned":
        table = found.checked_shape("position_embedding/embedding", 3)
        fields["context_length"] = table[1]
    return fields


def load_tower(half: TextHalf, make: Callable[[], Any]) -> keras.Model:
    """Build the tower of texts of a file and fill all its weights.

    Args:
        half: what `open_text` returned.
        make: function that builds the model of its fields.

    Raises:
        ValueError: where names or shapes of the file and the model differ.
    """

    def planned(model):
        variables = {weight.path: weight for weight in model.weights}
        target = ModelWeights(
            model.name,
            "text",
            variables,
            half.checkpoint.facts,
            half.checkpoint.grid,
            {},
            {},
        )
        return plan_loading(half.checkpoint, target, is_built=True)

    return built_with(make, planned)


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
