"""Measures how many zero-shot classes a lower precision changes.

    python tools/real_weights.py build weights
    python benchmarks/zero_shot_precision.py weights/clip \
        --out benchmarks/results/zero_shot_precision.json
    python benchmarks/zero_shot_precision.py weights/clip --source photographs \
        --out benchmarks/results/zero_shot_precision_photographs.json

The image tower is a real CLIP ViT-B/16. Its text tower ships nowhere, so that
the embedding of a class is the mean of those of some images of it, of length 1,
which are scored as words are: cosine times 100, softmax. Of other images the
class is compared with that of the float32 model: clothes of Fashion-MNIST,
whose classes are close, or crops of seven photographs, whose are not. "margins"
are the least and the largest difference of the two best probabilities in
float32 among the images whose class changed; "near ties" counts all images in
which it is below 0.15.
"""

import argparse
import gzip
import math
import pathlib
import sys
import tempfile

import finetune_defaults
import keras
import numpy as np

import keras_vit
from keras_vit.io.atomic_files import write_json
from keras_vit.prediction import as_classifier
from keras_vit.prediction.classifier import Classifier
from keras_vit.runtime.machine import environment
from keras_vit.text import ClassEmbeddings, zero_shot_model

NAMES = (
    *("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt"),
    *("sneaker", "bag", "ankle boot"),
)
# Name of a side -> format and precision of its file.
FILES = {
    "ONNX float16": ("onnx", "float16", ".onnx"),
    "ONNX int8": ("onnx", "int8", ".onnx"),
    "ONNX int8_weights": ("onnx", "int8_weights", ".onnx"),
    "OpenVINO bfloat16": ("openvino", "bfloat16", ".xml"),
}
BATCH = 20


def fashion_mnist(options) -> tuple:
    """Return the names of the classes, and images and labels of two parts."""
    parts = []
    for part in ("train", "t10k"):
        for kind, offset in (("images-idx3", 16), ("labels-idx1", 8)):
            path = options.fashion_mnist / f"{part}-{kind}-ubyte.gz"
            parts.append(
                np.frombuffer(
                    gzip.decompress(path.read_bytes()), "uint8", -1, offset
                )
            )
    known, labels, others, right = parts
    known, others = (
        x.reshape(-1, 28, 28, 1).repeat(3, axis=-1) for x in (known, others)
    )
    return NAMES, (known, labels), (others, right)


def photographs(options) -> tuple:
    """Return the same of crops of the left halves, and of the right."""
    del options
    found = finetune_defaults.photographs(0, pathlib.Path())
    parts = [(x.contents, x.labels) for x in (found.train, found.test) if x]
    return found.class_names, *parts


SOURCES = {"fashion_mnist": fashion_mnist, "photographs": photographs}


def read(classifier: Classifier, images: np.ndarray) -> np.ndarray:
    """Resize and crop images as for the evaluation of the model."""
    return np.stack([classifier.read(x) for x in images])


def class_vectors(tower, known, count) -> np.ndarray:
    """Return the mean embedding of `count` images of each class."""
    images, labels = known
    encoder = as_classifier(tower, needs_classes=False)
    found = []
    for number in range(labels.max() + 1):
        chosen = images[labels == number][:count]
        vectors = tower.predict_on_batch(
            encoder.inputs(read(encoder, chosen).astype("float32"))
        )
        vectors = keras.ops.convert_to_numpy(vectors)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        found.append(vectors.mean(axis=0))
    means = np.stack(found)
    return means / np.linalg.norm(means, axis=1, keepdims=True)


def probabilities(classifier, images) -> np.ndarray:
    parts = [
        classifier.probabilities(
            read(classifier, images[x : x + BATCH]).astype("float32")
        )
        for x in range(0, len(images), BATCH)
    ]
    return np.concatenate(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clip", type=pathlib.Path)
    parser.add_argument("--source", choices=SOURCES, default="fashion_mnist")
    parser.add_argument("--known", type=int, default=3, help="images a class")
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument(
        "--fashion_mnist",
        type=pathlib.Path,
        default="/usr/share/datasets/fashion-mnist",
    )
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    tower = keras_vit.load_checkpoint(options.clip, include_preprocessing=True)
    names, known, others = SOURCES[options.source](options)
    vectors = class_vectors(tower, known, options.known)
    classes = ClassEmbeddings(names, vectors, math.log(100), None)
    classifier = as_classifier(zero_shot_model(tower, classes))
    images, labels = (x[: options.images] for x in others)
    expected = probabilities(classifier, images)
    right = expected.argmax(axis=1)
    best = np.sort(expected, axis=1)
    margins = best[:, -1] - best[:, -2]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (format, precision, suffix) in FILES.items():
            path = pathlib.Path(folder) / f"{precision}{suffix}"
            keras_vit.export(classifier, path, format, precision=precision)
            exported = keras_vit.prediction.load_classifier(path)
            found[name] = probabilities(exported, images)
            print(name, flush=True)
    lower = keras_vit.load_checkpoint(
        options.clip, include_preprocessing=True, dtype="mixed_bfloat16"
    )
    lower = as_classifier(zero_shot_model(lower, classes))
    found["Keras mixed_bfloat16"] = probabilities(lower, images)
    sides = {}
    for name, scores in found.items():
        changed = scores.argmax(axis=1) != right
        sides[name] = {
            "same class": round(1 - float(changed.mean()), 4),
            "accuracy": round(float((scores.argmax(1) == labels).mean()), 4),
            "largest difference": round(
                float(np.abs(scores - expected).max()), 4
            ),
            "margins": [
                round(float(x), 4)
                for x in (margins[changed].min(), margins[changed].max())
            ]
            if changed.any()
            else [],
        }
        print(name, sides[name], flush=True)
    result = {
        "source": options.source,
        "images": len(images),
        "near ties": int((margins < 0.15).sum()),
        "images per class": options.known,
        "accuracy": round(float((right == labels).mean()), 4),
        "sides": sides,
        **environment(),
    }
    print(result)
    if options.out:
        write_json(options.out, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
