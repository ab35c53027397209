"""Files of open_clip, and those of OpenAI's CLIP, which have the same names.

Image towers that are timm's are in `timm.py`.

Source: open_clip 3.3.0 (transformer.py, model.py, factory.py, tokenizer.py).
"""

from pathlib import Path

from keras_vit.checkpoints.dialects.shared import (
    CONTRASTIVE,
    LOGITS,
    RESBLOCK_TEXTS,
    RESBLOCKS,
    TEXT_TOWER,
    tokenizer_files,
)
from keras_vit.checkpoints.engine.layout import (
    Dialect,
    Layout,
    torch_convolution,
    torch_dense,
    torch_norm,
)
from keras_vit.checkpoints.files.config_values import (
    converted,
    pixels,
    read_json,
    words,
)
from keras_vit.checkpoints.files.safetensors import open_safetensors
from keras_vit.checkpoints.files.tensors import TensorFile, refuse
from keras_vit.trained_as import TrainedAs

__all__ = ["LAYOUTS", "TEXT_LAYOUTS"]

VIT = {
    **torch_convolution("patch_embed/projection", "conv1"),
    "class_token/token": ("class_embedding", "single_token"),
    "position_embedding/embedding": ("positional_embedding", "rows"),
    **torch_norm("first_norm", "ln_pre"),
    **RESBLOCKS,
    **torch_norm("encoder_norm", "ln_post"),
    "predictions/kernel": ("proj", "same"),
}
# Of OpenAI's CLIP, which open_clip takes where a model says nothing else.
USUAL_PIXELS = {
    "mean": [0.48145466, 0.4578275, 0.40821073],
    "std": [0.26862954, 0.26130258, 0.27577711],
}
PIXELS = {f"pixel_{name}": tuple(x) for name, x in USUAL_PIXELS.items()}
CONFIG = "open_clip_config.json"
WEIGHTS = ("open_clip_model.safetensors", "model.safetensors")
NAMES = {
    "image_size": "image_size",
    "timm_model_name": "architecture",
    "pool_type": "pooling",
    "eps": "layer_norm_epsilon",
    "act": "activation",
}
POOLINGS = {"tok": "token", "avg": "mean"}
# What timm's towers are told to do: "" leaves it to the architecture.
TIMM_POOLINGS = {"token": "token", "avg": "mean", "map": "map"}
# The values of fields that change what is computed and that no weight shows.
FIXED = {
    "attentional_pool": (False,),
    "scaled_cosine_attn": (False,),
    "timm_proj": (None, "", "none", "linear"),
}
# Activation -> the options that it is made of.
ACTIVATIONS = {
    "quick_gelu": ({},),
    "gelu": ({}, {"approximate": "none"}),
    "gelu_tanh": ({"approximate": "tanh"},),
}
RESIZE_MODES = {"shortest": "cover_crop", "squash": "squash"}
METHODS = {x: x for x in ("bicubic", "bilinear")}


def open_folder(path: Path) -> TensorFile | None:
    """Open a folder as open_clip's `push_to_hf_hub` writes it, or None.

    Raises:
        ValueError: for a config with what the models here do not have.
    """
    names = [x for x in WEIGHTS if (path / x).is_file()]
    is_others = (path / "config.json").is_file() and names[:1] != [WEIGHTS[0]]
    if not (path / CONFIG).is_file() or not names or is_others:
        return None
    content = read_json(path / CONFIG)
    model, images = (
        content.get(x) or {} for x in ("model_cfg", "preprocess_cfg")
    )
    if not isinstance(model, dict) or not isinstance(images, dict):
        refuse(
            path / CONFIG,
            "has no objects model_cfg and preprocess_cfg",
            "Take the one that open_clip wrote.",
        )
    fields = read_config(path / CONFIG, model)
    fields |= pixels(path / CONFIG, {**USUAL_PIXELS, **images})
    file = open_safetensors(path / names[0])
    return TensorFile(
        str(path),
        file.tensors,
        fields,
        file.metadata,
        trained_as=read_trained_as(path / CONFIG, fields, images),
    )


