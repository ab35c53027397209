"""What happens when the package is imported, in fresh processes."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from keras_vit import _environment

ROOT = Path(__file__).parents[1]
OPTIONAL_MODULES = {
    *("tensorflow", "jax", "torch", "tensorflow_datasets", "keras_cv"),
    *("importlib_resources", "matplotlib", "sklearn", "PIL", "jsonargparse"),
    *("tensorboard", "tensorboardX", "onnx", "onnxruntime", "onnxscript"),
    *("ai_edge_litert", "nncf", "openvino"),
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
TELL_BACKEND = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import keras_vit
print([str(x.message) for x in caught])
import keras
print(keras.backend.backend())
"""
EXPLAIN_IMPORT = """
try:
    import keras_vit
except ImportError as error:
    print(type(error.__cause__).__name__, error)
"""


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


def test_installed_backend_is_taken_where_tensorflow_is_missing(
    tmp_path, backend
):
    if backend == "tensorflow":
        pytest.skip("the test takes TensorFlow away")
    others = {"jax", "torch"} - {backend}
    printed = run_without(
        ["tensorflow", *others],
        TELL_BACKEND,
        KERAS_BACKEND=None,
        HOME=str(tmp_path),
        KERAS_HOME=str(tmp_path),
    )
    assert f"taking {backend!r}" in printed
    assert printed.splitlines()[-1] == backend


def test_missing_backends_are_explained(tmp_path):
    home = str(tmp_path)
    printed = run_without(
        ["tensorflow", "jax", "torch"],
        EXPLAIN_IMPORT,
        KERAS_BACKEND=None,
        HOME=home,
        KERAS_HOME=home,
    )
    assert printed.startswith("ModuleNotFoundError")
    assert "set KERAS_BACKEND" in printed
    assert "pip install tensorflow" in printed


def test_chosen_backend_that_is_missing_is_explained(backend):
    printed = run_without([backend], EXPLAIN_IMPORT, KERAS_BACKEND=backend)
    assert printed.startswith("ModuleNotFoundError")
    assert f"pip install {backend}" in printed


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
