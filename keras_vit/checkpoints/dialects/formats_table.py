"""The formats: by what a file of each is known, and what it stands for."""

import dataclasses

from keras_vit.checkpoints.dialects import (
    google_table,
    hugging_face_table,
    keras_hub_table,
    torch_table,
)

__all__ = ["FORMATS", "Format"]


@dataclasses.dataclass(frozen=True)
class Format:
    """One layout of files for one family of models.

    Args:
        name: str, as in `save_checkpoint(..., format=name)`.
        family: "vit", "mixer" or "bit".
        table: dict from our path to the file's names, see `rows`.
        marks: names, one tuple of which is complete in each such file.
        variants: dict from a feature to rows that take the place of others.
        signs: dict from a feature to the name whose presence shows it.
        aliases: pairs of a regular expression and what names in the file
            that match are to be read as.
        constants: dict, fields of the config that the family fixes.
        implied: dict from one of our paths, or a feature, to the fields of
            the config that a file with this weight or feature has.
        ignored: regular expressions of names without influence.
        unsupported: dict from a regular expression of names to what they
            belong to that the models here do not have.
        resampling: how the family resamples position embeddings.
        container: "npz", "safetensors", or "folder" with a config.json; ""
            for what is only read.
        settable: fields of `constants` that the readers of the format take
            from elsewhere, so that any value can be written.
        unwritable: regular expressions of our paths that files have, but
            today's readers of the format do not take.
        optional: fields of the config for biases that files may lack.
        untold: fields of the config that no tensor tells and in which
            published files differ, so that something must tell them.
        needs: fields of the config that each model in the format has, so
            that no other is written in it.
        kind: str, the class of transformers that such a folder is for, see
            `hugging_face_export.KINDS`; "" for those of plain models.
    """

    name: str
    family: str
    table: dict
    marks: tuple
    variants: dict = dataclasses.field(default_factory=dict)
    signs: dict = dataclasses.field(default_factory=dict)
    aliases: tuple = ()
    constants: dict = dataclasses.field(default_factory=dict)
    implied: dict = dataclasses.field(default_factory=dict)
    ignored: tuple = ()
    unsupported: dict = dataclasses.field(default_factory=dict)
    resampling: str = "linear_aligned"
    container: str = "npz"
    settable: tuple = ()
    unwritable: tuple = ()
    optional: tuple = ()
    untold: tuple = ()
    needs: tuple = ()
    kind: str = ""

    @property
    def public_name(self) -> str:
        """What `save_checkpoint` calls it."""
        return "hugging_face" if self.kind else self.name

    def rows(self, features) -> dict:
        """The table with the rows of the given features."""
        table = dict(self.table)
        for feature, rows in self.variants.items():
            if feature in features:
                table |= rows
        return table


# What a file may hold besides one tower's parameters.
FLAX_COMPANIONS = (r"opt/.*", r"state/.*", r"params/(txt/.*|t|b)", r"chrono/.*")

TANH = {"activation": "gelu_tanh", "layer_norm_epsilon": 1e-6}
EXACT = {"activation": "gelu", "layer_norm_epsilon": 1e-6}
GOOGLE_RESNET = {
    "resnet_standardization": "deviation",
    "resnet_standardization_epsilon": 1e-5,
    "resnet_group_norm_epsilon": 1e-6,
}
TORCH_RESNET = {
    "resnet_standardization": "variance",
    "resnet_standardization_epsilon": 1e-8,
    "resnet_group_norm_epsilon": 1e-5,
}

TIMM_BIT = {
    **{"standardization": "variance", "standardization_epsilon": 1e-8},
    **{"group_norm_epsilon": 1e-5, "root_padding": "zeros"},
    **{"downsampling": "convolution", "activation": "relu"},
}
# timm's ResNets of BiT's units without its weight standardisation: those with
# another normalisation, and those with a deep stem.
PLAIN_RESNET = {"standardization": None, "root_padding": "lowest"}

