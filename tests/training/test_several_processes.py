"""Several processes train as one does, and stop and go on together."""

import signal
import time

import numpy as np
import pytest
import several_processes as several
import sharded
import tiny_training as tiny
import whole_runs

from keras_vit.training import checkpointing

MINUTE = 60

# With accumulated gradients; images in the last batch of the evaluation: 10 of
# 16, so that the second process has two and six of padding.
ACCUMULATION = {"training": {"accumulation_steps": 2}}


@pytest.fixture(autouse=True)
def not_on_torch(backend):
    if backend == "torch":
        pytest.skip("Several processes are there on JAX and TensorFlow.")


@pytest.fixture
def on_jax(backend):
    if backend != "jax":
        pytest.skip("On TensorFlow there is but one choice.")


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    return whole_runs.told(tmp_path_factory.mktemp("one"), "single")


def test_two_processes_train_as_one(tmp_path, one):
    """Clipping, moving averages, Mixup and metrics of 10 images included."""
    two = several.trained(tmp_path / "two", "auto")
    whole_runs.check_same(one, two)


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["data_parallel", "fsdp", "model_parallel"])
def test_layouts_that_span_processes_train_as_one(tmp_path, on_jax, choice):
    """With two devices in each, dropout and accumulated gradients."""
    options = {**ACCUMULATION, "model": {"dropout_rate": 0.1}}
    expected = whole_runs.told(tmp_path, "single", **options)
    two = several.trained(tmp_path / "two", choice, options, devices=2)
    whole_runs.check_same(expected, two)


@pytest.mark.slow
# The small crops of DINO are one patch here, which makes Keras warn.
@pytest.mark.filterwarnings("ignore:You are using a softmax over axis -1")
@pytest.mark.parametrize("name", whole_runs.METHODS)
def test_two_processes_learn_without_labels_as_one(tmp_path, name):
    """With neighbours and statistics of features, whose images they share."""
    options = whole_runs.unlabelled(name, tmp_path)
    expected = whole_runs.told(tmp_path, "single", **options)
    two = several.trained(tmp_path / "two", "auto", options)
    whole_runs.check_unlabelled(expected, two)


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["fsdp", "model_parallel"])
def test_features_of_cut_layers_are_those_of_whole_ones(
    tmp_path, on_jax, choice
):
    options = whole_runs.unlabelled("mae", tmp_path)
    expected = whole_runs.told(tmp_path, "single", **options)
    two = several.trained(tmp_path / "two", choice, options, devices=2)
    whole_runs.check_unlabelled(expected, two)


@pytest.mark.slow
def test_two_processes_accumulate_as_one(tmp_path):
    expected = whole_runs.told(tmp_path, "single", **ACCUMULATION)
    two = several.trained(tmp_path / "two", "auto", ACCUMULATION)
    whole_runs.check_same(expected, two)


@pytest.mark.slow
def test_layers_shared_by_processes_train_as_one(tmp_path, on_jax, one):
    """Both read all images, for one device of each has half of a layer."""
    two = several.trained(tmp_path / "two", "model_parallel")
    whole_runs.check_same(one, two)


@pytest.mark.slow
def test_two_processes_read_a_share_of_the_shards_each(tmp_path):
    """Of 16 images 8, and for Mixup one more."""
    train, validation = whole_runs.DATASET.train, whole_runs.DATASET.validation
    sharded.as_tar(tmp_path / "shards" / "train-0.tar", train)
    sharded.as_tar(tmp_path / "shards" / "validation-0.tar", validation)
    # Long enough for what tf.data reads ahead, which is of each process.
    long = {"steps": 300, "checkpoint_every_steps": 100}
    options = {"shards": str(tmp_path / "shards"), "training": long}
    one = several.trained(tmp_path / "one", "single", options, count=1)
    two = several.trained(tmp_path / "two", "auto", options)
    np.testing.assert_allclose(two["weights"], one["weights"], 1e-5)
    for read in two["read"]:
        # The index and the ends of the images are read by each.
        assert read < 0.62 * one["read"][0]


def killed(folder, victim, count=2):
    """Starts a run of which one process is killed after 14 of 30 steps.

    Returns what the others said, after how many seconds.
    """
    choice = "auto" if count > 1 else "single"
    command = several.command(folder, choice)
    processes = several.start(command, count=count, victim=victim)
    processes[victim].wait(timeout=several.SECONDS)
    begin = time.monotonic()
    found = several.ended(processes, 2 * MINUTE)
    seconds = time.monotonic() - begin
    assert found[victim][0] == -signal.SIGKILL, found[victim][2][-3000:]
    arrays, record = tiny.newest(folder / checkpointing.FOLDER)
    assert record["step"] == 10
    return [x for i, x in enumerate(found) if i != victim], seconds


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_one_killed_the_others_stop_and_all_go_on(tmp_path, one, victim):
    """Within a minute, with the reason and a whole checkpoint."""
    ((code, _, errors),), seconds = killed(tmp_path, victim)
    assert code != 0
    assert seconds < MINUTE
    assert "Another process of the run" in errors or "task died" in errors
    whole_runs.check_same(one, several.trained(tmp_path, "auto"))


