"""What happens when the package is imported, in fresh processes."""

import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

import keras_vit
from keras_vit.runtime import environment

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

hidden = sys.argv[1:]

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in hidden:
            return super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""
# What the import of keras_vit loads beyond Keras.
LIST_MODULES = """
import json
import keras
before = set(sys.modules)
import keras_vit
keras_vit.analysis, keras_vit.ViT_B16
imported = sorted(set(sys.modules) - before)
known = {name.partition(".")[0] for name in before} | {"keras_vit"}
known.update(sys.stdlib_module_names)
extra = [name for name in imported if name.partition(".")[0] not in known]
print(json.dumps({"imported": imported, "extra": extra}))
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
import keras_vit
try:
    keras_vit.ViT_B16
except ImportError as error:
    print(type(error.__cause__).__name__, error)
"""


# Whether the import of Keras loads PyTorch's compiler, and what that makes of a
# function that draws numbers.
COMPILE = """
from keras_vit.runtime import environment
if "lean" in sys.argv:
    environment.start_lean()
import keras
print("torch._dynamo" in sys.modules)
import torch
seeds = keras.random.SeedGenerator(0)
draw = lambda x: x + keras.random.uniform((2,), seed=seeds)
found = torch._dynamo.explain(draw)(torch.ones(2))
seeds = keras.random.SeedGenerator(0)
values = torch.compile(draw, backend="eager")(torch.ones(2)).tolist()
print(found.graph_break_count, found.graph_count, found.op_count, values)
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
def modules() -> dict:
    absent = OPTIONAL_MODULES - {keras.backend.backend()}
    return json.loads(run_without(absent, LIST_MODULES))


def test_import_needs_nothing_but_keras_and_numpy():
    assert modules()["extra"] == []


def test_import_is_cheap():
    """Leave out what only commands, training and servers need."""
    assert "keras_vit.models" in modules()["imported"]
    late = {"auditing", "cli", "data", "evaluation", "explanation", "runs"}
    late |= {"exporting", "planning", "prediction", "serving", "sharing"}
    names = [name.split(".") for name in modules()["imported"]]
    loaded = {name[1] for name in names if name[0] == "keras_vit" and name[1:]}
    assert len(loaded) > 5
    assert not loaded & {*late, "training"}


def test_commands_import_no_compiler_before_something_is_compiled(backend):
    if backend != "torch":
        pytest.skip("PyTorch's compiler")
    plain, lean = (run_without([x], COMPILE) for x in ("", "lean"))
    assert lean.split()[0] == "False"
    assert int(lean.split()[1]) == 1  # The draw is not compiled.
    assert lean.splitlines()[1:] == plain.splitlines()[1:]


def test_installed_backend_is_taken_where_tensorflow_is_missing(
    tmp_path, backend
):
    if backend == "tensorflow":
        pytest.skip("the test takes TensorFlow away")
    (other,) = {"jax", "torch"} - {backend}
    if importlib.util.find_spec(other) is None:
        pytest.skip(f"needs {other} as well")
    nothing = dict.fromkeys(("HOME", "KERAS_HOME"), str(tmp_path))
    alone, both = (
        run_without(missing, TELL_BACKEND, KERAS_BACKEND=None, **nothing)
        for missing in (["tensorflow", other], ["tensorflow"])
    )
    assert alone.splitlines() == ["[]", backend]
    assert "taking 'jax'" in both
    assert both.split()[-1] == "jax"


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


def test_another_module_that_keras_lacks_is_named_as_it_is():
    printed = run_without(["absl"], EXPLAIN_IMPORT)
    assert printed.split() == ["NoneType", "No", "module", "named", "'absl'"]


def test_old_keras_is_refused(monkeypatch):
    monkeypatch.setattr(keras, "__version__", "3.9.2")
    with pytest.raises(ImportError, match=r"3\.12 or newer.*3\.9\.2"):
        environment.check()
    monkeypatch.setattr(keras, "__version__", environment.OLDEST_KERAS)
    environment.check()  # The oldest itself will do.


def test_other_import_errors_of_keras_are_left_alone():
    printed = run_without(["keras"], EXPLAIN_IMPORT)
    assert printed == "NoneType No module named 'keras'\n"


@pytest.mark.once
# The models register themselves behind Keras, whoever imports it first.
@pytest.mark.parametrize(
    "first",
    [
        *("keras_vit", "keras_vit.runtime.workarounds"),
        *("keras_vit.layers.attention", "keras_vit.training.build"),
    ],
)
def test_keras_knows_the_models_as_soon_as_both_are_imported(first):
    script = f"""
