"""How a file that cannot be used is to be refused."""

import time

import pytest

from keras_vit.checkpoints import load_checkpoint


def check(path, message):
    # Of this process: what else the machine does is no fault of the file.
    start = time.process_time()
    with pytest.raises((ValueError, OSError), match=f"(?s){message}") as error:
        load_checkpoint(path)
    # Once Keras has compiled its parts.
    assert time.process_time() - start < 2
    assert path.name in str(error.value)
