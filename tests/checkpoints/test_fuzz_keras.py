"""Keras's own files, mutated: refused by name, or loaded whole.

50 mutations a format by default, 2,000 in the tests marked slow.
"""

import functools
import io
import pathlib
import tempfile
import time
import zipfile

import keras
import numpy as np
import pytest
from damage import CHANGES, mutated
from hypothesis import HealthCheck, given, settings
from tiny_models import tiny_vit

from keras_vit.checkpoints import load_checkpoint, load_weights

MEMBERS = ("config.json", "model.weights.h5")
# No weight is all of this value in the file.
BEFORE = 7.0


@functools.cache
def model():
    """A tiny model whose weights are none of the values that they begin at."""
    result = tiny_vit(num_layers=2, mlp_dim=16)
    generator = np.random.default_rng(0)
    for weight in result.weights:
        weight.assign(generator.normal(0, 1, weight.shape))
    return result


@functools.cache
def saved(suffix):
    """Bytes of the model's file."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / f"model{suffix}"
        save = model().save if suffix == ".keras" else model().save_weights
        save(path)
        return path.read_bytes()


@functools.cache
def blank():
    """A model to load into."""
    return type(model())(model().config)


def values(model):
    return [keras.ops.convert_to_numpy(x) for x in model.weights]


def read_weights(path):
    """Loads `.weights.h5` and says whether all or nothing was changed."""
    before = [np.full(x.shape, BEFORE) for x in blank().weights]
    for weight, value in zip(blank().weights, before, strict=True):
        weight.assign(value)
    try:
        load_weights(blank(), path)
    except (ValueError, OSError):
        assert all((x == BEFORE).all() for x in values(blank()))
        raise
    assert not any((x == BEFORE).all() for x in values(blank()))
    assert all(np.isfinite(x).all() for x in values(blank()))


def read_model(path):
    """Loads `.keras`: as every weight has a checksum, the very same."""
    loaded = load_checkpoint(path)
    assert len(loaded.weights) < 100
    assert all(np.isfinite(x).all() for x in values(loaded))
    return loaded


READERS = {".weights.h5": read_weights, ".keras": read_model}


def fuzz(suffix, data):
    """Whether a file is read; the error must name it, without a stall."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / f"fuzzed{suffix}"
        path.write_bytes(data)
        start = time.process_time()
        try:
            READERS[suffix](path)
            return True
        except (ValueError, OSError) as error:
            assert "fuzzed" in str(error)
            return False
        finally:
            assert time.process_time() - start < 20


def archive_of(**changes):
    """The `.keras` file with other bytes in some members."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(saved(".keras"))) as old,
        zipfile.ZipFile(buffer, "w") as new,
    ):
        for name in old.namelist():
            new.writestr(name, changes.get(name, old.read(name)))
    return buffer.getvalue()


def fuzz_member(member, changes):
    """Mutates within the archive, its checksums right."""
    with zipfile.ZipFile(io.BytesIO(saved(".keras"))) as archive:
        data = archive.read(member)
    fuzz(".keras", archive_of(**{member: bytes(mutated(data, changes))}))


@pytest.mark.parametrize("suffix", READERS)
def test_unmutated_file_is_read(suffix):
    assert fuzz(suffix, saved(suffix))
    assert suffix != ".keras" or fuzz(suffix, archive_of())


def mutate(kind, changes):
    if kind in MEMBERS:
        fuzz_member(kind, changes)
    else:
        fuzz(kind, mutated(saved(kind), changes))


QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]


@pytest.mark.parametrize("kind", [*READERS, *MEMBERS])
@settings(max_examples=50, deadline=None, suppress_health_check=QUIET)
@given(changes=CHANGES)
def test_mutated_files(kind, changes):
    mutate(kind, changes)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*READERS, *MEMBERS])
@settings(max_examples=2000, deadline=None, suppress_health_check=QUIET)
@given(changes=CHANGES)
def test_many_mutated_files(kind, changes):
    mutate(kind, changes)
