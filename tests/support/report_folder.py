"""A run folder that a report can be made of, written by hand."""

import csv
import json

import numpy as np

NAMES = ["cat", "<script>alert('dog')</script>", 'a "cow" & $x$']
# Of six images two are mistakes: a dog taken for a cat (0.9), a cow for a dog.
LABELS = np.array([0, 0, 1, 1, 2, 2], "int32")
CLASSES = np.array(
    [[0, 1, 2], [0, 1, 2], [1, 0, 2], [0, 1, 2], [2, 1, 0], [1, 2, 0]], "int32"
)
PROBABILITIES = np.array(
    [[0.8, 0.1, 0.1]] * 3 + [[0.9, 0.1, 0.0]] + [[0.6, 0.3, 0.1]] * 2, "float32"
)
PICTURE_ROWS = np.array([3, 5, 4])
PICTURES = np.arange(3 * 8 * 8, dtype=np.uint8).reshape(3, 8, 8, 1)
# Behind the cells of the confusion matrix stands one more, named right.
CELL_ROWS = np.array([0])
CELL_PICTURES = np.full((1, 8, 8, 1), 200, np.uint8)
# Of two images the maps of two layers: the mean of the heads and two heads, on
# a grid of 2x3 patches; the rollout is strongest at the top left.
MAPS = np.arange(72, dtype=np.uint8).reshape(2, 2, 3, 2, 3) * 3
ROLLOUT = np.arange(255, 15, -20, dtype=np.uint8).reshape(2, 2, 3)
METRICS = [
    {"step": step, "loss": 3 - step / 100, "accuracy": step / 200}
    | {"learning_rate": 0.001, "peak_memory": 2**30}
    for step in (50, 100, 150)
]
HISTORY = [{"step": 150, "val_loss": 1.25, "val_accuracy": 0.75}]
PER_CLASS = [
    ["class", "images", "predicted", "precision", "recall", "f1"],
    [NAMES[0], 2, 3, 2 / 3, 1.0, 0.8],
    [NAMES[1], 2, 2, 0.5, 0.5, 0.5],
    [NAMES[2], 2, 1, 1.0, 0.5, 2 / 3],
    ["never met", 0, 0, "", "", ""],
]


def fill(folder):
    """Writes all files that a report reads; returns the folder."""
    documents = {
        "class_names.json": NAMES,
        "environment.json": {"backend": "jax", "versions": {"keras": "3.15"}},
        "result.json": {"top1": 2 / 3, "num_examples": 12345, "split": "test"},
    }
    for name, content in documents.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "config.yaml").write_text("data:\n  name: <b>pets</b>\n")
    lines = [json.dumps(row) + "\n" for row in METRICS]
    # The run was killed in the middle of a line.
    (folder / "metrics.jsonl").write_text("".join(lines) + '{"step": 2')
    with (folder / "per_class.csv").open("w", newline="") as file:
        csv.writer(file).writerows(PER_CLASS)
    with (folder / "history.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, HISTORY[0])
        writer.writeheader()
        writer.writerows(HISTORY)
    write_predictions(
        folder,
        LABELS,
        CLASSES,
        PROBABILITIES,
        len(NAMES),
        cell_pictures=CELL_PICTURES,
        cell_rows=CELL_ROWS,
    )
    np.savez(
        folder / "attention.npz",
        pictures=PICTURES[:2],
        maps=MAPS,
        rollout=ROLLOUT,
        distances=np.array([[1.25, 3.5], [4.0, 6.0]], "float32"),
        similarity=np.eye(6, dtype="float16").reshape(2, 3, 2, 3),
        similarity_step=1,
        window=np.array([0, 0, 8, 8]),
        titles=np.array(["Image 3", "<i>Image</i> 5"]),
        classes=CLASSES[[3, 5]],
        probabilities=PROBABILITIES[[3, 5]],
        labels=LABELS[[3, 5]],
        num_classes=len(NAMES),
    )
    np.savez(
        folder / "augmented.npz",
        images=PICTURES[:2],
        labels=np.array([[1, 0, 0], [0.02, 0.7, 0.28]], "float32"),
    )
    return folder


def write_predictions(
    folder, labels, classes, probabilities, num_classes, **more
):
    np.savez(
        folder / "predictions.npz",
        labels=labels,
        classes=classes,
        probabilities=probabilities,
        num_classes=num_classes,
        **{"pictures": PICTURES, "picture_rows": PICTURE_ROWS, **more},
    )
