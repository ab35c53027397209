"""Files of Hugging Face transformers; its config.json is in another file.

Sources: transformers 5.23.0 (models/vit, deit, bit, dinov2,
dinov2_with_registers, dinov3_vit, aimv2, beit, data2vec, clip, siglip,
tipsv2) and 4.40.2 (vit_hybrid).
"""

import dataclasses
import pathlib
import re

import numpy as np

from keras_vit.checkpoints.dialects.hugging_face_config import (
    CLASSES,
    check_config,
    check_layout,
    companions,
    find_class_problems,
    find_pooling,
    find_problems,
    folder_files,
    folder_notes,
    is_config,
    read_config,
    read_preprocessing,
    read_trained_as,
    rename,
    usual_images,
)
from keras_vit.checkpoints.dialects.shared import (
    EXACT_GELU,
    PLAIN_OPTIONS,
    TANH_GELU,
    TORCH_RESNET,
    preactivated_unit,
    unit,
)
from keras_vit.checkpoints.engine.layout import (
    TRANSFORMS,
    Dialect,
    Facts,
    Layout,
    Library,
    paths_of,
    torch_convolution,
    torch_dense,
    torch_norm,
)
from keras_vit.checkpoints.files.config_values import (
    converted,
    flag,
    fraction,
    read_json,
)
from keras_vit.checkpoints.files.tensors import TensorFile
from keras_vit.io.tables import python_block

__all__ = [
    "LAYOUTS",
    "LIBRARY",
    "Decoder",
    "read_decoder",
]

