"""What the figures of the analysis show."""

import io

import numpy as np
import pytest

from keras_vit.analysis import (
    overlay,
    plot_attention_distance,
    plot_attention_maps,
    plot_attention_rollout,
    plot_embeddings,
    plot_evolution,
    plot_gradient_cam,
    plot_patch_filters,
    plot_position_similarity,
    plot_saliency,
)

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (2, 8, 12, 3), dtype=np.uint8)
GRIDS = RANDOM.uniform(size=(2, 2, 3))
CALLS = {
    plot_attention_distance: (RANDOM.uniform(size=(4, 3)),),
    plot_attention_maps: (RANDOM.uniform(size=(4, 3, 2, 3)),),
    plot_attention_rollout: (IMAGES, GRIDS),
    plot_embeddings: (RANDOM.normal(size=(30, 2)), np.arange(30) % 12),
    plot_evolution: (IMAGES, RANDOM.normal(size=(3, 2, 2, 3, 3))),
    plot_gradient_cam: (IMAGES, GRIDS),
    plot_patch_filters: (RANDOM.normal(size=(9, 4, 4, 3)),),
    plot_position_similarity: (RANDOM.uniform(-1, 1, (2, 3, 2, 3)),),
    plot_saliency: (IMAGES, RANDOM.normal(size=(2, 8, 12))),
}


def drawn(axis):
    return np.ma.filled(axis.images[0].get_array(), np.nan)


@pytest.mark.parametrize("plot", CALLS, ids=lambda plot: plot.__name__)
def test_a_figure_is_written_to_a_file(plot):
    file = io.BytesIO()
    plot(*CALLS[plot]).savefig(file, format="pdf")
    assert file.getvalue().startswith(b"%PDF")


@pytest.mark.parametrize("plot", CALLS, ids=lambda plot: plot.__name__)
def test_an_axis_too_few(plot):
    arguments = [argument[0] for argument in CALLS[plot]]
    with pytest.raises(ValueError, match="must have the shape"):
        plot(*arguments)


@pytest.mark.parametrize(
    "plot", [plot_attention_rollout, plot_gradient_cam, plot_saliency]
)
def test_one_map_an_image(plot):
    images, maps = CALLS[plot]
    with pytest.raises(ValueError, match="one map per image"):
        plot(images, maps[:1])


def test_overlay_darkens_by_the_share_of_the_maximum():
    images = np.full((1, 2, 3, 3), 200, np.uint8)
    maps = np.array([[[1, 2, 4], [0, 3, 4]]]) / 7
    found = overlay(images, maps)
    assert found[0, ..., 0].tolist() == [[50, 100, 200], [0, 150, 200]]


def test_overlay_enlarges_maps_to_images_that_are_not_square():
    maps = np.array([[[0, 1.0]]])
    found = overlay(IMAGES[:1], maps)
    assert found.shape == (1, 8, 12, 3)
    np.testing.assert_array_equal(found[:, :, :2], 0)
    np.testing.assert_array_equal(found[:, :, -2:], IMAGES[:1, :, -2:])


def test_overlay_of_nothing_is_black():
    assert overlay(IMAGES, np.zeros((2, 2, 3))).max() == 0


def test_a_blur_lets_the_brightest_spot_shine():
    image = np.full((1, 24, 24, 3), 255, np.uint8)
    maps = np.zeros((1, 3, 3))
    maps[0, 1, 1] = 1
    sharp, soft = (overlay(image, maps, blur=blur) for blur in (0, 1))
    assert soft[0, 12, 12, 0] == 255
    assert soft[0, 12, 3, 0] > sharp[0, 12, 3, 0]


