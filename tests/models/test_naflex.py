"""Batches of images of several aspect ratios, against timm and transformers."""

import warnings
from typing import Any

import keras
import numpy as np
import pytest
from PIL import Image
from reference_cases import TOLERANCE, expected, load

import keras_vit
from keras_vit.checkpoints import load_checkpoint
from keras_vit.interpolation import RESAMPLINGS, axis_weights, resize_matrix
from keras_vit.models import (
    Mixer,
    MixerConfig,
    NaFlexTransformer,
    VisionTransformer,
    ViTConfig,
)
from keras_vit.prediction.images import fitting_size, patch_sequences

TINY: dict[str, Any] = {
    **{"image_size": 32, "patch_size": 8, "hidden_dim": 16, "num_heads": 2},
    **{"num_layers": 2, "mlp_dim": 24, "num_classes": 3},
}
# (rows, columns) of the images of a batch; the longest has no padding. None is
# of one column: to that torch 2.13 resamples otherwise than to one row.
GRIDS = ((4, 4), (2, 7), (1, 6), (3, 5), (8, 2))


def numpy_of(x):
    return keras.ops.convert_to_numpy(x)


def model_of(**options):
    model = VisionTransformer(ViTConfig(**{**TINY, **options}))
    random = np.random.default_rng(0)
    for weight in model.weights:
        center = float(weight.path.endswith("gamma"))
        weight.assign(random.normal(center, 0.3, weight.shape))
    return model


def batch_of(grids, patch, channels=3, garbage=0.0):
    """Random patches; what is padding has values that nothing may read."""
    random = np.random.default_rng(1)
    longest = max(rows * columns for rows, columns in grids)
    size = patch * patch * channels
    batch = {
        "patches": np.full((len(grids), longest, size), garbage, "float32"),
        "coordinates": np.full((len(grids), longest, 2), int(9 * garbage)),
        "valid": np.zeros((len(grids), longest), "bool"),
    }
    for i, (rows, columns) in enumerate(grids):
        count = rows * columns
        batch["patches"][i, :count] = random.uniform(-1, 1, (count, size))
        places = [(x, y) for x in range(rows) for y in range(columns)]
        batch["coordinates"][i, :count] = places
        batch["valid"][i, :count] = True
    return batch


@pytest.mark.once
@pytest.mark.parametrize(
    "name",
    [
        "naflexvit_base_patch16_gap",
        "naflexvit_base_patch16_par_gap",
        "naflexvit_base_patch16_parfac_gap",
        "naflexvit_base_patch16_siglip",
        "naflexvit_base_patch16_radio_v3",
        "naflexvit_so150m2_patch16_reg1_gap",
    ],
)
def test_timm_has_the_same_outputs(name, tmp_path):
    torch = pytest.importorskip("torch")
    from timm_models import built, write

    theirs = built(name, img_size=None)
    path = write(theirs, tmp_path, name)
    batch = batch_of(GRIDS, 16)
    with torch.no_grad():
        wanted = theirs(
            {
                "patches": torch.tensor(batch["patches"]),
                "patch_coord": torch.tensor(batch["coordinates"]).long(),
                "patch_valid": torch.tensor(batch["valid"]),
            }
        ).numpy()
    encoder = load_checkpoint(path, num_heads=2)
    if encoder.load_report.resampled:
        with pytest.raises(ValueError, match="Load .* with input_shape=") as e:
            NaFlexTransformer(encoder)
        shape = str(e.value).split("input_shape=(")[1].split(")")[0]
        shape = tuple(map(int, shape.split(",")))
        encoder = load_checkpoint(path, num_heads=2, input_shape=shape)
    model = NaFlexTransformer(encoder)
    scale = max(1, np.abs(wanted).max())
    np.testing.assert_allclose(
        numpy_of(model(batch)), wanted, rtol=0, atol=5e-5 * scale
    )