LAYER = "encoder.layer.{i}"
PROJECTIONS = ("query", "key", "value")
BIT_BACKBONE = "embeddings.patch_embeddings.backbone.bit"
ENCODER = {
    **torch_dense(
        "patch_embed/projection",
        "embeddings.patch_embeddings.projection",
        kernel="convolution",
    ),
    "class_token/token": ("embeddings.cls_token", "same"),
    "position_embedding/embedding": (
        "embeddings.position_embeddings",
        "same",
    ),
    **torch_norm("block_{i}/attention_norm", f"{LAYER}.layernorm_before"),
    "block_{i}/attention/qkv/kernel": (
        tuple(f"{LAYER}.attention.attention.{x}.weight" for x in PROJECTIONS),
        "torch_qkv",
    ),
    "block_{i}/attention/qkv/bias": (
        tuple(f"{LAYER}.attention.attention.{x}.bias" for x in PROJECTIONS),
        "torch_qkv",
    ),
    **torch_dense("block_{i}/attention/out", f"{LAYER}.attention.output.dense"),
    **torch_norm("block_{i}/mlp_norm", f"{LAYER}.layernorm_after"),
    **torch_dense("block_{i}/mlp/dense", f"{LAYER}.intermediate.dense"),
    **torch_dense("block_{i}/mlp/dense_1", f"{LAYER}.output.dense"),
    **torch_norm("encoder_norm", "layernorm"),
    **torch_dense("predictions", "classifier"),
}
VIT = {
    **ENCODER,
    **torch_dense("pre_logits", "pooler.dense"),
    **torch_convolution("root_conv", f"{BIT_BACKBONE}.embedder.convolution"),
    **torch_norm("root_norm", f"{BIT_BACKBONE}.embedder.norm"),
    **unit(BIT_BACKBONE + ".encoder.stages.{s0}.layers.{u0}"),
}
DISTILLED = {
    "class_token/token": (
        ("embeddings.cls_token", "embeddings.distillation_token"),
        "tokens",
    ),
}
AVERAGED_HEADS = {
    "predictions/kernel": (
        ("cls_classifier.weight", "distillation_classifier.weight"),
        "average_heads",
    ),
    "predictions/bias": (
        ("cls_classifier.bias", "distillation_classifier.bias"),
        "average_biases",
    ),
}
BIT = {
    **torch_convolution("root_conv", "embedder.convolution"),
    **preactivated_unit("encoder.stages.{s0}.layers.{u0}"),
    **torch_norm("encoder_norm", "norm"),
    **torch_dense("predictions", "classifier.1"),
}
DINOV2 = {
    **ENCODER,
    **torch_norm("block_{i}/attention_norm", f"{LAYER}.norm1"),
    **torch_norm("block_{i}/mlp_norm", f"{LAYER}.norm2"),
    **torch_dense("block_{i}/mlp/dense", f"{LAYER}.mlp.fc1"),
    **torch_dense("block_{i}/mlp/dense_1", f"{LAYER}.mlp.fc2"),
    "block_{i}/attention_scale/gamma": (
        f"{LAYER}.layer_scale1.lambda1",
        "same",
    ),
    "block_{i}/mlp_scale/gamma": (f"{LAYER}.layer_scale2.lambda1", "same"),
}
# SwiGLU of DINOv2, gates before values in one tensor.
GATES = {
    **torch_dense("block_{i}/mlp/dense", f"{LAYER}.mlp.weights_in"),
    **torch_dense("block_{i}/mlp/dense_1", f"{LAYER}.mlp.weights_out"),
}
# Registers come after the positions have been added.
REGISTERS = {
    **DINOV2,
    "class_token/token": (
        ("embeddings.cls_token", "embeddings.register_tokens"),
        "token_and_registers",
    ),
    "position_embedding/embedding": (
        "embeddings.position_embeddings",
        "around_registers",
    ),
}
# Of Data2Vec as well. The keys have no bias.
BEIT = {
    **ENCODER,
    "block_{i}/attention/qkv/bias": (
        tuple(
            f"{LAYER}.attention.attention.{x}.bias" for x in PROJECTIONS[::2]
        ),
        "torch_query_value",
    ),
    "block_{i}/attention/position_bias/table": (
        f"{LAYER}.attention.attention.relative_position_bias"
        ".relative_position_bias_table",
        "same",
    ),
    "block_{i}/attention_scale/gamma": (f"{LAYER}.lambda_1", "same"),
    "block_{i}/mlp_scale/gamma": (f"{LAYER}.lambda_2", "same"),
}
NORM_AFTER_POOLING = torch_norm("encoder_norm", "pooler.layernorm")
DINOV3_LAYER = "layer.{i}"
DINOV3 = {
    **torch_dense(
        "patch_embed/projection",
        "embeddings.patch_embeddings",
        kernel="convolution",
    ),
    "class_token/token": (
        ("embeddings.cls_token", "embeddings.register_tokens"),
        "token_and_registers",
    ),
    **torch_norm("block_{i}/attention_norm", f"{DINOV3_LAYER}.norm1"),
    "block_{i}/attention/qkv/kernel": (
        tuple(f"{DINOV3_LAYER}.attention.{x}_proj.weight" for x in "qkv"),
        "torch_qkv",
    ),
    "block_{i}/attention/qkv/bias": (
        tuple(f"{DINOV3_LAYER}.attention.{x}_proj.bias" for x in "qv"),
        "torch_query_value",
    ),
    **torch_dense(
        "block_{i}/attention/out", f"{DINOV3_LAYER}.attention.o_proj"
    ),
    "block_{i}/attention_scale/gamma": (
        f"{DINOV3_LAYER}.layer_scale1.lambda1",
        "same",
    ),
    **torch_norm("block_{i}/mlp_norm", f"{DINOV3_LAYER}.norm2"),
    **torch_dense("block_{i}/mlp/dense", f"{DINOV3_LAYER}.mlp.up_proj"),
    **torch_dense("block_{i}/mlp/dense_1", f"{DINOV3_LAYER}.mlp.down_proj"),
    "block_{i}/mlp_scale/gamma": (
        f"{DINOV3_LAYER}.layer_scale2.lambda1",
        "same",
    ),
    **torch_norm("encoder_norm", "norm"),
}
DINOV3_GATES = {
    f"block_{{i}}/mlp/dense/{ours}": (
        tuple(f"{DINOV3_LAYER}.mlp.{x}_proj.{theirs}" for x in ("gate", "up")),
        transform,
    )
    for ours, theirs, transform in (
        ("kernel", "weight", "gates_and_values"),
        ("bias", "bias", "gate_and_value_biases"),
    )
}
TOWER_LAYER = "encoder.layers.{i}"
TOWER_PROJECTIONS = ("q_proj", "k_proj", "v_proj")
# What the vision towers of CLIP and SigLIP share.
TOWER = {
    "position_embedding/embedding": (
        "embeddings.position_embedding.weight",
        "rows",
    ),
    **torch_norm("block_{i}/attention_norm", f"{TOWER_LAYER}.layer_norm1"),
    "block_{i}/attention/qkv/kernel": (
        tuple(f"{TOWER_LAYER}.self_attn.{x}.weight" for x in TOWER_PROJECTIONS),
        "torch_qkv",
    ),
    "block_{i}/attention/qkv/bias": (
        tuple(f"{TOWER_LAYER}.self_attn.{x}.bias" for x in TOWER_PROJECTIONS),
        "torch_qkv",
    ),
    **torch_dense(
        "block_{i}/attention/out", f"{TOWER_LAYER}.self_attn.out_proj"
    ),
    **torch_norm("block_{i}/mlp_norm", f"{TOWER_LAYER}.layer_norm2"),
    **torch_dense("block_{i}/mlp/dense", f"{TOWER_LAYER}.mlp.fc1"),
    **torch_dense("block_{i}/mlp/dense_1", f"{TOWER_LAYER}.mlp.fc2"),
    **torch_norm("encoder_norm", "post_layernorm"),
}
AIMV2_LAYER = "encoder.layers.{i}"
AIMV2 = {
    **torch_dense(
        "patch_embed/projection", "embeddings.patch_embed", kernel="convolution"
    ),
    "patch_norm/gamma": ("embeddings.rms_norm.weight", "same"),
    "position_embedding/embedding": (
        "embeddings.position_embedding.weight",
        "rows",
    ),
    "block_{i}/attention_norm/gamma": (
        f"{AIMV2_LAYER}.rms_norm1.weight",
        "same",
    ),
    "block_{i}/attention/qkv/kernel": (
        tuple(f"{AIMV2_LAYER}.attention.{x}_proj.weight" for x in "qkv"),
        "torch_qkv",
    ),
    "block_{i}/attention/out/kernel": (
        f"{AIMV2_LAYER}.attention.out_proj.weight",
        "linear",
    ),
    "block_{i}/mlp_norm/gamma": (f"{AIMV2_LAYER}.rms_norm2.weight", "same"),
    "block_{i}/mlp/dense/kernel": (
        tuple(f"{AIMV2_LAYER}.ffn.{x}_proj.weight" for x in ("gate", "up")),
        "gates_and_values",
    ),
    "block_{i}/mlp/dense_1/kernel": (
        f"{AIMV2_LAYER}.ffn.down_proj.weight",
        "linear",
    ),
    "encoder_norm/gamma": ("rms_norm.weight", "same"),
    "pool/probe": ("head.cls_token", "same"),
    "pool/key_value/kernel": (
        ("head.k_proj.weight", "head.v_proj.weight"),
        "torch_kv",
    ),
    **torch_dense("pool/out", "head.output_proj"),
}
# Of the model of images and texts.
AIMV2_PROJECTED = {
    **AIMV2,
    "predictions/kernel": ("visual_projection.weight", "linear"),
}
# transformers writes TIPSv2 under the names of its authors, not its own.
TIPSV2_BLOCK = "blocks.{i}"
TIPSV2 = {
    **torch_dense(
        "patch_embed/projection", "patch_embed.proj", kernel="convolution"
    ),
    "class_token/token": (
        ("cls_token", "register_tokens"),
        "token_and_registers",
    ),
    "position_embedding/embedding": ("pos_embed", "around_registers"),
    **torch_norm("block_{i}/attention_norm", f"{TIPSV2_BLOCK}.norm1"),
    **torch_dense(
        "block_{i}/attention/qkv",
        f"{TIPSV2_BLOCK}.attn.qkv",
        "torch_qkv_rows",
        "torch_qkv_rows",
    ),
    **torch_dense("block_{i}/attention/out", f"{TIPSV2_BLOCK}.attn.proj"),
    "block_{i}/attention_scale/gamma": (f"{TIPSV2_BLOCK}.ls1.gamma", "same"),
    **torch_norm("block_{i}/mlp_norm", f"{TIPSV2_BLOCK}.norm2"),
    **torch_dense("block_{i}/mlp/dense", f"{TIPSV2_BLOCK}.mlp.c_fc"),
    **torch_dense("block_{i}/mlp/dense_1", f"{TIPSV2_BLOCK}.mlp.c_proj"),
    "block_{i}/mlp_scale/gamma": (f"{TIPSV2_BLOCK}.ls2.gamma", "same"),
    **torch_norm("encoder_norm", "norm"),
}
TIPSV2_GATES = {
    **torch_dense("block_{i}/mlp/dense", f"{TIPSV2_BLOCK}.mlp.w12"),
    **torch_dense("block_{i}/mlp/dense_1", f"{TIPSV2_BLOCK}.mlp.w3"),
}
CLIP = {
    **torch_convolution("patch_embed/projection", "embeddings.patch_embedding"),
    "class_token/token": ("embeddings.class_embedding", "single_token"),
    **torch_norm("first_norm", "pre_layrnorm"),
    **TOWER,
    "predictions/kernel": ("visual_projection.weight", "linear"),
}
SIGLIP_TOWER = {
    **torch_dense(
        "patch_embed/projection",
        "embeddings.patch_embedding",
        kernel="patches",
    ),
    **TOWER,
}
SIGLIP = {
    **SIGLIP_TOWER,
    "pool/probe": ("head.probe", "same"),
    # torch's MultiheadAttention has query, key and value in one tensor.
    "pool/query/kernel": (
        "head.attention.in_proj_weight",
        "torch_query_of_rows",
    ),
    "pool/query/bias": ("head.attention.in_proj_bias", "torch_query_of_rows"),
    "pool/key_value/kernel": (
        "head.attention.in_proj_weight",
        "torch_kv_of_rows",
    ),
    "pool/key_value/bias": ("head.attention.in_proj_bias", "torch_kv_of_rows"),
    **torch_dense("pool/out", "head.attention.out_proj"),
    **torch_norm("pool/norm", "head.layernorm"),
    **torch_dense("pool/mlp/dense", "head.mlp.fc1"),
    **torch_dense("pool/mlp/dense_1", "head.mlp.fc2"),
}
# SiglipForImageClassification averages the tokens; it has a head all the same.
SIGLIP_CLASSIFIER = {
    **SIGLIP_TOWER,
    **torch_dense("predictions", "classifier"),
}

