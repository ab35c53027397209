"""Trainings whose runs are in emulated stores."""

import json

import pytest
import several_processes as several
import tiny_runs as tiny
import whole_runs

from keras_vit.io.stores import Store
from keras_vit.training import train
from keras_vit.training.run import files as run_folder

pytestmark = pytest.mark.slow


def check_same(one, other):
    for x, y in zip(
        tiny.values(one.model), tiny.values(other.model), strict=True
    ):
        assert (x == y).all()


def test_a_run_lives_in_a_store_from_its_first_file_to_its_result(address):
    run = train(tiny.recipe(address), dataset=tiny.DATASET)
    run_folder.write_result(run.folder, {"top1": 0.5})
    store = Store(address)
    names = set(store.find())
    assert names == tiny.files(run.folder)
    assert {"model.keras", "metrics.jsonl", "keras_vit_run.json"} <= names
    assert json.loads(store.read("result.json") or b"") == {"top1": 0.5}
    run_folder._mirrors.clear()
    with pytest.raises(ValueError, match=f"{address}' holds a finished run"):
        train(tiny.recipe(address), dataset=tiny.DATASET)


def test_a_run_that_was_stopped_goes_on_without_its_machine(address, tmp_path):
    whole = train(tiny.recipe(tmp_path / "whole"), dataset=tiny.DATASET)
    with pytest.raises(KeyboardInterrupt):
        train(
            tiny.recipe(address),
            dataset=tiny.DATASET,
            callbacks=[tiny.Interrupt()],
        )
    first = run_folder.local(address)
    run_folder._mirrors.clear()
    run = train(tiny.recipe(address), dataset=tiny.DATASET)
    assert run.folder != first
    check_same(run, whole)
    assert set(Store(address).find()) == tiny.files(run.folder)


def test_two_processes_train_as_one_on_a_disk(
    address, emulator, tmp_path, backend
):
    if backend == "torch":
        pytest.skip("Several processes are there on JAX and TensorFlow.")
    expected = whole_runs.told(tmp_path / "one", "single")
    found = several.ended(several.start(several.command(address, "auto")))
    for code, _, errors in found:
        assert code == 0, errors[-3000:]
    weights = [json.loads(output.splitlines()[-1]) for _, output, _ in found]
    store = Store(address)
    for name in store.find():
        store.download(name, tmp_path / "two" / name)
    lines = whole_runs.lines(tmp_path / "two")
    two = {"lines": lines, "weights": weights[0]}
    whole_runs.check_same(expected, two)