@pytest.mark.parametrize(
    "images",
    [
        np.array([0, 51, 255]).reshape(1, 1, 3, 1),
        np.array([0, 51.0, 255]).reshape(1, 1, 3, 1),
        np.array([-1, -0.6, 1]).reshape(1, 1, 3, 1),
        np.array([0, 51, 255]).reshape(1, 1, 3, 1).repeat(5, axis=-1),
    ],
)
def test_images_of_any_kind_are_drawn_alike(images):
    found = overlay(images, np.ones((1, 1, 3)))
    assert found[0, 0].tolist() == [3 * [0], 3 * [51], 3 * [255]]


def test_rollout_is_beside_its_image():
    figure = plot_attention_rollout(IMAGES, np.ones((2, 2, 3)))
    inputs, results = figure.axes[0::2], figure.axes[1::2]
    for i in range(2):
        np.testing.assert_allclose(drawn(inputs[i]), IMAGES[i] / 255)
        np.testing.assert_array_equal(drawn(results[i]), IMAGES[i])


def test_saliency_with_and_without_signs():
    signed = plot_saliency(IMAGES, RANDOM.normal(size=(2, 8, 12))).axes[1]
    sizes = plot_saliency(IMAGES, RANDOM.uniform(size=(2, 8, 12))).axes[1]
    assert signed.images[0].get_clim() == (-1, 1)
    assert sizes.images[0].get_clim() == (0, 1)


def test_a_map_for_each_block_and_head_where_the_labels_say():
    grids = np.zeros((2, 3, 2, 2))
    grids[1, 2] = [[0, 1], [2, 4]]
    (axis,) = plot_attention_maps(grids).axes
    table = drawn(axis)
    assert (axis.get_ylabel(), axis.get_xlabel()) == ("block", "head")
    # Tiles of 2x2 with a line of one pixel between them.
    assert table.shape == (5, 8)
    np.testing.assert_array_equal(table[3:, 6:], [[0, 0.25], [0.5, 1]])
    assert np.isnan(table[2]).all()
    left, right, bottom, top = axis.images[0].get_extent()
    assert (left, top) == (-0.5, -0.5)
    # Centre of the last tile: pixel 7 of 8, pixel 4 of 5.
    assert left + (right - left) * 7 / 8 == pytest.approx(2 - 1 / 6)
    assert top + (bottom - top) * 4 / 5 == pytest.approx(1 - 1 / 6)


def test_each_head_has_its_dot():
    distances = np.array([[1.0, 2.0], [30.0, 4.0]])
    (axis,) = plot_attention_distance(distances).axes
    dots = [np.asarray(x.get_offsets()).tolist() for x in axis.collections]
    assert dots == [[[0, 1], [1, 30]], [[0, 2], [1, 4]]]
    assert "pixels" in axis.get_ylabel()
    assert axis.get_ylim()[1] > 30


def test_filters_are_scaled_around_grey():
    filters = np.zeros((2, 1, 2, 3))
    filters[0, 0, 0] = [1, -2, 0]
    (axis,) = plot_patch_filters(filters, columns=2).axes
    np.testing.assert_allclose(drawn(axis)[0, 0], [0.75, 0, 0.5])
    np.testing.assert_allclose(drawn(axis)[0, 3], 3 * [0.5])


def test_classes_have_names_colours_and_markers():
    points, labels = CALLS[plot_embeddings]
    figure = plot_embeddings(points, labels, [f"${i}" for i in range(12)])
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == [f"${i}" for i in range(12)]
    looks = {
        (
            str(dots.get_facecolor()),
            len(np.asarray(dots.get_paths()[0].vertices)),
        )
        for dots in figure.axes[0].collections
    }
    assert len(looks) == 12


def test_points_without_labels_have_no_legend():
    figure = plot_embeddings(CALLS[plot_embeddings][0])
    assert not figure.legends


def test_one_label_a_point():
    with pytest.raises(ValueError, match="30 points and 29 labels"):
        plot_embeddings(CALLS[plot_embeddings][0], np.zeros(29, int))


def test_evolution_of_other_images():
    with pytest.raises(ValueError, match=r"\(blocks \+ 1, 1, rows"):
        plot_evolution(IMAGES[:1], CALLS[plot_evolution][1])
