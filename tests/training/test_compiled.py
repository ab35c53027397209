"""What JAX compiled in one run is found by the next."""

import keras
import pytest
from tiny_runs import DATASET, recipe

from keras_vit.runtime.machine import (
    COMPILED,
    compilation_cache_in,
)
from keras_vit.training import train

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="JAX alone keeps what it compiles"
)


@pytest.fixture(autouse=True)
def jax():
    """Without the folder of the environment, which the tests may have."""
    jax = pytest.importorskip("jax")
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    yield jax
    jax.config.update("jax_compilation_cache_dir", before)


def steps(parent):
    found = (parent / COMPILED).glob("jit_train_step*-cache")
    return {path.name for path in found}


def test_second_run_compiles_no_step(tmp_path):
    train(recipe(tmp_path / "a"), dataset=DATASET)
    first = steps(tmp_path)
    assert first
    train(recipe(tmp_path / "b"), dataset=DATASET)
    assert steps(tmp_path) == first


def test_folder_of_the_user_stays(tmp_path, jax):
    jax.config.update("jax_compilation_cache_dir", "elsewhere")
    try:
        with compilation_cache_in(tmp_path):
            assert jax.config.jax_compilation_cache_dir == "elsewhere"
    finally:
        jax.config.update("jax_compilation_cache_dir", None)


def test_settings_are_as_before_after_an_error(tmp_path, jax):
    before = jax.config.jax_persistent_cache_min_compile_time_secs
    with pytest.raises(KeyError), compilation_cache_in(tmp_path):
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / COMPILED)
        raise KeyError
    assert jax.config.jax_compilation_cache_dir is None
    assert jax.config.jax_persistent_cache_min_compile_time_secs == before
