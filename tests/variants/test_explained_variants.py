"""Variants whose attention, positions and patches are the plain ones."""

import numpy as np
import pytest
import variant_models
from variant_models import GRID, NUM_HEADS, images

import keras_vit
from keras_vit import analysis
from keras_vit.explanation import check_attention

PLAIN = {"position": "1d", "mlp": "dense"}
LOCAL = {"mlp": "local"}


@pytest.fixture(scope="module")
def local():
    return variant_models.model(LOCAL)


def test_attention_of_the_first_block_is_that_of_the_plain_model(local):
    """Before any MLP they compute the same, and the plain model is tested."""
    plain = variant_models.plain_model()
    for weight in plain.weights:
        same = [x for x in local.weights if x.path == weight.path]
        if same:
            weight.assign(np.asarray(same[0]))
    found = analysis.attention_maps(local, images())
    expected = analysis.attention_maps(plain, images())
    np.testing.assert_allclose(found[0], expected[0], atol=1e-6)
    # A local MLP has moved the tokens of the second block.
    assert abs(found[1] - expected[1]).max() > 1e-3
    np.testing.assert_allclose(found.sum(axis=-1), 1, atol=1e-5)


def test_similarity_of_2d_positions_is_that_of_their_tables():
    model = variant_models.model({"position": "2d"})
    layer = model.get_layer("position_embedding")
    rows, columns = (np.asarray(x) for x in (layer.rows, layer.columns))
    table = np.array(
        [
            [[*columns[j], *rows[i]] for j in range(GRID[1])]
            for i in range(GRID[0])
        ]
    )  # (R, C, D)
    table = table / np.linalg.norm(table, axis=-1, keepdims=True)
    expected = np.einsum("ijd,kld->ijkl", table, table)
    found = analysis.position_similarity(model)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    "variant", [LOCAL, {"position": "2d"}, {"position": "none"}], ids=str
)
def test_they_are_explained_rolled_out_and_evolved(variant, tmp_path):
    model = variant_models.model(variant)
    assert analysis.attention_rollout(model, images()).shape == (2, *GRID)
    assert analysis.attention_distance(model, images()).shape == (2, NUM_HEADS)
    assert analysis.evolution(model, images()).shape == (3, 2, *GRID, 3)
    assert analysis.patch_filters(model, 2).shape[0] == 2


@pytest.mark.parametrize(
    ("variant", "part"),
    [
        ({"attention": "axial"}, "attention='axial'"),
        ({"position": "relative"}, "position='relative'"),
        (
            {"position": "1d", "position_at": "every_layer"},
            "position_at='every_layer'",
        ),
    ],
)
def test_what_a_variant_lacks_is_named(variant, part):
    model = variant_models.model(variant)
    with pytest.raises(ValueError, match=f"Received: .* with {part}"):
        analysis.attention_maps(model, images())
    with pytest.raises(ValueError, match=f"Received: .* with {part}"):
        check_attention(model)


def test_explain_draws_a_page_of_a_variant(local, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (1, 8, 12, 1))
    page = keras_vit.explain(
        local, pixels.astype("uint8"), tmp_path, class_names=("a", "b", "c")
    )
    assert "Attention rollout over image 0" in page.read_text()