import {first}
assert ("keras" in sys.modules) == ({first!r} != "keras_vit")
import keras
print(keras.saving.get_registered_object("keras_vit>VariantTransformer"))
from keras_vit.runtime import environment
assert environment.FOLLOWED not in sys.meta_path  # It has no more to do.
"""
    # JAX is imported in half of the time of torch.
    printed = run_without([], script, KERAS_BACKEND="jax")
    assert "variants.variant_transformer" in printed


@pytest.mark.once
def test_options_of_a_recipe_are_explained_without_keras():
    script = """
from keras_vit.cli import main
try:
    main(["finetune", "--help"])
except SystemExit as ended:
    print("ended with", ended.code)
"""
    printed = run_without(["keras"], script)
    assert "--optimizer.learning_rate" in printed
    assert printed.endswith("ended with 0\n")


def test_names_are_known_without_keras():
    script = """
import keras_vit
assert {*keras_vit.__all__} <= {*dir(keras_vit)} and "ViT_B16" in dir(keras_vit)
assert not hasattr(keras_vit, "ViT_B61")
assert "keras" not in sys.modules
"""
    assert run_without(["keras"], script) == ""
    assert all(hasattr(keras_vit, name) for name in keras_vit.__all__)


def test_foreign_distribution_is_pointed_out(monkeypatch, tmp_path):
    environment.check()  # Warnings are errors: no warning without it.
    folder = tmp_path / "keras_vit-1.0.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: keras-vit\nVersion: 1.0.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(UserWarning, match="pip uninstall keras-vit"):
        environment.check()


COMMAND = """
import sys
from keras_vit.cli import main
main([*sys.argv[1:], "weights", "list", "--model", "ViT_R26_B32"])
"""
IMPORTS = """
import keras, os, sys
print("of ours", os.environ.get("TF_CPP_MIN_LOG_LEVEL"), file=sys.stderr)
"""


def errors_of(*words):
    """What a program writes to standard error."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    return done.stderr


def test_commands_start_without_lines_of_the_backend():
    assert errors_of("-c", COMMAND + IMPORTS) == "of ours 2\n"
    verbose = errors_of("-c", COMMAND + IMPORTS, "--verbose")
    assert "of ours" in verbose and "of ours 2" not in verbose


@pytest.mark.once
def test_recipes_as_scripts_start_without_them_as_well():
    assert errors_of(ROOT / "recipes" / "finetune.py", "--help") == ""


LEAN = """
import gc, sys
from keras_vit.cli import main
main(["weights", "info", "fractals"])
assert "keras" in sys.modules, "of which the test is"
backend = sys.modules["keras"].backend.backend()
others = {"tensorflow", "jax", "torch"} - {backend}
assert not {"matplotlib", "sklearn", *others} & sys.modules.keys()
assert gc.isenabled() and gc.get_freeze_count() > 100_000
import matplotlib, sklearn, jax
"""


@pytest.mark.once
@pytest.mark.parametrize("backend", ("torch", "jax"))
def test_a_command_imports_no_plots_or_other_backend_behind_keras(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "KERAS_BACKEND": backend,
    }
    command = [sys.executable, "-c", LEAN]
    subprocess.run(command, env=environment, check=True, capture_output=True)


@pytest.mark.once
def test_nor_does_the_process_that_writes_an_export(tmp_path):
    (tmp_path / "jobs.json").write_text("[]")
    command = [sys.executable, "-X", "importtime", "-m"]
    done = subprocess.run(
        [*command, "keras_vit.exporting.writers", tmp_path / "jobs.json"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
        check=True,
    )
    # Of what is hidden there is a line, and none of its inner modules.
    found = {x.split()[-1] for x in done.stderr.splitlines()}
    assert "keras.src.layers" in found
    hidden = {"matplotlib.cbook", "sklearn.base", "tensorflow.python"}
    assert not found & {*hidden, "torch.nn"}
