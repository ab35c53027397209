"""Counts against published numbers and against the built models."""

import math

import keras
import pytest

import keras_vit
from keras_vit.analysis import multiply_adds
from keras_vit.models import BiTConfig
from keras_vit.planning import count
from keras_vit.planning.estimate import bit_multiply_adds, vit_config
from keras_vit.sizes import BIT
from keras_vit.text import TextConfig

# `models_test.py` of google-research/vision_transformer: 1000 classes, 224.
PUBLISHED = {
    "ViT_Ti16": 5_717_416,
    "ViT_S16": 22_050_664,
    "ViT_S32": 22_878_952,
    "ViT_B8": 86_576_872,
    "ViT_B16": 86_567_656,
    "ViT_B32": 88_224_232,
    "ViT_L16": 304_326_632,
    "ViT_L32": 306_535_400,
    "ViT_H14": 632_045_800,
}


RELATIVE = {"relative_position_bias": True, "position_embedding": "none"}


@pytest.fixture(autouse=True)
def forgotten_weights():
    """Keras would make the weights of these models with the next ones."""
    yield
    keras.utils.clear_session()


def built(name, **options):
    with keras.StatelessScope(initialize_variables=False):
        return getattr(keras_vit, name)(weights=None, **options)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_as_published(name):
    assert count(vit_config(name)).parameters == PUBLISHED[name]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ViT_Ti16", {}),
        ("ViT_B32", {"image_size": 384}),
        ("ViT_S16", {"num_classes": 10, "representation_dim": 64}),
        ("ViT_S32", {"pooling": "mean", "class_token": False}),
        ("ViT_Ti16", {"layer_scale_init": 1e-5}),
        ("ViT_Ti16", {"patch_bias": False, "norm_before_blocks": True}),
        ("ViT_Ti16", {"qkv_bias": False, "register_tokens": 4}),
        ("ViT_Ti16", {"pooling": "token_and_mean", "head_bias": None}),
        ("ViT_Ti16", {"pooling": "map", "class_token": False}),
        ("ViT_Ti16", {"pooling": "prefix", "distillation_token": True}),
        ("ViT_Ti16", RELATIVE),
        ("ViT_Ti16", {**RELATIVE, "relative_position_kind": "mlp"}),
        (
            "ViT_Ti16",
            {
                **{**RELATIVE, "relative_position_kind": "mlp_swin"},
                **{"relative_position_dim": 7, "image_size": (64, 96)},
            },
        ),
        ("ViT_Ti16", {**RELATIVE, "relative_positions_shared": True}),
        (
            "ViT_Ti16",
            {
                **{**RELATIVE, "relative_position_kind": "mlp"},
                "relative_positions_shared": True,
            },
        ),
        ("ViT_Ti16", {"differential_attention": True}),
        ("ViT_Ti16", {"layer_scale_init": 0.1, "mlp_layer_scale": False}),
        ("ViT_Ti16", {"mlp_placement": "beside", "layer_scale_init": 1.0}),
        (
            "ViT_Ti16",
            {
                "mlp_placement": "beside",
                **{"differential_attention": True, "qkv_bias": False},
            },
        ),
        (
            "ViT_Ti16",
            {
                "talking_heads": True,
                "class_attention_layers": 2,
                "layer_scale_init": 1e-5,
            },
        ),
    ],
)
def test_counts_are_those_of_the_model(name, options):
    config = vit_config(name, **options)
    with keras.StatelessScope(initialize_variables=False):
        model = keras_vit.models.VisionTransformer(config)
    counts = count(config)
    products = multiply_adds(model)
    assert counts.parameters == model.count_params()
    assert counts.multiply_adds == sum(products.values())
    blocks = {k: n for k, n in products.items() if k.startswith("block_")}
    assert counts.block_multiply_adds == sum(blocks.values())
    block = model.get_layer("block_0")
    own = [x for x in block.weights if x.path.startswith("block_0/")]
    assert counts.block_parameters == sum(math.prod(x.shape) for x in own)
    kernels = [x for x in block.weights if x.name == "kernel"]
    assert all(len(x.shape) == 2 for x in kernels)
    assert counts.kernel_parameters == config.num_layers * sum(
        x.shape[0] * x.shape[1] for x in kernels
    )


