"""Archives of arrays that are opened are closed again, without a warning."""

import gc
import io
import warnings

import numpy as np
import pytest

from keras_vit.checkpoints.files.npz import open_npz


@pytest.mark.parametrize("kept", ["file", "tensor"])
def test_an_archive_in_a_cycle_is_closed_without_a_warning(
    tmp_path, monkeypatch, kept
):
    def collect_and_open(*arguments, **options):
        # The file is then of a younger generation than what opens it, and
        # is found before it.
        gc.collect(0)
        return opened(*arguments, **options)

    opened = io.open
    monkeypatch.setattr(io, "open", collect_and_open)
    np.savez(tmp_path / "a.npz", a=np.arange(3.0), b=np.ones(2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        file = open_npz(tmp_path / "a.npz")
        cycle = [file if kept == "file" else file.tensors["a"]]
        cycle.append(cycle)
        del file, cycle
        gc.collect()
    assert not caught


def test_a_tensor_is_read_when_the_file_is_forgotten(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.arange(3.0))
    tensor = open_npz(tmp_path / "a.npz").tensors["a"]
    gc.collect()
    np.testing.assert_array_equal(tensor.read(), np.arange(3.0))