BLOCK = r"(Transformer/encoderblock(?:_\d+)?)"
PRE_LINEN = (
    (r"Transformer/pos_embedding", "Transformer/posembed_input/pos_embedding"),
    (BLOCK + r"/LayerNorm_1/(.*)", r"\1/LayerNorm_2/\2"),
    (
        BLOCK + r"/MultiHeadDotProductAttention_0/(.*)",
        r"\1/MultiHeadDotProductAttention_1/\2",
    ),
    (BLOCK + r"/MlpBlock_0/(.*)", r"\1/MlpBlock_3/\2"),
)
OLD_MIXER = (
    (r"embedding/(kernel|bias)", r"stem/\1"),
    (r"Mixer/encoder_norm/(.*)", r"pre_head_layer_norm/\1"),
    (
        r"Mixer/encoderblock_(\d+)/(token|channel)_mixing_phase_0/(\w+)1",
        r"MixerBlock_\1/\2_mixing/Dense_0/\3",
    ),
    (
        r"Mixer/encoderblock_(\d+)/(token|channel)_mixing_phase_0/(\w+)2",
        r"MixerBlock_\1/\2_mixing/Dense_1/\3",
    ),
    (
        r"(?:Mixer/encoderblock|MixerBlock)_(\d+)/LayerNorm_0/(.*)",
        r"MixerBlock_\1/LayerNorm_0/\2",
    ),
    # Numbered 1, or by Flax before Linen, which counted all modules, higher.
    (
        r"(?:Mixer/encoderblock|MixerBlock)_(\d+)/LayerNorm_[1-9]/(.*)",
        r"MixerBlock_\1/LayerNorm_1/\2",
    ),
)
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
HUGGING_FACE_5 = (
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
TOWER = ((r"vision_model\.(.*)", r"\1"),)
AIMV2 = {"activation": "silu", "layer_norm_epsilon": 1e-5}
GATES = {"gates": hugging_face_table.HUGGING_FACE_GATES}
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

BATCH_NORM = {
    r".*\.(running_mean|running_var|num_batches_tracked)": (
        "batch normalisation"
    ),
}
# What stood for hidden patches in pre-training.
MASK_TOKEN = r"(embeddings\.)?mask_token"

# NaFlexViT, whose patches are a dense layer and whose positions are a grid.
TIMM_NAFLEX = (
    (r"embeds\.(cls_token|reg_token)", r"\1"),
    (r"embeds\.proj\.weight", "patch_embed.flat.weight"),
    (r"embeds\.proj\.bias", "patch_embed.proj.bias"),
    (r"embeds\.pos_embed", "pos_grid"),
    (r"embeds\.pos_embed_([xy])", r"pos_\1"),
)

# Sapiens2 in Meta's own names, which timm's repositories of it have.
SAPIENS2 = (
    (r"storage_tokens", "reg_token"),
    (r"patch_embed\.projection\.(.*)", r"patch_embed.proj.\1"),
    (r"(blocks\.\d+\.attn)\.w([qkv])\.(.*)", r"\1.\2_proj.\3"),
    (r"(blocks\.\d+)\.attn\.gamma\.weight", r"\1.gamma_1"),
    (r"(blocks\.\d+)\.ffn\.w12\.(.*)", r"\1.mlp.fc1.\2"),
    (r"(blocks\.\d+)\.ffn\.w3\.(.*)", r"\1.mlp.fc2.\2"),
    (r"(blocks\.\d+)\.ln([12])\.(.*)", r"\1.norm\2.\3"),
    (r"ln1\.(.*)", r"norm.\1"),
)

TIMM_UNSUPPORTED = {
    r"blocks\.\d+\.attn\.(rel_pos.*|relative_position.*)": (
        "relative position embeddings"
    ),
    r"decoder.*": "a decoder for masked images (MAE)",
    **BATCH_NORM,
    r"blocks\.\d+\.attn\.[qv]_bias": (
        "biases of queries and values alone (BEiT, EVA)"
    ),
    r"neck\..*": "a last normalisation with an epsilon of its own (SAM)",
}

# The image encoder of SAM. The file of a whole SAM also has what decodes masks.
SAM_MARKS = (
    (
        "patch_embed.proj.weight",
        "blocks.0.attn.qkv.weight",
        "neck.0.weight",
    ),
)
SAM_SIGNS = {"position_map": "pos_embed"}
SAM_DECODERS = (
    *(r"prompt_encoder\..*", r"mask_decoder\..*"),
    r"shared_image_embedding\..*",
)
# Meta's own files, and those of transformers.
SEGMENT_ANYTHING = (
    (r"image_encoder\.(.*)", r"\1"),
    (r"(?:vision_encoder|vision_model)\.(.*)", r"\1"),
    (r"patch_embed\.projection\.(.*)", r"patch_embed.proj.\1"),
    (r"layers\.(.*)", r"blocks.\1"),
    (r"(blocks\.\d+\.)layer_(norm[12]\..*)", r"\1\2"),
    (r"(blocks\.\d+\.mlp)\.lin([12]\..*)", r"\1.fc\2"),
    (r"neck\.conv1\.(.*)", r"neck.0.\1"),
    (r"neck\.layer_norm1\.(.*)", r"neck.1.\1"),
    (r"neck\.conv2\.(.*)", r"neck.2.\1"),
    (r"neck\.layer_norm2\.(.*)", r"neck.3.\1"),
)

FORMATS = (
    Format(
        "google",
        "vit",
        google_table.GOOGLE,
        marks=(
            (
                "Transformer/encoder_norm/scale",
                "Transformer/posembed_input/pos_embedding",
            ),
        ),
        aliases=PRE_LINEN,
        constants={**TANH, **GOOGLE_RESNET},
        ignored=FLAX_COMPANIONS,
    ),
    Format(
        "big_vision",
        "vit",
        google_table.BIG_VISION,
        marks=(("Transformer/encoder_norm/scale",),),
        variants={
            "prefix_without_position": google_table.PREFIX_WITHOUT_POSITION
        },
        constants=TANH,
        ignored=FLAX_COMPANIONS,
        unsupported={r"(conv_root|gn_root|block\d+)/.*": "a ResNet"},
    ),
    Format(
        "mixer",
        "mixer",
        google_table.MIXER,
        marks=(("pre_head_layer_norm/scale", "stem/kernel"),),
        aliases=OLD_MIXER,
        constants=TANH,
        ignored=FLAX_COMPANIONS,
    ),
    Format(
        "bit",
        "bit",
        google_table.BIT,
        marks=(("resnet/root_block/standardized_conv2d/kernel",),),
        aliases=((r"(.*/standardized_conv2d)_\d+/(.*)", r"\1/\2"),),
        constants={
            "standardization_epsilon": 1e-10,
            "group_norm_epsilon": 1e-5,
        },
        ignored=FLAX_COMPANIONS,
    ),
    # Before timm, whose names it has but for some.
    Format(
        "hugging_face_tipsv2",
        "vit",
        hugging_face_table.HUGGING_FACE_TIPSV2,
        marks=(
            ("register_tokens", "blocks.0.mlp.c_fc.weight"),
            ("register_tokens", "blocks.0.mlp.w12.weight"),
        ),
        variants={"gates": hugging_face_table.HUGGING_FACE_TIPSV2_GATES},
        signs={"gates": "blocks.0.mlp.w12.weight"},
        aliases=((r"vision_encoder\.(.*)", r"\1"),),
        constants=EXACT,
        implied=DINOV2_IMPLIED,
        ignored=(r"mask_token", r"text_encoder\..*", r"temperature"),
        resampling="linear_antialiased",
        container="",
    ),
    # Before timm's other models, whose names it has but for some.
    Format(
        "timm",
        "vit",
        torch_table.TIMM_SAM,
        marks=SAM_MARKS,
        signs=SAM_SIGNS,
        constants={**EXACT, "layer_norm_epsilon": 1e-5},
        resampling="bicubic_antialiased",
        container="safetensors",
        settable=("activation", "layer_norm_epsilon"),
        needs=("neck_dim",),
        optional=("qkv_bias",),
    ),
    Format(
        "segment_anything",
        "vit",
        torch_table.SAM,
        marks=SAM_MARKS,
        signs=SAM_SIGNS,
        aliases=SEGMENT_ANYTHING,
        constants={**EXACT, "pooling": "none"},
        ignored=SAM_DECODERS,
        resampling="bicubic_antialiased",
        container="",
        needs=("neck_dim",),
    ),
    Format(
        "timm",
        "vit",
        torch_table.TIMM,
        marks=(
            ("patch_embed.proj.weight", "blocks.0.attn.qkv.weight"),
            ("patch_embed.proj.weight", "blocks.0.attn.q_proj.weight"),
            ("patch_embed.flat.weight", "blocks.0.attn.qkv.weight"),
            ("patch_embed.backbone.2.conv.weight", "blocks.0.attn.qkv.weight"),
            ("patch_embed.proj.weight", "blocks.0.in_proj.weight"),
        ),
        aliases=(*TIMM_NAFLEX, *SAPIENS2),
        variants={
            "distillation_token": torch_table.TIMM_DISTILLED,
            "averaged_heads": torch_table.TIMM_AVERAGED_HEADS,
            "norm_after_pooling": torch_table.TIMM_NORM_AFTER_POOLING,
            "prefix_without_position": (
                torch_table.TIMM_PREFIX_WITHOUT_POSITION
            ),
            "root_only": torch_table.TIMM_ROOT_ONLY,
            "patch_stem": torch_table.TIMM_PATCH_STEM,
            "registers": torch_table.TIMM_REGISTERS,
            "registers_alone": torch_table.TIMM_REGISTERS_ALONE,
            "gammas": torch_table.TIMM_GAMMAS,
            "parallel": torch_table.TIMM_PARALLEL,
            "mlp_bias": torch_table.TIMM_MLP_BIAS,
            "fused_output": torch_table.TIMM_FUSED_OUTPUT,
            "query_value_biases": torch_table.TIMM_QUERY_VALUE_BIASES,
            "relative_tables": torch_table.TIMM_RELATIVE_TABLES,
            "separate_qkv": torch_table.TIMM_SEPARATE_QKV,
            "grouped_qkv": torch_table.TIMM_GROUPED_QKV,
            "separate_gates": torch_table.TIMM_SEPARATE_GATES,
            "flat_patches": torch_table.TIMM_FLAT_PATCHES,
            "position_grid": torch_table.TIMM_POSITION_GRID,
            "position_axes": torch_table.TIMM_POSITION_AXES,
        },
        signs={
            "registers": "reg_token",
            "gammas": "blocks.0.gamma_1",
            "parallel": "blocks.0.in_proj.weight",
            "mlp_bias": "blocks.0.mlp_bias",
            "fused_output": "blocks.0.out_proj.weight",
            "query_value_biases": "blocks.0.attn.q_bias",
            "relative_tables": (
                "blocks.0.attn.rel_pos.relative_position_bias_table"
            ),
            "separate_qkv": "blocks.0.attn.q_proj.weight",
            "grouped_qkv": "blocks.0.attn.k_proj.bias",
            "separate_gates": "blocks.0.mlp.fc1_g.weight",
            "flat_patches": "patch_embed.flat.weight",
            "position_grid": "pos_grid",
            "position_axes": "pos_y",
            "distillation_token": "dist_token",
            "averaged_heads": "head_dist.weight",
            "norm_after_pooling": "fc_norm.weight",
            "root_only": "patch_embed.backbone.conv.weight",
            "patch_stem": "patch_embed.backbone.2.conv.weight",
        },
        constants={**EXACT, **TORCH_RESNET},
        # What it started at no file tells, nor does it matter any more.
        implied={"block_0/attention_scale/gamma": {"layer_scale_init": 1e-5}},
        ignored=(
            MASK_TOKEN,
            r"rope_embed\.periods",
            r"patch_embed\.backbone\.\d\.bn\.num_batches_tracked",
        ),
        unsupported=TIMM_UNSUPPORTED,
        resampling="bicubic_antialiased",
        container="safetensors",
        settable=("activation", "layer_norm_epsilon"),
        # Old files have it; timm itself dropped the layer.
        unwritable=(r"pre_logits/.*",),
        optional=("patch_bias", "qkv_bias", "projection_bias"),
    ),
    Format(
        "timm",
        "mixer",
        torch_table.TIMM_MIXER,
        marks=(
            ("stem.proj.weight", "blocks.0.mlp_tokens.fc1.weight"),
            ("stem.proj.weight", "blocks.0.linear_tokens.weight"),
            ("stem.proj.weight", "blocks.0.mlp_channels.gate.proj.weight"),
        ),
        variants={
            "affine": torch_table.TIMM_AFFINE,
            "spatial_gating": torch_table.TIMM_SPATIAL_GATING,
            "gates_last": torch_table.TIMM_GATES_LAST,
        },
        signs={
            "affine": "norm.alpha",
            "spatial_gating": "blocks.0.mlp_channels.gate.proj.weight",
        },
        constants=EXACT,
        implied={"block_0/token_scale/gamma": {"layer_scale_init": 1e-4}},
        container="safetensors",
        settable=("activation", "layer_norm_epsilon"),
    ),
    Format(
        "timm",
        "bit",
        torch_table.TIMM_BIT,
        marks=(
            ("stem.conv.weight", "stages.0.blocks.0.conv1.weight"),
            ("stem.conv1.weight", "stages.0.blocks.0.conv1.weight"),
        ),
        constants=TIMM_BIT,
        implied={
            "encoder_norm/moving_mean": PLAIN_RESNET,
            "encoder_norm/gate": PLAIN_RESNET,
            "root_conv1/kernel": {**PLAIN_RESNET, "downsampling": "average"},
        },
        ignored=(r".*\.num_batches_tracked",),
        container="safetensors",
        settable=tuple(x for x in TIMM_BIT if x != "group_norm_epsilon"),
    ),
    Format(
        "hugging_face_dinov3",
        "vit",
        hugging_face_table.HUGGING_FACE_DINOV3,
        marks=(
            (
                "embeddings.patch_embeddings.weight",
                "layer.0.layer_scale1.lambda1",
            ),
        ),
        variants={"gates": hugging_face_table.HUGGING_FACE_DINOV3_GATES},
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
        container="folder",
        kind="dinov3",
        optional=("qkv_bias",),
    ),
    Format(
        "hugging_face_dinov2",
        "vit",
        hugging_face_table.HUGGING_FACE_REGISTERS,
        marks=(
            (
                "embeddings.register_tokens",
                "encoder.layer.0.layer_scale1.lambda1",
            ),
        ),
        variants=GATES,
        signs=DINOV2_SIGNS,
        aliases=RENAMED_ATTENTION,
        constants=EXACT,
        implied=DINOV2_IMPLIED,
        ignored=MASKED_IMAGES,
        resampling="bicubic_antialiased",
        container="folder",
        kind="dinov2_with_registers",
    ),
    Format(
        "hugging_face_dinov2",
        "vit",
        hugging_face_table.HUGGING_FACE_DINOV2,
        marks=(
            (
                "embeddings.patch_embeddings.projection.weight",
                "encoder.layer.0.layer_scale1.lambda1",
            ),
        ),
        variants=GATES,
        signs=DINOV2_SIGNS,
        aliases=RENAMED_ATTENTION,
        constants=EXACT,
        implied=DINOV2_IMPLIED,
        ignored=MASKED_IMAGES,
        resampling="bicubic",
        container="folder",
        kind="dinov2",
    ),
    Format(
        "hugging_face_aimv2",
        "vit",
        hugging_face_table.HUGGING_FACE_AIMV2_PROJECTED,
        marks=(("embeddings.patch_embed.weight", "visual_projection.weight"),),
        aliases=TOWER,
        constants=AIMV2,
        ignored=TEXTS,
        resampling="bicubic",
        container="",
        optional=("qkv_bias", "projection_bias"),
    ),
    Format(
        "hugging_face_aimv2",
        "vit",
        hugging_face_table.HUGGING_FACE_AIMV2,
        marks=(
            ("embeddings.patch_embed.weight", "embeddings.rms_norm.weight"),
        ),
        constants=AIMV2,
        resampling="bicubic",
        container="folder",
        kind="aimv2",
        optional=("qkv_bias", "projection_bias"),
    ),
    Format(
        "hugging_face_beit",
        "vit",
        hugging_face_table.HUGGING_FACE_BEIT,
        marks=(
            ("embeddings.cls_token", "encoder.layer.0.lambda_1"),
            ("embeddings.cls_token", BEIT_TABLE.format(0)),
        ),
        variants={
            "norm_after_pooling": (
                hugging_face_table.HUGGING_FACE_NORM_AFTER_POOLING
            )
        },
        signs={"norm_after_pooling": "pooler.layernorm.weight"},
        aliases=((r"(?:beit|data2vec_vision)\.(.*)", r"\1"), *HUGGING_FACE_5),
        constants={**EXACT, "layer_norm_epsilon": 1e-12},
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
        container="folder",
        kind="beit",
    ),
    Format(
        "hugging_face_clip",
        "vit",
        hugging_face_table.HUGGING_FACE_CLIP,
        marks=(("embeddings.class_embedding", "pre_layrnorm.weight"),),
        aliases=TOWER,
        constants={"activation": "quick_gelu", "layer_norm_epsilon": 1e-5},
        ignored=TEXTS,
        unsupported={
            r"classifier\..*": (
                "a classifier of tokens that are not normalised"
            )
        },
        resampling="bicubic",
        container="folder",
        kind="clip",
        optional=("patch_bias",),
        untold=("activation",),
    ),
    Format(
        "hugging_face_siglip",
        "vit",
        hugging_face_table.HUGGING_FACE_SIGLIP_CLASSIFIER,
        marks=(
            (
                "embeddings.patch_embedding.weight",
                "post_layernorm.weight",
                "classifier.weight",
            ),
        ),
        aliases=TOWER,
        constants=TANH,
        ignored=(*TEXTS, r"head\..*"),
        resampling="bicubic",
        container="folder",
        kind="siglip_classifier",
    ),
    Format(
        "hugging_face_siglip",
        "vit",
        hugging_face_table.HUGGING_FACE_SIGLIP,
        marks=(("embeddings.patch_embedding.weight", "post_layernorm.weight"),),
        aliases=TOWER,
        constants=TANH,
        ignored=TEXTS,
        resampling="bicubic",
        container="folder",
        kind="siglip",
    ),
    Format(
        "hugging_face",
        "vit",
        hugging_face_table.HUGGING_FACE,
        marks=(
            (
                "embeddings.patch_embeddings.projection.weight",
                "embeddings.position_embeddings",
            ),
        ),
        variants={
            "distillation_token": hugging_face_table.HUGGING_FACE_DISTILLED,
            "averaged_heads": hugging_face_table.HUGGING_FACE_AVERAGED_HEADS,
        },
        signs={
            "distillation_token": "embeddings.distillation_token",
            "averaged_heads": "cls_classifier.weight",
        },
        aliases=HUGGING_FACE_5,
        constants={**EXACT, "layer_norm_epsilon": 1e-12, **TORCH_RESNET},
        ignored=(r"embeddings\.position_ids", *MASKED_IMAGES),
        resampling="bicubic",
        container="folder",
        settable=("activation", "layer_norm_epsilon"),
    ),
    Format(
        "hugging_face",
        "bit",
        hugging_face_table.HUGGING_FACE_BIT,
        marks=(("embedder.convolution.weight", "norm.weight"),),
        aliases=((r"bit\.(.*)", r"\1"),),
        constants={
            "standardization_epsilon": 1e-8,
            "group_norm_epsilon": 1e-5,
        },
        container="folder",
    ),
    Format(
        "torchvision",
        "vit",
        torch_table.TORCHVISION,
        marks=(("conv_proj.weight", "encoder.pos_embedding"),),
        aliases=(
            (r"(.*)\.mlp\.linear_1\.(\w+)", r"\1.mlp.0.\2"),
            (r"(.*)\.mlp\.linear_2\.(\w+)", r"\1.mlp.3.\2"),
        ),
        constants=EXACT,
        unsupported={r"conv_proj\.\d+\..*": "a convolutional stem"},
        resampling="bicubic",
        container="safetensors",
    ),
    Format(
        "keras_hub",
        "vit",
        keras_hub_table.KERAS_HUB,
        marks=(("layers/vi_t_encoder/layer_norm/vars/0",),),
        constants=EXACT,
        resampling="bicubic",
        container="",
    ),
    Format(
        "keras_hub",
        "vit",
        keras_hub_table.KERAS_HUB_DEIT,
        marks=(("layers/dei_t_encoder/layer_norm/vars/0",),),
        signs={"distillation_token": "layers/dei_t_embeddings/vars/1"},
        constants=EXACT,
        resampling="bicubic",
        container="",
    ),
    Format(
        "keras_hub",
        "vit",
        keras_hub_table.KERAS_HUB_DINOV2,
        marks=(("layers/dinov2_embedding/positions",),),
        variants={
            "registers": keras_hub_table.KERAS_HUB_REGISTERS,
            "gates": keras_hub_table.KERAS_HUB_GATES,
        },
        signs={
            "registers": "layers/dinov2_embedding/register_tokens",
            "gates": keras_hub_table.DINOV2_BLOCK.format(i=0)
            + "/mlp/weights_in/vars/0",
        },
        constants=EXACT,
        implied={"block_0/attention_scale/gamma": {"layer_scale_init": 1.0}},
        ignored=(r"layers/dinov2_embedding/(mask_token|unused)",),
        resampling="bicubic",
        container="",
    ),
    Format(
        "keras_hub",
        "vit",
        keras_hub_table.KERAS_HUB_DINOV3,
        marks=(("layers/dinov3_embedding/cls_token",),),
        variants={
            "registers": keras_hub_table.KERAS_HUB_DINOV3_REGISTERS,
            "gates": keras_hub_table.KERAS_HUB_DINOV3_GATES,
            "key_bias": keras_hub_table.KERAS_HUB_DINOV3_KEY_BIAS,
        },
        signs={
            "registers": "layers/dinov3_embedding/register_tokens",
            "gates": keras_hub_table.DINOV3_BLOCK.format(i=0)
            + "/mlp/gate_proj/vars/0",
            "key_bias": keras_hub_table.DINOV3_BLOCK.format(i=0)
            + "/attention/key_dense/vars/1",
        },
        constants={
            "activation": "gelu",
            "layer_norm_epsilon": 1e-5,
            "rope": "centered",
            "rope_pairs": "halves",
            "rope_temperature": 100.0,
        },
        implied={"block_0/attention_scale/gamma": {"layer_scale_init": 1.0}},
        ignored=(r"layers/dinov3_embedding/mask_token",),
        container="",
        optional=("qkv_bias", "projection_bias"),
    ),
    *(
        Format(
            "keras_hub",
            "vit",
            table,
            marks=((f"layers/{name}_vision_embedding/vars/0",),),
            constants={"activation": "quick_gelu", "layer_norm_epsilon": 1e-5},
            ignored=(
                rf"layers/{name}_vision_embedding/vars/1",
                rf"outer/({name}_text_encoder|{name}_head|dense_1)/.*",
            ),
            resampling="bicubic",
            container="",
            optional=("patch_bias",),
        )
        for name, table in (
            ("clip", keras_hub_table.KERAS_HUB_CLIP),
            ("meta_clip2", keras_hub_table.KERAS_HUB_METACLIP_2),
        )
    ),
    Format(
        "keras_hub",
        "vit",
        keras_hub_table.KERAS_HUB_SIGLIP,
        marks=(("layers/sig_lip_vision_embedding/position_embedding/vars/0",),),
        constants=TANH,
        ignored=(
            # Numbers of the positions.
            r"layers/sig_lip_vision_embedding/vars/0",
            r"outer/(sig_lip_text_encoder|sig_lip_head)/.*",
        ),
        resampling="bicubic",
        container="",
    ),
    Format(
        "keras_hub",
        "vit",
        keras_hub_table.KERAS_HUB_PALI_GEMMA,
        marks=(("layers/pali_gemma_vit_encoder/encoder_layer_norm/vars/0",),),
        constants=TANH,
        # The language model.
        ignored=(r"outer/.*",),
        resampling="bicubic",
        container="",
    ),
)