# transformers 5 renamed its modules; it still writes the old names.
RENAMED_ATTENTION = (
    (
        r"(?:vit|deit|ijepa|pixio|dinov2(?:_with_registers)?)\.(.*)",
        r"\1",
    ),
    (r"(?:encoder\.)?layers?\.(\d+)\.(.*)", r"encoder.layer.\1.\2"),
    *(
        (
            rf"(encoder\.layer\.\d+)\.attention\.(?:attention\.)?{new}\.(\w+)",
            rf"\1.attention.attention.{old}.\2",
        )
        for new, old in (
            ("q_proj", "query"),
            ("k_proj", "key"),
            ("v_proj", "value"),
        )
    ),
    (
        r"(encoder\.layer\.\d+)\.attention\.(?:o_proj|out_proj)\.(\w+)",
        r"\1.attention.output.dense.\2",
    ),
)
NAMES_OF_5 = (
    *RENAMED_ATTENTION,
    (
        r"(encoder\.layer\.\d+)\.mlp\.fc1\.(\w+)",
        r"\1.intermediate.dense.\2",
    ),
    (r"(encoder\.layer\.\d+)\.mlp\.fc2\.(\w+)", r"\1.output.dense.\2"),
    # Of Pixio.
    (r"(encoder\.layer\.\d+)\.norm1\.(\w+)", r"\1.layernorm_before.\2"),
    (r"(encoder\.layer\.\d+)\.norm2\.(\w+)", r"\1.layernorm_after.\2"),
)
TOWER_ALIASES = ((r"vision_model\.(.*)", r"\1"),)
AIMV2_CONSTANTS = {"activation": "silu", "layer_norm_epsilon": 1e-5}
GATED = {"gates": GATES}
DINOV2_SIGNS = {"gates": "encoder.layer.0.mlp.weights_in.weight"}
DINOV2_IMPLIED = {
    "block_0/attention_scale/gamma": {"layer_scale_init": 1.0},
    "gates": {"activation": "silu"},
}
BEIT_TABLE = (
    "encoder.layer.{}.attention.attention.relative_position_bias"
    ".relative_position_bias_table"
)
# What a file of Hugging Face may hold besides a vision encoder: what models
# for masked images learn with, and the tower of the texts.
MASKED_IMAGES = (r"embeddings\.mask_token", r"decoder\..*")
TEXTS = (
    *(r"text_model\..*", r"text_projection\.weight", r"logit_(scale|bias)"),
    r"embeddings\.position_ids",
)

