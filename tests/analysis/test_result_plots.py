import io

import numpy as np
import pytest

from keras_vit.analysis import plot_confusion, plot_images

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 8, 12, 3), np.uint8)


def test_images_stand_under_their_titles():
    titles = ["a", "b", "$c", "d", "e"]
    figure = plot_images(IMAGES, titles, columns=3)
    assert len(figure.axes) == 6
    for axis, image, title in zip(figure.axes, IMAGES, titles, strict=False):
        np.testing.assert_allclose(
            np.asarray(axis.images[0].get_array()), image / 255
        )
        assert axis.get_title() == title
    assert len(figure.axes[5].images) == 0
    figure.savefig(io.BytesIO())


def test_a_confusion_matrix_has_true_classes_in_rows():
    figure = plot_confusion([0, 0, 0, 0, 1], [0, 1, 1, 1, 1], ["cat", "$dog"])
    axis = figure.axes[0]
    np.testing.assert_array_equal(
        axis.images[0].get_array(), [[0.25, 0.75], [0, 1]]
    )
    written = {text.get_position(): text.get_text() for text in axis.texts}
    assert written == {(0, 0): "1", (1, 0): "3", (0, 1): "0", (1, 1): "1"}
    assert [label.get_text() for label in axis.get_yticklabels()] == [
        "cat",
        "$dog",
    ]
    figure.savefig(io.BytesIO())


def test_many_classes_are_colours_alone():
    labels = np.arange(40)
    axis = plot_confusion(labels, labels, [str(k) for k in labels]).axes[0]
    np.testing.assert_array_equal(axis.images[0].get_array(), np.eye(40))
    assert len(axis.texts) == 0


@pytest.mark.parametrize(
    ("draw", "match"),
    [
        (lambda: plot_images(IMAGES, ["a"]), "one title per image"),
        (lambda: plot_images(IMAGES[0]), "batch, height, width"),
        (
            lambda: plot_confusion([0], [0, 1], ["a", "b"]),
            "one prediction per image",
        ),
        (lambda: plot_confusion([0, 2], [0, 1], ["a", "b"]), "from 0 to 1"),
        (lambda: plot_confusion([0, -1], [0, 1], ["a", "b"]), "from 0 to 1"),
    ],
)
def test_what_does_not_fit_is_said(draw, match):
    with pytest.raises(ValueError, match=match):
        draw()
