"""Shows a finding of the paper again at small scale, on data at hand.

    python recipes/small_scale.py                  # lists the experiments
    python recipes/small_scale.py positions
    python recipes/small_scale.py positions --size large    # for a GPU

An experiment is an entry of recipes/small_scale.yaml: options that
recipes/finetune.py and recipes/pretrain.py take, and axes along which they
vary. Each combination is trained with several seeds; what is compared is the
accuracy on test images, or that of few-shot classifiers on frozen features.

docs/results/small_scale has the result as JSON, with the options of each run,
and a plot. The same command again trains only what is missing in the JSON.
"""

import argparse
import itertools
import json
import os
import pathlib
import sys

import yaml
from findings import SHOTS_AXIS, measured, plot, summarise, table

from keras_vit.files import replacing
from keras_vit.training import run_folder
from keras_vit.training.distribution import environment

EXPERIMENTS = pathlib.Path(__file__).with_suffix(".yaml")
RESULTS = "docs/results/small_scale"
DOTS_PER_INCH = 150


def main(arguments: list[str] | None = None) -> int:
    known = experiments()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("experiment", nargs="?", choices=list(known))
    add("--size", default="small", help="small, or large for a GPU")
    add("--seeds", type=int, help="the experiment's own number by default")
    add("--runs", default="runs/small_scale", help="folder of the runs")
    add("--results", default=RESULTS, help="folder of the JSON and the plot")
    options = parser.parse_args(arguments)
    if options.experiment is None:
        for name, experiment in known.items():
            print(f"{name:<16} {experiment['finding']}")
        return 0
    experiment = sized(known[options.experiment], options)
    path = pathlib.Path(options.results, f"{name_of(options)}.json")
    result = run(experiment, path, pathlib.Path(options.runs, name_of(options)))
    with replacing(path.with_suffix(".png")) as picture:
        plot(result).savefig(picture, dpi=DOTS_PER_INCH)
    print(table(result))
    return 0


def experiments() -> dict[str, dict]:
    """The entries of small_scale.yaml."""
    return yaml.safe_load(EXPERIMENTS.read_text())


def name_of(options) -> str:
    """The experiment's name, with the size where it is another one."""
    suffix = "" if options.size == "small" else f"_{options.size}"
    return options.experiment + suffix


def sized(experiment: dict, options) -> dict:
    """An experiment with the options of a size.

    Args:
        experiment: an entry of small_scale.yaml.
        options: of the command line.

    Returns:
        The entry with `options` completed and `command` added.

    Raises:
        SystemExit: when the experiment has no such size.
    """
    sizes = {"small": {}, **experiment.get("sizes", {})}
    if options.size not in sizes:
        sys.exit(
            f"There is no size {options.size!r} of {options.experiment}. "
            f"Expected one of {', '.join(sizes)}."
        )
    size = "" if options.size == "small" else f" --size {options.size}"
    return {
        **experiment,
        "options": experiment["options"] | sizes[options.size],
        "seeds": options.seeds or experiment["seeds"],
        "command": f"python recipes/small_scale.py {options.experiment}{size}",
    }


def cells(experiment: dict) -> list[tuple[dict, dict]]:
    """The combinations of an experiment.

    Args:
        experiment: what `sized` returns.

    Returns:
        For each the label on every axis, and the options.
    """
    axes = experiment["axes"]
    combined = []
    for names in itertools.product(*axes.values()):
        labels = dict(zip(axes, names, strict=True))
        options = dict(experiment["options"])
        for axis, name in reversed(labels.items()):
            options |= axes[axis][name] or {}
        combined.append((labels, options))
    return combined


def run(experiment: dict, path: pathlib.Path, runs: pathlib.Path) -> dict:
    """Measures what the JSON does not hold yet.

    Args:
        experiment: what `sized` returns.
        path: of the JSON.
        runs: folder for the run folders.

    Returns:
        What is in the JSON then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text())["rows"] if path.exists() else []
    wanted = [
        (labels, {"seed": seed, "options": options})
        for seed in range(experiment["seeds"])
        for labels, options in cells(experiment)
    ]
    found = [[row for row in known if row | key == row] for _, key in wanted]
    for number, (labels, key) in enumerate(wanted):
        if not found[number]:
            rows = measured(
                **key,
                folder=runs / f"{number}",
                probe=experiment.get("measure") == "few_shot",
            )
            found[number] = [{**labels, **key, **row} for row in rows]
            print(json.dumps(found[number][-1]), flush=True)
            write(experiment, path, list(itertools.chain(*found)))
    return write(experiment, path, list(itertools.chain(*found)))


def write(experiment: dict, path: pathlib.Path, rows: list[dict]) -> dict:
    """Writes what is measured so far; returns it.

    Args:
        experiment: what `sized` returns.
        path: of the JSON.
        rows: a dictionary for each measurement.
    """
    result = {
        **{key: experiment[key] for key in ("command", "finding", "paper")},
        "by_compute": experiment.get("by_compute", False),
        "axes": axes_of(experiment),
        "environment": {**environment(), "load": os.getloadavg()[0]},
        "summary": summarise(rows, axes_of(experiment)),
        "rows": rows,
    }
    run_folder.write_json(path, result)
    return result


def axes_of(experiment: dict) -> list[str]:
    """The axes of the result: the number of shots is one of a probe."""
    probed = experiment.get("measure") == "few_shot"
    return [*experiment["axes"], *([SHOTS_AXIS] if probed else [])]


if __name__ == "__main__":
    sys.exit(main())