def test_transformers_has_the_outputs_of_siglip_2(tmp_path):
    torch = pytest.importorskip("torch")
    kinds = pytest.importorskip("transformers_models")
    fields = {**kinds.VISION, "num_patches": 16}
    theirs = kinds.built("Siglip2VisionModel", fields)
    folder = kinds.written(theirs, tmp_path)
    batch = batch_of(GRIDS, 8)
    with torch.no_grad():
        wanted = theirs(
            pixel_values=torch.tensor(batch["patches"]),
            pixel_attention_mask=torch.tensor(batch["valid"]).long(),
            spatial_shapes=torch.tensor(GRIDS),
        ).pooler_output.numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = NaFlexTransformer(load_checkpoint(folder))
    assert model.resampling == "linear_antialiased"
    scale = max(1, np.abs(wanted).max())
    np.testing.assert_allclose(
        numpy_of(model(batch)), wanted, rtol=0, atol=5e-5 * scale
    )


@pytest.mark.parametrize("name", ["naflex", "naflex_axes"])
def test_golden_sequences(name):
    wanted = expected(f"timm_vit_tiny_{name}")
    encoder = load(f"timm_vit_tiny_{name}", input_shape=(128, 128, 3))
    names = ("patches", "coordinates", "valid")
    batch = {x: wanted[f"sequence_{x}"] for x in names}
    found = numpy_of(NaFlexTransformer(encoder)(batch))
    np.testing.assert_allclose(found, wanted["sequence_logits"], **TOLERANCE)


ONCE = pytest.mark.once
MODELS: dict[str, dict[str, Any]] = {
    "token": {},
    "mean": {"pooling": "mean", "norm_after_pooling": True},
    "max": {"pooling": "max", "class_token": False},
    "map": {"pooling": "map", "register_tokens": 2},
    "tokens": {"pooling": "none", "position_embedding": "sincos2d"},
    "both": {"pooling": "token_and_mean", "representation_dim": 5},
    "head": {"pooling": "attention", "class_token": False},
    "talking": {"talking_heads": True},
    "differential": {"differential_attention": True},
    "beside": {"mlp_placement": "beside"},
    "clip": {"norm_before_blocks": True, "patch_bias": False},
    "scaled": {"include_preprocessing": True, "pixel_mean": (0.5, 0.4, 0.3)},
}
MODELS["scaled"]["pixel_std"] = (0.1, 0.2, 0.3)
# With the other backends too: the rest adds no operation of theirs.
NAMES = [
    x if x in ("mean", "map", "scaled") else pytest.param(x, marks=ONCE)
    for x in MODELS
]


@pytest.mark.parametrize("name", NAMES)
def test_images_of_the_models_own_size_are_as_without(name):
    encoder = model_of(**MODELS[name])
    random = np.random.default_rng(2)
    images = random.integers(0, 256, (2, 32, 32, 3)).astype("uint8")
    raw = encoder.config.include_preprocessing
    batch = patch_sequences(list(images), 8, max_patches=16, scale=not raw)
    pixels = images.astype("float32")
    wanted = numpy_of(encoder(pixels if raw else pixels / 127.5 - 1))
    model = NaFlexTransformer(encoder)
    found = numpy_of(model(batch))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5)
    assert model.compute_output_shape({"patches": (2, 16, 192)}) == found.shape


@pytest.mark.parametrize("name", NAMES)
def test_padding_is_never_read(name):
    model = NaFlexTransformer(model_of(**MODELS[name]))
    clean, soiled = (
        numpy_of(model(batch_of(GRIDS, 8, garbage=garbage)))
        for garbage in (0.0, 3.0)
    )
    if name == "tokens":
        valid = batch_of(GRIDS, 8)["valid"]
        valid = np.pad(valid, [(0, 0), (1, 0)], constant_values=True)
        clean, soiled = clean[valid], soiled[valid]
    np.testing.assert_array_equal(clean, soiled)


@pytest.mark.once
@pytest.mark.parametrize("new", [1, 3, 5, 12])
@pytest.mark.parametrize("method", RESAMPLINGS)
def test_tensors_are_resampled_as_arrays(method, new):
    wanted = resize_matrix(5, new, method)
    places = keras.ops.arange(new, dtype="float32")[None]
    sides = keras.ops.full((1, 1), new, "float32")
    found = numpy_of(axis_weights(places, sides, 5, method, keras.ops))[0]
    np.testing.assert_allclose(found, wanted, atol=2e-6)


