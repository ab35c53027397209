"""`keras_vit.embed`, against the originals' own features."""

import keras
import numpy as np
import numpy_forward
import pytest
import reference_cases
from PIL import Image

import keras_vit
from keras_vit.data import PreprocessingConfig
from keras_vit.models import BiT, BiTConfig
from keras_vit.prediction import as_encoder, load_classifier

AS_THEY_ARE = PreprocessingConfig(evaluation="squash", rounding="float32")
# Every kind of pooling and of model, and where the normalisation stands.
WITH_TOKENS = (
    "hf_vit_tiny",
    "hybrid_tiny_google",
    "timm_mixer_tiny",
    "timm_vit_tiny_gap",
    "timm_vit_tiny_map_registers",
    "timm_vit_tiny_registers",
    "vit_tiny_bigvision_map",
    "vit_tiny_gap",
)


def golden(name):
    """A model, its images in [0, 255], and what the original gives."""
    expected = reference_cases.expected(name)
    model = reference_cases.load(name)
    return model, (expected["image"] + 1) * 127.5, expected


def embed(model, images, **options):
    return keras_vit.embed(model, images, preprocessing=AS_THEY_ARE, **options)


@pytest.mark.parametrize(
    "name", (*WITH_TOKENS, "bit_tiny_google", "vit_tiny_google")
)
def test_an_embedding_is_what_the_head_of_the_original_sees(name):
    model, images, expected = golden(name)
    found = embed(model, images, image_size=images.shape[1])
    assert found.dtype == "float32"
    np.testing.assert_allclose(found, expected["pre_logits"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", WITH_TOKENS)
def test_tokens_are_what_the_original_pools(name):
    model, images, expected = golden(name)
    key = "encoded" if "encoded" in expected else "features"
    for blocks, index in ((None, ...), ([0, -1], (slice(None), 1))):
        found = embed(model, images, kind="tokens", blocks=blocks)
        np.testing.assert_allclose(
            found[index], expected[key], rtol=0, atol=1e-4
        )


@pytest.mark.parametrize("name", ["vit_tiny_lowvar", "vit_tiny_gap"])
@pytest.mark.parametrize("block", [0, -2])
def test_a_block_is_normalised_and_pooled_as_the_last_one(name, block):
    model, images, expected = golden(name)
    with np.load(reference_cases.path_of(name)) as file:
        params = {x: file[x] for x in file.files if "/encoderblock_1/" not in x}
    pooling = model.config.pooling
    oracle = numpy_forward.vit(params, expected["image"], pooling)
    pooled = embed(model, images, blocks=block)
    np.testing.assert_allclose(
        pooled[:, 0], oracle["pre_logits"], rtol=0, atol=1e-4
    )
    tokens = embed(model, images, kind="tokens", blocks=[block, 1])
    assert tokens.shape[:2] == (2, 2)
    np.testing.assert_allclose(
        tokens[:, 0], oracle["encoded"], rtol=0, atol=1e-4
    )


def test_a_model_is_unchanged_and_embeds_without_its_head(make_vit):
    model = make_vit()
    layers, config = len(model.layers), model.get_config()
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), "uint8")
    embed(model, images, blocks=[0])
    embed(model, images, kind="tokens")
    assert (len(model.layers), model.get_config()) == (layers, config)
    headless = make_vit(num_classes=0)
    headless.set_weights(model.get_weights()[: len(headless.weights)])
    np.testing.assert_allclose(
        embed(headless, images), embed(model, images), atol=1e-6
    )


def test_a_run_folder_a_classifier_and_its_model_give_the_same(
    run_folder, photos
):
    from_folder = keras_vit.embed(run_folder, photos)
    assert from_folder.shape == (3, 8)
    classifier = load_classifier(run_folder)
    model = classifier.model
    inputs = keras.Model(model.input, model.get_layer("predictions").input)
    pixels = np.stack(
        [classifier.read(str(photos / x)) for x in PHOTOS]
    ).astype("float32")
    expected = keras.ops.convert_to_numpy(inputs(pixels))
    np.testing.assert_allclose(from_folder, expected, atol=1e-5)
    found = keras_vit.embed(classifier, photos, batch_size=2)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    encoder = as_encoder(run_folder, image_size=16)
    assert encoder.metadata["image_size"] == [16, 16]
    assert keras_vit.embed(encoder, str(photos / "b.png")).shape == (1, 8)


PHOTOS = ("a.PNG", "b.png", "below/c.webp")


def test_images_of_every_kind_come_in_their_order(run_folder, photos):
    path = photos / "b.png"
    with Image.open(path) as image:
        pixels = np.asarray(image)
        found = keras_vit.embed(
            run_folder, [str(path), image, pixels, np.stack([pixels, pixels])]
        )
    assert found.shape == (5, 8)
    np.testing.assert_allclose(found, found[:1].repeat(5, 0), atol=1e-6)


