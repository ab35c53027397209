"""What the README says is so."""

import importlib.util
import pathlib
import pkgutil
import re
import tomllib

import pytest

import keras_vit

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
API = (ROOT / "docs" / "api.md").read_text()
CITATION = (ROOT / "CITATION.cff").read_text()


def tool(name: str):
    path = ROOT / "tools" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.mark.slow
def test_table_of_models_is_what_the_models_are():
    assert tool("make_model_table").table() in README


def test_layers_that_it_names_exist():
    section = README.split("## Parts")[1].split("has the models")[0]
    named = set(re.findall(r"`([A-Z]\w+)`", section))
    assert named == set(keras_vit.layers.__all__)


def test_links_inside_the_project_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    inside = [link for link in links if "://" not in link]
    assert len(inside) > 3
    assert [link for link in inside if not (ROOT / link).exists()] == []


def test_on_the_python_index_links_and_pictures_are_addresses():
    text = tool("prepare_release").with_addresses(README, "me/vit", "v1")
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", text)
    assert len(links) > 20
    assert all(link.startswith("https://") for _, link in links)
    pictures = {link for mark, link in links if mark}
    raw = "https://raw.githubusercontent.com/me/vit/v1/docs/images/report.png"
    assert raw in pictures
    assert "https://github.com/me/vit/blob/v1/docs/training.md" in text
    assert "](https://arxiv.org/abs/2010.11929)" in text


def test_the_metadata_of_a_release_has_its_addresses():
    text = (ROOT / "pyproject.toml").read_text()
    text = tool("prepare_release").with_urls(text, "me/vit", "v1")
    project = tomllib.loads(text)["project"]
    assert project["urls"]["Repository"] == "https://github.com/me/vit"
    assert project["name"] == "keras-vision-transformer"


def test_names_of_the_api_page_exist():
    names = re.findall(r"^::: ([\w.]+)$", API, re.MULTILINE)
    assert len(names) > 10
    for name in names:
        pkgutil.resolve_name(name)


def test_the_first_page_of_the_site_links_to_its_pages():
    hooks = tool("site_hooks")
    page = hooks.as_index("[a](docs/a.md) ![b](docs/images/b.png) [c](c.md)")
    assert page == "[a](a.md) ![b](images/b.png) [c](../c.md)"
    here = hooks.with_addresses(page + "![d](../d.png)", "https://host/me/vit")
    assert here == (
        "[a](a.md) ![b](images/b.png) [c](https://host/me/vit/blob/main/c.md)"
        "![d](https://host/me/vit/raw/main/d.png)"
    )
    assert hooks.with_addresses("[c](../c.md)", None) == "c"


def test_the_citation_has_the_version():
    version = re.search(r"^version: (.+)$", CITATION, re.MULTILINE)
    assert version and version[1] == keras_vit.__version__
