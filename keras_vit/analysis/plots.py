"""Pictures of a training run, as matplotlib figures.

The figures are made without pyplot: no window, no state, no backend to
choose. Colours are of Okabe and Ito's palette, which colour-blind people can
tell apart; what a colour says is said by a line style or a word as well.

Axes: N images, H and W height and width, C channels, K classes.
"""

import numpy as np

__all__ = ["confusion_matrix", "curves", "learning_curves", "mistakes"]

BLUE, VERMILION = "#0072B2", "#D55E00"
STYLES = ((BLUE, "-"), (VERMILION, "--"))


def learning_curves(history: dict):
    """Loss and accuracy of training and validation over the epochs.

    Args:
        history: metric to list of values, one an epoch: "loss", "val_loss",
            "accuracy" and "val_accuracy", as `fit` returns it.

    Returns:
        matplotlib Figure.

    Example:
        >>> history = model.fit(images, labels, epochs=10).history
        >>> learning_curves(history).savefig("learning_curves.png")
    """
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    figure = _figure(9, 3.6)
    figure.suptitle("Learning curves", fontsize=13)
    axes = figure.subplots(1, 2)
    for axis, metric in zip(axes, ("loss", "accuracy"), strict=True):
        train, validation = history[metric], history[f"val_{metric}"]
        epochs = range(1, len(train) + 1)
        axis.plot(epochs, train, color=BLUE, label="training")
        axis.plot(epochs, validation, "--", color=VERMILION, label="validation")
        axis.set(xlabel="epoch", ylabel=metric)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False)
    axes[1].yaxis.set_major_formatter(PercentFormatter(xmax=1))
    return figure


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

    figure = _figure(4.6, 3)
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


def confusion_matrix(matrix: np.ndarray, class_names):
    """How often each class was taken for each, with the mistakes framed.

    Args:
        matrix: integer array of shape (K, K); rows are the true classes,
            columns the predicted ones.
        class_names: K names.

    Returns:
        matplotlib Figure. Above 30 classes the numbers are left out.

    Example:
        >>> figure = confusion_matrix(np.array([[9, 1], [0, 8]]), "ab")
        >>> figure.savefig("confusion_matrix.png")
    """
    num_classes = len(class_names)
    side = np.clip(0.5 * num_classes + 1.5, 4, 12)
    figure = _figure(side, side)
    axis = figure.subplots()
    correct, total = np.trace(matrix), matrix.sum()
    axis.set_title(
        f"Confusion matrix: {correct} of {total} right ({correct / total:.1%})",
        fontsize=13,
    )
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    ticks = range(num_classes)
    long = max(map(len, class_names)) > 2
    # A dollar in a name begins no formula.
    axis.set_xticks(
        ticks, class_names, rotation=90 if long else 0, parse_math=False
    )
    axis.set_yticks(ticks, class_names, parse_math=False)
    axis.set(xlabel="predicted class", ylabel="true class")
    if num_classes <= 30:
        _write_counts(axis, matrix, shares)
    return figure


def _write_counts(axis, matrix, shares):
    from matplotlib.patches import Rectangle

    for (i, j), count in np.ndenumerate(matrix):
        if not count:
            continue
        colour = "white" if shares[i, j] > 0.5 else "black"
        axis.text(j, i, count, ha="center", va="center", color=colour)
        if i != j:
            frame = Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False)
            frame.set(edgecolor=VERMILION, linewidth=2)
            axis.add_patch(frame)


def mistakes(images, labels, probabilities, class_names, *, cells=(2, 6)):
    """The most confident mistakes, most confident first.

    Where there are fewer mistakes than cells, the least confident of the
    right predictions follow.

    Args:
        images: uint8 array of shape (N, H, W, C).
        labels: integer array of shape (N,), the true classes.
        probabilities: float array of shape (N, K).
        class_names: K names.
        cells: (rows, columns) of the gallery.

    Returns:
        matplotlib Figure.

    Example:
        >>> figure = mistakes(images, labels, probabilities, class_names)
        >>> figure.savefig("mistakes.png")
    """
    rows, columns = cells
    predictions = probabilities.argmax(axis=-1)
    confidence = probabilities.max(axis=-1)
    wrong = predictions != labels
    # Mistakes first; among them the confident, among the others the unsure.
    order = np.lexsort((np.where(wrong, -confidence, confidence), ~wrong))
    shown = order[: rows * columns]
    figure = _figure(1.7 * columns, 2.1 * rows + 0.4)
    figure.suptitle(
        _gallery_title(wrong.sum(), len(labels), len(shown)), fontsize=13
    )
    for k, i in enumerate(shown):
        _draw_answer(
            figure.add_subplot(rows, columns, k + 1),
            images[i],
            truth=class_names[labels[i]],
            guess=class_names[predictions[i]],
            confidence=confidence[i],
        )
    return figure


def _gallery_title(num_wrong, num_images, num_shown):
    if num_wrong >= num_shown:
        return (
            f"The {num_shown} most confident of {num_wrong} mistakes in "
            f"{num_images} test images: prediction (probability)"
        )
    mistakes = "1 mistake" if num_wrong == 1 else f"{num_wrong} mistakes"
    return (
        f"{mistakes} in {num_images} test images, then the least confident "
        "right predictions: prediction (probability)"
    )


def _draw_answer(axis, image, *, truth, guess, confidence):
    right = truth == guess
    colour = BLUE if right else VERMILION
    verdict = "right" if right else f"wrong, is {truth}"
    axis.imshow(_drawable(image), cmap="gray", vmin=0, vmax=255)
    axis.set_title(
        f"{guess} ({confidence:.0%})\n{verdict}", fontsize=11, parse_math=False
    )
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set(edgecolor=colour, linewidth=3)


def _drawable(image):
    """Grey images without their channel axis, as matplotlib wants them."""
    return image[..., 0] if image.shape[-1] == 1 else image


def _figure(width, height):
    """A figure of so many inches, whose parts do not overlap."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")
