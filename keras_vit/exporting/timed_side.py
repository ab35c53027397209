"""One side of a comparison: answers a line with a number of images in seconds.

`keras_vit.exporting.comparison` starts it in a process of its own, whose
arguments are the kind of side, the path of its model and (H, W, C) as JSON.

Axes: B images of a batch, H and W height and width, C channels.
"""

import functools
import json
import os
import sys
import time
from collections.abc import Callable

import numpy as np

from keras_vit.checkpoints.dialects import LIBRARIES

__all__ = ["KINDS"]

Run = Callable[[np.ndarray], object]  # of images (B, H, W, C) in [0, 255]


def _exported(path) -> Run:
    from keras_vit.prediction.exported_model import ExportedModel

    return ExportedModel(path).predict_on_batch


def _keras(path) -> Run:
    import keras

    return keras.saving.load_model(path, compile=False).predict_on_batch


def _torch(load_folder, compiled, path) -> Run:
    import torch

    model = load_folder(path)
    call = torch.compile(model, dynamic=False) if compiled else model

    def run(images):
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
        with torch.inference_mode():
            return call(pixels).numpy()

    return run


KINDS: dict[str, Callable[[str], Run]] = {
    "exported": _exported,
    "keras": _keras,
    **{
        f"{x.name}{' compiled' * compiled}": functools.partial(
            _torch, x.load_folder, compiled
        )
        for x in LIBRARIES
        if x.load_folder
        for compiled in (False, True)
    },
}


def _main() -> None:
    kind, path, shape = sys.argv[1:]
    # What a runtime prints is no answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(**found):
        print(json.dumps(found), file=answers, flush=True)

    try:
        run = KINDS[kind](path)
        answer()
        for line in sys.stdin:
            answer(seconds=_seconds(run, int(line), json.loads(shape)))
    except Exception as error:  # Each runtime has errors of its own.
        reason = str(error).strip().partition("\n")[0]
        answer(error=f"{type(error).__name__}: {reason}")


def _seconds(run, batch, shape):
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (batch, *shape)).astype("float32")
    begin = time.perf_counter()
    run(pixels)
    return time.perf_counter() - begin


if __name__ == "__main__":
    _main()
