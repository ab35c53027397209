"""Top-1 agreement of a precision with float32, of the weights in the package.

    KERAS_BACKEND=torch python benchmarks/agreement.py --write
    python benchmarks/agreement.py --format onnx --precision int8 --write

The images are fractals of the 500 classes that the weights know, drawn anew:
none of them was trained on. Of each arithmetic: the share of images that get
the class that float32 gives them, and the share that is right. `--calibrate`
takes the ranges of int8 from 128 images that were trained on.
"""

import argparse
import json
import pathlib
import sys
import tempfile
from typing import Any

import keras
import numpy as np

import keras_vit
from keras_vit.exporting import FORMATS
from keras_vit.prediction.exported_model import ExportedModel

sys.path.append(str(pathlib.Path(__file__).parents[1] / "recipes"))

from named_data.fractals import fractal_images  # noqa: E402

RESULTS = pathlib.Path(__file__).parent / "results"
CLASSES, TRAINED = 500, 100  # images of a class that were trained on
BATCH = 250
CALIBRATION = 128  # images, each of another class


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--images", type=int, default=10, help="of a class")
    parser.add_argument(
        "--format", choices=FORMATS, help="exported; by default Keras computes"
    )
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--write", action="store_true", help="keep the result")
    options = parser.parse_args()
    classes = np.repeat(np.arange(CLASSES), options.images)
    items = np.tile(TRAINED + np.arange(options.images), CLASSES)
    images = fractal_images(classes, items, image_size=16)
    x = keras_vit.preprocess_input(images.astype("float32"))
    exact = answers("float32", x)
    backend = keras.backend.backend()
    if options.format:
        lower = exported_answers(
            options.format, options.precision, options.calibrate, x
        )
    else:
        lower = answers(options.precision, x)
    result = {
        "command": f"KERAS_BACKEND={backend} python {' '.join(sys.argv)}",
        "by": options.format or backend,
        "precision": options.precision,
        "calibrated": options.calibrate,
        "images": len(x),
        "agreement": float(np.mean(exact == lower)),
        "right_float32": float(np.mean(exact == classes)),
        "right": float(np.mean(lower == classes)),
    }
    print(json.dumps(result, indent=2))
    if options.write:
        kind = options.precision + "_calibrated" * options.calibrate
        name = f"agreement_{result['by']}_{kind}.json"
        path = RESULTS / name
        path.write_text(json.dumps(result, indent=2) + "\n")


def answers(dtype: str, x: np.ndarray) -> np.ndarray:
    """The classes of images (B, H, W, C): int array (B,)."""
    keras.config.set_dtype_policy(dtype)
    model = keras_vit.load_checkpoint("fractals")
    call = model
    if keras.backend.backend() == "torch":
        import torch

        call = torch.compile(model.eval())
    return classes_of(call, x)


def exported_answers(
    format: str, precision: str, calibrate: bool, x: np.ndarray
) -> np.ndarray:
    """The same by an exported file, from the float32 weights."""
    keras.config.set_dtype_policy("float32")
    model = keras_vit.load_checkpoint("fractals")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, f"model{FORMATS[format].suffix}")
        options: dict[str, Any] = {}
        if calibrate:
            images = fractal_images(
                np.arange(CALIBRATION),
                np.zeros(CALIBRATION, int),
                image_size=16,
            )
            options = dict(images=images, calibrate=True, largest_change=1.0)
        keras_vit.export(model, path, format, precision=precision, **options)
        return classes_of(ExportedModel(path).predict_on_batch, x)


def classes_of(call, x):
    found = [
        keras.ops.convert_to_numpy(
            keras.ops.cast(call(x[i : i + BATCH]), "float32")
        )
        for i in range(0, len(x), BATCH)
    ]
    return np.concatenate(found).argmax(-1)


if __name__ == "__main__":
    main()