DIALECT = Dialect(
    "Hugging Face",
    is_config=is_config,
    read_config=read_config,
    read_preprocessing=read_preprocessing,
    read_trained_as=read_trained_as,
    usual_images=usual_images,
    check_config=check_config,
    check_layout=check_layout,
    folder_notes=folder_notes,
    untold=("num_heads", "activation", "layer_norm_epsilon"),
    rename=rename,
    companions=companions,
    folder_files=folder_files,
)


def usage(repository, revision, channels, config) -> str:
    """Return Markdown with the code that loads a repository."""
    (architecture,) = config["architectures"]
    source = f'"{repository}"' + (
        f', revision="{revision}"' if revision else ""
    )
    classifies = architecture.endswith("ForImageClassification")
    if classifies and channels == 3:
        pipeline = python_block(
            "from transformers import pipeline",
            "",
            f'classify = pipeline("image-classification", {source})',
            'classify("photo.jpg")',
        )
        code = _auto_classes("AutoModelForImageClassification", source)
        return f"In transformers:\n\n{pipeline}\n\nor, for logits:\n\n{code}"
    if channels == 3:
        return f"In transformers:\n\n{_auto_classes(architecture, source)}"
    code = python_block(
        f"from transformers import {architecture}",
        "",
        f"model = {architecture}.from_pretrained({source})",
    )
    return (
        "In transformers, whose image processors make colour of all images "
        f"and this model takes others: `pixel_values` of {channels} "
        "channel(s), scaled as `preprocessor_config.json` says.\n\n" + code
    )


