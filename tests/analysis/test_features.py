"""Embeddings, their projections and the evolution of an image."""

import keras
import numpy as np
import pytest
from analysis_cases import case, images_of, tiny_model
from sklearn.decomposition import PCA

from keras_vit.analysis import embeddings, evolution, projection


def states(model, images):
    """Patch and class tokens before the first and after each block."""
    layers = [
        model.get_layer(f"block_{i}") for i in range(model.config.num_layers)
    ]
    tensors = [layers[0].input, *(layer.output for layer in layers)]
    found = keras.Model(model.input, tensors)(images)
    return [keras.ops.convert_to_numpy(x) for x in found]


def test_the_last_block_normalised_is_what_the_head_of_the_original_sees():
    model, images, expected = case("vit_tiny_augreg")
    norm = model.get_layer("encoder_norm")
    found = keras.ops.convert_to_numpy(norm(embeddings(model, images)[:, None]))
    np.testing.assert_allclose(
        found[:, 0], expected["encoded"][:, 0], rtol=0, atol=5e-5
    )


@pytest.mark.parametrize(
    ("changes", "read"),
    [
        ({}, slice(0, 1)),
        ({"pooling": "mean"}, slice(1, 7)),
        ({"class_token": False, "pooling": "map"}, slice(0, 6)),
        ({"distillation_token": True, "pooling": "prefix"}, slice(0, 2)),
    ],
)
@pytest.mark.parametrize("block", [0, -1])
def test_an_embedding_is_what_the_head_reads_of_a_block(changes, read, block):
    model = tiny_model(**changes)
    images = images_of(model, 3)
    found = embeddings(model, images, block=block, batch_size=2)
    wanted = states(model, images)[1:][block][:, read].mean(axis=1)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


def test_a_block_that_there_is_not():
    model = tiny_model()
    with pytest.raises(ValueError, match="2 blocks.*block=-3"):
        embeddings(model, images_of(model), block=-3)


def test_the_plane_of_largest_variance():
    points = np.zeros((4, 5))
    points[:, 3] = [8, -8, 0, 0]
    points[:, 1] = [0, 0, 2, -2]
    found = projection(points + 100)
    np.testing.assert_allclose(
        np.abs(found), [[8, 0], [8, 0], [0, 2], [0, 2]], atol=1e-4
    )


def test_neighbours_stay_together_in_tsne():
    generator = np.random.default_rng(0)
    centres = 50 * generator.normal(size=(2, 16)).repeat(10, axis=0)
    vectors = centres + generator.normal(size=(20, 16))
    found = projection(vectors, method="tsne")
    assert found.shape == (20, 2)
    apart = np.linalg.norm(found[:, None] - found, axis=-1)
    np.fill_diagonal(apart, np.inf)
    groups = np.arange(20) // 10
    np.testing.assert_array_equal(groups[apart.argmin(axis=1)], groups)
    np.testing.assert_array_equal(projection(vectors, method="tsne"), found)


def test_tsne_of_few_images():
    points = projection(np.eye(4), method="tsne")
    assert np.isfinite(points).all()


@pytest.mark.parametrize("vectors", [np.zeros((2, 8)), np.zeros((3, 4, 8))])
def test_vectors_that_make_no_plane(vectors):
    with pytest.raises(ValueError, match="3 or more vectors"):
        projection(vectors)


def test_unknown_projection():
    with pytest.raises(ValueError, match="'umap'.*'pca', 'tsne'"):
        projection(np.eye(4), method="umap")


@pytest.mark.parametrize(
    "changes", [{}, {"class_token": False, "pooling": "mean"}]
)
def test_evolution_is_the_principal_components_of_the_patches(changes):
    model = tiny_model(**changes)
    images = images_of(model, 3)
    found = evolution(model, images, batch_size=2)
    assert found.shape == (3, 3, 2, 3, 3)
    for maps, tokens in zip(found, states(model, images), strict=True):
        for image, patches in zip(maps, tokens[:, -6:], strict=True):
            wanted = PCA(3, svd_solver="full").fit_transform(patches)
            np.testing.assert_allclose(
                np.abs(image.reshape(6, 3)), np.abs(wanted), atol=1e-4
            )


def test_signs_follow_the_block_before():
    model = tiny_model()
    maps = evolution(model, images_of(model, 3))
    together = np.sum(maps[1:] * maps[:-1], axis=(2, 3))
    assert np.all(together >= 0)


def test_more_components_than_there_are():
    with pytest.raises(ValueError, match="5 components"):
        evolution(tiny_model(), images_of(tiny_model()), num_components=6)
