"""The readers that benchmarks/input_pipeline.py --readers compares.

Each makes batches without end: of training, by the inception crop and flip, or
of evaluation, by the shorter side and the middle.
"""

import itertools
from collections.abc import Iterator
from typing import Any

from input_tasks import BATCH, SIZE

CASES = ("training", "evaluation")


def batches_by(reader: str, case: str, folder: str) -> Iterator:
    """Make the batches of a reader: "tensorflow", "pillow" or "draft"."""
    from keras_vit import data

    if reader == "draft":
        decode_by_draft()
    config = data.DataConfig(
        folder=f"{folder}/images",
        validation_fraction=0.0,
        test_fraction=0.0,
        check_images="none",
        reader="tensorflow" if reader == "tensorflow" else "pillow",
    )
    examples = data.open_dataset(config).train
    sizes: dict[str, Any] = {
        "image_size": SIZE,
        "channels": 3,
        "batch_size": BATCH,
    }
    if case == "training":
        return iter(data.training_stream(examples, 2, **sizes).from_step(0))
    return itertools.chain.from_iterable(
        data.evaluation_batches(examples, **sizes) for _ in itertools.count()
    )


def decode_by_draft() -> None:
    """Let Pillow scale JPEG files while it decodes them, by 1/2, 1/4 or 1/8.

    The pixels differ from those of the other readers: this measures what it
    would gain.
    """
    from keras_vit.data import image_reader

    setattr(image_reader, "_cropped", _draft)  # noqa: B010


def _draft(content, kind, crop, geometry, crop_key):
    import numpy as np
    from PIL import Image

    from keras_vit.data.image_reader import as_seen, from_pillow
    from keras_vit.data.resizing import evaluation_crop, inception_window

    del kind
    with Image.open(content) as image:
        width, height = image.size
        if crop != "inception_crop":
            factor = min(width, height) / geometry.smaller_side
            image.draft("RGB", (int(width / factor), int(height / factor)))
            return evaluation_crop(from_pillow(image, 3), geometry, crop)
        top, left, rows, columns = inception_window(height, width, crop_key)
        factor = max(min(rows, columns) / SIZE, 1)
        image.draft("RGB", (int(width / factor), int(height / factor)))
        image = as_seen(image)
        right, down = image.size[0] / width, image.size[1] / height
        box = (
            *(left * right, top * down),
            *((left + columns) * right, (top + rows) * down),
        )
        part = image.transform(
            geometry.image_size[::-1],
            Image.Transform.EXTENT,
            box,
            Image.Resampling.BILINEAR,
        )
        return np.asarray(part)
