"""Position similarity and principal filters, which need no image."""

import numpy as np
import pytest
from analysis_cases import case, tiny_model
from arrays import read_arrays
from sklearn.decomposition import PCA

from keras_vit.analysis import patch_filters, position_similarity


def test_similarity_of_vectors_set_by_hand():
    model = tiny_model(image_size=(4, 12))
    table = np.zeros((1, 4, 8))
    table[0, 0] = 7  # the class token, which is left out
    table[0, 1:] = [[1] + 7 * [0], [3, 4] + 6 * [0], [-2] + 7 * [0]]
    model.get_layer("position_embedding").embedding.assign(table)
    similarity = position_similarity(model)
    assert similarity.shape == (1, 3, 1, 3)
    np.testing.assert_allclose(
        similarity[0, :, 0],
        [[1, 0.6, -1], [0.6, 1, -0.6], [-1, -0.6, 1]],
        rtol=1e-6,
    )


def test_a_model_without_positions_is_refused():
    model = tiny_model(position_embedding="none", rope="axial")
    with pytest.raises(ValueError, match="no position embeddings"):
        position_similarity(model)


def test_similarity_of_sines_and_cosines():
    model = tiny_model(
        position_embedding="sincos2d", class_token=False, pooling="mean"
    )
    # D = 8: frequencies 1 and 1/10000; cos a cos b + sin a sin b.
    row, column, rows, columns = np.indices((2, 3, 2, 3))
    wanted = sum(
        np.cos((x - y) * frequency) / 4
        for x, y in ((row, rows), (column, columns))
        for frequency in (1, 1e-4)
    )
    found = position_similarity(model)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


def test_similarity_without_embeddings():
    model = tiny_model()
    embedding = model.get_layer("position_embedding").embedding
    embedding.assign(np.zeros((1, 7, 8)))
    np.testing.assert_array_equal(position_similarity(model), 0)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("vit_tiny_google", "embedding/kernel"),
        ("hybrid_tiny_google", "conv_root/kernel"),
    ],
)
def test_filters_are_those_of_scikit_learn(name, key):
    import reference_cases

    kernel = read_arrays(reference_cases.path_of(name))[key]
    filters = kernel.reshape(-1, kernel.shape[-1]).T
    wanted = PCA(5, svd_solver="full").fit(filters).components_
    found = patch_filters(case(name)[0], 5)
    assert found.shape == (5, *kernel.shape[:3])
    found = found.reshape(5, -1)
    np.testing.assert_allclose(
        np.abs(np.sum(found * wanted, axis=1)), 1, rtol=1e-4
    )
    peaks = np.abs(found).argmax(axis=1)
    assert np.all(found[np.arange(5), peaks] > 0)


def test_the_main_filter_of_a_kernel_set_by_hand():
    model = tiny_model()
    kernel = np.zeros((4, 4, 3, 8))
    kernel[1, 2, 0] = [3, -3, 3, -3, 3, -3, 3, -3]
    kernel[0, 0, 1] = [1, 1, -1, -1, 1, 1, -1, -1]
    kernel[3, 3, 2] = 9  # of all filters: not variance
    model.get_layer("patch_embed").projection.kernel.assign(kernel)
    found = patch_filters(model, 2)
    wanted = np.zeros((2, 4, 4, 3))
    wanted[0, 1, 2, 0] = wanted[1, 0, 0, 1] = 1
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_filters_of_patches_and_channels_of_any_kind():
    model = tiny_model(patch_size=(2, 4), channels=5)
    assert patch_filters(model, 3).shape == (3, 2, 4, 5)


@pytest.mark.parametrize(("count", "message"), [(0, "0"), (9, "8 components")])
def test_more_filters_than_there_are(count, message):
    with pytest.raises(ValueError, match=message):
        patch_filters(tiny_model(), count)
