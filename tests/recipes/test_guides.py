"""The notebooks of docs/, which teach on data that needs no network."""

import keras
import pytest
from notebook_runs import pictures, printed, run
from PIL import Image

FOLDER = "docs/notebooks"
BOTH = pytest.mark.parametrize("suffix", [".py", ".ipynb"])
FEW = {"EPOCHS": 2, "BATCH_SIZE": 128}


def executed(name, folder, parameters=None):
    """Runs one, and returns what it printed; in a kernel it shows pictures."""
    backend = keras.backend.backend()
    path = f"{FOLDER}/{name}"
    done = run(path, folder, parameters, backend=backend)
    shown = sorted(folder.glob("*.png"))
    assert shown
    if name.endswith(".ipynb"):
        assert pictures(done) == len(shown)
    for path in shown:
        with Image.open(path) as image:
            assert min(image.size) > 60
    assert f"on {backend}" in printed(done)
    return printed(done)


@pytest.mark.slow
@BOTH
def test_first_steps(suffix, tmp_path):
    text = executed(f"first_steps{suffix}", tmp_path)
    assert "5,717,416 parameters" in text
    assert text.count("0.10%") == 5  # of a thousand classes, at random
    assert "out (None, 10)\npatches (24, 16)" in text
    assert "the same answer: True" in text


@pytest.mark.slow
@BOTH
def test_finetune_folder(suffix, tmp_path):
    text = executed(f"finetune_folder{suffix}", tmp_path, FEW)
    assert "10 classes: digit 0, digit 1" in text
    assert "of 359 are right" in text
    assert text.count(".png: digit ") == 3
    assert (tmp_path / "runs" / "folder" / "report.html").is_file()


@pytest.mark.slow
@BOTH
def test_what_a_vit_looks_at(suffix, tmp_path):
    few = {"EPOCHS": 1, "IMAGES": 80}
    text = executed(f"what_a_vit_looks_at{suffix}", tmp_path, few)
    assert "times chance" in text