@pytest.mark.parametrize("name", ["BiT_R50x1", "BiT_R152x4"])
def test_products_of_bit_are_those_of_the_model(name):
    size = BIT[name]
    found = bit_multiply_adds(size["units"], size["width"], 224, 1000)
    assert found == sum(multiply_adds(built(name)).values())


@pytest.mark.parametrize(
    "options",
    [
        {"unit": "basic", "units": (2, 1, 1)},
        {"stem": "deep", "downsampling": "average", "units": (1, 2)},
        {"stem": "tiered", "unit": "basic", "units": (1, 2)},
    ],
)
def test_products_of_resnets_are_those_of_the_model(options):
    config = BiTConfig(
        **{"image_size": 64, "width": 16, "num_classes": 5},
        normalization="batch_norm",
        **options,
    )
    model = keras_vit.models.BiT(config)
    names = {x: y for x, y in options.items() if x in ("unit", "stem")}
    found = bit_multiply_adds(options["units"], 16, 64, 5, **names)
    assert found == sum(multiply_adds(model).values())


# Of the table of open_clip's configs, and Hugging Face's of SigLIP: class and
# options of transformers' model of the same tower.
SIGLIP = {
    **{"vocabulary_size": 32_000, "context_length": 64, "hidden_dim": 1152},
    **{"num_layers": 27, "num_heads": 16, "mlp_dim": 4304, "causal": False},
    **{"projection_dim": 1152, "embedding_bias": True, "pooling": "last"},
}
TOWERS = {
    "CLIP B": ({}, "CLIPTextModelWithProjection"),
    "CLIP L": (
        {
            **{"hidden_dim": 768, "mlp_dim": 3072, "num_heads": 12},
            "projection_dim": 768,
        },
        "CLIPTextModelWithProjection",
    ),
    "SigLIP so400m": (SIGLIP, "SiglipTextModel"),
}


@pytest.mark.parametrize("name", TOWERS)
def test_towers_of_texts_have_the_parameters_of_transformers(name):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    options, model_class = TOWERS[name]
    config = TextConfig(**options)
    model_class = getattr(transformers, model_class)
    width = "projection_size" if "Siglip" in str(model_class) else None
    with torch.device("meta"):
        model = model_class(
            model_class.config_class(
                vocab_size=config.vocabulary_size,
                max_position_embeddings=config.context_length,
                hidden_size=config.hidden_dim,
                intermediate_size=config.mlp_dim,
                num_hidden_layers=config.num_layers,
                num_attention_heads=config.num_heads,
                **{width or "projection_dim": config.projection_dim},
            )
        )
    assert count(config).parameters == model.num_parameters()


@pytest.mark.parametrize("name", TOWERS)
def test_products_of_towers_of_texts_are_by_hand(name):
    config = TextConfig(**TOWERS[name][0])
    tokens, dim = config.context_length, config.hidden_dim
    block = 4 * tokens * dim**2 + 2 * tokens**2 * dim
    blocks = config.num_layers * (block + 2 * tokens * dim * config.mlp_dim)
    counts = count(config)
    assert counts.block_multiply_adds == blocks
    # One token of each text is projected.
    assert counts.multiply_adds == blocks + dim * config.projection_dim


def test_unknown_model_is_told_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'ViT_H14'"):
        vit_config("ViT_H15")


@pytest.mark.parametrize(
    "options",
    [
        {"resnet_units": (2, 2), "patch_size": 1},
        {"pooling": "attention"},
        {"patch_stem": (4, 2)},
        {"key_value_heads": (6,) * 12},
        {"window_size": 7, "class_token": False, "pooling": "mean"},
        {"neck_dim": 7, "class_token": False, "pooling": "mean"},
        {
            **{**RELATIVE, "relative_position_kind": "decomposed"},
            **{"class_token": False, "pooling": "mean"},
        },
    ],
)
def test_what_is_not_planned_is_refused(options):
    with pytest.raises(ValueError, match="without a ResNet"):
        count(vit_config("ViT_B16", **options))
