"""Whether two runs of `tiny_training` left the same, to the bit."""

import json

import keras
import numpy as np
import tiny_training as tiny

from keras_vit.training import checkpointing, metrics_log

TIMES = ("images_per_second", "peak_memory")
GRADIENT_NORM = "gradient_norm"
# TensorFlow's norm of the same gradients differs in its last digit once in some
# thousand steps on busy cores.
NORM = 1e-6 if keras.backend.backend() == "tensorflow" else 0.0


def lines(folder):
    text = (folder / metrics_log.METRICS).read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    return [
        {name: row[name] for name in row if name not in TIMES} for row in rows
    ]


def results(folder):
    """All that a run leaves but the clock."""
    arrays, record = tiny.newest(folder / checkpointing.FOLDER)
    record = {"step": record["step"], "best": record["callbacks"][0]}
    history = metrics_log.read_history(folder)
    for row in history:
        del row["images_per_second"]
    return arrays, record, history, lines(folder)


def assert_same(one, other):
    arrays, record, history, rows = results(one)
    others, other_record, other_history, other_rows = results(other)
    assert record == other_record, (record, other_record)
    assert history == other_history, (history, other_history)
    norms, other_norms = (
        [line.pop(GRADIENT_NORM) for line in found]
        for found in (rows, other_rows)
    )
    assert rows == other_rows, (rows, other_rows)
    np.testing.assert_allclose(norms, other_norms, rtol=NORM, atol=0)
    assert list(arrays) == list(others)
    for name in arrays:
        is_norm = name.startswith("optimizer/") and not arrays[name].shape
        rtol = NORM if is_norm else 0
        np.testing.assert_allclose(
            arrays[name], others[name], rtol=rtol, atol=0, err_msg=name
        )