def _auto_classes(architecture, source) -> str:
    return python_block(
        "from PIL import Image",
        f"from transformers import AutoImageProcessor, {architecture}",
        "",
        f"processor = AutoImageProcessor.from_pretrained({source})",
        f"model = {architecture}.from_pretrained({source})",
        'inputs = processor(Image.open("photo.jpg"), return_tensors="pt")',
        "outputs = model(**inputs)",
    )


def _unloadable(config) -> str:
    if getattr(config, "resnet_units", None) is None:
        return ""
    return (
        "transformers 5 no longer has ViTHybrid, so that nobody could load "
        "the model there."
    )


LIBRARY = Library(
    "transformers",
    "hugging_face",
    ("transformers", "pyTorch"),
    usage,
    _unloadable,
)


def _layout_of_class(name: str, kind: str, table: dict, **fields) -> Layout:
    """Return the layout of folders of a class that is no plain ViT.

    Args:
        name: str, of the layout.
        kind: str, the key of `CLASSES`.
        table: see `Layout`, as the other fields.
    """
    return Layout(
        DIALECT,
        f"hugging_face_{name}",
        "vit",
        table,
        container="folder",
        save_name="hugging_face",
        model_class=CLASSES[kind],
        find_problems=find_class_problems,
        **fields,
    )


