"""Variants learn, are saved and loaded, and start at another image size."""

import keras
import numpy as np
import pytest
import variant_models
from keras import ops

from keras_vit.checkpoints import load_checkpoint, load_weights, read_info
from keras_vit.variants import VariantTransformer

VARIANTS = {
    "2d": {"position": "2d", "position_at": "every_layer"},
    "relative": {
        "position": "relative",
        "position_at": "every_layer_shared",
    },
    "axial": {"attention": "axial", "mlp": "local"},
}
each_variant = pytest.mark.parametrize(
    "variant",
    [
        pytest.param(VARIANTS["2d"], marks=pytest.mark.slow),
        VARIANTS["relative"],
        VARIANTS["axial"],
    ],
    ids=VARIANTS,
)


def answers(network, images):
    return ops.convert_to_numpy(network(images))


def updated(network):
    """How far each weight is from where it was after a step of SGD."""
    before = network.get_weights()
    network.compile(
        keras.optimizers.SGD(1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    network.train_on_batch(variant_models.images(6), np.arange(6) % 3)
    return {
        x.path: np.abs(old - new).max()
        for x, old, new in zip(
            network.weights, before, network.get_weights(), strict=True
        )
    }


@each_variant
def test_every_weight_has_a_gradient(variant):
    steps = updated(variant_models.model(variant))
    assert {path: step for path, step in steps.items() if step < 1e-7} == {}


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("every_layer", marks=pytest.mark.slow),
        "every_layer_shared",
    ],
)
def test_rematerialised_it_learns_the_same(place):
    variant, found = {"position": "relative", "position_at": place}, []
    for rematerialize in (False, True):
        network = variant_models.model(variant, rematerialize=rematerialize)
        found.append(updated(network))
    plain, again = found
    assert plain.keys() == again.keys()
    np.testing.assert_allclose(
        list(again.values()), list(plain.values()), rtol=1e-4, atol=1e-6
    )


@each_variant
def test_a_saved_variant_is_loaded_again(variant, tmp_path):
    network = variant_models.model(variant)
    network.get_layer("block_0").trainable = False
    network.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(loaded, VariantTransformer)
    assert loaded.config == network.config
    assert not loaded.get_layer("block_0").trainable
    images = variant_models.images()
    np.testing.assert_array_equal(
        answers(loaded, images), answers(network, images)
    )


@each_variant
def test_load_checkpoint_reads_it(variant, tmp_path):
    network = variant_models.model(variant)
    path = tmp_path / "model.keras"
    network.save(path)
    info = read_info(path)
    assert info.family == "variant"
    assert info.fields["variant"].items() >= variant.items()
    assert info.num_parameters == network.count_params()
    images = variant_models.images()
    loaded = load_checkpoint(path)
    np.testing.assert_array_equal(
        answers(loaded, images), answers(network, images)
    )
    other = load_checkpoint(path, classes=5)
    assert other.output_shape == (None, 5)
    assert other.config.variant == network.config.variant


def interpolated(table, length):
    """Each column of a table at `length` points from its first to its last."""
    points = np.linspace(0, len(table) - 1, length)
    known = np.arange(len(table))
    return np.stack([np.interp(points, known, x) for x in table.T], axis=1)


def test_2d_tables_are_resampled_each_along_its_axis(tmp_path):
    network = variant_models.model(VARIANTS["2d"])
    network.save(tmp_path / "model.keras")
    larger = load_checkpoint(tmp_path / "model.keras", input_shape=(20, 24, 1))
    old, new = variant_models.by_path(network), variant_models.by_path(larger)
    for layer in ("position_embedding", "position_embedding_1"):
        for name, length in {"rows": 5, "columns": 6}.items():
            path = f"{layer}/{name}"
            expected = interpolated(old[path], length)
            np.testing.assert_allclose(new[path], expected, atol=1e-6)
            assert "linear_aligned" in larger.load_report.resampled[path]
    assert larger(variant_models.images(1, (20, 24))).shape == (1, 3)


def test_1d_tables_of_all_layers_are_resampled_as_that_of_the_stem(tmp_path):
    network = variant_models.model({"position_at": "every_layer"})
    network.save(tmp_path / "model.keras")
    larger = load_checkpoint(tmp_path / "model.keras", input_shape=(20, 24, 1))
    for layer in ("position_embedding", "position_embedding_1"):
        old = variant_models.by_path(network)[f"{layer}/embedding"][0]
        new = variant_models.by_path(larger)[f"{layer}/embedding"][0]
        np.testing.assert_array_equal(new[0], old[0])  # the class token's
        grid = old[1:].reshape(*variant_models.GRID, -1)
        tall = np.stack([interpolated(grid[:, i], 5) for i in range(3)], axis=1)
        wide = np.stack([interpolated(row, 6) for row in tall])
        np.testing.assert_allclose(
            new[1:], wide.reshape(30, -1), rtol=1e-5, atol=1e-6
        )


def test_without_positions_any_size_will_do(tmp_path):
    network = variant_models.model({"position": "none"})
    network.save(tmp_path / "model.keras")
    larger = load_checkpoint(tmp_path / "model.keras", input_shape=(20, 24, 1))
    for one, other in zip(network.weights, larger.weights, strict=True):
        np.testing.assert_array_equal(
            ops.convert_to_numpy(one), ops.convert_to_numpy(other)
        )


# 3x2 patches are as many as 2x3.
@pytest.mark.parametrize("size", [(20, 24), (12, 8)])
def test_offsets_are_of_one_grid(size, tmp_path):
    variant_models.model(VARIANTS["relative"]).save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match="mean nothing in another grid"):
        load_checkpoint(tmp_path / "model.keras", input_shape=(*size, 1))


def test_weights_of_another_variant_are_refused(tmp_path):
    stem = variant_models.model({"position": "1d"})
    stem.save(tmp_path / "model.keras")
    shared = variant_models.model({"position_at": "every_layer_shared"})
    assert [x.path for x in stem.weights] == [x.path for x in shared.weights]
    before = shared.get_weights()
    with pytest.raises(ValueError, match="are of the variant"):
        load_weights(shared, tmp_path / "model.keras")
    for old, new in zip(before, shared.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    plain = variant_models.plain_model()
    with pytest.raises(ValueError, match=r"is a model of keras_vit\.models"):
        load_weights(plain, tmp_path / "model.keras")


def test_a_file_with_a_variant_that_is_none_is_refused(tmp_path):
    import zipfile

    path = tmp_path / "model.keras"
    variant_models.model(VARIANTS["2d"]).save(path)
    with zipfile.ZipFile(path) as archive:
        members = {x: archive.read(x) for x in archive.namelist()}
    config = members["config.json"].replace(b'"2d"', b'"4d"')
    assert config != members["config.json"]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**members, "config.json": config}.items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match="Unknown position: '4d'"):
        load_checkpoint(path)