def test_training_moves_the_weights_of_the_encoder(tmp_path):
    encoder = model_of(dropout_rate=0.1)
    model = NaFlexTransformer(encoder, resampling="linear_square")
    model.compile("sgd", loss="mse")
    batch = batch_of(GRIDS, 8)
    before = encoder.get_weights()
    model.fit(batch, np.ones((len(GRIDS), 3)), batch_size=5, verbose=0)
    moved = [
        not np.array_equal(x, y)
        for x, y in zip(before, encoder.get_weights(), strict=True)
    ]
    assert all(moved)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.resampling == "linear_square"
    np.testing.assert_allclose(
        numpy_of(again(batch)), numpy_of(model(batch)), atol=1e-6
    )


def test_mixed_precision_is_close():
    batch = batch_of(GRIDS, 8)
    encoder = model_of()
    mixed = VisionTransformer(encoder.config, dtype="mixed_bfloat16")
    mixed.set_weights(encoder.get_weights())
    found, wanted = (
        numpy_of(NaFlexTransformer(x)(batch)) for x in (mixed, encoder)
    )
    np.testing.assert_allclose(found, wanted, atol=0.2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mixer(MixerConfig(**{x: TINY[x] for x in MIXED})), "Mixer"),
        (lambda: model_of(rope="axial"), "rope='axial'"),
        (
            lambda: model_of(patch_stem=(4, 2), patch_stem_dim=8),
            r"patch_stem=\(4, 2\)",
        ),
        (
            lambda: model_of(relative_position_bias=True),
            "relative_position_bias=True",
        ),
    ],
)
def test_models_of_one_grid_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        NaFlexTransformer(make())


MIXED = ("image_size", "patch_size", "hidden_dim", "num_classes")


def test_an_unknown_resampling_is_refused():
    with pytest.raises(ValueError, match="resampling: .cubic"):
        NaFlexTransformer(model_of(), resampling="cubic")


PILLOW = "transformers.models.siglip2.image_processing_pil_siglip2"


@pytest.mark.once
def test_sizes_are_those_of_siglip_2():
    size_of = pytest.importorskip(PILLOW).get_image_size_for_max_num_patches
    sides = np.random.default_rng(3).integers(30, 3000, (200, 2)).tolist()
    for size in sides:
        for patches in (16, 256, 729):
            wanted = size_of(*size, 16, patches)
            assert fitting_size(tuple(size), (16, 16), patches) == wanted, size


@pytest.mark.once
def test_sequences_are_those_of_siglip_2():
    module = pytest.importorskip(PILLOW)
    processor = module.Siglip2ImageProcessorPil(max_num_patches=30)
    random = np.random.default_rng(4)
    images = [
        Image.fromarray(random.integers(0, 256, (*size, 3), dtype="uint8"))
        for size in ((90, 60), (40, 200))
    ]
    wanted = processor(images, return_tensors="np")
    found = patch_sequences(images, 16, max_patches=30)
    np.testing.assert_array_equal(
        found["valid"], wanted["pixel_attention_mask"].astype(bool)
    )
    # Pillow rounds to whole numbers, once for each axis.
    np.testing.assert_allclose(
        found["patches"], wanted["pixel_values"], atol=1.1 / 127.5
    )


def test_sequences_keep_whole_patches_in_their_places():
    rows = np.arange(6)[:, None, None] * 10 + np.zeros((1, 4, 1))
    columns = np.arange(4)[None, :, None] + np.zeros((6, 1, 1))
    image = (rows + columns).astype("uint8")  # 6 x 4 pixels
    found = patch_sequences([image], 2, max_patches=7, channels=1, scale=False)
    assert found["valid"].sum() == 6
    np.testing.assert_array_equal(found["patches"][0, 1], [2, 3, 12, 13])
    np.testing.assert_array_equal(found["patches"][0, 4], [40, 41, 50, 51])
    np.testing.assert_array_equal(found["coordinates"][0, 4], [2, 0])
    mean = patch_sequences(
        [image], 2, max_patches=7, channels=1, mean=[0.1], std=[0.2]
    )
    np.testing.assert_allclose(
        mean["patches"][0, 1],
        [(x / 255 - 0.1) / 0.2 for x in (2, 3, 12, 13)],
        atol=1e-6,
    )


def test_no_patches_are_refused():
    with pytest.raises(ValueError, match="max_patches"):
        keras_vit.patch_sequences([np.zeros((8, 8, 3))], 8, max_patches=0)
