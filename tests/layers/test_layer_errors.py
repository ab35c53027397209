"""Bad arguments end in a ValueError that says what to do."""

import keras
import pytest

from keras_vit import layers

CASES = [
    (
        lambda: layers.PatchEmbed(8, 16)(keras.Input((100, 96, 3))),
        "100x96 pixels.*16x16.*size of 96x96",
    ),
    (
        lambda: layers.PatchEmbed(8, 16)(keras.Input((None, None, 3))),
        r"the last three known.*\(None, None, None, 3\)",
    ),
    (
        lambda: layers.SelfAttention(5)(keras.Input((17, 16))),
        r"num_heads=5 does not divide.*16.*\[1, 2, 4, 8, 16\]",
    ),
    (
        lambda: layers.AttentionPooling(3, 8)(keras.Input((17, 16))),
        "num_heads=3 does not divide",
    ),
    (
        lambda: layers.AddPositionEmbedding((4, 4))(keras.Input((17, 16))),
        "4x4 patches with 0 prefix tokens makes 16 tokens.*has 17",
    ),
    (
        lambda: layers.AddPositionEmbedding((4, 4), kind="rotary"),
        "'rotary'.*'learned', 'sincos2d'",
    ),
    (
        lambda: layers.AddPositionEmbedding((4, 4), kind="sincos2d")(
            keras.Input((16, 6))
        ),
        "multiple of 4.*hidden_dim=6",
    ),
    (
        lambda: layers.AddPositionEmbedding((1, 4), kind="sincos1d")(
            keras.Input((4, 7))
        ),
        "even.*hidden_dim=7",
    ),
    (lambda: layers.TokenPooling("gap"), "'gap'.*'token'.*'mean'"),
    (
        lambda: layers.StandardizedConv2D(8, 3, standardization="std"),
        "'std'.*'deviation', 'variance'",
    ),
]


@pytest.mark.parametrize("make, message", CASES)
def test_error_says_what_was_passed_and_what_is_expected(make, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        make()
