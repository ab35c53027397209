"""From a trained model to the result and the report in its run folder.

Axes: N images, H and W height and width, C channels, K classes.
"""

import numpy as np

from keras_vit import data, evaluation
from keras_vit.analysis.report import write_augmented, write_report
from keras_vit.experiments.explanation import explain_run
from keras_vit.files import replacing
from keras_vit.training import Recipe, Run, run_folder
from keras_vit.training.environment import versions
from keras_vit.training.inputs import make_stream

__all__ = ["batches_of", "evaluated", "facts", "finish"]

NUM_AUGMENTED = 24  # images in the sample of what the model was trained on


def batches_of(run: Run, recipe: Recipe, part: str):
    """The images of a part of the data, as the model takes them.

    Args:
        run: a `Run`.
        recipe: its `Recipe`.
        part: "train", "validation" or "test".

    Returns:
        A tf.data.Dataset of padded (images, labels, mask).

    Raises:
        ValueError: when the data has no such part.
    """
    examples = getattr(run.dataset, part)
    if not examples:
        raise ValueError(
            f"{run.dataset.name} has no {part} images. Give "
            f"--data.{part}_split or --data.{part}_fraction."
        )
    model = run.model
    return data.evaluation_batches(
        examples,
        image_size=model.input_shape[1:3],
        channels=model.input_shape[3],
        batch_size=recipe.training.micro_batch_size,
        preprocessing=recipe.preprocessing,
    )


def evaluated(run: Run, recipe: Recipe, part: str) -> dict:
    """Counts what a model has right and writes it down, image by image.

    Args:
        run: a `Run`.
        recipe: its `Recipe`.
        part: "validation" or "test".

    Returns:
        top1, top5 and num_examples, and the part as split.

    Raises:
        ValueError: when the data has no such part.

    Example:
        >>> evaluated(train(recipe), recipe, "test")["top1"]
    """
    batches = batches_of(run, recipe, part)
    predictions = evaluation.predict_classes(
        run.model, batches, activation=recipe.training.loss
    )
    evaluation.write_evaluation(
        run.folder, predictions, batches, run.dataset.class_names
    )
    return {"split": part, **evaluation.summarise(predictions)}


def facts(run: Run) -> dict:
    """What a run took, for its result.

    Args:
        run: a `Run`.

    Returns:
        A dictionary of plain values.
    """
    return {
        "seconds": run.seconds,
        "images_per_second": run.images_per_second,
        "num_parameters": run.model.count_params(),
        "num_train_images": len(run.dataset.train),
        "versions": versions(),
    }


def finish(run: Run, recipe: Recipe, result: dict) -> dict:
    """Writes a sample of the training images, the result and the report.

    Args:
        run: a `Run`.
        recipe: its `Recipe`.
        result: dictionary of plain values, for result.json.

    Returns:
        The result.
    """
    stream = make_stream(recipe, run.dataset, run.model)
    images, labels = next(iter(stream.from_step(0)))
    with replacing(run.folder / "augmented.npz") as path:
        write_augmented(
            path,
            np.asarray(images)[:NUM_AUGMENTED],
            np.asarray(labels)[:NUM_AUGMENTED],
        )
    # The result marks the run as finished; the report shows the result.
    run_folder.write_json(run.folder / run_folder.RESULT, result)
    explain_run(run.folder, run.model)
    write_report(run.folder)
    return result
