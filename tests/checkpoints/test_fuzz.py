"""Mutated files end in a ValueError or OSError, or load, and nothing else.

50 mutations a format by default, 2,000 in the tests marked slow.
"""

import functools
import pathlib
import shutil
import tempfile

import pytest
from damage import CHANGES, mutated
from hypothesis import HealthCheck, given, settings
from reference_cases import FOLDER, path_of

from keras_vit.checkpoints import read_info
from keras_vit.checkpoints.engine.configure import configure
from keras_vit.checkpoints.engine.loading import open_source

SUITE = {
    "google": path_of("vit_tiny_gap"),
    "big_vision": path_of("vit_tiny_bigvision_tok_scan"),
    "mixer": path_of("mixer_tiny_google"),
    "bit": path_of("bit_tiny_two_stages"),
    "timm": path_of("timm_vit_tiny"),
    "hugging_face": FOLDER / "hf_vit_tiny",
    "hugging_face_config": FOLDER / "hf_vit_tiny",
}
HEADS = {"timm": 4}


@functools.cache
def file_of(name):
    path = SUITE[name]
    if path.is_dir():
        file = "config.json" if "config" in name else "model.safetensors"
        path = path / file
    return path.name, path.read_bytes()


def read_everything(name, data):
    """Everything that loading does, short of building the model."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model"
        file, _ = file_of(name)
        if SUITE[name].is_dir():
            shutil.copytree(SUITE[name], path)
            (path / file).write_bytes(data)
        else:
            path = path.with_suffix(SUITE[name].suffix)
            path.write_bytes(data)
        source = open_source(path)
        configured = configure(source, HEADS.get(name), (32, 32))
        for weight in source.rows:
            shape = source.shape_of(weight, configured.facts)
            assert source.read(weight, configured.facts).shape == shape
        return read_info(path, num_heads=HEADS.get(name))


def fuzz(name, changes):
    try:
        read_everything(name, mutated(file_of(name)[1], changes))
    except (ValueError, OSError) as error:
        assert "model" in str(error)


QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]


@pytest.mark.parametrize("name", SUITE)
def test_unmutated_file_is_read(name):
    assert read_everything(name, file_of(name)[1]).num_parameters > 1000


@pytest.mark.parametrize("name", SUITE)
@settings(max_examples=50, deadline=None, suppress_health_check=QUIET)
@given(changes=CHANGES)
def test_mutated_files(name, changes):
    fuzz(name, changes)


@pytest.mark.slow
@pytest.mark.parametrize("name", SUITE)
@settings(max_examples=2000, deadline=None, suppress_health_check=QUIET)
@given(changes=CHANGES)
def test_many_mutated_files(name, changes):
    fuzz(name, changes)
