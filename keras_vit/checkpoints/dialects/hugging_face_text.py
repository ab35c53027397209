"""Towers of texts in folders of Hugging Face transformers.

Sources: transformers 5.23.0 (models/clip, metaclip_2, siglip, siglip2,
tipsv2): their modeling_*.py, configuration_*.py and tokenization_*.py.
"""

import math
from pathlib import Path
from typing import Any

from keras_vit.checkpoints.dialects.hugging_face import DIALECT, TOWER
from keras_vit.checkpoints.dialects.shared import (
    LOGITS,
    RESBLOCK_TEXTS,
    SIGLIP_TOKENIZER,
    tokenizer_files,
)
from keras_vit.checkpoints.engine.layout import (
    Layout,
    torch_dense,
    torch_norm,
)
from keras_vit.checkpoints.files.config_values import converted, read_json
from keras_vit.checkpoints.files.folders import CONFIG
from keras_vit.checkpoints.files.tensors import refuse

__all__ = ["TEXT_LAYOUTS"]

TEXTS = {
    "token_embedding/embeddings": ("embeddings.token_embedding.weight", "same"),
    **TOWER,
    **torch_norm("encoder_norm", "final_layer_norm"),
    **LOGITS,
}
IMAGES = (r"vision_model\..*", r"visual_projection\..*", r".*\.position_ids")
NAMES = {
    "num_attention_heads": "num_heads",
    "hidden_act": "activation",
    "layer_norm_eps": "layer_norm_epsilon",
    "max_position_embeddings": "context_length",
}
# What the tensors show as well.
SIZES = {
    "vocab_size": "vocabulary_size",
    "hidden_size": "hidden_dim",
    "num_hidden_layers": "num_layers",
    "intermediate_size": "mlp_dim",
}
# What a text_config says that is not written down, by model_type.
CLIP = {
    "num_attention_heads": 8,
    "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5,
    "eos_token_id": 49407,
}
SIGLIP = {
    "num_attention_heads": 12,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
}
DEFAULTS = {
    "clip": CLIP,
    "metaclip_2": {**CLIP, "eos_token_id": 2},
    "siglip": SIGLIP,
    "siglip2": SIGLIP,
    "tipsv2": {
        "num_attention_heads": 12,
        "hidden_act": "relu",
        "layer_norm_eps": 1e-5,
        "max_position_embeddings": 64,
    },
}
LAST = {"causal": False, "pooling": "last"}
MASKED_MEAN = {
    "causal": False,
    "pooling": "mean",
    "masked_id": 0,
    "position_embedding": "sincos1d",
}
# Configs of CLIP with this end of the text are older than the end that was
# trained: transformers takes the token with the largest id for them.
OLD_END = 2
SENTENCE_PIECE = ("spiece.model",), ("tokenizer.model",)


def read_text(checkpoint) -> dict:
    """Read what a config.json tells of the tower of texts, and a tokenizer.

    Raises:
        ValueError: for a model_type without such a tower here.
    """
    folder = Path(checkpoint.file.path)
    folder = folder if folder.is_dir() else folder.parent
    path = folder / CONFIG
    content = read_json(path) if path.is_file() else {}
    kind = content.get("model_type")
    if kind not in DEFAULTS:
        refuse(
            path,
            f"has model_type={kind!r}"[:200],
            f"Expected that of a pair: {', '.join(DEFAULTS)}.",
        )
    # Where an old folder has both, transformers takes the second.
    parts = [content.get(f"text_config{x}") or {} for x in ("", "_dict")]
    known = {**DEFAULTS[kind], **parts[0], **parts[1]}
    fields = converted(path, known, NAMES)
    told: dict[str, Any] = {
        "tokenizer": read_tokenizer(folder, kind),
        "sizes": converted(path, {**parts[0], **parts[1]}, SIZES),
    }
    if kind == "tipsv2":
        fields |= MASKED_MEAN
        fields["scale_embedding"] = known.get("scale_sqrt_depth", True)
        told["logit_scale"] = -math.log(temperature(checkpoint, content))
    else:
        fields.pop("context_length", None)  # That of the table counts.
        fields |= LAST if "siglip" in kind else pooling(kind, known)
    return {"fields": fields, **told}


def temperature(checkpoint, content) -> float:
    """Return what cosines are divided by; published files do not have it.

    Raises:
        ValueError: when it is not above 0.
    """
    found = content.get("temperature_init_value", 0.005065968)
    if (name := "temperature") in checkpoint.file.tensors:
        found = checkpoint.file.read(name).item()
    if not isinstance(found, float) or not 0 < found < math.inf:
        refuse(
            checkpoint.file.path,
            f"has a temperature of {found!r}"[:200],
            "Cosines are divided by it: fetch the file again.",
        )
    return found


def pooling(kind, known) -> dict:
    """Return how a CLIP pools: by the end of the text."""
    end = known["eos_token_id"]
    if kind == "clip" and end == OLD_END:
        return {"pooling": "largest_id"}
    return {"pooling": "first_id", "pooled_id": int(end)}


def read_tokenizer(folder: Path, kind: str) -> dict:
    """Return the rule of the tokenizer in a folder, {} where there is none.

    SigLIP and SigLIP 2 of a fixed size have the same model_type, and their
    configs other ids than their tokenizers: the class of these decides.
    """
    told: dict = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            told |= read_json(folder / name)
    padding = told.get("pad_token") or "<pad>"
    padding = padding["content"] if isinstance(padding, dict) else padding
    first = str(told.get("tokenizer_class", "")).startswith("SiglipTok")
    if kind == "siglip" and first:
        rule = {**SIGLIP_TOKENIZER, "cleaning": SIGLIP_CLEANING}
        return tokenizer_files(folder, rule, SENTENCE_PIECE)
    # Their tokenizers do it, which tokenizer.json alone may not say.
    lower = kind in ("siglip", "siglip2", "tipsv2")
    rule = {"cleaning": (), "lowercase": lower, "padding": padding}
    if kind == "tipsv2":
        rule["padding"] = 0
    return tokenizer_files(folder, rule)


SIGLIP_CLEANING = ("blank_lower_blocks", *SIGLIP_TOKENIZER["cleaning"])


def _layout(name: str, table: dict, marks: tuple, **fields) -> Layout:
    return Layout(
        DIALECT,
        f"hugging_face_{name}_text",
        "text",
        table,
        marks=marks,
        container="",
        read_text=read_text,
        **fields,
    )


TEXT_ALIASES = ((r"text_model\.(.*)", r"\1"),)
TEXT_LAYOUTS = (
    _layout(
        "clip",
        {**TEXTS, "projection/kernel": ("text_projection.weight", "linear")},
        (("embeddings.token_embedding.weight", "text_projection.weight"),),
        aliases=TEXT_ALIASES,
        ignored=IMAGES,
    ),
    _layout(
        "siglip",
        {**TEXTS, **torch_dense("projection", "head")},
        (("embeddings.token_embedding.weight", "head.weight"),),
        aliases=TEXT_ALIASES,
        ignored=IMAGES,
    ),
    # It has the names of another publisher but for some.
    _layout(
        "tipsv2",
        {
            x: (f"text_encoder.{name}", transform)
            for x, (name, transform) in RESBLOCK_TEXTS.items()
            if not x.startswith("position_embedding/")
        },
        (("text_encoder.token_embedding.weight",),),
        ignored=(r"vision_encoder\..*", r"temperature"),
        is_specific=True,
    ),
)
