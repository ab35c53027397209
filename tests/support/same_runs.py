"""Whether two runs of `tiny_training` left the same, to the bit."""

import json

import tiny_training as tiny

from keras_vit.training import checkpointing, metrics_log

TIMES = ("images_per_second", "peak_memory")


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
    arrays, *rest = results(one)
    others, *other_rest = results(other)
    assert rest == other_rest
    assert list(arrays) == list(others)
    for name in arrays:
        assert arrays[name].tobytes() == others[name].tobytes(), name
