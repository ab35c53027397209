import numpy as np

from keras_vit.analysis import plots


def test_curves_draw_what_is_given():
    series = {"training": ([0, 5], [3.0, 1.0]), "validation": ([5], [2.0])}
    (axis,) = plots.curves(series, xlabel="step", ylabel="loss").axes
    for line, (x, y) in zip(axis.lines, series.values(), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), x)
        np.testing.assert_array_equal(line.get_ydata(), y)
    # A single value is seen as well.
    assert [line.get_marker() for line in axis.lines] == ["", "o"]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("step", "loss")


def test_thousands_are_in_groups():
    space = "\N{NARROW NO-BREAK SPACE}"
    assert plots.grouped(999) == "999"
    assert plots.grouped(0.5) == "0.5"
    assert plots.grouped(305386) == f"305{space}386"
    assert plots.grouped(1234567.0) == f"1{space}234{space}567"
    series = {"speed": ([0, 20000], [1000.0, 9000.0])}
    figure = plots.curves(series, xlabel="step", ylabel="images per second")
    figure.draw_without_rendering()
    (axis,) = figure.axes
    for labels in (axis.get_xticklabels(), axis.get_yticklabels()):
        texts = [label.get_text() for label in labels]
        assert any(space in text for text in texts), texts


def test_figures_are_not_kept_by_pyplot():
    import matplotlib.pyplot as plt

    plots.curves({"training": ([0], [1])}, xlabel="step", ylabel="loss")
    assert plt.get_fignums() == []
