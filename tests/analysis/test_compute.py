"""Multiply-adds against published numbers and by hand."""

import keras
import pytest

import keras_vit
from keras_vit.analysis.compute import multiply_adds
from keras_vit.models import (
    Mixer,
    MixerConfig,
    VisionTransformer,
    ViTConfig,
)

# 10^9 at 224 pixels: timm's benchmark tables. They add norms and the
# standardisation of weights, which come to 3 % in the smallest hybrid.
PUBLISHED = {
    "ViT_Ti16": 1.26,
    "ViT_S16": 4.61,
    "ViT_B32": 4.41,
    "ViT_B16": 17.58,
    "ViT_B8": 78.22,
    "ViT_L16": 61.6,
    "ViT_H14": 167.4,
    "ViT_G14": 484,
    "ViT_R26_S32": 3.56,
    "ViT_R50_B16": 21.7,
    "ViT_R50_L32": 19.6,
    "Mixer_B16": 12.6,
}


# 10^9 and 10^6 of parameters in timm's tables, by the options of a Mixer.
MIXERS = {
    "resmlp_12": (
        *(3.01, 15.35),
        {"hidden_dim": 384, "num_layers": 12, "mixing": "linear"},
        {"channels_mlp_dim": 1536, "normalization": "affine"},
        {"layer_scale_init": 1e-4, "tokens_mlp_dim": 0},
    ),
    "gmlp_s16": (
        *(4.42, 19.42),
        {"hidden_dim": 256, "num_layers": 30, "mixing": "spatial_gating"},
        {"channels_mlp_dim": 1536, "tokens_mlp_dim": 0},
    ),
    "gmixer_24": (
        *(5.28, 24.72),
        {"hidden_dim": 384, "num_layers": 24, "gated_mlp": True},
        {"tokens_mlp_dim": 192, "channels_mlp_dim": 768},
    ),
}


@pytest.fixture(autouse=True)
def forgotten_weights():
    """Keras would make the weights of these models with the next ones."""
    yield
    keras.utils.clear_session()


def billions(name, **options):
    with keras.StatelessScope(initialize_variables=False):
        model = getattr(keras_vit, name)(weights=None, **options)
    return sum(multiply_adds(model).values()) / 1e9


@pytest.mark.parametrize("name", PUBLISHED)
def test_multiply_adds_are_as_published(name):
    tolerance = 0.03 if "_R" in name else 0.01
    assert billions(name) == pytest.approx(PUBLISHED[name], rel=tolerance)


def test_multiply_adds_at_384_pixels():
    assert billions("ViT_B16", input_shape=(384, 384, 3)) == pytest.approx(
        55.54, rel=0.01
    )


@pytest.mark.parametrize("name", MIXERS)
def test_mixers_of_other_kinds_are_as_published(name):
    multiplications, parameters, *options = MIXERS[name]
    fields = {x: y for part in options for x, y in part.items()}
    with keras.StatelessScope(initialize_variables=False):
        model = Mixer(MixerConfig(**fields))
    found = sum(multiply_adds(model).values()) / 1e9
    assert found == pytest.approx(multiplications, rel=0.01)
    assert model.count_params() / 1e6 == pytest.approx(parameters, abs=0.01)


def test_block_by_hand():
    tokens = keras.Input((5, 8))
    block = keras_vit.layers.TransformerBlock(2, 24, name="block")
    model = keras.Model(tokens, block(tokens))
    projections = 4 * 5 * 8 * 8
    products = 2 * 5 * 5 * 8
    mlp = 2 * 5 * 8 * 24
    assert multiply_adds(model) == {"block": projections + products + mlp}


TINY = {
    **{"image_size": 16, "patch_size": 4, "hidden_dim": 8, "num_heads": 2},
    **{"num_layers": 2, "mlp_dim": 12, "num_classes": 3, "pooling": "mean"},
}
RELATIVE = {"relative_position_bias": True}
WINDOWS = {"class_token": False, "window_size": 3, **RELATIVE}
# Options by which a model computes more or less, and what they need.
COUNTED = {
    "mean": {},
    "map": {"pooling": "map"},
    "map of all tokens": {"pooling": "map", "pool_prefix_tokens": True},
    "attention": {"pooling": "attention", "distillation_token": True},
    "registers": {"pooling": "max", "register_tokens": 3},
    "a gate": {"gated_mlp": True, "activation": "silu"},
    "side by side": {"mlp_placement": "beside"},
    "differential": {"differential_attention": True},
    "grouped keys": {"key_value_heads": (1, 2)},
    "talking heads": {"talking_heads": True},
    "an MLP of positions": {**RELATIVE, "relative_position_kind": "mlp"},
    "windows": {**WINDOWS, "relative_position_kind": "decomposed"},
    "a stem": {"patch_stem": (2, 2), "image_size": (8, 16)},
    "a ResNet": {"resnet_units": (1,), "image_size": 32, "patch_size": 2},
    "a head of two layers": {"representation_dim": 5},
}


@pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="it is torch that counts"
)
@pytest.mark.parametrize("name", COUNTED)
def test_multiply_adds_are_those_that_torch_counts(name):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    config = ViTConfig(**{**TINY, **COUNTED[name]})
    model = VisionTransformer(config)
    image = keras.ops.ones((1, *config.image_size, 3))
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as found:
        model(image, training=False)
    assert 2 * sum(multiply_adds(model).values()) == found.get_total_flops()


def test_unknown_image_size():
    model = keras_vit.BiT_R50x1(
        weights=None, include_top=False, input_shape=(None, None, 3)
    )
    with pytest.raises(ValueError, match="input_shape"):
        multiply_adds(model)
