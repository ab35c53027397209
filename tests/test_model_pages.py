"""The pages of docs/models have the models, and all public weights once."""

import re

import pytest
from project_tools import ROOT, tool

from keras_vit.checkpoints.public import catalog
from keras_vit.sizes import BIT, MIXER, VIT

made = tool("make_model_pages")
FOLDER = ROOT / "docs" / "models"


def page(name):
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", made.FAMILIES)
def test_a_page_has_the_weights_of_the_catalogue(name):
    text = page(name)
    assert made.with_table(text, "weights", made.weights(name)) == text


def test_the_catalogue_is_on_the_pages_once():
    listed = [
        line
        for name in made.FAMILIES
        for line in made.weights(name).split("\n")
    ]
    rows = [line for line in listed if line.startswith("| `")]
    assert len(rows) == len(catalog.entries())


def test_the_pages_have_the_towers_with_texts_once():
    found = []
    for name in made.PAIRS:
        table = made.pairs(name)
        assert made.with_table(page(name), "pairs", table) == page(name)
        found += re.findall(r"^\| `(.*)` \| `", table, re.MULTILINE)
    taken = [x for x in catalog.repositories() if "_siglip_gap_" not in x]
    assert sorted(found) == sorted(taken)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name, x in made.FAMILIES.items() if x.models]
)
def test_a_page_has_the_sizes_and_arguments_of_the_models(name):
    text = page(name)
    assert made.with_table(text, "sizes", made.sizes(name)) == text
    assert made.with_table(text, "arguments", made.arguments(name)) == text


def test_every_model_is_on_a_page():
    models = [x for family in made.FAMILIES.values() for x in family.models]
    assert sorted(models) == sorted([*VIT, *MIXER, *BIT])


def test_a_page_without_a_place_is_refused():
    with pytest.raises(ValueError, match="<!-- sizes -->"):
        made.with_table("# A page\n", "sizes", "| a |\n")