@pytest.mark.slow
def test_two_processes_go_on_as_one(tmp_path, one):
    killed(tmp_path, 1)
    whole_runs.check_same(one, several.trained(tmp_path, "single", count=1))


@pytest.mark.slow
def test_one_process_goes_on_as_two(tmp_path, one):
    killed(tmp_path, 0, count=1)
    whole_runs.check_same(one, several.trained(tmp_path, "auto"))


def check_stopped(folder, victim, choice, number, code):
    """One process gets a signal: all end with a checkpoint of one step."""
    command = several.command(folder, choice)
    found = several.ended(several.start(command, victim=victim, number=number))
    assert [x[0] for x in found] == [code, code], found
    _, record = tiny.newest(folder / checkpointing.FOLDER)
    assert 14 <= record["step"] < 30
    for _, _, errors in found:
        assert "the same command continues" in errors
        assert "Traceback" not in errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "number", "code"),
    [(0, signal.SIGINT, 130), (1, signal.SIGTERM, 143)],
)
def test_a_signal_at_one_ends_all_after_the_same_step(
    tmp_path, one, victim, number, code
):
    check_stopped(tmp_path, victim, "auto", number, code)
    whole_runs.check_same(one, several.trained(tmp_path, "auto"))


def shards(folder):
    return sorted((folder / checkpointing.FOLDER).glob("step-*-*-*.npz"))


def checkpoints(folder):
    found = (folder / checkpointing.FOLDER).glob("step-*.npz")
    return {*found}.difference(shards(folder))


@pytest.mark.slow
@pytest.mark.parametrize("then", ["fsdp", "data_parallel", "single"])
def test_shards_of_two_processes_go_on_elsewhere(tmp_path, on_jax, one, then):
    """Each writes its own; two processes or one, with any layout, go on."""
    check_stopped(tmp_path, 1, "fsdp", signal.SIGTERM, 143)
    files = {path.name[-5] for path in shards(tmp_path)}
    assert files == {"0", "1"}
    count = 1 if then == "single" else 2
    found = several.trained(tmp_path, then, count=count)
    whole_runs.check_same(one, found)
    if then != "fsdp":
        # Those of the last but one, where they stopped with it.
        kept = {record.stem for record in checkpoints(tmp_path)}
        assert {shard.name[:14] for shard in shards(tmp_path)} <= kept


@pytest.mark.slow
def test_one_process_goes_on_as_two_with_shards(tmp_path, on_jax, one):
    killed(tmp_path, 0, count=1)
    whole_runs.check_same(one, several.trained(tmp_path, "fsdp"))
    assert len(shards(tmp_path)) == 4


@pytest.mark.slow
def test_a_recipe_is_reported_by_one_of_several(tmp_path):
    recipe = several.ROOT / "recipes" / "finetune.py"
    command = [recipe, "--smoke", "true", "--run_dir", tmp_path / "run"]
    found = several.ended(several.start(command))
    assert [code for code, *_ in found] == [0, 0], found
    folder = tmp_path / "run-smoke"
    assert "test images are right" in found[0][1]
    assert "report.html" in {path.name for path in folder.iterdir()}
    # JAX itself says there that it is connected.
    assert "images" not in found[1][1]
    # The folder holds a finished run now: the first finds it, all end.
    found = several.ended(several.start(command))
    for code, _, errors in found:
        assert code == 2
        assert "holds a finished run" in errors


PLAIN = """
import sys
import keras
import numpy as np
import tensorflow as tf
import tiny_training as tiny
from keras_vit.runtime.workarounds import mend_reduce

strategy = tf.distribute.MultiWorkerMirroredStrategy()
if sys.argv[1] == "tuples":
    # The first defect alone is mended.
    mend_reduce(strategy)
    mended, plain = strategy.reduce, type(strategy).reduce

    def reduce(op, value, axis=None):
        if keras.tree.is_nested(value):
            return mended(op, value, axis)
        return plain(strategy, op, value, axis)

    strategy.reduce = reduce
elif sys.argv[1] == "mended":
    mend_reduce(strategy)
images = np.zeros((8, 8, 8, 1), "float32")
labels = np.eye(3, dtype="float32")[np.arange(8) % 3]
batches = tf.data.Dataset.from_tensor_slices((images, labels)).batch(4)
with strategy.scope():
    model = tiny.model()
    model.compile("sgd", tiny.loss())
    try:
        model.fit(batches, verbose=0)
    except ValueError as error:
        print(error)
    else:
        print("trained")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mend", "said"),
    [
        ("nothing", "value (PerReplica:{"),
        ("tuples", "Invalid reduction dimension 0 for input with 0 dimensions"),
        ("mended", "trained"),
    ],
)
def test_plain_keras_cannot_fit_in_several_processes(backend, mend, said):
    """Where this says that it can, `mend_reduce` is to be deleted."""
    if backend != "tensorflow":
        pytest.skip("tf.distribute is there on TensorFlow alone.")
    found = several.ended(several.start(["-c", PLAIN, mend]))
    for code, output, errors in found:
        assert code == 0, errors[-3000:]
        assert said in output
