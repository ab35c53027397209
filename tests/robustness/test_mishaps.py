"""Two processes, killed exports, moved and linked runs, clocks that jump."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import recipe_scripts
import tiny_runs
from export_cells import randomised
from PIL import Image
from tiny_models import tiny_vit

import keras_vit
from keras_vit.io.atomic_files import only_writer
from keras_vit.prediction import embeddings_file, load_embeddings
from keras_vit.prediction.encoder import as_encoder
from keras_vit.training import checkpointing, train
from keras_vit.training.run import files

ROOT = pathlib.Path(__file__).parents[2]
EXPORT = """
import sys
sys.path.insert(0, "tests/support")
from tiny_models import tiny_vit
import keras_vit

print("begins", flush=True)
keras_vit.export(tiny_vit(), sys.argv[1])
"""
HOLD = """
import sys, time
from pathlib import Path
from keras_vit.io.atomic_files import only_writer

with only_writer(Path(sys.argv[1])):
    print("begins", flush=True)
    time.sleep(600)
"""


def started(program, path):
    """A process that has printed its first line."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout and process.stdout.readline() == "begins\n"
    return process


def model():
    return randomised(tiny_vit())


def names(folder):
    return sorted(x.name for x in folder.iterdir())


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "photos" / "a.png"
    path.parent.mkdir()
    Image.fromarray(np.arange(192, dtype="uint8").reshape(8, 8, 3)).save(path)
    return path


# --- Two processes, one file ---
@pytest.mark.parametrize("name", ["a.npz", "a.onnx"])
def test_a_file_that_another_process_writes_is_refused(tmp_path, image, name):
    path = tmp_path / name
    if name == "a.onnx":
        pytest.importorskip("onnxscript")
    with only_writer(path):
        with pytest.raises(ValueError, match="Another process is writing"):
            if name == "a.onnx":
                keras_vit.export(model(), path)
            else:
                encoder = as_encoder(tiny_vit(num_classes=0))
                list(embeddings_file.embed_files(encoder, [str(image)], path))
    assert names(tmp_path) == ["photos"]


def test_the_lock_of_a_killed_writer_is_nobodys(tmp_path):
    path = tmp_path / "a.npz"
    process = started(HOLD, path)
    with pytest.raises(ValueError, match="Another process is writing"):
        only_writer(path).__enter__()
    process.kill()
    process.communicate()
    assert names(tmp_path) == [".partial-a.npz.lock"]
    with only_writer(path):
        pass
    assert names(tmp_path) == []


def test_embeddings_that_were_given_up_are_free(tmp_path, image):
    encoder = as_encoder(tiny_vit(num_classes=0))
    path = tmp_path / "a.npz"
    found = embeddings_file.embed_files(encoder, [str(image)] * 3, path)
    next(found)
    found.close()
    assert [*embeddings_file.embed_files(encoder, [str(image)], path)] == []
    assert load_embeddings(path).files == (str(image),)
    assert names(tmp_path) == ["a.npz", "photos"]


# --- Exports that are killed ---
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("begun", ["its folder", "its file"])
def test_an_export_that_is_killed_is_none(tmp_path, number, begun):
    path = tmp_path / "tiny.onnx"
    keras_vit.export(model(), path)
    before = path.read_bytes()
    pattern = ".partial-*-*" + ("/*" if begun == "its file" else "")
    process = started(EXPORT, path)
    try:
        end = time.monotonic() + 200
        while not [x for x in tmp_path.glob(pattern) if "lock" not in x.name]:
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.002)
        process.send_signal(number)
    finally:
        process.communicate(timeout=100)
    assert path.read_bytes() == before
    keras_vit.export(model(), path)
    assert names(tmp_path) == ["tiny.onnx", "tiny.onnx.model.json"]


# --- Runs that are moved and linked ---
def interrupted(folder):
    with pytest.raises(KeyboardInterrupt):
        train(
            tiny_runs.recipe(folder),
            dataset=tiny_runs.DATASET,
            callbacks=[tiny_runs.Interrupt()],
        )


def moved(folder, place):
    return pathlib.Path(shutil.move(folder, place))


def linked(folder, place):
    place.symlink_to(folder)
    return place


def copied(folder, place):
    return pathlib.Path(shutil.copytree(folder, place))


def with_linked_checkpoints(folder, place):
    """On another disk, as who has little room does."""
    shutil.move(folder, place)
    shutil.move(place / "checkpoints", folder.with_name("disk"))
    (place / "checkpoints").symlink_to(folder.with_name("disk"))
    return place


PLACES = (moved, linked, copied, with_linked_checkpoints)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    run = train(tiny_runs.recipe(folder), dataset=tiny_runs.DATASET)
    return tiny_runs.values(run.model)


@pytest.mark.parametrize("put", PLACES, ids=lambda x: x.__name__)
def test_an_interrupted_run_goes_on_at_its_new_place(tmp_path, whole, put):
    interrupted(tmp_path / "run")
    place = put(tmp_path / "run", tmp_path / "place")
    run = train(tiny_runs.recipe(place), dataset=tiny_runs.DATASET)
    assert place.is_symlink() == (put is linked)
    for one, other in zip(tiny_runs.values(run.model), whole, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_lock_holds_by_every_name_of_its_folder(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    link = linked(run, tmp_path / "link")
    with files.locked(link):
        assert (run / files.LOCK).exists()
        with files.locked(run):
            pass
        assert (run / files.LOCK).exists()
    assert not (run / files.LOCK).exists()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    (folder / "tiny.yaml").write_text(recipe_scripts.TINY)
    run = folder / "run"
    recipe_scripts.output_of(
        *("finetune", "--config", folder / "tiny.yaml"),
        *("--data.name", "digits", "--run_dir", run),
    )
    return run


def test_a_finished_run_is_used_at_its_new_place(finished, tmp_path, image):
    expected = keras_vit.predict(finished, image)
    place = copied(finished, tmp_path / "moved")
    link = linked(place, tmp_path / "link")
    by_link = tmp_path / "model.keras"
    by_link.symlink_to(place / "model.keras")
    for source in (place, link, by_link):
        assert keras_vit.predict(source, image) == expected
        pictures = tmp_path / f"pictures of {source.name}"
        keras_vit.explain(source, image, pictures)
        assert (pictures / "index.html").is_file()
    out = tmp_path / "evaluated"
    told = recipe_scripts.output_of(
        *("evaluate", "--model.weights", link, "--run_dir", out)
    )
    assert "report: " in told and (out / "result.json").is_file()


# --- Clocks ---
@pytest.mark.parametrize("jump", [-(10**8), 10**8], ids=["back", "ahead"])
def test_a_clock_that_jumps_changes_no_run(tmp_path, whole, monkeypatch, jump):
    """Nor do files that are of the future, or of long ago."""
    interrupted(tmp_path)
    for path in tmp_path.rglob("*"):
        os.utime(path, (time.time() - jump,) * 2)
    clock = time.time

    def jumping():
        jumping.calls += 1
        return clock() + jump * (jumping.calls % 2)

    jumping.calls = 0
    monkeypatch.setattr(time, "time", jumping)
    assert len(checkpointing.checkpoint_steps(tmp_path / "checkpoints")) == 1
    run = train(tiny_runs.recipe(tmp_path), dataset=tiny_runs.DATASET)
    for one, other in zip(tiny_runs.values(run.model), whole, strict=True):
        np.testing.assert_array_equal(one, other)
