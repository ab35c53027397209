"""Trains students on the labels that a teacher gives to unlabelled images.

    python recipes/noisy_student.py --run_dir runs/noisy_student
    python recipes/noisy_student.py --data.folder flowers \
        --noisy_student.unlabelled photos --noisy_student.networks \
        '[{name: EfficientNetB0}, {name: EfficientNetB3}]'

as in "Self-training with Noisy Student improves ImageNet classification"
(arXiv:1911.04252): a teacher learns from the labelled images and labels the
others, without noise; a larger student learns from both, with noise: the
augmentation, dropout and stochastic depth of the config. Then it teaches the
next. Without other images, half of the training images lose their labels. The
same command continues where it was stopped; finished rounds are not repeated.

The run folder then holds config.yaml, a run folder for each round, and
noisy_student.csv, noisy_student.png and result.json of them all.
"""

import dataclasses
import pathlib
import sys

from named_data.sources import SOURCES
from noisy_student.iterations import (
    NoisyStudentRecipe,
    iterate,
    smoke_student,
)

from keras_vit.analysis.plots import curves
from keras_vit.io.atomic_files import write_csv, write_yaml
from keras_vit.io.run_folder import CONFIG
from keras_vit.runs import run_script
from keras_vit.runs.reporting import save_figure
from keras_vit.runtime.machine import versions
from keras_vit.training.distribution.processes import agreed
from keras_vit.training.run import files as run_folder


def run(recipe: NoisyStudentRecipe) -> dict:
    """Train the teacher and the students.

    Returns:
        What is written to result.json.

    Raises:
        ValueError: when recipe, data and run folders do not fit together.
        OSError: when the disk is full.
    """
    rows = iterate(recipe)
    folder = run_folder.local(recipe.run_dir)
    result = {"iterations": rows, "versions": versions()}
    agreed(lambda: write(folder, recipe, rows))
    agreed(lambda: run_folder.write_summary(folder, result))
    return result


def write(
    folder: pathlib.Path, recipe: NoisyStudentRecipe, rows: list[dict]
) -> None:
    """Write config.yaml, noisy_student.csv and noisy_student.png."""
    write_yaml(folder / CONFIG, dataclasses.asdict(recipe))
    write_csv(folder / "noisy_student.csv", rows)
    numbers = [row["iteration"] for row in rows]
    accuracies = [row["top1"] for row in rows]
    series = {f"{rows[0]['split']} images": (numbers, accuracies)}
    if "pseudo_label_accuracy" in rows[-1]:
        known = [row["pseudo_label_accuracy"] for row in rows[1:]]
        series["pseudo-labels of its teacher"] = (numbers[1:], known)
    figure = curves(
        series,
        xlabel="round, 0 for the teacher",
        ylabel="accuracy",
        percent=True,
    )
    save_figure(figure, folder / "noisy_student.png")


def summary(result: dict) -> str:
    lines = []
    for row in result["iterations"]:
        who = f"student {row['iteration']}" if row["iteration"] else "teacher"
        lines.append(
            f"{who} ({row['network']}): {row['top1']:.2%} of the "
            f"{row['split']} images are right, trained on "
            f"{row['num_train_images']}"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    return run_script(
        run,
        summary,
        __doc__,
        arguments,
        record=NoisyStudentRecipe,
        shrink=smoke_student,
        sources=SOURCES,
    )


if __name__ == "__main__":
    sys.exit(main())
