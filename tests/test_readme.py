"""What the README says is so."""

import importlib.util
import pathlib
import re

import pytest

import keras_vit

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


@pytest.mark.slow
def test_table_of_models_is_what_the_models_are():
    path = ROOT / "tools" / "make_model_table.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.table() in README


def test_layers_that_it_names_exist():
    section = README.split("## Parts")[1].split("has the models")[0]
    named = set(re.findall(r"`([A-Z]\w+)`", section))
    assert named == set(keras_vit.layers.__all__)


def test_links_inside_the_project_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    inside = [link for link in links if "://" not in link]
    assert len(inside) > 3
    assert [link for link in inside if not (ROOT / link).exists()] == []
