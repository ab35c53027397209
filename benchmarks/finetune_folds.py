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
last epoch. The images are 56 pixels on a side, 16 patches, for the time.
"""

import argparse
import json
import pathlib
import sys
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
from keras_vit.training import ModelConfig, Recipe, TrainingConfig, train

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
HEADS = ("new", "probe")


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


def probe(weights, size, known, judged, classes) -> int:
    """Return how many pictures a probe of frozen features classifies right."""
    features = [
        keras_vit.embed(
            weights,
            [Image.open(x.name_of(i)) for i in range(len(x))],
            image_size=size,
        )
        for x in (known, judged)
    ]
    scores = fit_linear(features[0], known.labels, classes).scores(features[1])
    return int(np.sum(scores.argmax(axis=1) == judged.labels))


def fine_tuned(weights, size, dataset, head, seed, folder) -> int:
    """Return how many pictures a training at the defaults classifies right."""
    recipe = Recipe(
        model=ModelConfig(weights=str(weights), image_size=size, head=head),
        training=TrainingConfig(),
        run_dir=str(folder),
        seed=seed,
    )
    run = train(recipe, dataset=dataset)
    return round(evaluated(run, recipe, "test")["top1"] * len(dataset.test))


def folds(pictures, seed):
    """Yield the data of each fold: 48 pictures to learn from, 12 to judge."""
    order = np.random.default_rng(seed).permutation(len(pictures))
    for fold in range(FOLDS):
        judged = np.sort(order[fold::FOLDS])
        known = np.setdiff1d(order, judged)
        yield pictures.subset(known), pictures.subset(judged)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("weights", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--encoder", default="dinov2", choices=list(SIZES))
    parser.add_argument("--image_size", type=int)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    arguments = parser.parse_args()
    weights = arguments.weights / arguments.encoder
    size = arguments.image_size or SIZES[arguments.encoder]
    rows = []
    for seed in arguments.seeds:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            write_pictures(root / "pictures", seed)
            opened = data.open_dataset(
                data.DataConfig(
                    folder=str(root / "pictures"),
                    validation_fraction=0.0,
                    test_fraction=0.0,
                )
            )
            for fold, parts in enumerate(folds(opened.train, seed)):
                names = opened.class_names
                dataset = data.Dataset(parts[0], None, parts[1], names)
                right = {
                    "probe alone": probe(weights, size, *parts, len(names))
                }
                for head in HEADS:
                    place = root / f"{fold}-{head}"
                    right[head] = fine_tuned(
                        weights, size, dataset, head, seed, place
                    )
                row = {"seed": seed, "fold": fold, "images": len(parts[1])}
                rows.append({**row, "right": right})
                print(json.dumps(rows[-1]), flush=True)
                write_json(
                    arguments.output,
                    {
                        "command": " ".join(["python", *sys.argv]),
                        "backend": keras.backend.backend(),
                        "encoder": arguments.encoder,
                        "image_size": size,
                        "versions": versions(),
                        "images": sum(x["images"] for x in rows),
                        "right": {
                            name: sum(x["right"][name] for x in rows)
                            for name in right
                        },
                        "folds": rows,
                    },
                )


if __name__ == "__main__":
    main()
