"""The end of a run: evaluation, result.json and the report.

A run with a result is finished: recipes of several runs train each once.
"""

import json
import pathlib

import numpy as np

from keras_vit import data, evaluation
from keras_vit.analysis import plot_confusion
from keras_vit.analysis.report import explain_run, write_augmented, write_report
from keras_vit.analysis.report.run_files import (
    RunFiles,
    class_names_in,
    learning_curves,
)
from keras_vit.data.image_reader import naming_broken_images
from keras_vit.data.manifest import list_images
from keras_vit.io.atomic_files import replacing
from keras_vit.io.run_folder import RESULT
from keras_vit.runtime.machine import versions
from keras_vit.training import Recipe, Run, train
from keras_vit.training.build import ANSWERS, for_task, make_stream
from keras_vit.training.defaults import settled
from keras_vit.training.distribution.processes import agreed
from keras_vit.training.metrics_log import report_result
from keras_vit.training.run import files as run_folder
from keras_vit.training.run.resume import (
    changed_images,
    differences,
    with_given,
)

__all__ = [
    "batches_of",
    "evaluated",
    "facts",
    "finish",
    "finished",
    "numbers_line",
    "result_of",
    "save_figure",
    "write_pages",
]

NUM_AUGMENTED = 24  # images in the sample of what the model was trained on
DOTS_PER_INCH = 150


def finished(
    recipe: Recipe,
    part: str,
    dataset=None,
) -> dict:
    """Returns the result of a run, which is trained unless it is finished.

    Args:
        recipe: the `Recipe` of the run.
        part: "validation" or "test", the images to evaluate on.
        dataset: the `Dataset` of the recipe if it is open already; then a
            result over other images is refused.

    Returns:
        top1, top5 and num_examples.

    Raises:
        ValueError: when the folder holds a run of another recipe.

    Example:
        >>> finished(Recipe(run_dir="runs/digits"), "test")["num_examples"]
        359
    """
    recipe = with_given(recipe, dataset)
    known = agreed(lambda: result_of(recipe, dataset))
    if known is not None:
        return known
    run = train(recipe, dataset=dataset, needs=(part,))
    return agreed(lambda: finish(run, recipe, evaluated(run, recipe, part)))


def result_of(recipe: Recipe, dataset=None) -> dict | None:
    """Reads the result.json of a finished run; None if it is not finished.

    Args:
        recipe: the `Recipe` of the run.
        dataset: the `Dataset` of today, whose images are compared with those
            of the run unless data.accept_changes is True; None compares none.

    Raises:
        ValueError: when the run was of another recipe, or of other images.
    """
    folder = run_folder.local(recipe.run_dir)
    if not (folder / RESULT).is_file():
        return None
    if changed := differences(run_folder.read_config(folder), recipe):
        raise ValueError(
            f"The folder {recipe.run_dir!r} holds a finished run of another "
            f"config: {'; '.join(changed)}. Choose another --run_dir, or "
            "remove the folder."
        )
    if dataset is not None and not recipe.data.accept_changes:
        _check_images(folder, dataset, recipe)
    return json.loads((folder / RESULT).read_text())


def _check_images(folder, dataset, recipe):
    """Raise a ValueError where a finished run was of other images."""
    if found := changed_images(folder, list_images(dataset, recipe.data)):
        raise ValueError(
            f"The images of the finished run in {str(folder)!r} are not those "
            f"of today: {'; '.join(found)}. Put them back, choose another "
            "--run_dir, remove the folder, or give --data.accept_changes true "
            "to keep its result."
        )


def batches_of(run: Run, recipe: Recipe, part: str):
    """Read the "train", "validation" or "test" images of a run's model.

    Returns:
        Padded batches (images, labels, mask), see `evaluation_batches`.

    Raises:
        ValueError: when the data has no such part.
    """
    examples = getattr(run.dataset, part)
    if not examples:
        raise ValueError(
            f"{run.dataset.name} has no {part} images. Give "
            f"--data.{part}_split or --data.{part}_fraction."
        )
    return data.evaluation_batches(
        examples,
        image_size=run.model.input_shape[1:3],
        channels=run.model.input_shape[3],
        batch_size=recipe.training.micro_batch_size,
        preprocessing=recipe.preprocessing,
    )


