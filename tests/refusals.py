"""How a file that cannot be used is to be refused."""

import time

import pytest

from keras_vit.checkpoints import load_checkpoint


def check(path, message):
    start = time.perf_counter()
    with pytest.raises((ValueError, OSError), match=f"(?s){message}") as error:
        load_checkpoint(path)
    # Two seconds on a machine of its own, once Keras has compiled its parts.
    assert time.perf_counter() - start < 10
    assert path.name in str(error.value)
