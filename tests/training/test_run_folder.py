"""A run folder holds the run, and what users put beside it is never touched."""

import itertools
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from keras_vit.io.run_folder import MANIFEST
from keras_vit.training.run import files as run_folder

NAMED = [x.replace("*", "0") for x in run_folder.FILES]


def fill(folder, text):
    for name in NAMED:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def begun(path, overwrite=False):
    folder = run_folder.check(path, overwrite=overwrite)
    run_folder.begin(folder, {"seed": 0}, {"backend": "jax"})
    return folder


def contents(folder):
    """The text of each file by its path, but for the manifest."""
    return {
        str(path.relative_to(folder)): path.read_text("latin-1")
        for path in folder.rglob("*")
        if path.is_file() and path.name != MANIFEST
    }


@pytest.fixture
def finished(tmp_path):
    folder = begun(tmp_path / "run")
    run_folder.write_examples(
        folder, np.zeros((1, 2, 2, 1), np.uint8), [0], ["cat"]
    )
    fill(folder, "old")
    return folder


def test_folder_is_made_with_its_parents(tmp_path):
    assert begun(tmp_path / "a" / "b").is_dir()


def test_a_finished_run_is_kept(finished):
    before = contents(finished)
    with pytest.raises(ValueError, match="--run_dir.*--overwrite true"):
        begun(finished)
    assert contents(finished) == before


def test_a_replaced_run_is_kept_until_the_new_one_is_finished(finished, capsys):
    before = contents(finished)
    begun(finished, overwrite=True)
    assert ".previous-run" in capsys.readouterr().out
    after = contents(finished)
    assert {x for x in after if not x.startswith(".previous-run/")} == {
        "config.yaml",
        "environment.json",
    }
    assert {x: after[f".previous-run/{x}"] for x in before} == before
    run_folder.write_result(finished, {})
    assert contents(finished).keys() == {
        "config.yaml",
        "environment.json",
        "result.json",
    }
    assert not (finished / ".previous-run").exists()


MINE = ["notes.txt", "examples/cat.png", "checkpoints/mine.keras", "x/y.txt"]


def test_files_of_others_stay(finished):
    for name in MINE:
        (finished / name).parent.mkdir(exist_ok=True)
        (finished / name).write_text("mine")
    begun(finished, overwrite=True)
    run_folder.write_result(finished, {})
    found = contents(finished)
    assert {name: found[name] for name in MINE} == dict.fromkeys(MINE, "mine")
    assert len(found) == 3 + len(MINE)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["environment.json", "config.yaml", "a.txt"])
def test_a_folder_of_something_else_is_refused(tmp_path, name, overwrite):
    (tmp_path / name).write_text("{}")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step-000000005.npz").write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="not of a run: it has no keras_vit"):
        begun(tmp_path, overwrite)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"files": 3}', '{"files": [3]}', "[" * 100_000],
)
def test_a_damaged_manifest_removes_nothing(finished, text):
    (finished / MANIFEST).write_text(text)
    before = contents(finished)
    with pytest.raises(ValueError, match="is damaged, so that it is unknown"):
        begun(finished, overwrite=True)
    assert contents(finished) == before


def test_a_forged_manifest_names_nothing_but_files_of_runs(finished):
    names = ["../mine", "mine", "*", "examples/*.png", "examples/../mine"]
    (finished / "mine").write_text("mine")
    (finished.parent / "mine").write_text("mine")
    (finished / MANIFEST).write_text(json.dumps({"files": names}))
    before = contents(finished)
    begun(finished, overwrite=True)
    assert (finished.parent / "mine").read_text() == "mine"
    after = contents(finished)
    untouched = before.keys() - {"config.yaml", "environment.json"}
    untouched -= {"result.json"}  # of every run
    assert {name: after[name] for name in untouched} == {
        name: before[name] for name in untouched
    }


def killed_after(renames, folder, monkeypatch):
    """Whether replacing a run takes more renames, after which it is killed."""
    original, left = type(folder).replace, renames

    def replace(self, target):
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return original(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(type(folder), "replace", replace)
        try:
            begun(folder, overwrite=True)
        except KeyboardInterrupt:
            return True
    return False


def test_killed_at_any_moment_of_replacing_a_run_nothing_is_lost(
    finished, monkeypatch, tmp_path
):
    before = contents(finished)
    for renames in itertools.count():
        folder = tmp_path / str(renames)
        shutil.copytree(finished, folder)
        was_killed = killed_after(renames, folder, monkeypatch)
        names = {x.removeprefix(".previous-run/") for x in contents(folder)}
        assert names >= before.keys()
        # The same command goes on.
        begun(folder, overwrite=True)
        after = contents(folder)
        assert {x: after[f".previous-run/{x}"] for x in before} == before
        if not was_killed:
            break
    assert renames > len(before)


def test_an_unfinished_run_between_two_is_replaced(finished):
    before = contents(finished)
    begun(finished, overwrite=True)
    (finished / "history.csv").write_text("between")
    begun(finished)
    after = contents(finished)
    assert "history.csv" not in after
    assert {x: after[f".previous-run/{x}"] for x in before} == before


def test_of_two_finished_runs_the_newer_one_is_kept(finished):
    """Killed after result.json and before the replaced run was removed."""
    begun(finished, overwrite=True)
    (finished / "result.json").write_text("newer")
    begun(finished, overwrite=True)
    after = contents(finished)
    assert after[".previous-run/result.json"] == "newer"
    assert ".previous-run/model.keras" not in after


@pytest.mark.parametrize(
    ("path", "reason"),
    [("az://bucket/run", "no store"), ("s3:/.", "names no bucket")],
)
def test_another_address_is_not_taken_for_a_folder(
    tmp_path, monkeypatch, path, reason
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=reason):
        run_folder.check(path, overwrite=True)
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(ValueError, match="not a folder"):
        begun(tmp_path / "run", overwrite=True)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "is gone"),
        (b"", "is damaged"),
        (b"- 1", "is damaged"),
        (b"a: [", "is damaged"),
        (b"\xff\x00", "is damaged"),
    ],
)
def test_a_config_that_is_none_is_explained(tmp_path, content, reason):
    if content is not None:
        (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises(ValueError, match=reason):
        run_folder.read_config(tmp_path)


def test_examples_are_counted_in_their_file_name(tmp_path):
    folder = begun(tmp_path)
    (folder / "examples").mkdir()
    (folder / "examples" / "cat_0.png").write_text("mine")
    images = np.arange(5, dtype=np.uint8).repeat(4).reshape(5, 2, 2, 1)
    names = ("cat", "sea/horse", "sea horse", "\N{PILE OF POO}é" * 300)
    for _ in range(2):
        run_folder.write_examples(folder, images, [1, 0, 1, 2, 3], names)
    found = {path.name: path for path in (folder / "examples").iterdir()}
    assert found.pop("cat_0.png").read_text() == "mine"
    (long,) = [name for name in found if "é" in name]
    assert len(long.encode()) < 255
    pixels = {
        name: int(np.asarray(Image.open(path))[0, 0])
        for name, path in found.items()
    }
    assert pixels == {
        "sea-horse_0.png": 0,
        "sea-horse_1.png": 2,
        "sea-horse_2.png": 3,
        long: 4,
    }
