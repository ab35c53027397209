"""Compare fine-tuning of 60 pictures in a folder with a frozen probe.

    python tools/real_weights.py build weights
    python benchmarks/finetune_folds.py weights \
        --output benchmarks/results/finetune_folds.json

README's case: a folder of pictures for each class, of mixed sizes and formats
(PNG, JPEG, WebP; some grey), and the defaults of `keras-vit finetune`. The
pictures are crops of the photographs of scikit-image, ten for each of six
classes of two or three photographs. In five folds each picture is judged once,
by a model that was fitted to the other 48: a logistic regression of the frozen
features (`fit_linear`), and trainings whose head begins with zeros and with a
probe. No image is used to choose anything: each training is judged after its
last epoch. The images are 56 pixels on a side, 16 patches, for the time. Rows
that the output has already are not measured again.
"""

import argparse
import collections
import itertools
import json
import pathlib
import tempfile

import keras
import numpy as np
from finetune_defaults import SIZES
from PIL import Image

import keras_vit
from keras_vit import data
from keras_vit.evaluation.probes import fit_linear
from keras_vit.io.atomic_files import write_json
from keras_vit.runs import evaluated
from keras_vit.runtime.machine import versions
from keras_vit.training import ModelConfig, Recipe, train

CLASSES = {
    "person": ("astronaut", "camera"),
    "animal": ("chelsea", "horse"),
    "sky": ("hubble_deep_field", "moon"),
    "tissue": ("immunohistochemistry", "retina", "cell"),
    "ground": ("brick", "grass", "gravel"),
    "table": ("coffee", "coins", "clock"),
}
OF_A_CLASS = 10
SIDES = (40, 160)  # pixels of a crop, each side for itself
FORMATS = ("png", "jpg", "webp")
FOLDS = 5


def write_pictures(folder: pathlib.Path, seed: int) -> None:
    """Write the crops as files, in a folder for each class."""
    import skimage.data

    random = np.random.default_rng(seed)
    for name, photographs in CLASSES.items():
        (folder / name).mkdir(parents=True)
        for i in range(OF_A_CLASS):
            photograph = getattr(
                skimage.data, photographs[i % len(photographs)]
            )()
            crop = Image.fromarray(_crop(photograph, random))
            crop = crop if crop.mode in ("L", "RGB") else crop.convert("L")
            crop.save(folder / name / f"{i}.{FORMATS[i % len(FORMATS)]}")


def _crop(photograph, random):
    sides = [
        min(int(random.integers(SIDES[0], SIDES[1] + 1)), n)
        for n in photograph.shape[:2]
    ]
    top, left = (
        int(random.integers(0, n - side + 1))
        for n, side in zip(photograph.shape[:2], sides, strict=True)
    )
    return photograph[top : top + sides[0], left : left + sides[1]]


def probe(weights, size, dataset, seed, folder) -> float:
    """Classify the pictures to judge by a probe of frozen features."""
    del seed, folder
    parts = dataset.train, dataset.test
    known, judged = (
        keras_vit.embed(
            weights,
            [Image.open(x.name_of(i)) for i in range(len(x))],
            image_size=size,
            preprocessing=data.PreprocessingConfig(),  # as the trainings do
        )
        for x in parts
    )
    labels = [x.labels for x in parts]
    layer = fit_linear(known, labels[0], len(dataset.class_names))
    return np.mean(layer.scores(judged).argmax(axis=1) == labels[1])


def fine_tuned(head):
    """Return what trains at the defaults, from a head, and classifies."""

    def measure(weights, size, dataset, seed, folder) -> float:
        recipe = Recipe(
            model=ModelConfig(weights=str(weights), image_size=size, head=head),
            run_dir=str(folder),
            seed=seed,
        )
        run = train(recipe, dataset=dataset)
        return evaluated(run, recipe, "test")["top1"]

    return measure


WAYS = {
    "frozen probe": probe,
    "default": fine_tuned(None),
    "head of zeros": fine_tuned("new"),
}


def folds(folder: pathlib.Path, seed: int) -> list[data.Dataset]:
    """Return the data of each fold: 48 pictures to learn from, 12 to judge."""
    write_pictures(folder, seed)
    opened = data.open_dataset(
        data.DataConfig(
            folder=str(folder), validation_fraction=0.0, test_fraction=0.0
        )
    )
    order = np.random.default_rng(seed).permutation(len(opened.train))
    return [
        data.Dataset(
            opened.train.subset(np.setdiff1d(order, order[fold::FOLDS])),
            None,
            opened.train.subset(np.sort(order[fold::FOLDS])),
            opened.class_names,
        )
        for fold in range(FOLDS)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("weights", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--encoder", default="dinov2", choices=list(SIZES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--ways", nargs="+", default=[*WAYS], choices=[*WAYS])
    arguments = parser.parse_args()
    rows = []
    if arguments.output.exists():
        rows = json.loads(arguments.output.read_text())["results"]
    known = [[row[x] for x in ("seed", "way", "fold")] for row in rows]
    cases = itertools.product(arguments.seeds, arguments.ways, range(FOLDS))
    for case in cases:
        if list(case) not in known:
            rows.append(_row(*case, arguments))
            print(json.dumps(rows[-1]), flush=True)
            _write(arguments.output, arguments.encoder, rows)


def _row(seed, way, fold, arguments) -> dict:
    encoder = arguments.encoder
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        dataset = folds(root / "pictures", seed)[fold]
        place = arguments.weights / encoder, SIZES[encoder]
        share = WAYS[way](*place, dataset, seed, root / "run")
    judged = len(dataset.test)
    return {
        **{"seed": seed, "way": way, "fold": fold, "judged": judged},
        "right": round(float(share) * judged),
        "backend": keras.backend.backend(),
    }


def _write(output, encoder, rows) -> None:
    right = collections.Counter()
    judged = collections.Counter()
    for row in rows:
        right[row["way"]] += row["right"]
        judged[row["way"]] += row["judged"]
    write_json(
        output,
        {
            "command": "python benchmarks/finetune_folds.py weights",
            "encoder": encoder,
            "image_size": SIZES[encoder],
            "versions": versions(),
            "right": {x: f"{right[x]} of {judged[x]}" for x in right},
            "results": rows,
        },
    )


if __name__ == "__main__":
    main()
