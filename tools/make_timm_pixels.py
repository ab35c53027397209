"""Writes the pixels that timm's transforms make of a few images, for the tests.

    python tools/make_timm_pixels.py tests/reference/timm_pixels.npz

It needs timm and torchvision, which the tests do without.
"""

import json
import sys
from typing import Any

import numpy as np
from PIL import Image
from timm.data.transforms_factory import create_transform

METHODS = ("bicubic", "bilinear", "lanczos", "box", "nearest", "hamming")
SHARES = (0.875, 0.9, 1.0, 0.95, 0.7)
MODES = ("center", "squash", "border")
MEAN = (0.3, 0.5, 0.7)
CASES = 90


def main(path: str) -> None:
    random = np.random.default_rng(0)
    cases, arrays = [], {}
    for i in range(CASES):
        height, width = map(int, random.integers(5, 50, 2))
        image = random.integers(0, 256, (height, width, 3)).astype("uint8")
        size = [*map(int, random.integers(8, 24, 2))] if i % 2 else [16, 16]
        options = {
            "input_size": [3, *size],
            "interpolation": METHODS[i % len(METHODS)],
            "crop_pct": SHARES[i % len(SHARES)],
            "crop_mode": MODES[i % len(MODES)],
            "mean": MEAN,
        }
        transform: Any = create_transform(**options, normalize=False)
        found = np.asarray(transform(Image.fromarray(image)))
        cases.append(options)
        arrays[f"image_{i}"] = image
        arrays[f"pixels_{i}"] = found.transpose(1, 2, 0)
    np.savez_compressed(path, cases=np.array(json.dumps(cases)), **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
