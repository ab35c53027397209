"""What Weights & Biases and MLflow get of a run, and of one that resumes."""

import importlib.util
import json
import struct

import pytest
from tiny_runs import DATASET, Interrupt, recipe

from keras_vit.runs.reporting import evaluated, finish
from keras_vit.training import metrics_log, train
from keras_vit.training.run import resume

ROWS = [{"step": 1, "loss": 2.5}, {"step": 2, "loss": 1.5}]


class Recorded:
    """A tracker that writes down what it gets."""

    runs: dict = {}

    def __init__(self, title, config, known):
        self.id = known or f"id-{len(self.runs)}"
        self.run = self.runs.setdefault(self.id, [])
        self.run.append((title, config["training.batch_size"]))

    def log(self, row):
        if row["step"] == 99:
            raise OSError("no route\nto the host")
        self.run.append(row)

    def add_result(self, result, files):
        kept = [path.name for path in files if path.is_file()]
        self.run.append((result["top1"], kept))

    def close(self, status):
        self.run.append(status)


@pytest.fixture
def runs(monkeypatch):
    monkeypatch.setattr(Recorded, "runs", {})
    monkeypatch.setitem(metrics_log.TRACKERS, "wandb", Recorded)
    monkeypatch.setattr(metrics_log, "check_trackers", lambda names: None)
    monkeypatch.setattr(
        "keras_vit.training.training_run.check_trackers", lambda names: None
    )
    return Recorded.runs


def test_a_run_that_resumes_goes_on_in_the_same_one(runs, tmp_path):
    given = recipe(tmp_path / "run", training={"trackers": ("wandb",)})
    with pytest.raises(KeyboardInterrupt):
        train(given, dataset=DATASET, callbacks=[Interrupt()])
    assert json.loads((tmp_path / "run" / "trackers.json").read_text()) == {
        "wandb": "id-0"
    }
    run = train(given, dataset=DATASET)
    finish(run, given, evaluated(run, given, "validation"))
    (lines,) = runs.values()
    assert lines.count(("run", 8)) == 3
    assert lines.count("KILLED") == 1
    assert lines.count("FINISHED") == 2
    top1, files = lines[-2]
    assert 0 <= top1 <= 1
    assert files == ["report.html", "curves.png", "confusion.png"]
    steps = [line["step"] for line in lines if isinstance(line, dict)]
    written = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert {*steps} == {json.loads(line)["step"] for line in written}


def test_trackers_may_change_when_a_run_resumes(tmp_path):
    before = {"training": {"trackers": ["mlflow"]}}
    found = resume.differences(before, recipe(tmp_path))
    assert not [line for line in found if "trackers" in line]


def test_what_fails_there_is_said_once_and_ends_nothing(runs, tmp_path, caplog):
    (tmp_path / "config.yaml").write_text("training: {batch_size: 8}\n")
    with metrics_log.tracking(tmp_path, ["wandb"]) as (log,):
        for row in (ROWS[0], {"step": 99}, ROWS[1]):
            log(row)
    assert runs["id-0"][1:] == [ROWS[0]]
    assert caplog.messages == [
        "wandb gets no more of this run: no route to the host"
    ]


def test_one_that_is_not_installed_is_named_before_the_run_begins(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    given = recipe(tmp_path / "run", training={"trackers": ("mlflow",)})
    with pytest.raises(ValueError, match=r"mlflow, which is not.*\[mlflow\]"):
        train(given, dataset=DATASET)
    assert not (tmp_path / "run").exists()


def test_an_unknown_one_is_refused(tmp_path):
    with pytest.raises(ValueError, match="Did you mean 'wandb'"):
        recipe(tmp_path, training={"trackers": ("wandbb",)})


def reported(folder, name):
    """A run of two parts with a result, as `train` and `finish` report it."""
    (folder / "config.yaml").write_text("training: {batch_size: 8}\n")
    (folder / "report.html").write_text("<p>report</p>")
    for row in ROWS:
        with metrics_log.tracking(folder, [name]) as (log,):
            log(row | {"val_loss": None})
    metrics_log.report_result(folder, [name], {"top1": 0.75, "split": "test"})
    return json.loads((folder / "trackers.json").read_text())[name]


@pytest.mark.slow
def test_mlflow_has_the_run(tmp_path, monkeypatch, caplog):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'store'}")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    number = reported(tmp_path, "mlflow")
    assert not [x for x in caplog.messages if "gets no more" in x]
    client = mlflow.tracking.MlflowClient()
    run = client.get_run(number)
    assert run.data.params == {"training.batch_size": "8"}
    assert run.info.status == "FINISHED"
    assert run.data.metrics["result.top1"] == 0.75
    found = client.get_metric_history(number, "loss")
    assert [(x.step, x.value) for x in found] == [(1, 2.5), (2, 1.5)]
    assert [x.path for x in client.list_artifacts(number)] == ["report.html"]


def records_in(path):
    """The records of a .wandb file, which is a log as LevelDB writes it.

    A head of 7 bytes, then blocks of 32 KiB of parts of records: a checksum
    of 4 bytes, the length in 2, the kind in 1 (whole, first, middle, last).
    """
    content = path.read_bytes()
    place, record = 7, b""
    while place + 7 <= len(content):
        left = 2**15 - place % 2**15
        if left < 7:
            place += left
            continue
        length, kind = struct.unpack_from("<HB", content, place + 4)
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


@pytest.mark.slow
def test_wandb_has_the_run(tmp_path, monkeypatch, caplog):
    pytest.importorskip("wandb")
    from wandb.proto import (  # pyright: ignore[reportMissingImports]
        wandb_internal_pb2 as messages,
    )

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    number = reported(tmp_path, "wandb")
    assert not [x for x in caplog.messages if "gets no more" in x]
    values, summary = [], {}
    paths = sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert len(paths) == 3 and all(number in path.name for path in paths)
    for path in paths:
        for data in records_in(path):
            record = messages.Record()
            record.ParseFromString(data)
            items = {
                item.key or item.nested_key[0]: json.loads(item.value_json)
                for item in record.history.item
            }
            if "loss" in items:
                values.append((items["step"], items["loss"]))
            summary |= {
                item.key: item.value_json for item in record.summary.update
            }
    assert values == [(1, 2.5), (2, 1.5)]
    assert json.loads(summary["top1"]) == 0.75