LAYOUTS = (
    # It has the names of other publishers but for some.
    Layout(
        DIALECT,
        "hugging_face_tipsv2",
        "vit",
        TIPSV2,
        marks=(
            ("register_tokens", "blocks.0.mlp.c_fc.weight"),
            ("register_tokens", "blocks.0.mlp.w12.weight"),
        ),
        variants={"gates": TIPSV2_GATES},
        signs={"gates": "blocks.0.mlp.w12.weight"},
        aliases=((r"vision_encoder\.(.*)", r"\1"),),
        constants=EXACT_GELU,
        implied=DINOV2_IMPLIED,
        ignored=(r"mask_token", r"text_encoder\..*", r"temperature"),
        resampling="linear_antialiased",
        container="",
        is_specific=True,
    ),
    _layout_of_class(
        "dinov3",
        "dinov3",
        DINOV3,
        marks=(
            (
                "embeddings.patch_embeddings.weight",
                "layer.0.layer_scale1.lambda1",
            ),
        ),
        variants={"gates": DINOV3_GATES},
        signs={"gates": "layer.0.mlp.gate_proj.weight"},
        constants={
            "activation": "gelu",
            "layer_norm_epsilon": 1e-5,
            "rope": "centered",
            "rope_pairs": "halves",
            "rope_temperature": 100.0,
        },
        implied={
            "block_0/attention_scale/gamma": {"layer_scale_init": 1.0},
            "gates": {"activation": "silu"},
        },
        ignored=(r"embeddings\.mask_token",),
        unsupported={
            r"layer\.\d+\.attention\.k_proj\.bias": "a learned bias of keys"
        },
        optional=("qkv_bias",),
    ),
    *(
        _layout_of_class(
            "dinov2",
            kind,
            table,
            marks=((own, "encoder.layer.0.layer_scale1.lambda1"),),
            variants=GATED,
            signs=DINOV2_SIGNS,
            aliases=RENAMED_ATTENTION,
            constants=EXACT_GELU,
            implied=DINOV2_IMPLIED,
            ignored=MASKED_IMAGES,
            resampling=resampling,
            optional=("qkv_bias",),
        )
        for kind, table, own, resampling in (
            (
                *("dinov2_with_registers", REGISTERS),
                *("embeddings.register_tokens", "bicubic_antialiased"),
            ),
            (
                *("dinov2", DINOV2),
                *("embeddings.patch_embeddings.projection.weight", "bicubic"),
            ),
        )
    ),
    Layout(
        DIALECT,
        "hugging_face_aimv2",
        "vit",
        AIMV2_PROJECTED,
        marks=(("embeddings.patch_embed.weight", "visual_projection.weight"),),
        aliases=TOWER_ALIASES,
        constants=AIMV2_CONSTANTS,
        ignored=TEXTS,
        resampling="bicubic",
        container="",
        optional=("qkv_bias", "projection_bias"),
    ),
    _layout_of_class(
        "aimv2",
        "aimv2",
        AIMV2,
        marks=(
            ("embeddings.patch_embed.weight", "embeddings.rms_norm.weight"),
        ),
        constants=AIMV2_CONSTANTS,
        resampling="bicubic",
        optional=("qkv_bias", "projection_bias"),
    ),
    _layout_of_class(
        "beit",
        "beit",
        BEIT,
        marks=(
            ("embeddings.cls_token", "encoder.layer.0.lambda_1"),
            ("embeddings.cls_token", BEIT_TABLE.format(0)),
        ),
        variants={"norm_after_pooling": (NORM_AFTER_POOLING)},
        signs={"norm_after_pooling": "pooler.layernorm.weight"},
        aliases=((r"(?:beit|data2vec_vision)\.(.*)", r"\1"), *NAMES_OF_5),
        constants={**EXACT_GELU, "layer_norm_epsilon": 1e-12},
        implied={"block_0/attention_scale/gamma": {"layer_scale_init": 0.1}},
        ignored=(
            r"embeddings\.mask_token",
            r".*\.relative_position_index",
        ),
        unsupported={
            r"encoder\.relative_position_bias\..*": (
                "relative positions that all blocks share"
            ),
            r"lm_head\..*": "a head that predicts visual tokens",
        },
        resampling="bicubic",
    ),
    _layout_of_class(
        "clip",
        "clip",
        CLIP,
        marks=(("embeddings.class_embedding", "pre_layrnorm.weight"),),
        aliases=TOWER_ALIASES,
        constants={"activation": "quick_gelu", "layer_norm_epsilon": 1e-5},
        ignored=TEXTS,
        unsupported={
            r"classifier\..*": (
                "a classifier of tokens that are not normalised"
            )
        },
        resampling="bicubic",
        optional=("patch_bias",),
        required=("activation",),
    ),
    _layout_of_class(
        "siglip",
        "siglip_classifier",
        SIGLIP_CLASSIFIER,
        marks=(
            (
                "embeddings.patch_embedding.weight",
                "post_layernorm.weight",
                "classifier.weight",
            ),
        ),
        aliases=TOWER_ALIASES,
        constants=TANH_GELU,
        ignored=(*TEXTS, r"head\..*"),
        resampling="bicubic",
    ),
    _layout_of_class(
        "siglip",
        "siglip",
        SIGLIP,
        marks=(("embeddings.patch_embedding.weight", "post_layernorm.weight"),),
        aliases=TOWER_ALIASES,
        constants=TANH_GELU,
        ignored=TEXTS,
        resampling="bicubic",
    ),
    Layout(
        DIALECT,
        "hugging_face",
        "vit",
        VIT,
        marks=(
            (
                "embeddings.patch_embeddings.projection.weight",
                "embeddings.position_embeddings",
            ),
        ),
        variants={
            "distillation_token": DISTILLED,
            "averaged_heads": AVERAGED_HEADS,
        },
        signs={
            "distillation_token": "embeddings.distillation_token",
            "averaged_heads": "cls_classifier.weight",
        },
        aliases=NAMES_OF_5,
        constants={**EXACT_GELU, "layer_norm_epsilon": 1e-12, **TORCH_RESNET},
        ignored=(r"embeddings\.position_ids", *MASKED_IMAGES),
        resampling="bicubic",
        container="folder",
        settable=("activation", "layer_norm_epsilon"),
        optional=("qkv_bias",),
        find_pooling=find_pooling,
        options=PLAIN_OPTIONS["vit"] | {"representation_activation"},
        poolings=("token", "prefix"),
        find_problems=find_problems,
    ),
    Layout(
        DIALECT,
        "hugging_face",
        "bit",
        BIT,
        marks=(("embedder.convolution.weight", "norm.weight"),),
        aliases=((r"bit\.(.*)", r"\1"),),
        constants={
            "standardization_epsilon": 1e-8,
            "group_norm_epsilon": 1e-5,
        },
        container="folder",
        options=PLAIN_OPTIONS["bit"],
        poolings=("mean",),
        find_problems=find_problems,
    ),
)


