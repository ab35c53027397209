"""Files of shards, put together, refused and removed."""

import json

import numpy as np
import pytest

from keras_vit.checkpoints.files.npz import write_npz
from keras_vit.training import checkpointing
from keras_vit.training import checkpointing as shards
from keras_vit.training.checkpointing import BackgroundWriter

KERNEL = np.arange(24, dtype="float32").reshape(4, 6)
FILES = [f"step-000000005-0123abcd-{i}.npz" for i in range(2)]
SHARDS = {"files": FILES, "shapes": {"model/0": [4, 6]}}
RECORD = {
    **{"step": 5, "interval": 1, "ended": False, "seconds": 0.5},
    **{"callbacks": [], "shards": SHARDS},
}


@pytest.fixture
def folder(tmp_path):
    """A checkpoint whose one kernel two processes share by columns."""
    for i, file in enumerate(FILES):
        part = KERNEL[:, 3 * i : 3 * i + 3]
        write_npz(tmp_path / file, [(f"model/0@0,{3 * i}", part)])
    write_checkpoint(tmp_path, 5, RECORD)
    return tmp_path


def write_checkpoint(folder, step, record):
    text = np.frombuffer(json.dumps(record).encode(), np.uint8)
    arrays = [("record", text), ("model/1", np.ones(3, "float32"))]
    write_npz(folder / f"step-{step:09d}.npz", arrays)


def test_shards_are_put_together(folder):
    found = checkpointing.read_newest(folder)
    assert found is not None
    arrays, record = found
    np.testing.assert_array_equal(arrays["model/0"], KERNEL)
    assert sorted(arrays) == ["model/0", "model/1"]
    assert "shards" not in record


def remove(path):
    path.unlink()


def truncate(path):
    path.write_bytes(path.read_bytes()[:-40])


def half(path):
    write_npz(path, [("model/0@0,3", KERNEL[:2, 3:])])


def outside(path):
    write_npz(path, [("model/0@0,5", KERNEL[:, 3:])])


@pytest.mark.parametrize("damage", [remove, truncate, half, outside])
def test_a_checkpoint_with_broken_shards_is_broken(folder, damage):
    """The one before is used."""
    write_checkpoint(folder, 4, {**RECORD, "step": 4, "shards": None})
    damage(folder / FILES[1])
    with pytest.warns(UserWarning, match="step-000000005.npz.*is broken"):
        found = checkpointing.read_newest(folder)
    assert found is not None and found[1]["step"] == 4


def test_files_elsewhere_are_not_read(folder):
    files = ["../step-000000005-0123abcd-0.npz", FILES[1]]
    with pytest.raises(ValueError, match="Its shards are in"):
        shards.read_shards(folder, {**SHARDS, "files": files})


def test_shards_without_a_checkpoint_are_removed(folder):
    other = folder / "step-000000009-0123abcd-0.npz"
    mine = folder / "step-9-of-mine-0.npz"
    other.touch()
    mine.touch()
    checkpointing.prune_checkpoints(folder, keep=2)
    assert not other.exists() and mine.exists()
    assert all((folder / file).exists() for file in FILES)
    write_checkpoint(folder, 10, {**RECORD, "step": 10, "shards": None})
    checkpointing.prune_checkpoints(folder, keep=1)
    assert not any((folder / file).exists() for file in FILES)


def test_an_error_of_the_thread_is_raised_at_the_next(tmp_path):
    done = []

    def fail():
        raise OSError("full")

    with BackgroundWriter() as writer:
        writer.start(fail)
        with pytest.raises(OSError, match="full"):
            writer.start(lambda: done.append(1))
        assert not done
        writer.start(lambda: done.append(2))
    assert done == [2]


@pytest.mark.parametrize(
    ("ending", "raised"),
    [(None, OSError), (KeyboardInterrupt, OSError), (ValueError, ValueError)],
)
def test_the_end_waits_for_the_thread_and_its_error(ending, raised):
    def fail():
        raise OSError("full")

    with pytest.raises(raised), BackgroundWriter() as writer:
        writer.start(fail)
        if ending is not None:
            raise ending
