"""What the README says is so."""

import pathlib
import pkgutil
import re
import shlex
import shutil

import numpy as np
import pytest
from PIL import Image
from project_tools import ROOT, tool

import keras_vit
from keras_vit import sizes
from keras_vit.checkpoints.public import catalog, fetch
from keras_vit.cli import main

README = (ROOT / "README.md").read_text()
API = "".join(
    path.read_text() for path in sorted((ROOT / "docs" / "api").glob("*.md"))
)
# Packages whose `__all__` the site shows whole.
WHOLE = set(re.findall(r"^::: keras_vit\.(\w+)$", API, re.MULTILINE))
CITATION = (ROOT / "CITATION.cff").read_text()
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The shape that a comment says a value has, letters for any size.
SHAPE = re.compile(r"^(\w+)(?: = .*|\.shape)  # \(([\w, ]+)\)$", re.MULTILINE)
# As deep as a B/16, but narrow.
NARROW = {"hidden_dim": 48, "num_heads": 12, "mlp_dim": 16}
OTHERS = ("photos/b.jpg", "wide.jpg", "tall.jpg", "query.jpg")
FEWER = {"finetune": ["--training.epochs", "2"]}


@pytest.fixture
def newcomer(tmp_path, monkeypatch):
    """A folder of pictures, and narrow stand-ins for what is downloaded."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    names = [f"flowers/{x}/{n}.png" for x in ("daisy", "tulip") for n in "abcd"]
    for name in (*names, "photos/a.jpg", *OTHERS):
        path = pathlib.Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (60, 80, 3), dtype="uint8")
        Image.fromarray(pixels).save(path)
    monkeypatch.setitem(
        sizes.VIT, "ViT_B16", {**sizes.VIT["ViT_B16"], **NARROW}
    )
    monkeypatch.setattr(fetch, "_fetch_name", _stand_in)
    clip = ROOT / "tests" / "reference" / "text" / "clip_quick_gelu"
    shutil.copytree(clip, tmp_path / "openai" / "clip-vit-base-patch32")


def _stand_in(name, model, texts=False):
    if name == "runs/flowers":
        name = "ViT_B16/imagenet21k"
    entry = catalog.find(model, name)
    path = pathlib.Path(entry.file_name)
    if not path.exists():
        made = getattr(keras_vit, entry.model)(
            weights=None,
            classes=entry.classes,
            input_shape=(entry.image_size, entry.image_size, 3),
        )
        head = made.get_layer("predictions").kernel
        head.assign(np.random.default_rng(0).normal(size=head.shape))
        keras_vit.save_checkpoint(made, path, format="google")
    return str(path)


@pytest.mark.parametrize("page", ["README.md", "docs/embeddings.md"])
def test_its_blocks_run_one_after_the_other(page, newcomer):
    if page == "README.md":  # It classifies by words.
        pytest.importorskip("tokenizers")
    ran, known, shapes = [], {}, []
    for language, code in BLOCK.findall((ROOT / page).read_text()):
        if "dinov2_small" in code:  # A file that the page says how to make.
            continue
        if language == "python":
            exec(compile(code, page, "exec"), known)
            ran.append("python")
            for name, shape in SHAPE.findall(code):
                narrow = shape.replace("768", str(NARROW["hidden_dim"]))
                sizes = zip(known[name].shape, narrow.split(", "), strict=True)
                assert all(y.isalpha() or str(x) == y for x, y in sizes), name
                shapes.append(name)
        for line in code.replace("\\\n", " ").splitlines():
            command, *words = shlex.split(line, comments=True) or [""]
            if command == "keras-vit":
                assert main([*words, *FEWER.get(words[0], [])]) == 0, line
                ran.append(words[0])
    wanted = {
        "README.md": "predict python python finetune predict python explain",
        "docs/embeddings.md": "python embed embed python search"
        + 3 * " python",
    }
    assert ran == wanted[page].split()
    assert len(shapes) == (4 if page == "docs/embeddings.md" else 0)


def test_it_is_short_and_in_the_order_of_a_newcomer():
    parts = re.findall(r"^## (.+)$", README, re.MULTILINE)
    assert parts == [
        "Why not timm, transformers or keras-hub?",
        *("Install", "Predict", "Fine-tune", "Explain", "Where next"),
    ]
    assert len(README.splitlines()) <= 140


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
