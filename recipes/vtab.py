"""Fine-tunes a model on the 19 tasks of VTAB-1k as the paper does.

    python recipes/vtab.py --model.name ViT_L16
    python recipes/vtab.py --model.name ViT_L16 --tasks [natural,clevr_count]
    python recipes/vtab.py --model.name ViT_L16 \
        --sweep.learning_rates [0.003,0.01] --schedules [500,2500]

Without `--config` the setting is that of recipes/configs/paper/table4_vtab.yaml
(arXiv:2010.11929, Table 4): 2,500 steps, learning rate 0.01, batches of 512,
384 pixels, one setting for all tasks, trained on a task's 1000 images. The
third command first chooses the setting as the paper did, by the mean accuracy
on the 200 validation images of all tasks, trained on 800; the paper does not
say which two rates and two lengths it compared.

Each task is a run folder of its own; the same command continues where it was
stopped and repeats no finished task. Tasks whose data is not available are left
out, and the reason is reported. The run folder then also holds result.json,
vtab.csv, vtab.md and vtab.png: each task and group beside the paper's Table 9.
"""

import pathlib
import sys

from named_data.sources import SOURCES
from vtab.config import STAND_INS, Setting, Vtab, smoke_vtab
from vtab.table import PAPER_MODELS, group_means, table, write_report
from vtab.tasks import TASKS

from keras_vit import data
from keras_vit.io.atomic_files import write_csv
from keras_vit.io.checks import EXTRAS, check_installed
from keras_vit.runs import run_script
from keras_vit.runs.reporting import finished, result_of
from keras_vit.runtime.machine import versions
from keras_vit.training import Recipe
from keras_vit.training.distribution.processes import agreed
from keras_vit.training.run import files as run_folder

CONFIG = pathlib.Path(__file__).with_name("configs") / "paper/table4_vtab.yaml"


def run(vtab: Vtab) -> dict:
    """Choose a setting where there are several, then train on each task.

    Returns:
        What is written to result.json.

    Raises:
        ValueError: when no task has data, or the run folder holds runs of
            another config.
        OSError: when weights cannot be fetched, or the disk is full.
    """
    check_installed("VTAB-1k", "tensorflow", *EXTRAS["data"])
    missing: dict[str, str] = {}
    settings = vtab.settings()
    scores = {}
    if len(settings) > 1:
        scores = compare(vtab, settings, missing)
    best = max(settings, key=lambda setting: scores.get(setting, 0.0))
    rows = []
    for task in vtab.names():
        if task not in missing:
            measure(vtab.final(task, best), "test", task, missing)
        # After each task: those to come may take days.
        rows = agreed(lambda: report(vtab, best, missing))
    accuracies = {
        row["task"]: row["accuracy"]
        for row in rows
        if row["task"] != "mean" and row["accuracy"] is not None
    }
    if not accuracies:
        raise no_data(missing)
    result = {
        "learning_rate": best.learning_rate,
        "steps": best.steps,
        "validation": {s.folder: score for s, score in scores.items()},
        "tasks": accuracies,
        "groups": group_means(rows),
        "missing": missing,
        "rows": rows,
        "versions": versions(),
    }
    folder = run_folder.local(vtab.run_dir)
    agreed(lambda: run_folder.write_summary(folder, result))
    return result


def measure(recipe: Recipe, part: str, task: str, missing: dict) -> dict | None:
    """Return the result of a run; None, and the reason, where it has no data.

    Args:
        recipe: of the run.
        part: "validation" or "test".
        task: name of the task.
        missing: task to reason; extended.
    """
    if known := agreed(lambda: result_of(recipe)):
        return known
    try:
        dataset = data.open_dataset(recipe.data, SOURCES)
    except ValueError as error:
        missing[task] = " ".join(str(error).split())
        print(f"{task} is left out: {missing[task]}", file=sys.stderr)
        return None
    print(f"{task}: {recipe.run_dir}", flush=True)
    return finished(recipe, part, dataset)


def compare(
    vtab: Vtab, settings: list[Setting], missing: dict
) -> dict[Setting, float]:
    """Return the mean validation accuracy of each setting over the same tasks.

    Writes sweep.csv.

    Raises:
        ValueError: when no task has data.
    """
    rows = []
    for setting in settings:
        for task in vtab.names():
            if task in missing:
                continue
            trial = vtab.trial(task, setting)
            found = measure(trial, "validation", task, missing)
            if found:
                chosen = setting._asdict()
                rows.append({**chosen, "task": task, "top1": found["top1"]})
    if not rows:
        raise no_data(missing)
    path = run_folder.local(vtab.run_dir) / "sweep.csv"
    agreed(lambda: write_csv(path, rows))
    count = len(rows) // len(settings)
    return {
        setting: sum(row["top1"] for row in rows if setting.is_of(row)) / count
        for setting in settings
    }


def no_data(missing: dict) -> ValueError:
    """Return the error with the reasons of all tasks."""
    reasons = "; ".join(f"{task}: {why}" for task, why in missing.items())
    return ValueError(f"No task of VTAB-1k has data. {reasons}")


def report(vtab: Vtab, setting: Setting, missing: dict) -> list[dict]:
    """Write the table of all finished tasks, also those of earlier calls."""
    known = {task: result_of(vtab.final(task, setting)) for task in TASKS}
    model, stand_ins = vtab.model, None
    title = f"{model.name}, {model.weights}, seed {vtab.seed}, learning rate "
    title += f"{setting.learning_rate:g}, {setting.steps} steps"
    if vtab.smoke:
        stand_ins = {group: str(x.name) for group, x in STAND_INS.items()}
        title = f"a trial of {model.name}"
    rows = table(
        {task: result for task, result in known.items() if result},
        missing,
        model=PAPER_MODELS.get((str(model.name), str(model.weights))),
        stand_ins=stand_ins,
    )
    folder = run_folder.local(vtab.run_dir)
    folder.mkdir(parents=True, exist_ok=True)
    write_report(folder, rows, title)
    run_folder.publish(folder)
    return rows


def summary(result: dict) -> str:
    lines = [
        f"{task}: {accuracy:.1f} %"
        for task, accuracy in result["tasks"].items()
    ]
    lines += [f"{task}: left out" for task in result["missing"]]
    lines += [
        f"mean, {row['group']}: {row['accuracy']:.1f} % of {row['data']}"
        for row in result["rows"]
        if row["task"] == "mean" and row["accuracy"] is not None
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    if not any(word.split("=")[0] == "--config" for word in words):
        words = ["--config", str(CONFIG), *words]
    return run_script(
        run,
        summary,
        __doc__,
        words,
        record=Vtab,
        shrink=smoke_vtab,
        sources=SOURCES,
    )


if __name__ == "__main__":
    sys.exit(main())
