"""A publisher is named in its own module, and nowhere else."""

import ast
import re
from pathlib import Path

import pytest

from keras_vit.checkpoints import dialects
from keras_vit.checkpoints.dialects import LAYOUTS
from keras_vit.checkpoints.engine.recognition import dialects as publishers
from keras_vit.models.options import PLACES, TRAINING

PACKAGE = Path(__file__).parents[2] / "keras_vit"
CHECKPOINTS = PACKAGE / "checkpoints"
PUBLISHERS = re.compile(
    # A hub, as an address or by name, is no publisher.
    r"(?i:timm(?!e)|hugging[_ -]?face(?!_hub| hub\b|\\?\.co\b)|torchvision)"
    r"|(?i:keras[_-]hub|big_vision|open_?clip)"
    r"|(?i:segment[_ -]?anything)|\btransformers\b"
)
ANYWHERE = re.compile(rf"{PUBLISHERS.pattern}|(?i:huggingface|google|\bmeta\b)")


def names_in_code(text: str) -> list[str]:
    """List identifiers and texts that name a publisher, but for docstrings."""
    tree, found = ast.parse(text), []
    docstrings = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }
    for node in ast.walk(tree):
        fields = ("id", "attr", "name", "arg", "module")
        texts = [getattr(node, field, None) for field in fields]
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            texts.append(node.value)
        found += [x for x in texts if isinstance(x, str)]
    return [x for x in found if PUBLISHERS.search(x)]


@pytest.mark.parametrize("folder", ["engine", "files"])
def test_generic_code_names_no_publisher_not_even_in_comments(folder):
    found = {
        f"{path.name}:{i}": line
        for path in (CHECKPOINTS / folder).glob("*.py")
        for i, line in enumerate(path.read_text().splitlines(), 1)
        if ANYWHERE.search(line)
    }
    assert found == {}


def test_code_outside_of_the_dialects_names_no_publisher():
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if names_in_code(path.read_text())
        and path.parent != CHECKPOINTS / "dialects"
    }
    assert found == set()


@pytest.mark.parametrize(
    "code",
    ['x = "timm"', "import timm", "timm_config = 1", 'f"{x} of transformers"']
    + ['x == "hugging_face"', "keras_hub.open()", 'x = "torchvision"'],
)
def test_a_name_in_code_is_found(code):
    assert names_in_code(code)


PART = re.compile("_(config|decoder|images|text)$")
MODULES = [
    path
    for path in (CHECKPOINTS / "dialects").glob("*.py")
    if path.stem not in ("__init__", "shared")
]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_publisher_needs_another(path):
    prefix = f"{dialects.__name__}."
    origins = {
        node.module.removeprefix(prefix)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and node.module
        and node.module.startswith(prefix)
    }
    own = PART.sub("", path.stem)
    assert origins <= {"shared", own, f"{own}_config", f"{own}_images"}


def test_each_publisher_is_one_record():
    found = {}
    for layout in LAYOUTS:
        found.setdefault(layout.dialect.name, set()).add(id(layout.dialect))
    assert {name: len(x) for name, x in found.items()} == dict.fromkeys(
        found, 1
    )
    whole = [x for x in MODULES if not PART.search(x.stem)]
    assert len(found) == len(whole)


def test_options_of_layouts_are_fields_of_their_families():
    for layout in LAYOUTS:
        assert layout.options <= set(PLACES[layout.family]), layout.name
        is_written = bool(layout.container) and layout.model_class is None
        assert bool(layout.options) == is_written, layout.name
        assert bool(layout.poolings) == is_written, layout.name


def test_some_publisher_holds_each_option():
    for family, places in PLACES.items():
        held = {
            option
            for layout in LAYOUTS
            if layout.family == family
            for option in layout.options
        }
        others = {x for x, place in places.items() if place == TRAINING}
        # Of no publisher's head.
        others |= {"representation_activation", "unit_features"}
        assert set(places) - others <= held


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (
            {
                "id2label": {
                    x: f"class {x}" for x in sorted(map(str, range(11)))
                }
            },
            tuple(f"class {i}" for i in range(11)),
        ),
        ({"architecture": "x", "label_names": ["a", "b"]}, ("a", "b")),
        ({"id2label": {}}, None),
        ({"label_names": "a b"}, None),
        ({}, None),
    ],
)
def test_class_names_of_each_publishers_config(tmp_path, content, names):
    found = [
        x.read_trained_as(tmp_path, content).get("class_names")
        for x in publishers()
        if x.is_config(content)
    ]
    assert (found[0] if found else None) == names
