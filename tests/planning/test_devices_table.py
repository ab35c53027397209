"""Names of machines."""

import pytest

from keras_vit.planning import machine
from keras_vit.planning.devices_table import DEVICES


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("v5e-8", "v5e", 8),
        ("v3-8", "v3", 8),
        # Google's names count cores: 32 are 16 chips.
        ("v4-32", "v4", 16),
        ("v5p-8", "v5p", 4),
        ("h200x8", "h200", 8),
        ("T4x2", "t4", 2),
        ("a100-40gbx4", "a100-40gb", 4),
        ("a100x1", "a100", 1),
    ],
)
def test_names(text, name, count):
    found = machine(text)
    assert (found.name, found.count) == (name, count)


def test_cores_of_a_chip_share_its_numbers():
    """cloud.google.com/tpu/docs/v3: a chip has 123 TFLOPS and 32 GiB."""
    assert 2 * DEVICES["v3"].peak_tflops == 123
    assert 2 * DEVICES["v3"].memory_gb == 32


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v5ee-8", "Did you mean 'v5e'"),
        ("h20x8", "Did you mean 'h200'"),
        ("v5e", "such as v5e-8"),
        ("h200x0", "such as v5e-8"),
        ("", "such as v5e-8"),
        ("v4-7", "multiple of 2"),
    ],
)
def test_wrong_names(text, message):
    with pytest.raises(ValueError, match=message):
        machine(text)
