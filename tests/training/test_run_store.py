"""Runs on object stores, before emulators on this machine."""

import json

import object_stores
import pytest
import tiny_runs as tiny

from keras_vit.stores import Store
from keras_vit.training import run_folder, run_store, train


@pytest.fixture(scope="module", params=object_stores.SCHEMES)
def emulator(request):
    with object_stores.emulated(request.param) as found:
        yield found


def anew():
    """Forgets all local copies, as another machine would not have them."""
    run_store._mirrors.clear()


def test_a_run_lives_in_a_store_from_its_first_file_to_its_result(emulator):
    address = emulator.address("runs/whole")
    run = train(tiny.recipe(address), dataset=tiny.DATASET)
    run_folder.write_result(run.folder, {"top1": 0.5})
    store = Store(address)
    names = set(store.find())
    assert names == tiny.files(run.folder)
    assert {"model.keras", "metrics.jsonl", "keras_vit_run.json"} <= names
    assert json.loads(store.read("result.json") or b"") == {"top1": 0.5}
    assert (
        store.read("model.keras") == (run.folder / "model.keras").read_bytes()
    )
    anew()
    with pytest.raises(ValueError, match=f"{address}' holds a finished run"):
        train(tiny.recipe(address), dataset=tiny.DATASET)


def test_a_run_that_was_stopped_goes_on_without_its_machine(emulator, tmp_path):
    whole = train(tiny.recipe(tmp_path / "whole"), dataset=tiny.DATASET)
    address = emulator.address("runs/stopped")
    with pytest.raises(KeyboardInterrupt):
        train(
            tiny.recipe(address),
            dataset=tiny.DATASET,
            callbacks=[tiny.Interrupt()],
        )
    first = run_store.local(address)
    anew()
    run = train(tiny.recipe(address), dataset=tiny.DATASET)
    assert run.folder != first
    for one, other in zip(
        tiny.values(run.model), tiny.values(whole.model), strict=True
    ):
        assert (one == other).all()
    assert set(Store(address).find()) == tiny.files(run.folder)
