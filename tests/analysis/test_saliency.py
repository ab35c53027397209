"""Maps of the saliency library against NumPy and its methods' own laws."""

import sys

import numpy as np
import numpy_forward
import pytest
import reference_cases
from analysis_cases import case, images_of, tiny_model
from arrays import read_arrays

from keras_vit.analysis import saliency

pytest.importorskip("saliency.core")
HYBRID = {"resnet_units": (), "resnet_width": 32, "patch_size": 1}


def test_gradient_is_that_of_finite_differences():
    name = "vit_tiny_google"
    model, images, _ = case(name)
    params = read_arrays(reference_cases.path_of(name))
    found = saliency(model, images[:1], 3, method="gradient")
    assert found.shape == (1, 32, 32)
    for pixel in ((0, 0), (9, 20), (31, 31)):
        moves = np.zeros((3, 32, 32, 3))
        moves[(range(3), *pixel, range(3))] = 1e-4
        above, below = (
            numpy_forward.vit(params, images[:1] + move)["logits"][:, 3]
            for move in (moves, -moves)
        )
        wanted = np.abs((above - below) / 2e-4).sum()
        np.testing.assert_allclose(found[(0, *pixel)], wanted, rtol=1e-3)


def test_attributions_add_up_to_the_difference_of_the_scores():
    model = tiny_model()
    images = images_of(model) / 4
    found = saliency(model, images, [0, 2], method="integrated_gradients")
    logits, grey = (
        model.predict_on_batch(x)[[0, 1], [0, 2]]
        for x in (images, np.zeros_like(images))
    )
    np.testing.assert_allclose(
        found.sum(axis=(1, 2)), logits - grey, rtol=0.1, atol=0.05
    )


def test_grey_is_grey_for_a_model_of_bytes():
    model, scaled = tiny_model(include_preprocessing=True), tiny_model()
    scaled.set_weights(model.get_weights())
    images = images_of(model)
    options = {"classes": 1, "method": "integrated_gradients"}
    np.testing.assert_allclose(
        saliency(model, 127.5 * (images + 1), **options),
        saliency(scaled, images, **options),
        rtol=0,
        atol=1e-4,
    )


def test_the_default_is_smooth_and_repeatable():
    model = tiny_model()
    images = images_of(model)
    maps = []
    for seed in (0, 0, 1):
        np.random.seed(seed)
        maps.append(saliency(model, images, 0))
    np.testing.assert_array_equal(maps[0], maps[1])
    assert np.abs(maps[0] - maps[2]).max() > 0
    assert maps[0].shape == (2, 8, 12)
    assert maps[0].min() >= 0


def test_blur_is_signed_and_for_hybrids_too():
    model = tiny_model(**HYBRID)
    found = saliency(model, images_of(model, 1), 0, method="blur")
    assert found.shape == (1, 8, 12)
    assert found.min() < 0 < found.max()


def test_regions_of_an_image():
    model = tiny_model(image_size=(24, 16), patch_size=8)
    found = saliency(model, images_of(model, 1), 0, method="xrai")
    assert found.shape == (1, 24, 16)


@pytest.mark.parametrize("method", ["integrated_gradients", "xrai"])
def test_no_path_from_grey_in_a_hybrid(method):
    model = tiny_model(**HYBRID)
    with pytest.raises(ValueError, match='hybrid.*"blur"'):
        saliency(model, images_of(model), method=method)


@pytest.mark.once
def test_a_library_that_is_missing_is_named(monkeypatch):
    for module in ("saliency", "saliency.core"):
        monkeypatch.setitem(sys.modules, module, None)
    model, images = tiny_model(), images_of(tiny_model())
    with pytest.raises(ValueError, match="needs saliency, which is not inst"):
        saliency(model, images)


def test_unknown_method():
    with pytest.raises(ValueError, match="'smooth_grad'.*'smooth_gradient'"):
        saliency(tiny_model(), [], method="smooth_grad")


def test_a_model_without_classes():
    model = tiny_model(num_classes=0)
    with pytest.raises(ValueError, match="num_classes=0"):
        saliency(model, images_of(model))
