"""Mean and spread of an experiment, as a table and as a plot."""

import itertools
import statistics

__all__ = ["plot", "summarise", "table"]

COMPUTE = "multiply_adds"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def summarise(rows: list[dict], axes: list[str]) -> list[dict]:
    """Mean and spread over the seeds.

    Args:
        rows: of a result.
        axes: names of the axes.

    Returns:
        A dictionary for each combination: its labels, "mean", "std" (the
        standard deviation of the sample), "seeds" and, where the rows have
        them, "multiply_adds" of one image.
    """
    grouped: dict[tuple, list[float]] = {}
    computed = {}
    for row in rows:
        labels = tuple(row[axis] for axis in axes)
        grouped.setdefault(labels, []).append(row["accuracy"])
        computed[labels] = {k: row[k] for k in (COMPUTE,) if k in row}
    return [
        {
            **dict(zip(axes, labels, strict=True)),
            "mean": statistics.fmean(found),
            "std": statistics.stdev(found) if len(found) > 1 else 0.0,
            "seeds": len(found),
            **computed[labels],
        }
        for labels, found in grouped.items()
    ]


def table(result: dict) -> str:
    """The summary as a Markdown table, the last axis in columns.

    Args:
        result: content of the JSON of an experiment.

    Returns:
        str, accuracies in per cent, mean and standard deviation.
    """
    *axes, last = result["axes"]
    columns = list(dict.fromkeys(x[last] for x in result["summary"]))
    lines = [
        " | ".join(["", *axes, *(f"{last}: {x}" for x in columns), ""]).strip(),
        "|" + "---|" * len(axes) + "--:|" * len(columns),
    ]
    for labels, found in lines_of(result):
        texts = [cell(x, result) for x in found]
        lines.append(" | ".join(["", *map(str, labels), *texts, ""]).strip())
    return "\n".join(lines)


def cell(entry: dict, result: dict) -> str:
    """An entry of the summary in words.

    Args:
        entry: of `summarise`.
        result: content of the JSON of an experiment.

    Returns:
        str, with the compute of one image where that is compared.
    """
    text = f"{100 * entry['mean']:.1f} ± {100 * entry['std']:.1f}"
    if result.get("by_compute"):
        text += f" ({entry[COMPUTE] / 1e6:.1f} M)"
    return text


def lines_of(result: dict) -> list[tuple[tuple, list[dict]]]:
    """The summary by all axes but the last.

    Args:
        result: content of the JSON of an experiment.

    Returns:
        Pairs of the labels on the other axes and the entries along the last.
    """
    *axes, _ = result["axes"]
    grouped: dict[tuple, list[dict]] = {}
    for entry in result["summary"]:
        labels = tuple(entry[axis] for axis in axes)
        grouped.setdefault(labels, []).append(entry)
    return list(grouped.items())


def plot(result: dict):
    """Mean and spread along the last axis, a line for each of the others.

    Args:
        result: content of the JSON of an experiment.

    Returns:
        matplotlib Figure.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator, PercentFormatter

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axis = figure.subplots()
    last = result["axes"][-1]
    by_compute = result.get("by_compute", False)
    for colour, (labels, found) in zip(
        itertools.cycle(COLOURS), lines_of(result), strict=False
    ):
        axis.errorbar(
            [x[COMPUTE] / 1e6 if by_compute else str(x[last]) for x in found],
            [x["mean"] for x in found],
            [x["std"] for x in found],
            fmt="o-" if labels else "o",
            color=colour,
            capsize=3,
            label=", ".join(map(str, labels)),
        )
    axis.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axis.set(xlabel=last, ylabel="test accuracy")
    if by_compute:
        axis.set(xlabel="million multiply-adds of an image", xscale="log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_locator(NullLocator())
    figure.suptitle(result["finding"], fontsize="medium")
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    if len(result["axes"]) > 1:
        figure.legend(loc="outside right center", frameon=False)
    return figure
