"""Fine-tunes a Vision Transformer and reports on it in pictures.

    python recipes/finetune.py --config recipes/configs/quickstart.yaml

trains on the handwritten digits of scikit-learn, which need no network. Any
field of a config is an option: `--training.epochs 20 --seed 1`;
`--print_config` prints all of them, `--help` explains them. `--smoke true`
tries a config on a laptop. The same command continues a run that was stopped,
to the same weights.

The run folder then holds the config, the environment, metrics, checkpoints,
the model with its class names, result.json, report.html with the curves, the
confusion matrix and the mistakes on the test images, and example images for
`keras-vit predict`.
"""

import math
import sys

import numpy as np
from named_data.sources import SOURCES

from keras_vit import evaluation, runs, training
from keras_vit.runs import run_script
from keras_vit.training import Recipe, distribution
from keras_vit.training.run import files as run_folder

# Pixels of all images for which the search for nearest neighbours takes seconds
# and a few hundred MB; the digits of the quick start have 115,000.
BASELINE_NUMBERS = 2**24
PARTS = ("test", "validation")  # The result is computed on the first one.
EXAMPLES_OF_A_CLASS = 2
CLASSES_WITH_EXAMPLES = 10


def run(recipe: Recipe) -> dict:
    """Train, evaluate and fill the run folder.

    Returns:
        What is written to result.json.
    """
    trained = training.train(recipe, needs=PARTS, sources=SOURCES)
    return distribution.agreed(lambda: report(trained, recipe))


def report(trained: "training.Run", recipe: Recipe) -> dict:
    """Evaluate and fill the run folder, in one process."""
    part = next(x for x in PARTS if getattr(trained.dataset, x))
    result = {**runs.evaluated(trained, recipe, part), **runs.facts(trained)}
    if trained.dataset.task == "regression":
        return runs.finish(trained, recipe, result)
    batches = runs.batches_of(trained, recipe, part)
    images = len(trained.dataset.train) + len(getattr(trained.dataset, part))
    if images * math.prod(trained.model.input_shape[1:]) <= BASELINE_NUMBERS:
        result |= baseline(trained, recipe, batches)
    write_examples(trained, batches)
    return runs.finish(trained, recipe, result)


def baseline(trained: "training.Run", recipe: Recipe, batches) -> dict:
    """Classify images by their nearest training image, as a baseline."""
    known, known_labels = arrays(runs.batches_of(trained, recipe, "train"))
    images, labels = arrays(batches)
    nearest = evaluation.nearest_neighbour_predictions(
        known, known_labels, images
    )
    return {
        "baseline": "label of the nearest training image",
        "baseline_accuracy": evaluation.accuracy(labels, nearest),
    }


def arrays(batches) -> tuple[np.ndarray, np.ndarray]:
    """Return the images and labels of padded batches, without the padding."""
    parts = [
        (images[mask], labels[mask])
        for images, labels, mask in (map(np.asarray, x) for x in batches)
    ]
    images, labels = zip(*parts, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def write_examples(trained: "training.Run", batches) -> None:
    """Save images of the first classes, to try the model on."""
    labels = evaluation.load_predictions(
        trained.folder / "predictions.npz"
    ).labels
    if labels.ndim > 1:
        return  # An image of several classes is an example of none.
    rows = [
        row
        for label in range(CLASSES_WITH_EXAMPLES)
        for row in np.flatnonzero(labels == label)[:EXAMPLES_OF_A_CLASS]
    ]
    images = evaluation.images_at(batches, rows)
    run_folder.write_examples(
        trained.folder, images, labels[rows], trained.dataset.class_names
    )


def summary(result: dict) -> str:
    line = (
        runs.numbers_line(result)
        if "mae" in result
        else f"{result['top1']:.2%} of {result['num_examples']} "
        f"{result['split']} images are right"
    )
    if "baseline_accuracy" in result:
        line += f" (nearest neighbour {result['baseline_accuracy']:.2%})"
    return (
        f"{line}, trained in {result['seconds']:.0f} s at "
        f"{result['images_per_second']:.0f} images/s"
    )


def main(arguments: list[str] | None = None) -> int:
    return run_script(run, summary, __doc__, arguments, sources=SOURCES)


if __name__ == "__main__":
    sys.exit(main())
