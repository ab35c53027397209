"""Holds the arrows between the packages, read from the import statements."""

import ast
import collections
import functools
import graphlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import keras
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "keras_vit"

DOCUMENT = ROOT / "docs" / "architecture.md"

# The lowest and the highest modules: all may import the first, the last may
# import all.
GROUND = (
    *("version", "sizes", "interpolation", "trained_as", "io", "runtime"),
)
TOP = ("__init__", "cli")

AT_IMPORT = {"keras", "numpy", *sys.stdlib_module_names}
BACKENDS = {"tensorflow", "jax", "jaxlib", "torch"}
# The last two write and run files of the backends' own formats.
MAY_NAME_BACKENDS = {
    *("analysis", "data", "training", "runtime"),
    *("exporting", "prediction"),
}
# The one module that uses private names of Keras and of the backends.
WORKAROUNDS = "keras_vit/runtime/workarounds.py"
# Where the name of the backend may be asked for besides.
MAY_ASK_FOR_THE_BACKEND = (
    "keras_vit/runtime/",
    "keras_vit/data/",
    "keras_vit/training/distribution/",
)
# Public in spite of their underscore.
PUBLIC = {"_asdict", "_exit"}
NEVER = {"recipes", "tests", "benchmarks"}

# Hugging Face publishes weights and data sets.
REPEATED = {"__init__.py", "config.py", "hugging_face.py"}


def modules() -> dict[str, set[str]]:
    """What each module may import, from the table in docs/architecture.md."""
    rows = re.findall(
        r"^\| `(\w+)` \|.*\| ([\w, ]*)\|$", DOCUMENT.read_text(), re.MULTILINE
    )
    direct = {module: set(re.findall(r"\w+", cell)) for module, cell in rows}
    reached = {}
    for module in graphlib.TopologicalSorter(direct).static_order():
        below = [reached[x] for x in direct[module]]
        reached[module] = direct[module].union(*below)
    return reached


ARROWS = modules()


class Import(NamedTuple):
    """One imported name, `a.b.c`, and whether importing the file runs it."""

    target: str
    at_import: bool
    line: int


def imports(source: str) -> Iterator[Import]:
    tree = ast.parse(source)
    late = {
        id(node)
        for scope in ast.walk(tree)
        if _is_late(scope)
        for node in ast.walk(scope)
    }
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Attribute)):
            for target in _targets(node):
                yield Import(target, id(node) not in late, node.lineno)


def _is_late(node: ast.AST) -> bool:
    """Functions run when they are called, and TYPE_CHECKING never."""
    if isinstance(node, ast.If):
        return ast.unparse(node.test).endswith("TYPE_CHECKING")
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))


def _targets(node: ast.Import | ast.ImportFrom | ast.Attribute) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        origin = "." * node.level + (node.module or "")
        return [f"{origin}.{alias.name}" for alias in node.names]
    return ["keras.src"] if ast.unparse(node) == "keras.src" else []


def owner(path: Path) -> str:
    """The module that a file of the package belongs to."""
    return path.relative_to(ROOT / PACKAGE).with_suffix("").parts[0]


def violations(package: str, source: str) -> list[str]:
    """What the imports of a file in `package` do against the rules."""
    return [
        f"line {found.line}: {found.target}: {reason}"
        for found in imports(source)
        if (reason := _objection(package, found))
    ]


def _objection(package: str, found: Import) -> str | None:
    root, *rest = found.target.split(".")
    if root == "":
        return "relative; write the full name"
    private = re.search(r"\._[a-z]|^keras\.src", found.target)
    if private and root != PACKAGE and package != "runtime":
        return "private; belongs into keras_vit/runtime/workarounds.py"
    if root == PACKAGE:
        return _arrow_objection(package, rest)
    if root in NEVER:
        return "the library knows nothing of what uses it"
    if root in BACKENDS and package not in MAY_NAME_BACKENDS:
        return f"a backend, which only {sorted(MAY_NAME_BACKENDS)} may name"
    if found.at_import and root not in AT_IMPORT:
        return "needed at import; import it in the function that uses it"
    return None


def _arrow_objection(package: str, rest: list[str]) -> str | None:
    if package in TOP:
        return None
    allowed = {package, *GROUND, *ARROWS[package]}
    if rest and rest[0] in allowed:
        return None
    return f"not an arrow; {package} may import {sorted(allowed)}"


def python_files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def test_every_module_has_a_row():
    found = {owner(path) for path in python_files(PACKAGE)}
    assert found - {"__init__"} == set(ARROWS)


def test_paths_in_the_document_exist():
    words = re.findall(r"`([\w./*]+/[\w./*]*)`", DOCUMENT.read_text())
    bases = (ROOT, ROOT / PACKAGE)
    missing = [
        word
        for word in words
        if not any(any(base.glob(word.rstrip("/"))) for base in bases)
    ]
    assert len(words) > 10
    assert missing == []


def test_no_file_name_stands_twice_in_the_package():
    names = [path.name for path in python_files(PACKAGE)]
    twice = {x for x, n in collections.Counter(names).items() if n > 1}
    assert twice - REPEATED == set()


