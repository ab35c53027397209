"""Keras's own layer test on every public layer.

It checks shapes (symbolic, eager, computed), weight counts, serialisation,
saving, a training step and mixed precision.
"""

import keras
import pytest
from keras.src import testing

from keras_vit import layers

TOKENS = (2, 17, 16)

# Layer, arguments, input shape, output shape, trainable weights, seeds.
CASES = {
    "patch_embed": (
        layers.PatchEmbed,
        {"hidden_dim": 8, "patch_size": 4},
        (2, 8, 16, 3),
        (2, 8, 8),
        2,
        0,
    ),
    "patch_embed_rectangular": (
        layers.PatchEmbed,
        {"hidden_dim": 8, "patch_size": (4, 8)},
        (2, 8, 16, 3),
        (2, 4, 8),
        2,
        0,
    ),
    "class_token": (layers.ClassToken, {}, (2, 16, 8), (2, 17, 8), 1, 0),
    "two_tokens": (
        layers.ClassToken,
        {"num_tokens": 2},
        (2, 16, 8),
        (2, 18, 8),
        1,
        0,
    ),
    "position_embedding": (
        layers.AddPositionEmbedding,
        {"grid": (2, 8), "num_prefix_tokens": 1},
        TOKENS,
        TOKENS,
        1,
        0,
    ),
    "position_embedding_sincos2d": (
        layers.AddPositionEmbedding,
        {"grid": (2, 8), "num_prefix_tokens": 1, "kind": "sincos2d"},
        TOKENS,
        TOKENS,
        0,
        0,
    ),
    "self_attention": (
        layers.SelfAttention,
        {"num_heads": 4},
        TOKENS,
        TOKENS,
        4,
        0,
    ),
    "self_attention_with_dropout": (
        layers.SelfAttention,
        {"num_heads": 4, "attention_dropout_rate": 0.5},
        TOKENS,
        TOKENS,
        4,
        1,
    ),
    "grouped_queries": (
        layers.SelfAttention,
        {"num_heads": 4, "key_value_heads": 2},
        TOKENS,
        TOKENS,
        4,
        0,
    ),
    "window_attention": (
        layers.WindowAttention,
        {"num_heads": 4, "grid": (TOKENS[1], 1), "window_size": 2},
        TOKENS,
        TOKENS,
        4,
        0,
    ),
    "neck": (
        layers.Neck,
        {"neck_dim": 6, "grid": (1, TOKENS[1])},
        TOKENS,
        (*TOKENS[:2], 6),
        6,
        0,
    ),
    "talking_heads": (
        layers.SelfAttention,
        {"num_heads": 4, "talking_heads": True},
        TOKENS,
        TOKENS,
        8,
        0,
    ),
    "differential_attention": (
        layers.SelfAttention,
        {"num_heads": 4, "differential_lambda": 0.2},
        TOKENS,
        TOKENS,
        6,
        0,
    ),
    "parallel_block": (
        layers.ParallelBlock,
        {"num_heads": 4, "mlp_dim": 32, "layer_scale_init": 0.1},
        TOKENS,
        TOKENS,
        10,
        0,
    ),
    "class_attention": (
        layers.ClassAttention,
        {"num_heads": 4, "qkv_bias": False},
        TOKENS,
        (TOKENS[0], 1, TOKENS[2]),
        4,
        0,
    ),
    "class_attention_block": (
        layers.ClassAttentionBlock,
        {"num_heads": 4, "mlp_dim": 32, "layer_scale_init": 0.1},
        TOKENS,
        TOKENS,
        16,
        0,
    ),
    "mlp": (layers.MLP, {"mlp_dim": 32}, TOKENS, TOKENS, 4, 0),
    "mlp_with_dropout": (
        layers.MLP,
        {"mlp_dim": 32, "dropout_rate": 0.5, "activation": "gelu"},
        TOKENS,
        TOKENS,
        4,
        2,
    ),
    "gated_mlp": (
        layers.GatedMLP,
        {"mlp_dim": 32, "activation": "silu", "mlp_inner_norm": True},
        TOKENS,
        TOKENS,
        6,
        0,
    ),
    "rms_normalization": (
        layers.TokenRMSNormalization,
        {"epsilon": 1e-3},
        TOKENS,
        TOKENS,
        1,
        0,
    ),
    "rotary_embedding": (
        layers.RotaryEmbedding,
        {"grid": (4, 4), "num_prefix_tokens": 1, "rope": "mixed"},
        (2, 4, 17, 8),
        (2, 4, 17, 8),
        1,
        0,
    ),
    "relative_position_bias": (
        layers.RelativePositionBias,
        {"grid": (4, 4), "num_heads": 4, "num_prefix_tokens": 1},
        (2, 4, 17, 17),
        (2, 4, 17, 17),
        1,
        0,
    ),
    "evolved_normalization": (
        layers.EvolvedNormalization,
        {"groups": 2, "epsilon": 1e-3},
        (2, 3, 5, 8),
        (2, 3, 5, 8),
        3,
        0,
    ),
    "relative_position_mlp": (
        layers.RelativePositionBias,
        {
            **{"grid": (4, 4), "num_heads": 4, "num_prefix_tokens": 2},
            **{"relative_position_kind": "mlp", "relative_position_dim": 8},
        },
        (2, 4, 18, 18),
        (2, 4, 18, 18),
        4,
        0,
    ),
    "layer_scale": (
        layers.LayerScale,
        {"initial_value": 0.5},
        TOKENS,
        TOKENS,
        1,
        0,
    ),
    "transformer_block": (
        layers.TransformerBlock,
        {"num_heads": 4, "mlp_dim": 32},
        TOKENS,
        TOKENS,
        12,
        0,
    ),
    "transformer_block_with_layer_scale": (
        layers.TransformerBlock,
        {"num_heads": 4, "mlp_dim": 32, "layer_scale_init": 1e-5},
        TOKENS,
        TOKENS,
        14,
        0,
    ),
    "transformer_block_with_everything": (
        layers.TransformerBlock,
        {
            "num_heads": 4,
            "mlp_dim": 32,
            "dropout_rate": 0.1,
            "attention_dropout_rate": 0.1,
            "stochastic_depth_rate": 0.1,
            "rematerialize": True,
        },
        TOKENS,
        TOKENS,
        12,
        6,
    ),
    "attention_pooling": (
        layers.AttentionPooling,
        {"num_heads": 4, "mlp_dim": 32},
        TOKENS,
        (2, 16),
        13,
        0,
    ),
    "attention_pooling_alone": (
        layers.AttentionPooling,
        {
            **{"num_heads": 4, "mlp_dim": None},
            **{"project_query": False, "key_value_bias": False},
        },
        TOKENS,
        (2, 16),
        4,
        0,
    ),
    "token_pooling": (layers.TokenPooling, {}, TOKENS, (2, 16), 0, 0),
    "mean_pooling": (
        layers.TokenPooling,
        {"pooling": "mean", "num_prefix_tokens": 1},
        TOKENS,
        (2, 16),
        0,
        0,
    ),
    "prefix_pooling": (
        layers.TokenPooling,
        {"pooling": "prefix", "num_prefix_tokens": 2},
        TOKENS,
        (2, 32),
        0,
        0,
    ),
    "token_and_mean_pooling": (
        layers.TokenPooling,
        {"pooling": "token_and_mean", "num_prefix_tokens": 2},
        TOKENS,
        (2, 32),
        0,
        0,
    ),
    "mixer_block": (
        layers.MixerBlock,
        {"tokens_mlp_dim": 8, "channels_mlp_dim": 32},
        TOKENS,
        TOKENS,
        12,
        0,
    ),
    "linear_mixer_block": (
        layers.MixerBlock,
        {
            **{"tokens_mlp_dim": 0, "channels_mlp_dim": 32},
            **{"mixing": "linear", "normalization": "affine"},
            "layer_scale_init": 0.1,
        },
        TOKENS,
        TOKENS,
        12,
        0,
    ),
    "gated_mixer_block": (
        layers.MixerBlock,
        {"tokens_mlp_dim": 8, "channels_mlp_dim": 32, "gated_mlp": True},
        TOKENS,
        TOKENS,
        12,
        0,
    ),
    "affine": (layers.Affine, {}, TOKENS, TOKENS, 2, 0),
    "spatial_gating_unit": (
        layers.SpatialGatingUnit,
        {},
        TOKENS,
        (2, 17, 8),
        4,
        0,
    ),
    "spatial_gating_block": (
        layers.SpatialGatingBlock,
        {"channels_mlp_dim": 32},
        TOKENS,
        TOKENS,
        10,
        0,
    ),
    "standardized_conv": (
        layers.StandardizedConv2D,
        {"filters": 8, "kernel_size": 3, "strides": 2, "padding": "same"},
        (2, 8, 8, 3),
        (2, 4, 4, 8),
        1,
        0,
    ),
}


