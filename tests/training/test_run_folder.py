import numpy as np
import pytest
from PIL import Image

from keras_vit.training import run_folder


@pytest.fixture
def finished(tmp_path):
    folder = run_folder.prepare(tmp_path / "run", overwrite=False)
    for name in run_folder.FILES:
        (folder / name).write_text("old")
    return folder


def test_folder_is_made_with_its_parents(tmp_path):
    folder = run_folder.prepare(tmp_path / "a" / "b", overwrite=False)
    assert folder.is_dir()


def test_finished_run_is_kept(finished):
    with pytest.raises(ValueError, match="--run_dir.*--overwrite true"):
        run_folder.prepare(finished, overwrite=False)
    assert len(list(finished.iterdir())) == len(run_folder.FILES)


def test_finished_run_is_replaced_on_demand(finished):
    run_folder.prepare(finished, overwrite=True)
    assert not list(finished.iterdir())


def test_unfinished_run_is_replaced(finished):
    (finished / run_folder.RESULT).unlink()
    run_folder.prepare(finished, overwrite=False)
    assert not list(finished.iterdir())


def test_only_files_of_a_run_are_removed(finished):
    (finished / "notes.txt").write_text("mine")
    run_folder.prepare(finished, overwrite=True)
    assert [path.name for path in finished.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_folder_of_something_else_is_refused(tmp_path, overwrite):
    (tmp_path / "config.yaml").write_text("mine")
    with pytest.raises(ValueError, match="not of a run"):
        run_folder.prepare(tmp_path, overwrite=overwrite)
    assert (tmp_path / "config.yaml").read_text() == "mine"


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(ValueError, match="not a folder"):
        run_folder.prepare(tmp_path / "run", overwrite=True)


def test_examples_are_counted_in_their_class(tmp_path):
    images = np.arange(4, dtype=np.uint8).repeat(4).reshape(4, 2, 2, 1)
    labels = np.array([1, 0, 1, 1])
    run_folder.write_examples(tmp_path, images, labels, ("cat", "sea/horse"))
    found = {
        path.name: int(np.asarray(Image.open(path))[0, 0])
        for path in (tmp_path / "examples").iterdir()
    }
    assert found == {
        "cat_0.png": 1,
        "sea-horse_0.png": 0,
        "sea-horse_1.png": 2,
        "sea-horse_2.png": 3,
    }