@pytest.mark.parametrize(
    "path",
    python_files(PACKAGE),
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_imports_follow_the_arrows(path):
    assert violations(owner(path), path.read_text()) == []


@pytest.mark.parametrize("folder", ["recipes", "tests", "benchmarks"])
def test_private_keras_is_imported_nowhere(folder):
    found = [
        f"{path.relative_to(ROOT)}:{found.line}"
        for path in python_files(folder)
        for found in imports(path.read_text())
        if found.target.startswith("keras.src")
        # Keras's own layer test has no public name.
        and found.target != "keras.src.testing"
    ]
    assert found == []


def private_uses(source: str) -> list[str]:
    """Private names of other objects, and of Keras in our subclasses."""
    return [
        f"line {getattr(node, 'lineno', 0)}: {name}"
        for node in ast.walk(ast.parse(source))
        for name in _private_names(node)
    ]


def _private_names(node: ast.AST) -> list[str]:
    keras_only = private_of_keras()
    if isinstance(node, ast.Attribute):
        own = ast.unparse(node.value) in ("self", "cls")
        private = re.match("_[a-z]", node.attr) and node.attr not in PUBLIC
        found = node.attr in keras_only if own else private
        return [node.attr] if found else []
    if isinstance(node, ast.ClassDef):
        names = {getattr(member, "name", "") for member in node.body}
        return sorted(names & keras_only)
    if isinstance(node, ast.Call) and ast.unparse(node.func)[1:] == "etattr":
        return re.findall(r"'(_[a-z]\w*)'", ast.unparse(node.args[1]))
    return []


@functools.cache
def private_of_keras() -> set[str]:
    classes = (
        keras.Model,
        keras.Variable,
        keras.callbacks.Callback,
        keras.distribution.ModelParallel,
        keras.losses.Loss,
        keras.metrics.Metric,
        keras.optimizers.Optimizer,
        keras.random.SeedGenerator,
    )
    names = {name for x in classes for name in dir(x)}
    return {name for name in names if re.match("_[a-z]", name)}


def asks_for_the_backend(source: str) -> list[str]:
    """Calls of `keras.backend.backend()`, but for a text that names it."""
    tree = ast.parse(source)
    texts = [x for x in ast.walk(tree) if isinstance(x, ast.JoinedStr)]
    in_text = {id(node) for text in texts for node in ast.walk(text)}
    return [
        f"line {node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("backend.backend")
        and id(node) not in in_text
    ]


def test_private_names_stand_in_the_workarounds():
    found = {
        path.relative_to(ROOT).as_posix(): uses
        for folder in (PACKAGE, "recipes")
        for path in python_files(folder)
        if (uses := private_uses(path.read_text()))
    }
    assert set(found) == {WORKAROUNDS}, found


@pytest.mark.parametrize(
    "source",
    [
        "model._flatten_layers()",
        "variable._value = 0",
        "class A(B):\n    def f(self):\n        self._flatten_layers()",
        "class A(B):\n    def _clip_gradients(self, gradients):\n        pass",
        "getattr(variable, '_layout')",
        "super()._clip_gradients(gradients)",
    ],
)
def test_a_private_name_is_found(source):
    assert private_uses(source)


def test_the_backend_is_asked_for_in_few_places():
    found = {
        name: calls
        for path in python_files(PACKAGE)
        if not (name := path.relative_to(ROOT).as_posix()).startswith(
            MAY_ASK_FOR_THE_BACKEND
        )
        and (calls := asks_for_the_backend(path.read_text()))
    }
    assert found == {}
    assert asks_for_the_backend('keras.backend.backend() == "jax"')


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("layers", "import keras_vit"),
        ("layers", "from keras_vit.models import vit"),
        ("layers", "from keras_vit import models"),
        ("layers", "from .. import models"),
        ("layers", "def f():\n    from keras_vit.models import vit"),
        ("models", "import keras_vit.applications"),
        ("models", "from keras_vit.checkpoints import load_checkpoint"),
        ("training", "from keras_vit.analysis import plots"),
        ("prediction", "from keras_vit.training.run import files"),
        ("exporting", "def f():\n    from keras_vit.training import run"),
        ("sharing", "from keras_vit.training.build import freeze"),
        ("analysis", "import recipes.finetune"),
        ("layers", "from keras.src import backend"),
        ("layers", "import keras\nkeras.src.backend"),
        ("training", "def f():\n    from jax._src.distributed import state"),
        ("layers", "import jax"),
        ("layers", "def f():\n    import torch.nn"),
        ("data", "import tensorflow as tf"),
        ("data", "try:\n    import tensorflow\nexcept ImportError:\n    pass"),
        ("analysis", "class A:\n    import matplotlib.pyplot"),
        ("__init__", "import safetensors"),
    ],
)
def test_a_wrong_import_is_found(package, source):
    assert len(violations(package, source)) == 1


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("layers", "import math\nimport keras\nfrom keras import ops"),
        ("models", "from keras_vit.layers import MLP"),
        ("applications", "from keras_vit.layers import MLP"),
        ("analysis", "def f():\n    import matplotlib.pyplot as plt"),
        ("data", "def f():\n    import tensorflow as tf"),
        (
            "data",
            "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    import tensorflow as tf",
        ),
        ("cli", "from keras_vit.training import recipe"),
    ],
)
def test_a_right_import_is_let_through(package, source):
    assert violations(package, source) == []