# Keras's layer test gives one input: test_window_attention.py has these.
OF_TWO_INPUTS = {"DecomposedPositionBias"}


def test_every_public_layer_has_a_case():
    names = {case[0].__name__ for case in CASES.values()}
    assert names | OF_TWO_INPUTS == set(layers.__all__)


# The layer test fits on a generator, and layers without weights too.
@pytest.mark.filterwarnings(
    "ignore:`shuffle=True` was passed",
    "ignore:The model does not have any trainable weights",
)
@pytest.mark.parametrize("name", CASES)
def test_keras_layer_test_passes(name):
    layer, arguments, input_shape, output_shape, weights, seeds = CASES[name]
    testing.TestCase().run_layer_test(
        layer,
        init_kwargs=arguments,
        input_shape=input_shape,
        expected_output_shape=output_shape,
        expected_num_trainable_weights=weights,
        expected_num_non_trainable_weights=0,
        expected_num_non_trainable_variables=seeds,
        expected_num_seed_generators=seeds,
        expected_num_losses=0,
        supports_masking=False,
        assert_built_after_instantiation=False,
    )


@pytest.mark.parametrize("name", CASES)
def test_config_holds_every_argument(name):
    layer_class, arguments, *_ = CASES[name]
    layer = layer_class(**arguments)
    config = layer.get_config()
    assert {k: config[k] for k in arguments} == {
        k: getattr(layer, k) for k in arguments
    }
    assert type(layer).from_config(config).get_config() == config


def test_sub_layers_follow_the_dtype_policy():
    block = layers.TransformerBlock(4, 32, dtype="mixed_bfloat16")
    block.build((None, 17, 16))
    sublayers = list(block._flatten_layers(include_self=False))
    assert len(sublayers) > 8
    assert {x.dtype_policy.name for x in sublayers} == {"mixed_bfloat16"}
    tokens = keras.random.normal((2, 17, 16))
    assert keras.backend.standardize_dtype(block(tokens).dtype) == "bfloat16"
