"""Maps of features, their colours and figures."""

import io

import keras
import numpy as np
import pytest
from analysis_cases import case, images_of, tiny_model
from PIL import Image
from sklearn.decomposition import PCA

import keras_vit
from keras_vit.analysis import patch_pca, plot_neighbours, plot_patch_pca
from keras_vit.models import VisionTransformer


@pytest.mark.parametrize(
    "name",
    (
        "hf_vit_tiny",
        "hybrid_tiny_four_stages",
        "timm_vit_tiny_gap",
        "timm_vit_tiny_map_registers",
        "timm_vit_tiny_registers",
        "vit_tiny_bigvision_map",
    ),
)
def test_maps_of_the_last_block_are_those_of_the_original(name):
    model, images, expected = case(name)
    tokens = expected["encoded" if "encoded" in expected else "features"]
    ((maps, prefix),) = keras_vit.features(
        model, images, prefix_tokens=True, batch_size=1
    )
    rows, columns = model.config.grid
    count = model.config.num_prefix_tokens
    assert maps.shape[:3] == (2, rows, columns)
    assert prefix.shape[:2] == (2, count)
    for i in range(rows * columns):
        row, column = divmod(i, columns)
        np.testing.assert_allclose(
            maps[:, row, column], tokens[:, count + i], rtol=0, atol=1e-4
        )
    np.testing.assert_allclose(prefix, tokens[:, :count], rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"register_tokens": 2, "pooling": "mean"},
        {"class_token": False, "pooling": "map"},
        {"norm_after_pooling": True, "pooling": "mean"},
    ],
)
@pytest.mark.parametrize("norm", [True, False])
def test_blocks_of_a_rectangle_with_and_without_the_norm(changes, norm):
    model = tiny_model(**changes)
    images = images_of(model, 3)
    found = keras_vit.features(
        model, images, blocks=[1, 0, -1], norm=norm, batch_size=2
    )
    assert [x.shape for x in found] == [(3, 2, 3, 8)] * 3
    assert {x.dtype for x in found} == {np.dtype("float32")}
    np.testing.assert_array_equal(found[0], found[2])
    for block, maps in zip((1, 0), found[:2], strict=True):
        output = model.get_layer(f"block_{block}").output
        tokens = keras.Model(model.input, output)(images)
        x = keras.ops.convert_to_numpy(tokens).astype("float64")
        if norm and "norm_after_pooling" not in changes:
            layer = model.get_layer("encoder_norm")
            scale, offset = map(keras.ops.convert_to_numpy, layer.weights)
            x = x - x.mean(axis=-1, keepdims=True)
            x /= np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6)
            x = x * scale + offset
        patches = x[:, model.config.num_prefix_tokens :]
        np.testing.assert_allclose(
            maps.reshape(3, 6, 8), patches, rtol=0, atol=2e-5
        )


def test_a_model_computes_as_before():
    model = tiny_model()
    images = images_of(model)
    before = model.predict(images, verbose=0)
    config = model.get_config()
    keras_vit.features(model, images)
    assert model.get_config() == config
    np.testing.assert_array_equal(model.predict(images, verbose=0), before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"blocks": 2}, "has 2 blocks. Received: blocks=2"),
        ({"blocks": ["1"]}, r"blocks must be tuple\[int"),
        ({"images": np.zeros((1, 8, 8, 3))}, r"\(batch, 8, 12, 3\)"),
        ({"model": keras.Sequential()}, "VisionTransformer"),
    ],
)
def test_what_has_no_maps(changes, message):
    model = tiny_model()
    given = {"model": model, "images": images_of(model), **changes}
    with pytest.raises(ValueError, match=message):
        keras_vit.features(given.pop("model"), given.pop("images"), **given)