KIND = "vit_mae"
BLOCKS = r"decoder_(?:encoder\.layer|layers)\.(\d+)\."
TABLE = {
    **torch_dense("decoder_embed", "decoder.decoder_embed"),
    "from_visible/mask": ("decoder.mask_token", "same"),
    **{
        f"decoder_{ours}": (
            tuple(f"decoder.{x}" for x in names)
            if isinstance(names, tuple)
            else f"decoder.{names}",
            transform,
        )
        for ours, (names, transform) in ENCODER.items()
        if ours.startswith("block_{i}/")
    },
    **torch_norm("decoder_norm", "decoder.decoder_norm"),
    **torch_dense("pixels", "decoder.decoder_pred"),
}
# Of a config.json -> of a `MAEConfig`.
NAMES = {
    "mask_ratio": "mask_ratio",
    "norm_pix_loss": "normalize_pixels",
    "decoder_hidden_size": "decoder_dim",
    "decoder_num_hidden_layers": "decoder_layers",
    "decoder_num_attention_heads": "decoder_heads",
    "decoder_intermediate_size": "decoder_mlp_dim",
}
# What transformers takes where a config.json is silent.
USUAL = {
    "mask_ratio": 0.75,
    "norm_pix_loss": False,
    "decoder_hidden_size": 512,
    "decoder_num_hidden_layers": 8,
    "decoder_num_attention_heads": 16,
    "decoder_intermediate_size": 2048,
}
CONVERSIONS = {"mask_ratio": fraction, "normalize_pixels": flag}


@dataclasses.dataclass(frozen=True)
class Decoder:
    """A decoder in a folder.

    Args:
        fields: of a `MAEConfig`, what the folder was trained with.
        file: the opened file, of which arrays are read on demand.
    """

    fields: dict
    file: TensorFile

    def arrays(self) -> dict[str, np.ndarray]:
        """Read its weights, by the paths of `autoencoder`."""
        names = {
            re.sub(BLOCKS, r"encoder.layer.\1.", name): name
            for name in self.file.tensors
        }
        rows, _ = paths_of(names, TABLE)
        facts = Facts(num_heads=self.fields["decoder_heads"])
        return {
            path: TRANSFORMS[row.transform].load(
                [self.file.read(names[x]) for x in row.names], facts
            )
            for path, row in rows.items()
        }


def read_decoder(source) -> Decoder | None:
    """Open the decoder beside an encoder; None where there is none.

    Args:
        source: folder, or whatever else weights are loaded from.

    Raises:
        ValueError: for a folder that is damaged, or whose config.json has
            other values than a decoder has.

    Example:
        >>> read_decoder("vit-mae-base").fields["decoder_dim"]
        512
    """
    # They read all dialects, of which this is one.
    from keras_vit.checkpoints.engine.loading import located, open_source

    path = pathlib.Path(str(located(source))) / "config.json"
    if not path.is_file():
        return None
    content = read_json(path)
    if content.get("model_type") != KIND:
        return None
    file = open_source(source).file
    if "decoder.decoder_embed.weight" not in file.tensors:
        return None
    fields = converted(path, {**USUAL, **content}, NAMES, CONVERSIONS)
    return Decoder(fields, file)
