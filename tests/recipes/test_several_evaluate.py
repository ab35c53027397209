"""evaluate.py and few_shot.py in two processes give what one gives."""

import json

import numpy as np
import pytest
import several_processes as several

pytestmark = pytest.mark.slow
RECIPES = several.ROOT / "recipes"
OF_THE_CLOCK = ("evaluation_seconds", "seconds", "versions")


@pytest.fixture(scope="module", autouse=True)
def not_on_torch():
    import keras

    if keras.backend.backend() == "torch":
        pytest.skip("Several processes are there on JAX and TensorFlow.")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    command = [RECIPES / "finetune.py", "--smoke", f"--run_dir={folder}"]
    check(several.ended(several.start(command, count=1)))
    return folder.with_name("run-smoke")


def check(found):
    for code, _, errors in found:
        assert code == 0, errors[-3000:]
        assert "Traceback" not in errors


def result(folder):
    found = json.loads((folder / "result.json").read_text())
    return {k: x for k, x in found.items() if k not in OF_THE_CLOCK}


def evaluated(recipe, run, folder, *options, **many):
    command = [RECIPES / f"{recipe}.py", f"--model.weights={run}"]
    command += [f"--run_dir={folder}", *options]
    found = several.ended(several.start(command, **many))
    check(found)
    return found, result(folder)


OPTIONS = {
    # Not the run's own data, of which a trial has a few.
    "evaluate": (
        "--data.test_fraction=0.3",
        "--preprocessing.evaluation=squash",
    ),
    "few_shot": ("--data.name=digits", "--crop=squash", "--shots=[1, 5]"),
}


@pytest.mark.parametrize("recipe", OPTIONS)
def test_two_processes_find_what_one_does(run, tmp_path, recipe):
    """With a last batch that is filled up, and two devices in each on JAX."""
    options = (*OPTIONS[recipe], "--batch_size=44")
    _, one = evaluated(recipe, run, tmp_path / "one", *options, count=1)
    found, two = evaluated(
        recipe, run, tmp_path / "two", *options, count=2, devices=2
    )
    assert "digits" in found[0][1] and "digits" not in found[1][1]
    check_same(one, two)
    if recipe == "evaluate":
        check_predictions(tmp_path)


def check_same(one, two):
    """Counts and ranks are the same; sums of floats to their rounding."""
    assert one.keys() == two.keys()
    for name, value in one.items():
        if isinstance(value, float):
            assert two[name] == pytest.approx(value, rel=1e-6), name
        else:
            assert two[name] == value, name
    for name in one.keys() & {"top1", "top5", "num_examples", "num_skipped"}:
        assert two[name] == one[name]


def check_predictions(folder):
    with (
        np.load(folder / "one" / "predictions.npz") as one,
        np.load(folder / "two" / "predictions.npz") as two,
    ):
        assert len(one["labels"]) > 500
        assert len(one["labels"]) % 44
        for name in ("labels", "classes"):
            np.testing.assert_array_equal(two[name], one[name])
        np.testing.assert_allclose(
            two["probabilities"], one["probabilities"], 1e-5
        )


def test_a_batch_that_two_cannot_share_is_refused_in_one_line(run, tmp_path):
    command = [RECIPES / "evaluate.py", f"--model.weights={run}"]
    command += [f"--run_dir={tmp_path / 'run'}", "--batch_size=15"]
    found = several.ended(several.start(command))
    for code, _, errors in found:
        assert code == 2
        assert "a multiple of 2" in errors.splitlines()[-1]
    assert not (tmp_path / "run").exists()