def evaluated(run: Run, recipe: Recipe, part: str) -> dict:
    """Evaluates a model and writes its predictions to the run folder.

    Args:
        run: what `train` returned.
        recipe: its `Recipe`.
        part: "validation" or "test".

    Returns:
        What `keras_vit.evaluation.summarise` does, the part as split, and
        what was left out of the data as skipped.

    Raises:
        ValueError: when the data has no such part.

    Example:
        >>> evaluated(train(recipe), recipe, "test")["top1"]
    """
    batches = batches_of(run, recipe, part)
    examples = getattr(run.dataset, part)
    files = data.file_names(examples)
    if run.dataset.task == "regression":
        return _evaluated_numbers(run, part, batches, files)
    with naming_broken_images():
        predictions = evaluation.predict_classes(
            run.model,
            batches,
            top=evaluation.classes_to_keep(
                len(examples), run.model.output_shape[-1]
            ),
            activation=ANSWERS[for_task(recipe, run.dataset).training.loss],
            names=files,
        )
    evaluation.write_evaluation(
        run.folder, predictions, batches, run.dataset.class_names
    )
    unread = evaluation.unread(predictions, files)
    return {
        "split": part,
        **evaluation.summarise(predictions),
        "skipped": data.skipped_files(run.dataset, [*run.skipped, *unread]),
    }


def _evaluated_numbers(run: Run, part: str, batches, files) -> dict:
    """As `evaluated`, of a model that predicts numbers."""
    examples = getattr(run.dataset, part)
    with naming_broken_images():
        found = evaluation.predict_numbers(run.model, batches, examples, files)
    evaluation.write_numbers(run.folder, found, run.dataset.class_names)
    unread = sorted({*(files or ())} - {*map(str, found.names)})
    return {
        "split": part,
        **evaluation.summarise_numbers(found),
        "skipped": data.skipped_files(run.dataset, [*run.skipped, *unread]),
    }


def numbers_line(result: dict) -> str:
    """Return what `summarise_numbers` found, as a line.

    Example:
        >>> numbers_line({"mae": 1.5, "r2": 0.9, "num_examples": 3,
        ...     "split": "test"})
        'mean absolute error 1.5, R2 0.9000 of 3 test images'
    """
    return (
        f"mean absolute error {result['mae']:.4g}, R2 {result['r2']:.4f} of "
        f"{result['num_examples']} {result['split']} images"
    )


def facts(run: Run) -> dict:
    """Evaluations, time, speed, sizes and versions of a run, for its result."""
    evaluations: dict = {}
    if run.evaluations:
        evaluations = {"evaluations": run.evaluations}
        if "val_accuracy" in run.kept:
            evaluations["validation_accuracy"] = run.kept["val_accuracy"]
    return {
        **evaluations,
        "seconds": run.seconds,
        "images_per_second": run.images_per_second,
        "num_parameters": run.model.count_params(),
        "num_train_images": len(run.dataset.train),
        "versions": versions(),
    }


def finish(run: Run, recipe: Recipe, result: dict) -> dict:
    """Writes a sample of the training images, the report and the result.

    Args:
        run: what `train` returned.
        recipe: its `Recipe`.
        result: dictionary of plain values, for result.json.

    Returns:
        The result; "skipped" is added where it lacks it.
    """
    skipped = data.skipped_files(run.dataset, run.skipped)
    result = {"skipped": skipped, **result}
    if run.dataset.task != "regression":  # It names their classes.
        write_sample(run, recipe)
    explain_run(run.folder, run.model)
    write_pages(run.folder, result)
    # The last file: killed before it, the same command does what is missing.
    run_folder.write_result(run.folder, result)
    report_result(run.folder, recipe.training.trackers, result)
    return result


def write_sample(run: Run, recipe: Recipe) -> None:
    """Writes augmented.npz: images as the model was trained on them."""
    recipe, _ = settled(recipe, run.model, len(run.dataset.train))
    stream = make_stream(recipe, run.dataset, run.model)
    images, labels, *_ = next(iter(stream.from_step(0)))
    with replacing(run.folder / "augmented.npz") as path:
        write_augmented(
            path,
            np.asarray(images)[:NUM_AUGMENTED],
            np.asarray(labels)[:NUM_AUGMENTED],
        )


def write_pages(folder: pathlib.Path, result: dict) -> None:
    """Writes report.html, and what of it others show: PNG files.

    curves.png where there are numbers of a training, confusion.png where
    images with one label each were evaluated.

    Args:
        folder: the run folder.
        result: what result.json will hold.
    """
    write_report(folder, result)
    run = RunFiles(folder)
    logs = (run.read(name) or [] for name in ("metrics.jsonl", "history.csv"))
    figures = {"curves.png": learning_curves(*logs), "confusion.png": None}
    found = run.read("predictions.npz")
    if found is not None and found["labels"].ndim == 1:
        figures["confusion.png"] = plot_confusion(
            found["labels"],
            found["classes"][:, 0],
            class_names_in(run, int(found["num_classes"])),
        )
    for name, figure in figures.items():
        if figure is not None:
            save_figure(figure, folder / name)


def save_figure(figure, path: pathlib.Path) -> None:
    """Writes a matplotlib figure."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=DOTS_PER_INCH)