def read_config(path: Path, content: dict) -> dict:
    """Read the fields of a config that a `model_cfg` tells of its images.

    Raises:
        ValueError: for a value that the models here do not have.
    """
    vision = content.get("vision_cfg")
    if not isinstance(vision, dict):
        refuse(path, "has no vision_cfg", "Take another config.")
    for name, values in FIXED.items():
        if vision.get(name, values[0]) not in values:
            refuse(
                path,
                f"has {name}={vision[name]!r}"[:200],
                f"The models here have {name}={values[0]!r}: choose another "
                "file.",
            )
    if vision.get("timm_model_name"):
        pooling = TIMM_POOLINGS.get(str(vision.get("timm_pool", "avg")))
        fields = converted(path, vision, NAMES, {"architecture": _name})
        return {**fields, **({"pooling": pooling} if pooling else {})}
    known = {
        "pool_type": "tok",
        "eps": 1e-5,
        **vision,
        **(vision.get("norm_kwargs") or {}),
        "act": read_activation(path, content, vision),
    }
    sizes = {x: x for x in ("width", "head_width")}
    sizes = converted(path, {"width": 768, "head_width": 64, **vision}, sizes)
    return {
        **converted(path, known, NAMES, {"pooling": words(POOLINGS)}),
        "num_heads": sizes["width"] // sizes["head_width"],
        "norm_after_pooling": bool(vision.get("final_ln_after_pool")),
    }


def read_activation(path: Path, model: dict, tower: dict) -> str:
    """Return the activation of a tower of a `model_cfg`.

    Raises:
        ValueError: for options of it that the models here do not have.
    """
    quick, options = bool(model.get("quick_gelu")), tower.get("act_kwargs")
    for name, known in ACTIVATIONS.items():
        if (options or {}) in known and quick == (name == "quick_gelu"):
            return name
    refuse(
        path,
        f"has quick_gelu={quick} and act_kwargs={options!r}"[:200],
        "The models here have GELU, approximate or not, or quick_gelu without "
        "options: choose another file.",
    )


def _name(path, field, value) -> str:
    return str(value)


def read_trained_as(path: Path, fields: dict, content: dict) -> TrainedAs:
    """Read how a `preprocess_cfg` prepares images."""
    mode = content.get("resize_mode", "shortest")
    method = content.get("interpolation", "bicubic")
    if mode not in RESIZE_MODES or method not in METHODS:
        refuse(
            path,
            f"has resize_mode={mode!r} and interpolation={method!r}"[:200],
            f"Expected one of {', '.join(RESIZE_MODES)}, and one of "
            f"{', '.join(METHODS)}.",
        )
    found = usual_images(None, fields)
    rule = {"evaluation": RESIZE_MODES[mode], "resize_method": method}
    rule = {**found["preprocessing"], **rule}
    if mode == "squash":
        del rule["resize_size"]
    return TrainedAs(source=str(path), **{**found, "preprocessing": rule})


def usual_images(layout, fields) -> dict:
    """Return how its transform prepares images for a tower."""
    size = fields.get("image_size", (224, 224))
    rule = {
        "evaluation": "cover_crop",
        "resize_size": min(size),
        "resize_method": "bicubic",
        "antialias": True,
        "rounding": "nearest",
    }
    return {"preprocessing": rule, "image_size": tuple(size)}


def find_pooling(checkpoint, fields) -> str:
    """Return the pooling of CLIP; CLIPA's, without a first norm, differs."""
    if not fields["norm_before_blocks"]:
        refuse(
            checkpoint.file.path,
            "has no ln_pre: its tower may pool the token or the mean",
            f"Load the folder with its {CONFIG}.",
        )
    return "token"


DIALECT = Dialect(
    "open_clip",
    config_name=CONFIG,
    open_folder=open_folder,
    usual_images=usual_images,
    untold=("num_heads", "layer_norm_epsilon", "pooling"),
)
LAYOUTS = (
    Layout(
        DIALECT,
        "open_clip",
        "vit",
        VIT,
        marks=(
            (
                "conv1.weight",
                "class_embedding",
                "transformer.resblocks.0.attn.in_proj_weight",
            ),
        ),
        constants={"activation": "gelu", "layer_norm_epsilon": 1e-5, **PIXELS},
        implied={"block_0/attention_scale/gamma": {"layer_scale_init": 1.0}},
        beside=(*CONTRASTIVE, *TEXT_TOWER),
        unsupported={
            r"attn_pool\w*\..*": "attentional pooling (CoCa)",
            r"transformer\.resblocks\.\d+\.attn\.(?!in_proj|out_proj).*": (
                "attention of its own"
            ),
        },
        resampling="bicubic_antialiased",
        container="",
        optional=("patch_bias",),
        required=("activation",),
        find_pooling=find_pooling,
    ),
)

