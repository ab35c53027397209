"""Runs that are killed at random moments end as those that are not."""

import os

import object_stores
import pytest
import random_kills

KILLS = int(os.environ.get("KILLS", "100"))
# Of processes and distribution, on JAX and TensorFlow.
CASES = {(1, "auto"): 25, (2, "auto"): 25, (2, "fsdp"): 25}

STORE_SHARE = 5  # Of these kills a fifth for each emulator of a store.


@pytest.mark.slow
@pytest.mark.parametrize("store", [None, *object_stores.SCHEMES])
@pytest.mark.parametrize(("count", "choice"), CASES)
def test_a_run_that_is_killed_again_and_again_is_the_same(
    tmp_path, backend, count, choice, store
):
    """To the bit: weights, moving average, optimizer, metrics, predictions."""
    if backend == "torch":
        pytest.skip("Several processes are there on JAX and TensorFlow.")
    if choice == "fsdp" and backend != "jax":
        pytest.skip("fsdp is there on JAX.")
    kills = KILLS * CASES[count, choice] // 100
    kills = kills if store is None else kills // STORE_SHARE
    options = [f"--processes={count}", f"--distribution={choice}"]
    options += [] if store is None else [f"--store={store}"]
    found = random_kills.main([str(tmp_path), *options, f"--kills={kills}"])
    assert found["kills"] == kills