def test_pixels_are_scaled_as_the_weights_were_trained(make_vit):
    numbers = {"pixel_mean": (0.5, 0.4, 0.3), "pixel_std": (0.2, 0.3, 0.4)}
    inside = make_vit(**numbers)
    outside = make_vit(include_preprocessing=False, **numbers)
    outside.set_weights(inside.get_weights())
    images = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), "uint8")
    np.testing.assert_allclose(
        embed(outside, images), embed(inside, images), atol=1e-5
    )


def test_mixed_precision_gives_float32(make_vit):
    model = make_vit()
    half = type(model)(model.config, dtype="mixed_bfloat16")
    half.set_weights(model.get_weights())
    images = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), "uint8")
    for options in ({}, {"kind": "tokens", "blocks": [0, 1]}):
        found = embed(half, images, **options)
        assert found.dtype == "float32"
        np.testing.assert_allclose(
            found, embed(model, images, **options), atol=0.25
        )


def bit():
    return BiT(BiTConfig(image_size=(None, None), width=32, units=(1,)))


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (bit, {}, "takes images of any size. Give one"),
        (bit, {"kind": "tokens", "image_size": 8}, "BiT has neither tokens"),
        (bit, {"blocks": [0], "image_size": 8}, "no transformer blocks"),
        (None, {"kind": ""}, "Unknown kind: ''.*'pooled', 'tokens'"),
        (None, {"kind": "cls"}, "Unknown kind: 'cls'.*'pooled', 'tokens'"),
        (None, {"blocks": [2]}, r"has 2 blocks. Received: blocks=\[2\]"),
        (None, {"blocks": []}, r"blocks=\[\]"),
        (None, {"batch_size": 0}, "batch_size=0"),
        (None, {"image_size": 16}, "takes images of 8x8"),
    ],
)
def test_features_that_there_are_not(make_vit, make, options, message):
    with pytest.raises(ValueError, match=message):
        keras_vit.embed((make or make_vit)(), np.zeros((8, 8, 3)), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "tokens"},
        {"blocks": [0, -1], "kind": "tokens"},
        {"preprocessing": AS_THEY_ARE},
        {"image_size": 8},
    ],
)
def test_an_encoder_takes_other_options(make_vit, options):
    model = make_vit()
    images = np.random.default_rng(0).integers(0, 256, (2, 8, 12, 3), "uint8")
    if "preprocessing" in options:
        images = images[:, :, :8]
    encoder = as_encoder(model)
    encoder.metadata["model"] = "mine"
    found = keras_vit.embed(encoder, images, **options)
    wanted = keras_vit.embed(model, images, **options)
    np.testing.assert_array_equal(found, wanted)
    assert as_encoder(encoder, **options).metadata["model"] == "mine"


def test_what_is_not_given_is_as_the_encoder_was_made(make_vit):
    image = np.zeros((8, 8, 3), "uint8")
    encoder = as_encoder(make_vit(), kind="tokens", blocks=[1])
    assert as_encoder(encoder) is encoder
    assert keras_vit.embed(encoder, image).shape == (1, 1, 5, 8)
    assert keras_vit.embed(encoder, image, kind="pooled").shape == (1, 1, 8)
    with pytest.raises(ValueError, match="takes images of 8x8"):
        keras_vit.embed(encoder, image, image_size=16)
    with pytest.raises(ValueError, match="image_size must be a positive"):
        keras_vit.embed(encoder, image, image_size=-1)


@pytest.mark.parametrize("kind", ["pooled", "tokens"])
def test_pooling_none_has_tokens_alone(make_vit, kind):
    model, image = make_vit(pooling="none"), np.zeros((8, 8, 3), "uint8")
    if kind == "tokens":
        assert embed(model, image, kind=kind).shape == (1, 5, 8)
        return
    with pytest.raises(ValueError, match='one row per image.*kind="tokens"'):
        embed(model, image)
    with pytest.raises(ValueError, match="does not pool"):
        embed(model, image, blocks=-1)


def test_broken_images_and_models_are_named(run_folder, photos):
    with pytest.raises(ValueError, match="no file 'nowhere.png'"):
        keras_vit.embed(run_folder, [photos / "b.png", "nowhere.png"])
    with pytest.raises(ValueError, match="There is no image"):
        keras_vit.embed(run_folder, [])
    with pytest.raises(ValueError, match="model of keras_vit"):
        keras_vit.embed(keras.Sequential(), photos)
    with pytest.raises(ValueError, match="nowhere"):
        keras_vit.embed("nowhere", photos)


def test_features_that_are_not_finite_are_refused(make_vit):
    model = make_vit()
    model.get_layer("encoder_norm").gamma.assign(np.full(8, np.nan))
    with pytest.raises(ValueError, match="not finite"):
        embed(model, np.zeros((8, 8, 3), "uint8"))
