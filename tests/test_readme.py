"""What the README says is so."""

import pkgutil
import re

from project_tools import ROOT, tool

import keras_vit

README = (ROOT / "README.md").read_text()
API = "".join(
    path.read_text() for path in sorted((ROOT / "docs" / "api").glob("*.md"))
)
# Packages whose `__all__` the site shows whole.
WHOLE = set(re.findall(r"^::: keras_vit\.(\w+)$", API, re.MULTILINE))
CITATION = (ROOT / "CITATION.cff").read_text()


def test_it_is_short_and_in_the_order_of_a_newcomer():
    parts = re.findall(r"^## (.+)$", README, re.MULTILINE)
    assert parts == [
        *("Install", "Predict", "Fine-tune on your folder", "Explain"),
        *("Quick start in a clone", "Speed", "Where to go on"),
    ]
    assert len(README.splitlines()) <= 155  # Half of what it had.


def test_relative_links_become_addresses_at_a_tag():
    address = "https://github.com/me/vit"
    raw = "https://raw.githubusercontent.com/me/vit/v1"
    for text, expected in {
        "[a](docs/a.md#b)": f"[a]({address}/blob/v1/docs/a.md#b)",
        "![p](p.png)": f"![p]({raw}/p.png)",
        "[![p](p.svg)](a.md)": f"[![p]({raw}/p.svg)]({address}/blob/v1/a.md)",
        "[![p](p.svg)](https://x.y)": f"[![p]({raw}/p.svg)](https://x.y)",
        "[a](#b) [c](https://x.y) [d]": "[a](#b) [c](https://x.y) [d]",
    }.items():
        assert tool("build_readme").with_addresses(text, address, "v1") == (
            expected
        )


def test_badges_open_every_notebook_but_the_one_for_tpu_vms():
    badges = re.findall(r"\[!\[Open in \w+\]\(([^)]+)\)\]\(([^)]+)\)", README)
    found = re.findall(r"^\| \[[^\]]+\]\(([^)]+\.ipynb)\)", README, re.M)
    hooks = tool("site_hooks")
    opened = [x[2] for path in found for x in hooks.opened_in(path)]
    assert [address for _, address in badges] == opened
    assert {x for x, _ in badges} == {
        "docs/images/colab.svg",
        "docs/images/kaggle.svg",
    }
    folders = ROOT / "docs" / "notebooks", ROOT / "recipes" / "kaggle"
    notebooks = {
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in folder.glob("*.ipynb")
    }
    assert notebooks - {*found} == {"recipes/kaggle/tpu_strategy.ipynb"}
    page = hooks.links_to("docs/notebooks/first_steps.ipynb")
    assert f"[open it in Colab]({opened[0]})" in page


def test_the_site_has_every_public_name():
    shown = set(re.findall(r"^::: ([\w.]+)$", API, re.MULTILINE))
    for name in shown:
        pkgutil.resolve_name(name)
    models = set(keras_vit.list_models())
    names = set(keras_vit.__all__) - models - {"__version__"}
    alone = {name.rpartition(".")[2] for name in shown}
    assert names - alone - WHOLE == set()


def test_pages_of_the_site_link_to_each_other():
    hooks = tool("site_hooks")
    page = hooks.as_page("[a](docs/a.md) ![b](docs/images/b.png) [c](c.md)")
    assert page == "[a](a.md) ![b](images/b.png) [c](../c.md)"
    page += "[d](../CONTRIBUTING.md) ![e](../benchmarks/results/e.png)"
    here = hooks.with_addresses(page, "b/f.md", "https://host/me/vit")
    blob = "https://host/me/vit/blob/main/"
    assert here == page  # From docs/b/ all of this is inside docs/.
    here = hooks.with_addresses(page, "f.md", "https://host/me/vit")
    assert here == (
        f"[a](a.md) ![b](images/b.png) [c]({blob}c.md)"
        f"[d]({blob}CONTRIBUTING.md) ![e](benchmarks/results/e.png)"
    )
    assert hooks.with_addresses("[c](../c.md)", "f.md", None) == "c"
    assert hooks.as_page("[d](CONTRIBUTING.md)") == "[d](contributing.md)"


def test_the_citation_has_the_version():
    version = re.search(r"^version: (.+)$", CITATION, re.MULTILINE)
    assert version and version[1] == keras_vit.__version__
