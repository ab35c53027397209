"""What a user gets from the wheel and the metadata."""

import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from keras_vit import checks
from keras_vit.version import __version__

ROOT = Path(__file__).parents[1]
PLOTS = {"jinja2", "matplotlib", "scikit-learn"}
DATA = {"tensorflow-datasets", "importlib-resources"}
EXTRAS = {
    "tensorflow": {"tensorflow", *DATA, *PLOTS},
    "jax": {"jax", *PLOTS},
    "torch": {"torch", *PLOTS},
    "data": DATA,
    "cv": {"keras-cv"},
    "plots": PLOTS,
    "explain": {"saliency", *PLOTS},
    "tensorboard": {"tensorboard", "tensorboardx"},
    "recipes": {"tensorflow", *DATA, *PLOTS},
    "export": {
        *("ai-edge-litert", "nncf", "onnx", "onnxruntime", "onnxscript"),
        *("openvino", "tf2onnx"),
    },
    "hub": {"huggingface-hub", "kagglehub", "safetensors"},
    "serve": {"python-multipart", "starlette", "uvicorn"},
    "streams": {"array-record", "huggingface-hub", "pyarrow"},
    "tpu-compiler": {"libtpu"},
    "wandb": {"wandb"},
    "mlflow": {"mlflow"},
}
APART = {"tpu-compiler", "wandb", "mlflow"}  # not in "all"


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


def files_below(folder: str) -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_wheel_is_the_package_and_its_recipes(wheel):
    dist_info = f"keras_vision_transformer-{__version__}.dist-info/"
    shipped = {n for n in wheel.namelist() if not n.startswith(dist_info)}
    recipes = files_below("recipes") - files_below("recipes/kaggle")
    recipes = {f"keras_vit/{path}" for path in recipes}
    assert shipped == files_below("keras_vit") | recipes
    assert "keras_vit/recipes/configs/quickstart.yaml" in shipped
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
    small = {"jsonargparse", "pillow", "pyyaml"}
    assert requirements(metadata)[""] == {"keras", "numpy", *small}


def test_extras_bring_what_they_promise(metadata):
    found = requirements(metadata)
    assert set(metadata.get_all("Provides-Extra")) == {*EXTRAS, "all"}
    assert {extra: found[extra] for extra in EXTRAS} == EXTRAS
    all_others = [x for name, x in EXTRAS.items() if name not in APART]
    assert set.union(*all_others) <= found["all"]
    assert all(found["all"].isdisjoint(EXTRAS[name]) for name in APART)


def test_the_extra_that_an_error_names_brings_what_is_missing(metadata):
    found = requirements(metadata)
    for extra, packages in checks.EXTRAS.items():
        named = {canonicalize_name(name) for name in packages.values()}
        assert named <= found[extra], extra
