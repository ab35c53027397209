import errno
import os
import pathlib
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
import tiny_training as tiny

from keras_vit.training import checkpointing
from keras_vit.training.training_run import explain_full_disk

RECORD = {
    **{"step": 7, "interval": 1, "ended": False, "seconds": 0.5},
    "callbacks": [],
}


def compiled(**options):
    model = tiny.model(**options)
    model.compile(tiny.optimizer(), tiny.loss())
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.fixture(scope="module")
def model():
    return compiled()


def state(model):
    variables = [*model.variables, *model.optimizer.variables]
    return [np.array(keras.ops.convert_to_numpy(x)) for x in variables]


def written(*arguments):
    checkpointing.begin_checkpoint(*arguments)()


def disturb(model):
    for variable in [*model.variables, *model.optimizer.variables]:
        variable.assign(keras.ops.ones(variable.shape, variable.dtype))


def test_what_is_written_is_restored_to_the_bit(model, tmp_path):
    before = state(model)
    written(tmp_path, 7, model, RECORD)
    disturb(model)
    arrays, record = tiny.newest(tmp_path)
    checkpointing.restore(model, arrays)
    assert record == RECORD
    for one, other in zip(state(model), before, strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


def test_the_state_has_generators_slots_and_average(model):
    paths = [v.path for v in [*model.variables, *model.optimizer.variables]]
    for part in ("seed", "velocity", "average", "iteration"):
        assert any(part in path for path in paths), part


def test_bfloat16_survives(tmp_path):
    with_policy = keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(3, dtype="bfloat16")]
    )
    with_policy.compile("sgd", "mse")
    with_policy.optimizer.build(with_policy.trainable_variables)
    before = state(with_policy)
    written(tmp_path, 1, with_policy, RECORD)
    disturb(with_policy)
    checkpointing.restore(with_policy, tiny.newest(tmp_path)[0])
    for one, other in zip(state(with_policy), before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_only_the_newest_stay(model, tmp_path):
    for step in (5, 10, 15):
        written(tmp_path, step, model, RECORD)
    (tmp_path / ".partial-step-000000020.npz").write_text("killed")
    checkpointing.prune_checkpoints(tmp_path, keep=2)
    assert checkpointing.checkpoint_steps(tmp_path) == [10, 15]
    assert len(list(tmp_path.iterdir())) == 2


def test_no_checkpoint_is_no_error(tmp_path):
    assert checkpointing.read_newest(tmp_path / "none") is None


def truncate(data):
    return data[: len(data) // 2]


def flip_a_bit(data):
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def empty(data):
    return b""


DAMAGES = (truncate, flip_a_bit, empty)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_one_falls_back_with_a_warning(model, tmp_path, damage):
    written(tmp_path, 5, model, {**RECORD, "step": 5})
    written(tmp_path, 10, model, {**RECORD, "step": 10})
    newest = tmp_path / "step-000000010.npz"
    newest.write_bytes(damage(newest.read_bytes()))
    with pytest.warns(UserWarning, match="step-000000010.npz.*is broken"):
        arrays, record = tiny.newest(tmp_path)
    assert record == {**RECORD, "step": 5}
    checkpointing.restore(model, arrays)


def test_when_all_are_broken_nothing_begins_anew(model, tmp_path):
    (tmp_path / "step-000000010.npz").write_bytes(b"torn")
    with (
        pytest.warns(UserWarning, match="is broken"),
        pytest.raises(ValueError, match="All checkpoints"),
    ):
        checkpointing.read_newest(tmp_path)


@pytest.mark.parametrize("options", [{"hidden_dim": 12}, {"num_layers": 2}])
def test_another_model_is_refused_and_left_as_it_was(model, tmp_path, options):
    written(tmp_path, 5, compiled(**options), RECORD)
    before = state(model)
    with pytest.raises(ValueError, match="another version"):
        checkpointing.restore(model, tiny.newest(tmp_path)[0])
    for one, other in zip(state(model), before, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", ["float16", "bool"])
def test_values_of_another_kind_are_refused(model, tmp_path, kind):
    written(tmp_path, 5, model, RECORD)
    arrays = dict(tiny.newest(tmp_path)[0])
    name = next(x for x in arrays if arrays[x].dtype == "float32")
    arrays[name] = arrays[name].astype(kind)
    with pytest.raises(ValueError, match=f"'{kind}'.*'float32'"):
        checkpointing.restore(model, arrays)


def test_a_write_that_fails_leaves_the_older_ones(model, tmp_path, monkeypatch):
    written(tmp_path, 5, model, RECORD)

    def full(path, arrays):
        pathlib.Path(path).write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpointing, "write_npz", full)
    with pytest.raises(OSError):
        written(tmp_path, 10, model, RECORD)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000005.npz"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
        RuntimeError("Can't close file (file write failed: errno = 28, ...)"),
    ],
)
def test_no_room_is_explained(tmp_path, error):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step-000000005.npz").touch()
    with pytest.raises(OSError, match="no room left.*step 5.*Make room"):
        with explain_full_disk(tmp_path):
            raise error


def test_other_errors_stay_as_they_are(tmp_path):
    with pytest.raises(PermissionError, match="mine"):
        with explain_full_disk(tmp_path):
            raise PermissionError(errno.EACCES, "mine")


LIMITED = """
    import resource, signal, sys
    import tiny_training as tiny
    from keras_vit.training.training_run import explain_full_disk
    import pathlib

    class Fill(tiny.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:  # the disk is full from the second checkpoint on
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    folder = pathlib.Path(sys.argv[1])
    with explain_full_disk(folder):
        tiny.train(folder, rule=tiny.optimizer(use_ema=False),
                   callbacks=[Fill()])
"""


@pytest.mark.once
@pytest.mark.skipif(os.name == "nt", reason="needs limits of POSIX")
def test_a_full_disk_leaves_the_last_checkpoint(tmp_path):
    tests = pathlib.Path(__file__).parents[1]
    support = tests / "support"
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": f"{support}:{tests.parent}"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == 1
    assert "no room left" in process.stderr.splitlines()[-1]
    folder = tmp_path / checkpointing.FOLDER
    assert checkpointing.checkpoint_steps(folder) == [5]
    assert tiny.newest(folder)[1]["step"] == 5
    assert not list(folder.glob(".partial-*"))
