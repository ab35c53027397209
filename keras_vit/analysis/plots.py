"""Curves of a training run, as matplotlib figures.

Colours are of Okabe and Ito's palette, which colour-blind people can tell
apart; a line style says what a colour says.
"""

from keras_vit.analysis.drawing import new_figure

__all__ = ["curves"]

BLUE, VERMILION = "#0072B2", "#D55E00"
STYLES = ((BLUE, "-"), (VERMILION, "--"))


def curves(series: dict, *, xlabel: str, ylabel: str, percent: bool = False):
    """One or two curves in a small figure, for a page or a phone.

    Args:
        series: name to (x, y), sequences of numbers of one length.
        xlabel: what x is.
        ylabel: what y is, with its unit.
        percent: whether y are shares, written as percentages.

    Returns:
        matplotlib Figure.

    Example:
        >>> steps, losses = [0, 100, 200], [2.3, 1.1, 0.4]
        >>> curves({"training": (steps, losses)}, xlabel="step", ylabel="loss")
    """
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    figure = new_figure(4.6, 3)
    axis = figure.subplots()
    for (name, (x, y)), style in zip(series.items(), STYLES, strict=False):
        colour, line = style
        # A single value makes no line.
        marker = "o" if len(x) == 1 else ""
        axis.plot(x, y, line, marker=marker, color=colour, label=name)
    axis.set(xlabel=xlabel, ylabel=ylabel)
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    if len(series) > 1:
        axis.legend(frameon=False)
    if percent:
        axis.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    return figure