def noise(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def test_colours_are_the_components_of_all_patches_together():
    maps = noise(2, 3, 4, 7) * np.arange(1, 8)
    colours, is_object = patch_pca(maps)
    assert is_object.all()
    wanted = PCA(3, svd_solver="full").fit_transform(maps.reshape(24, 7))
    wanted -= wanted.min(axis=0)
    wanted /= wanted.max(axis=0)
    found = colours.reshape(24, 3)
    # A component may point either way.
    for i in range(3):
        assert min(
            np.abs(found[:, i] - wanted[:, i]).max(),
            np.abs(found[:, i] - 1 + wanted[:, i]).max(),
        ) == pytest.approx(0, abs=1e-5)
    np.testing.assert_array_equal(patch_pca(maps)[0], colours)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_threshold_tells_the_object_from_the_edges(sign):
    maps = 0.1 * noise(2, 6, 5, 8, seed=1)
    inside = np.zeros((2, 6, 5), bool)
    inside[:, 1:-1, 1:-1] = True
    maps[inside] += sign * 5
    colours, is_object = patch_pca(maps, threshold=0.5)
    np.testing.assert_array_equal(is_object, inside)
    assert not colours[~inside].any()
    assert colours[inside].min() == 0 and colours[inside].max() == 1
    # Of the object's patches alone.
    np.testing.assert_allclose(
        colours[inside].reshape(1, 1, -1, 3),
        patch_pca(maps[inside].reshape(1, 1, -1, 8))[0],
        atol=1e-6,
    )


@pytest.mark.parametrize(
    ("maps", "threshold", "message"),
    [
        (np.zeros((2, 3, 4)), None, "shape"),
        (np.zeros((1, 1, 3, 8)), None, "4 patches"),
        (np.zeros((1, 2, 2, 2)), None, "3 features"),
        (noise(1, 4, 4, 8), 0, "threshold=0"),
        (noise(1, 4, 4, 8), 1.0, "threshold=1.0"),
        (noise(1, 3, 3, 8), 0.99, "Lower it"),
    ],
)
def test_maps_that_have_no_colours(maps, threshold, message):
    with pytest.raises(ValueError, match=message):
        patch_pca(maps, threshold=threshold)


def drawn(figure):
    file = io.BytesIO()
    figure.savefig(file, dpi=100)
    with Image.open(file) as picture:
        return np.asarray(picture.convert("RGB"))


def test_colours_are_drawn_under_their_images():
    images = np.full((2, 8, 12, 3), 255, "uint8")
    colours = np.zeros((2, 2, 3, 3))
    colours[0, 0, 0] = (1, 0, 0)
    picture = drawn(plot_patch_pca(images, colours))
    red = (picture == (255, 0, 0)).all(axis=-1)
    rows, columns = np.nonzero(red)
    height, width = red.shape
    assert 0.5 < rows.mean() / height < 0.8
    assert columns.max() < width / 4
    black = (picture == 0).all(axis=-1)
    assert 11 * red.sum() == pytest.approx(black.sum(), rel=0.15)
    with pytest.raises(ValueError, match=r"\(2, rows, columns, 3\)"):
        plot_patch_pca(images, colours[:1])


def test_neighbours_are_drawn_in_their_order():
    grey = np.full((4, 4, 3), 90, "uint8")
    red, blue = np.zeros((2, 6, 3, 3), "uint8")
    red[..., 0] = blue[..., 2] = 255
    figure = plot_neighbours(
        [("one.png", grey), ("two.png", grey)],
        [
            [("red $x.png", red, 0.9), ("a" * 40, blue, 0.25)],
            [("blue.png", blue, 0.5), ("gone.png", None, 0.1)],
        ],
    )
    titles = [axis.get_title() for axis in figure.axes]
    assert titles[0] == "query\none.png"
    assert titles[1] == "0.900\nred $x.png"
    assert titles[2].startswith("0.250\n…a")
    picture = drawn(figure)
    places = {
        name: np.nonzero((picture == colour).all(axis=-1))
        for name, colour in (("red", (255, 0, 0)), ("blue", (0, 0, 255)))
    }
    height, width = picture.shape[:2]
    assert places["red"][0].max() < height / 2
    assert width / 3 <= places["red"][1].mean() <= 2 * width / 3
    assert places["blue"][0].min() < height / 2 < places["blue"][0].max()
    for queries, found in (([], []), ([("a", grey)], [])):
        with pytest.raises(ValueError, match="a list of neighbours for each"):
            plot_neighbours(queries, found)


def test_hybrids_have_maps_on_their_own_grid():
    model, images, _ = case("hybrid_tiny_two_stages")
    assert isinstance(model, VisionTransformer)
    (maps,) = keras_vit.features(model, images, blocks=0)
    assert maps.shape == (2, 2, 2, 32)
