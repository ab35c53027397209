"""Parameter counts against the published ones.

Sources: `models_test.py` of google-research/vision_transformer; big_vision's
tables for Mixer, BiT and the encoders of Scaling ViT's sizes.
"""

import re

import keras
import pytest
from papers_table import HEADS

import keras_vit
from keras_vit import sizes

# With a 1000-class head at 224 pixels.
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
    "ViT_R_Ti16": 6_337_704,
    "ViT_R26_S32": 36_431_912,
    "ViT_R26_B32": 101_383_976,
    "ViT_R50_B16": 98_659_112,
    "ViT_R50_L32": 328_994_856,
    "Mixer_S8": 20_646_504,
    "Mixer_S16": 18_528_264,
    "Mixer_S32": 19_104_624,
    "Mixer_B16": 59_880_472,
    "Mixer_B32": 60_293_428,
    "Mixer_L16": 208_196_168,
    "Mixer_L32": 206_939_264,
    "Mixer_H14": 432_350_952,
    "BiT_R50x1": 25_549_352,
    "BiT_R50x3": 217_319_080,
    "BiT_R101x1": 44_541_480,
    "BiT_R101x3": 387_934_888,
    "BiT_R152x2": 236_335_208,
    "BiT_R152x4": 936_533_224,
}
# Published for the encoder alone (blocks and final norm), in millions.
PUBLISHED_ENCODERS = {
    "Ti": 5.34,
    "S": 21.29,
    "M": 37.83,
    "B": 85.06,
    "L": 302.31,
    "So400m": 411.47,
    "H": 629.68,
    "g": 1010.01,
    "G": 1841.37,
}
REASONS = {
    "ViT_So400m14": "published for the encoder, see PUBLISHED_ENCODERS",
    "ViT_g14": "published for the encoder, see PUBLISHED_ENCODERS",
    "ViT_G14": "published for the encoder, see PUBLISHED_ENCODERS",
    # Other patches of sizes that have a number.
    "ViT_S8": "the encoder of ViT_S16",
    "ViT_S14": "the encoder of ViT_S16",
    "ViT_B14": "the encoder of ViT_B16",
    "ViT_L14": "the encoder of ViT_L16",
    "ViT_So400m16": "the encoder of ViT_So400m14",
}
# The original's gap models, without class token.
WITHOUT_CLASS_TOKEN = {
    "ViT_S16": 22_049_896,
    "ViT_S32": 22_878_184,
    "ViT_B16": 86_566_120,
    "ViT_B32": 88_222_696,
}


@pytest.fixture(autouse=True)
def forgotten_weights():
    """Keras would make the weights of these models with the next ones."""
    yield
    keras.utils.clear_session()


def built(name, **options):
    """The model with its shapes, but without memory for its weights."""
    with keras.StatelessScope(initialize_variables=False):
        return getattr(keras_vit, name)(weights=None, **options)


def parameters(layers):
    return sum(layer.count_params() for layer in layers)


def test_no_model_without_a_number_or_a_reason():
    names = {*sizes.VIT, *sizes.MIXER, *sizes.BIT}
    assert names == {*PUBLISHED, *REASONS}
    public = ("ViT_", "Mixer_", "BiT_")
    assert names == {n for n in keras_vit.__all__ if n.startswith(public)}
    assert set(sizes.VIT_SIZES) == set(PUBLISHED_ENCODERS)


def test_sizes_have_the_heads_of_the_papers():
    heads = {size: row["num_heads"] for size, row in sizes.VIT_SIZES.items()}
    assert heads == HEADS


@pytest.mark.parametrize("name", sizes.VIT)
def test_applications_have_the_heads_of_the_papers(name):
    # Between the ResNet and the patch: ViT_So400m14, ViT_R26_S32, ViT_R_Ti16.
    size = re.sub(r"ViT_(?:R\d*_)?(\w+?)\d+$", r"\1", name)
    block = built(name).get_layer("block_0")
    assert block.attention.num_heads == HEADS[size]


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_as_published(name):
    assert built(name).count_params() == PUBLISHED[name]


@pytest.mark.parametrize("name", WITHOUT_CLASS_TOKEN)
def test_parameters_without_class_token_are_as_published(name):
    model = built(name, class_token=False)
    assert model.count_params() == WITHOUT_CLASS_TOKEN[name]


@pytest.mark.parametrize("size", PUBLISHED_ENCODERS)
def test_encoder_parameters_are_as_published(size):
    config = keras_vit.models.ViTConfig(**sizes.VIT_SIZES[size])
    with keras.StatelessScope(initialize_variables=False):
        model = keras_vit.models.VisionTransformer(config)
    encoder = [
        layer
        for layer in model.layers
        if layer.name.startswith("block_") or layer.name == "encoder_norm"
    ]
    millions = round(parameters(encoder) / 1e6, 2)
    assert millions == PUBLISHED_ENCODERS[size]


def test_pre_training_head_of_the_paper():
    """ViT-B_16 of ImageNet-21k: 103,186,515 parameters in its file."""
    model = built("ViT_B16", classes=21_843, representation_dim=768)
    assert model.count_params() == 103_186_515
