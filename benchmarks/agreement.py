"""Top-1 agreement of bfloat16 with float32, of the weights in the package.

    KERAS_BACKEND=tensorflow python benchmarks/agreement.py --openvino --write
    KERAS_BACKEND=torch python benchmarks/agreement.py --write

The images are fractals of the 500 classes that the weights know, drawn anew:
none of them was trained on. Of each arithmetic: the share of images that get
the class that float32 gives them, and the share that is right.
"""

import argparse
import json
import pathlib
import sys

import keras
import numpy as np
from openvino_model import compiled

import keras_vit
from keras_vit.data.fractals import fractal_images

RESULTS = pathlib.Path(__file__).parent / "results"
CLASSES, TRAINED = 500, 100  # images of a class that were trained on
BATCH = 250


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--images", type=int, default=10, help="of a class")
    parser.add_argument(
        "--openvino", action="store_true", help="bfloat16 by OpenVINO"
    )
    parser.add_argument("--write", action="store_true", help="keep the result")
    options = parser.parse_args()
    classes = np.repeat(np.arange(CLASSES), options.images)
    items = np.tile(TRAINED + np.arange(options.images), CLASSES)
    images = fractal_images(classes, items, image_size=16)
    x = keras_vit.preprocess_input(images.astype("float32"))
    exact = answers("float32", x)
    by = by_openvino if options.openvino else answers
    lower = by("bfloat16", x)
    backend = keras.backend.backend()
    result = {
        "command": f"KERAS_BACKEND={backend} python {' '.join(sys.argv)}",
        "bfloat16_by": "openvino" if options.openvino else backend,
        "images": len(x),
        "agreement": float(np.mean(exact == lower)),
        "right_float32": float(np.mean(exact == classes)),
        "right_bfloat16": float(np.mean(lower == classes)),
    }
    print(json.dumps(result, indent=2))
    if options.write:
        path = RESULTS / f"agreement_{result['bfloat16_by']}.json"
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


def by_openvino(dtype: str, x: np.ndarray) -> np.ndarray:
    """The same by OpenVINO, from the float32 weights."""
    keras.config.set_dtype_policy("float32")
    model = compiled(keras_vit.load_checkpoint("fractals"), dtype)
    return classes_of(lambda images: model(images)[0], x)


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
