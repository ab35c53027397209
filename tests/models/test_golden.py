"""The models against the originals' code and a NumPy forward.

Tolerance 5e-5 absolute: float32 and float64 of the originals differ by less,
the wrong form of GELU by more than 1.5e-4.
"""

import functools

import golden
import keras
import numpy as np
import numpy_forward
import pytest

VIT_CASES = (
    "vit_tiny_google",
    "vit_tiny_augreg",
    "vit_tiny_gap",
    "vit_tiny_gap_linen",
    "vit_tiny_deep",
    "vit_tiny_lowvar",
)
HYBRID_CASES = (
    "hybrid_tiny_google",
    "hybrid_tiny_root_only",
    "hybrid_tiny_two_stages",
    "hybrid_tiny_four_stages",
)
BIT_CASES = ("bit_tiny_google", "bit_tiny_two_stages")
TOLERANCE = {"rtol": 0, "atol": 5e-5}


def outputs(model, images, *layers):
    """Outputs of the model and of named layers as NumPy arrays."""
    tensors = [model.output, *(model.get_layer(n).output for n in layers)]
    return keras.Model(model.input, tensors).predict(images, verbose=0)


@functools.cache
def vit_outputs(name):
    """Logits, patch embeddings, encoded tokens, features, attention."""
    model = golden.vit_model(name)
    images = golden.arrays(name)[1]["image"]
    blocks = [f"block_{i}" for i in range(model.config.num_layers)]
    last = "pre_logits" if model.config.representation_dim else "pool"
    logits, embedded, encoded, features, *_ = results = outputs(
        model, images, "patch_embed", "encoder_norm", last, *blocks[:-1]
    )
    tokens = keras.Model(model.input, model.get_layer(blocks[0]).input)
    inputs = [tokens.predict(images, verbose=0), *results[4:]]
    attention = []
    for name, x in zip(blocks, inputs, strict=True):
        block = model.get_layer(name)
        weights = block.attention.attention_weights(block.attention_norm(x))
        attention.append(keras.ops.convert_to_numpy(weights))
    return logits, embedded, encoded, features, np.stack(attention)


@pytest.mark.parametrize("name", VIT_CASES + HYBRID_CASES)
def test_vit_gives_the_originals_numbers(name):
    _, expected = golden.arrays(name)
    keys = ("logits", "patch_embedding", "encoded", "pre_logits", "attention")
    for key, ours in zip(keys, vit_outputs(name), strict=True):
        np.testing.assert_allclose(ours, expected[key], **TOLERANCE)


@pytest.mark.parametrize("name", VIT_CASES + HYBRID_CASES)
def test_vit_agrees_with_numpy_forward(name):
    file, expected = golden.arrays(name)
    pooling = golden.POOLINGS[golden.CASES[name]["classifier"]]
    theirs = numpy_forward.vit(file, expected["image"], pooling)
    logits, _, encoded, features, attention = vit_outputs(name)
    np.testing.assert_allclose(logits, theirs["logits"], **TOLERANCE)
    np.testing.assert_allclose(encoded, theirs["encoded"], **TOLERANCE)
    np.testing.assert_allclose(features, theirs["pre_logits"], **TOLERANCE)
    np.testing.assert_allclose(attention, theirs["attention"], **TOLERANCE)


@pytest.mark.parametrize("name", VIT_CASES + HYBRID_CASES)
def test_numpy_forward_gives_the_originals_numbers(name):
    file, expected = golden.arrays(name)
    pooling = golden.POOLINGS[golden.CASES[name]["classifier"]]
    theirs = numpy_forward.vit(file, expected["image"], pooling)
    for key, value in theirs.items():
        np.testing.assert_allclose(value, expected[key], **TOLERANCE)


def test_mixer_gives_the_originals_numbers():
    file, expected = golden.arrays("mixer_tiny_google")
    model = golden.mixer_model("mixer_tiny_google")
    theirs = numpy_forward.mixer(file, expected["image"])
    logits, encoded, pooled = outputs(
        model, expected["image"], "encoder_norm", "pool"
    )
    for ours, key in (
        (logits, "logits"),
        (encoded, "encoded"),
        (pooled, "pre_logits"),
    ):
        np.testing.assert_allclose(ours, expected[key], **TOLERANCE)
        np.testing.assert_allclose(theirs[key], expected[key], **TOLERANCE)


@pytest.mark.parametrize("name", BIT_CASES)
def test_bit_gives_the_originals_numbers(name):
    file, expected = golden.arrays(name)
    model = golden.bit_model(name)
    theirs = numpy_forward.bit(file, expected["image"])
    logits, pooled = outputs(model, expected["image"], "pool")
    for ours, key in ((logits, "logits"), (pooled, "pre_logits")):
        wanted = expected[f"{key}_zero_padded_pool"]
        np.testing.assert_allclose(ours, wanted, **TOLERANCE)
        np.testing.assert_allclose(theirs[key], wanted, **TOLERANCE)


@pytest.mark.parametrize(
    "name", ["vit_tiny_google", "vit_tiny_augreg", "hybrid_tiny_two_stages"]
)
def test_explicit_attention_agrees_with_fused(name):
    _, expected = golden.arrays(name)
    # A dropout rate above zero takes the path with explicit weights.
    model = golden.vit_model(name, attention_dropout_rate=1e-6)
    logits = model.predict(expected["image"], verbose=0)
    np.testing.assert_allclose(logits, expected["logits"], **TOLERANCE)
