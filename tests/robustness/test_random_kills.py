"""Runs that are killed at random moments end as those that are not."""

import os

import pytest
import random_kills

KILLS = int(os.environ.get("KILLS", "100"))
PARTS = 4  # JAX and TensorFlow, one process and two


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_a_run_that_is_killed_again_and_again_is_the_same(
    tmp_path, backend, count
):
    """To the bit: weights, moving average, optimizer, metrics, predictions."""
    if backend == "torch":
        pytest.skip("Several processes are there on JAX and TensorFlow.")
    found = random_kills.kill_runs(tmp_path, count, KILLS // PARTS)
    assert found["kills"] == KILLS // PARTS
