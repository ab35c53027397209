"""The models of Figure 8."""

import pytest

from keras_vit.planning import count
from keras_vit.variants.scaling_table import FIGURE_8, scaled_config

DIMENSIONS = {
    "depth": "num_layers",
    "width": "hidden_dim",
    "mlp": "mlp_dim",
    "patch": "patch_size",
}


@pytest.mark.parametrize("name", FIGURE_8)
def test_multiply_adds_are_those_that_planning_counts(name):
    found = count(scaled_config(name, num_classes=0)).multiply_adds
    assert FIGURE_8[name]["multiply_adds"] == pytest.approx(found / 1e9, 1e-3)


def test_base_is_that_of_the_paper():
    config = scaled_config("base", num_classes=10)
    sizes = (config.num_layers, config.hidden_dim, config.mlp_dim)
    assert sizes == (8, 1024, 2048)
    assert (config.patch_size, config.num_classes) == ((32, 32), 10)


def test_each_line_changes_one_dimension():
    base = FIGURE_8["base"]
    for name, model in FIGURE_8.items():
        changed = {k for k in base if model[k] != base[k]} - {"multiply_adds"}
        line, _, value = name.partition("_")
        if line in DIMENSIONS:
            assert changed == {DIMENSIONS[line]}
            assert model[DIMENSIONS[line]] == int(value)
        elif line == "all":
            assert changed == set(DIMENSIONS.values())


def test_an_unknown_model_is_refused():
    with pytest.raises(ValueError, match="Did you mean 'depth_16'"):
        scaled_config("depth16")
