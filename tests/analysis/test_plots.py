import io

import numpy as np
import pytest

from keras_vit.analysis import plots

NAMES = ("cat", "dog", "cow")
# Rows: right and sure, wrong and sure, wrong and unsure, right and unsure.
PROBABILITIES = np.array(
    [[0.9, 0.1, 0.0], [0.8, 0.1, 0.1], [0.1, 0.5, 0.4], [0.2, 0.2, 0.6]]
)
LABELS = np.array([0, 1, 2, 2])
IMAGES = np.arange(4, dtype=np.uint8).repeat(4).reshape(4, 2, 2, 1)


def gallery(cells):
    return plots.mistakes(IMAGES, LABELS, PROBABILITIES, NAMES, cells=cells)


def shown(figure):
    """Numbers and titles of the images of a gallery."""
    return [
        (int(axis.images[0].get_array()[0, 0]), axis.get_title())
        for axis in figure.axes
    ]


def test_gallery_shows_the_most_confident_mistakes_first():
    assert shown(gallery((1, 2))) == [
        (1, "cat (80%)\nwrong, is dog"),
        (2, "dog (50%)\nwrong, is cow"),
    ]


def test_gallery_is_filled_with_the_least_confident_right_answers():
    assert shown(gallery((2, 3)))[2:] == [
        (3, "cow (60%)\nright"),
        (0, "cat (90%)\nright"),
    ]


@pytest.mark.parametrize(
    ("cells", "title"),
    [((1, 1), "The 1 most confident of 2 mistakes"), ((1, 3), "2 mistakes in")],
)
def test_gallery_says_what_it_shows(cells, title):
    assert gallery(cells).get_suptitle().startswith(title)


def test_colour_images_are_shown_in_colour():
    colour = np.repeat(IMAGES, 3, axis=-1)
    figure = plots.mistakes(colour, LABELS, PROBABILITIES, NAMES)
    drawn = figure.axes[0].images[0].get_array()
    assert drawn is not None
    assert drawn.shape == (2, 2, 3)


def test_confusion_matrix_writes_the_counts_where_there_are_any():
    matrix = np.array([[5, 1], [0, 7]])
    (axis,) = plots.confusion_matrix(matrix, ("a", "b")).axes
    texts = {text.get_position(): text.get_text() for text in axis.texts}
    # Position: predicted class to the right, true class down.
    assert texts == {(0, 0): "5", (1, 0): "1", (1, 1): "7"}
    assert "12 of 13" in axis.get_title()
    assert axis.get_xlabel() == "predicted class"


def test_confusion_matrix_frames_the_mistakes_only():
    (axis,) = plots.confusion_matrix(np.array([[5, 1], [0, 7]]), "ab").axes
    (frame,) = axis.patches
    centre = frame.get_extents().get_points().mean(axis=0)
    found = axis.transData.inverted().transform(centre)
    np.testing.assert_allclose(found, (1, 0), atol=1e-9)


def test_confusion_matrix_of_a_class_without_images():
    figure = plots.confusion_matrix(np.array([[5, 0], [0, 0]]), "ab")
    figure.savefig(io.BytesIO())


def test_confusion_matrix_of_many_classes_has_no_numbers():
    names = [f"class {i}" for i in range(40)]
    (axis,) = plots.confusion_matrix(np.eye(40, dtype=int), names).axes
    assert not axis.texts


def test_dollars_in_class_names_begin_no_formula():
    names = ("$\\frac$", "$x$")  # The first is none that could be drawn.
    figure = plots.confusion_matrix(np.eye(2, dtype=int), names)
    figure.savefig(io.BytesIO())
    (axis,) = figure.axes
    assert [x.get_text() for x in axis.get_xticklabels()] == list(names)
    plots.mistakes(IMAGES, LABELS, PROBABILITIES, (*names, "$")).savefig(
        io.BytesIO()
    )


def test_curves_draw_what_is_given():
    series = {"training": ([0, 5], [3.0, 1.0]), "validation": ([5], [2.0])}
    (axis,) = plots.curves(series, xlabel="step", ylabel="loss").axes
    for line, (x, y) in zip(axis.lines, series.values(), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), x)
        np.testing.assert_array_equal(line.get_ydata(), y)
    # A single value is seen as well.
    assert [line.get_marker() for line in axis.lines] == ["", "o"]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("step", "loss")


def test_learning_curves_draw_the_history():
    history = {
        "loss": [3.0, 2.0, 1.0],
        "val_loss": [4.0, 3.0, 2.0],
        "accuracy": [0.1, 0.2, 0.3],
        "val_accuracy": [0.2, 0.3, 0.4],
    }
    figure = plots.learning_curves(history)
    drawn = [line for axis in figure.axes for line in axis.lines]
    for line, values in zip(drawn, history.values(), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3])
        np.testing.assert_array_equal(line.get_ydata(), values)


def test_figures_are_not_kept_by_pyplot():
    import matplotlib.pyplot as plt

    gallery((1, 2))
    assert plt.get_fignums() == []
