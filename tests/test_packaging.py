"""What a user gets from the wheel and the metadata."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from readme_renderer import markdown

from keras_vit.io import checks
from keras_vit.version import __version__

ROOT = Path(__file__).parents[1]
MEGABYTE = 10**6
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
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
    "serve": {
        *("prometheus-client", "python-multipart", "starlette", "uvicorn"),
    },
    "storage": {"gcsfs", "s3fs"},
    "streams": {"array-record", "huggingface-hub", "pyarrow"},
    "text": {"ftfy", "sentencepiece", "tokenizers"},
    "tpu-compiler": {"libtpu"},
    "gpu-compiler": {"jax-cuda12-plugin"},
    "wandb": {"wandb"},
    "mlflow": {"mlflow"},
}
APART = {"tpu-compiler", "gpu-compiler", "wandb", "mlflow"}  # not in "all"


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


def test_wheel_and_sdist_are_small(built):
    sizes = {path.suffix: path.stat().st_size for path in built.iterdir()}
    assert sorted(sizes) == [".gz", ".whl"]
    assert max(sizes.values()) < 3 * MEGABYTE, sizes


def test_sdist_makes_the_same_wheel_and_has_no_tests(built, wheel, tmp_path):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    names = {path.name for path in source.iterdir()}
    assert names >= {"LICENSE", "README.md", "CITATION.cff", "keras_vit"}
    assert names.isdisjoint({"tests", "docs", "benchmarks"})
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (again,) = (source / "dist").glob("*.whl")
    again = zipfile.ZipFile(again)
    assert sorted(again.namelist()) == sorted(wheel.namelist())
    (name,) = [n for n in wheel.namelist() if n.endswith("/METADATA")]
    assert again.read(name) == wheel.read(name)


def test_the_index_shows_the_readme_with_addresses_of_its_tag(metadata):
    assert metadata["Description-Content-Type"] == "text/markdown"
    # What the Python index and `twine check` render it by.
    page = markdown.render(metadata.get_payload(decode=True).decode())
    assert page and "<table>" in page and "<pre" in page
    links = re.findall(r'(?:href|src)="([^"#][^"]*)"', page)
    assert len(links) > 20
    assert [x for x in links if not x.startswith("https://")] == []
    ours = f"{URLS['Repository']}/blob/v{__version__}/"
    raw = ours.replace("github.com", "raw.githubusercontent.com")
    raw = raw.replace("/blob/", "/")
    found = [x.removeprefix(ours).removeprefix(raw) for x in links]
    paths = [x.partition("#")[0] for x in found if ":" not in x]
    assert len(paths) > 20
    assert [x for x in paths if not (ROOT / x).exists()] == []
    pictures = re.findall(r'src="([^"]+)"', page)
    assert f"{raw}docs/images/home.webp" in pictures


def test_metadata_names_the_project(metadata):
    assert metadata["Name"] == "keras-vision-transformer"
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    shown = [line.split(", ") for line in metadata.get_all("Project-URL")]
    assert dict(shown) == URLS
    owner, name = URLS["Repository"].split("/")[-2:]
    pages = f"https://{owner}.github.io/{name}/"
    assert URLS["Documentation"] == pages
    assert all(x.startswith((URLS["Repository"], pages)) for x in URLS.values())


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
    small = {"jsonargparse", "pillow", "pyyaml", "google-crc32c"}
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
