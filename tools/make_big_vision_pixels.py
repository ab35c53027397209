"""Writes the pixels that big_vision makes of a few images, for the tests.

    git clone https://github.com/google-research/big_vision
    python tools/make_big_vision_pixels.py big_vision \
        tests/reference/big_vision_pixels.npz

It needs tensorflow, which the test does without.
"""

import importlib
import json
import sys
import types

import numpy as np

CASES = 24


def operations(folder: str):
    """Import the operations on images, without the rest of the package."""
    sys.path.insert(0, folder)
    utils = types.ModuleType("big_vision.utils")
    sys.modules["big_vision.utils"] = utils  # it imports flax
    return importlib.import_module("big_vision.pp.ops_image")


def main(folder: str, path: str) -> None:
    ops = operations(folder)
    random = np.random.default_rng(0)
    cases, arrays = [], {}
    for i in range(CASES):
        height, width = map(int, random.integers(5, 60, 2))
        image = random.integers(0, 256, (height, width, 3)).astype("uint8")
        size = int(random.integers(8, 24))
        case = {"resize": ("shorter_side", "squash")[i % 2], "image_size": size}
        if case["resize"] == "shorter_side":
            steps = [ops.get_resize_small(int(size / 0.875))]
            steps += [ops.get_central_crop(size)]
        else:
            steps = [ops.get_resize(size)]
        pixels = {"image": image}
        for step in steps:
            pixels = step(pixels)
        cases.append(case)
        arrays[f"image_{i}"] = image
        arrays[f"pixels_{i}"] = np.asarray(pixels["image"])
    np.savez_compressed(path, cases=np.array(json.dumps(cases)), **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
