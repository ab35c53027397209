"""Reads the tower of texts that a file holds beside one of images."""

import dataclasses
import os
import re
from collections.abc import Callable
from typing import Any

import keras

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

__all__ = ["TextHalf", "load_tower", "open_text"]

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