TEXT_NAMES = {"heads": "num_heads", "eps": "layer_norm_epsilon"}
TEXT_NAMES |= {"pool_type": "pooling", "act": "activation"}
TEXT_SIZES = {
    "vocab_size": "vocabulary_size",
    "context_length": "context_length",
    "width": "hidden_dim",
    "layers": "num_layers",
}
TEXT_POOLINGS = {
    "argmax": "largest_id",
    "eos": "first_id",
    "first": "first",
    "last": "last",
}
# Marks of CLIP's tokenizer in others' files, and in its own.
MARKS = {
    "<|startoftext|>": "<start_of_text>",
    "<|endoftext|>": "<end_of_text>",
}
CLEANING = {
    "lower": ("repaired", "lower"),
    "whitespace": ("repaired",),
    "canonicalize": ("repaired", "blank_underscores", "canonical"),
}


def read_text(checkpoint) -> dict:
    """Read what a `model_cfg` tells of the tower of texts.

    Raises:
        ValueError: for towers that are not open_clip's own.
    """
    folder = Path(checkpoint.file.path)
    path = (folder if folder.is_dir() else folder.parent) / CONFIG
    if not path.is_file():
        refuse(path, "is not there", "Load the folder as open_clip wrote it.")
    model = read_json(path).get("model_cfg") or {}
    text = model.get("text_cfg") or {}
    for name in ("hf_model_name", "embed_cls"):
        if text.get(name):
            refuse(
                path,
                f"has {name}={text[name]!r} in its text_cfg"[:200],
                "The tower of texts is of another architecture: load the one "
                "of images with load_checkpoint.",
            )
    known = {"heads": 8, "pool_type": "argmax", "eps": 1e-5, **text}
    known |= text.get("norm_kwargs") or {}
    known["act"] = read_activation(path, model, text)
    pooling = {"pooling": words(TEXT_POOLINGS, "pool_type")}
    return {
        "fields": {
            **converted(path, known, TEXT_NAMES, pooling),
            "causal": not text.get("no_causal_mask"),
            "pooled_id": int(text.get("eos_id", 2)),
        },
        "tokenizer": read_tokenizer(path.parent, text),
        "sizes": converted(path, text, TEXT_SIZES),
    }


def read_tokenizer(folder: Path, text: dict) -> dict:
    """Return the rule of a tokenizer, with CLIP's own where none is named."""
    options = text.get("tokenizer_kwargs") or {}
    named = text.get("hf_tokenizer_name")
    clean = options.get("clean", "whitespace" if named else "lower")
    if options.get("strip_sep_token") or clean not in CLEANING:
        return {}
    rule = {"cleaning": CLEANING[clean], "padding": "<pad>"}
    if not named:
        rule |= {"padding": 0, "renamed": MARKS}
    return tokenizer_files(folder, rule)


TEXT_LAYOUTS = (
    Layout(
        DIALECT,
        "open_clip_text",
        "text",
        {
            **RESBLOCK_TEXTS,
            **LOGITS,
            "projection/kernel": ("text_projection", "same"),
        },
        marks=(("token_embedding.weight", "ln_final.weight"),),
        variants={"dense": torch_dense("projection", "text_projection")},
        signs={"dense": "text_projection.weight"},
        aliases=((r"text\.(.*)", r"\1"),),
        ignored=(
            *(r"visual\..*", r"attn_mask", r"context_length", r"vocab_size"),
            r"input_resolution",
        ),
        unsupported={
            r"(text_decoder\..*|cls_emb)": "a decoder of texts (CoCa)"
        },
        container="",
        read_text=read_text,
    ),
)
