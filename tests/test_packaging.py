"""What a user gets from the wheel, the metadata and the import."""

import functools
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

import keras
import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from keras_vit import _environment
from keras_vit.version import __version__

ROOT = Path(__file__).parents[1]
EXTRAS = {
    "tensorflow": {"tensorflow"},
    "jax": {"jax"},
    "torch": {"torch"},
    "data": {"tensorflow-datasets", "importlib-resources"},
    "cv": {"keras-cv"},
    "plots": {"matplotlib", "scikit-learn"},
    "tensorboard": {"tensorboard", "tensorboardx"},
    "recipes": {"jsonargparse", "matplotlib", "pillow", "scikit-learn"},
    "export": {"onnx", "onnxruntime", "onnxscript", "tf2onnx"},
    "hub": {"huggingface-hub", "kagglehub", "safetensors"},
}
OPTIONAL_MODULES = {
    *("tensorflow", "jax", "torch", "tensorflow_datasets", "keras_cv"),
    *("importlib_resources", "matplotlib", "sklearn", "PIL", "jsonargparse"),
    *("tensorboard", "tensorboardX", "onnx", "onnxruntime", "onnxscript"),
    *("tf2onnx", "huggingface_hub", "kagglehub", "safetensors"),
}
# Makes the modules that the arguments name look as if not installed.
WITHOUT_MODULES = """
import sys
from importlib.machinery import PathFinder

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in sys.argv[1:]:
            return super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""
# What the import of keras_vit costs beyond that of Keras, and what it loads.
MEASURE_IMPORT = """
import json, time
import keras
before = set(sys.modules)
start = time.perf_counter()
import keras_vit
seconds = time.perf_counter() - start
roots = {name.partition(".")[0] for name in set(sys.modules) - before}
known = {name.partition(".")[0] for name in before} | {"keras_vit"}
extra = sorted(roots - known - set(sys.stdlib_module_names))
print(json.dumps({"seconds": seconds, "extra": extra}))
"""
EXPLAIN_IMPORT = """
try:
    import keras_vit
except ImportError as error:
    print(type(error.__cause__).__name__, error)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built) -> zipfile.ZipFile:
    (path,) = built.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel) -> Message:
    (name,) = [n for n in wheel.namelist() if n.endswith("/METADATA")]
    return BytesParser().parsebytes(wheel.read(name))


def run_without(modules, script: str, **environment: str | None) -> str:
    """Output of a fresh process; None as a value unsets a variable."""
    merged = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MODULES + script, *modules],
        env={k: v for k, v in merged.items() if v is not None},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wheel_is_the_package_and_nothing_else(wheel):
    dist_info = f"keras_vision_transformer-{__version__}.dist-info/"
    shipped = {n for n in wheel.namelist() if not n.startswith(dist_info)}
    expected = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "keras_vit").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == expected
    assert "keras_vit/py.typed" in shipped
    assert dist_info + "licenses/LICENSE" in wheel.namelist()


def test_wheel_fits_every_platform(built):
    (path,) = built.glob("*.whl")
    name = f"keras_vision_transformer-{__version__}-py3-none-any.whl"
    assert path.name == name


def test_sdist_has_what_the_wheel_leaves_out(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        parts = [Path(name).parts for name in archive.getnames()]
    wanted = "keras_vit recipes tests docs README.md LICENSE Makefile".split()
    here = {
        name
        for name in wanted
        for path in [ROOT / name, *(ROOT / name).rglob("*")]
        if path.is_file()
    }
    assert here <= {folders[1] for folders in parts}


def test_metadata_names_the_project(metadata):
    assert metadata["Name"] == "keras-vision-transformer"
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"


def requirements(metadata) -> dict[str, set[NormalizedName]]:
    """Names of the requirements by extra, "" being what is always needed."""
    parsed = [Requirement(line) for line in metadata.get_all("Requires-Dist")]
    by_extra = {
        extra: {
            canonicalize_name(item.name)
            for item in parsed
            if item.marker and item.marker.evaluate({"extra": extra})
        }
        for extra in [*EXTRAS, "all"]
    }
    always = {
        canonicalize_name(item.name) for item in parsed if not item.marker
    }
    return {"": always, **by_extra}


def test_no_backend_is_forced_on_the_user(metadata):
    assert requirements(metadata)[""] == {"keras", "numpy"}


def test_extras_bring_what_they_promise(metadata):
    found = requirements(metadata)
    assert set(metadata.get_all("Provides-Extra")) == {*EXTRAS, "all"}
    assert {extra: found[extra] for extra in EXTRAS} == EXTRAS
    assert set.union(*EXTRAS.values()) <= found["all"]


@functools.cache
def measured_import(attempt: int) -> dict:
    absent = OPTIONAL_MODULES - {keras.backend.backend()}
    return json.loads(run_without(absent, MEASURE_IMPORT))


def test_import_needs_nothing_but_keras_and_numpy():
    assert measured_import(0)["extra"] == []


def test_import_is_cheap():
    # The best of three, since one process may be disturbed by another.
    fast = (measured_import(attempt)["seconds"] < 0.3 for attempt in range(3))
    assert any(fast)


def test_missing_backend_is_explained(tmp_path):
    home = str(tmp_path)
    printed = run_without(
        ["tensorflow"],
        EXPLAIN_IMPORT,
        KERAS_BACKEND=None,
        HOME=home,
        KERAS_HOME=home,
    )
    assert printed.startswith("ModuleNotFoundError")
    assert "set KERAS_BACKEND" in printed
    assert "pip install tensorflow" in printed


def test_old_keras_is_refused(monkeypatch):
    monkeypatch.setattr(keras, "__version__", "3.9.2")
    with pytest.raises(ImportError, match=r"3\.12 or newer.*3\.9\.2"):
        _environment.check()


def test_other_import_errors_of_keras_are_left_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras", None)
    with pytest.raises(ModuleNotFoundError, match="keras"):
        _environment.check()


def test_foreign_distribution_is_pointed_out(monkeypatch, tmp_path):
    _environment.check()  # Warnings are errors: no warning without it.
    folder = tmp_path / "keras_vit-1.0.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: keras-vit\nVersion: 1.0.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(UserWarning, match="pip uninstall keras-vit"):
        _environment.check()
