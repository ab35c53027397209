"""What variants cost: the models of Figure 8, and blocks of other kinds."""

import pytest
import variant_models
from paper.scaling_table import FIGURE_8

from keras_vit.analysis import multiply_adds
from keras_vit.models import ViTConfig
from keras_vit.planning import count

DIMENSIONS = {
    "depth": "num_layers",
    "width": "hidden_dim",
    "mlp": "mlp_dim",
    "patch": "patch_size",
}


def scaled_config(name, **options):
    fields = {k: v for k, v in FIGURE_8[name].items() if k != "multiply_adds"}
    heads = fields["hidden_dim"] // 64  # as in the paper's Table 1
    return ViTConfig(**{**fields, "num_heads": heads, **options})


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


# 7 tokens, with the class token, or 6 in 2x3 patches; D 8, MLP 12.
BLOCKS = {
    "plain": ({}, 7 * (4 * 8 * 8 + 2 * 8 * 12) + 2 * 7 * 7 * 8),
    "relative": (
        {"position": "relative"},
        7 * (4 * 8 * 8 + 2 * 8 * 12) + 2 * 7 * 7 * 8 + 7 * 13 * 8,
    ),
    "local": (
        {"mlp": "local"},
        7 * (4 * 8 * 8 + 2 * 8 * 12) + 2 * 7 * 7 * 8 + 6 * 9 * 12,
    ),
    # Twice all dense layers; of 6 queries, each to 3 keys, then to 2.
    "axial": (
        {"attention": "axial"},
        2 * 6 * (4 * 8 * 8 + 2 * 8 * 12) + 2 * 6 * (3 + 2) * 8,
    ),
}


@pytest.mark.parametrize(("variant", "expected"), BLOCKS.values(), ids=BLOCKS)
def test_multiply_adds_of_a_block(variant, expected):
    counts = multiply_adds(variant_models.model(variant))
    assert counts["block_0"] == counts["block_1"] == expected


def test_the_default_variant_costs_what_the_plain_model_does():
    variant, plain = variant_models.model(), variant_models.plain_model()
    assert multiply_adds(variant) == multiply_adds(plain)
