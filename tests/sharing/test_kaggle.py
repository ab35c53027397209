"""Sharing on Kaggle, up to the functions of kagglehub that talk to it.

What `model_upload` and `model_download` send was not run: these stand in for
them, with their arguments.
"""

import pathlib
import shutil

import numpy as np
import pytest
from shared_models import NAMES, build, output

import keras_vit
from keras_vit.cli import main

kagglehub = pytest.importorskip("kagglehub")

HANDLE = "me/shapes/keras/tiny"
KEY = "KGAT_ofTheTests"


@pytest.fixture
def kaggle(monkeypatch, tmp_path):
    """Handle -> arguments of its upload, with a copy of the folder."""
    uploads = {}

    def model_upload(
        handle, local_model_dir, license_name=None, version_notes=""
    ):
        folder = tmp_path / "kaggle" / handle
        shutil.copytree(local_model_dir, folder)
        uploads[handle] = (license_name, version_notes)

    monkeypatch.setattr(kagglehub, "model_upload", model_upload)
    monkeypatch.setattr(
        kagglehub,
        "model_download",
        lambda handle: str(tmp_path / "kaggle" / handle),
    )
    monkeypatch.setenv("KAGGLE_API_TOKEN", KEY)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return uploads


def folder_of(tmp_path, handle=HANDLE) -> pathlib.Path:
    return tmp_path / "kaggle" / handle


def test_a_model_comes_back_from_kaggle(kaggle):
    model = build(classifier_activation="softmax")
    address = keras_vit.push_to_hub(
        model,
        f"kaggle://{HANDLE}",
        class_names=NAMES,
        license="Apache-2.0",
        commit_message="The first",
    )
    assert address == f"https://www.kaggle.com/models/{HANDLE}"
    assert kaggle == {HANDLE: ("Apache 2.0", "The first")}
    found = keras_vit.load_checkpoint(f"kaggle://{HANDLE}")
    assert found.config == model.config
    np.testing.assert_array_equal(output(found), output(model))


@pytest.mark.parametrize(
    ("framework", "file"),
    [
        ("keras", "model.keras"),
        ("transformers", "model.safetensors"),
        ("pyTorch", "model.safetensors"),
        ("other", "model.safetensors"),
    ],
)
def test_the_framework_chooses_the_format(kaggle, tmp_path, framework, file):
    handle = f"me/shapes/{framework}/tiny"
    keras_vit.push_to_hub(build(), f"kaggle://{handle}")
    assert (folder_of(tmp_path, handle) / file).is_file()


def test_the_card_names_the_model_as_kaggle_does(kaggle, tmp_path):
    keras_vit.push_to_hub(build(), f"kaggle://{HANDLE}")
    card = (folder_of(tmp_path) / "README.md").read_text()
    assert f'load_checkpoint("kaggle://{HANDLE}")' in card
    assert "hf://" not in card and "hf_hub_download" not in card


REFUSED = {
    "a framework that there is not": ("me/shapes/nonsense/v", "framework"),
    "no variation": ("me/shapes/keras", "kaggle://user/model"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_names_are_one_line(kaggle, tmp_path, capsys, case):
    handle, message = REFUSED[case]
    build().save(tmp_path / "model.keras")
    words = ["push", str(tmp_path / "model.keras"), f"kaggle://{handle}"]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_branches_are_refused(kaggle):
    with pytest.raises(ValueError, match="versions in place of branches"):
        keras_vit.push_to_hub(build(), f"kaggle://{HANDLE}", revision="x")


def test_without_credentials_it_says_how_to_get_them(kaggle, monkeypatch):
    monkeypatch.setattr("kagglehub.config.get_kaggle_credentials", lambda: None)
    with pytest.raises(ValueError, match="KAGGLE_API_TOKEN"):
        keras_vit.push_to_hub(build(), f"kaggle://{HANDLE}")
    assert kaggle == {}


def failing(error):
    def model_upload(*_, **__):
        raise error

    return model_upload


def answer(status):
    requests = pytest.importorskip("requests")
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError(f"{status} for ?key={KEY}", response=response)


FAILURES = {
    "no permission": (lambda: answer(403), "403.*may write"),
    "broken credentials": (lambda: answer(401), "401.*KAGGLE_API_TOKEN"),
    "an error in the answer": (
        lambda: kagglehub.exceptions.BackendError(f"No quota for {KEY}", 400),
        r"No quota for \*\*\*",
    ),
    "no network": (lambda: ConnectionError("no route"), "Check the network"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_failures_are_one_line_without_the_key(kaggle, monkeypatch, case):
    make, message = FAILURES[case]
    monkeypatch.setattr(kagglehub, "model_upload", failing(make()))
    with pytest.raises(OSError, match=message) as caught:
        keras_vit.push_to_hub(build(), f"kaggle://{HANDLE}")
    assert KEY not in str(caught.value)


def test_a_download_that_fails_says_what_to_do(kaggle, monkeypatch):
    monkeypatch.setattr(kagglehub, "model_download", failing(answer(404)))
    with pytest.raises(OSError, match="404.*into a folder") as caught:
        keras_vit.load_checkpoint(f"kaggle://{HANDLE}")
    assert KEY not in str(caught.value)


def test_offline_nothing_is_asked_of_kaggle(kaggle, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(OSError, match="HF_HUB_OFFLINE"):
        keras_vit.load_checkpoint(f"kaggle://{HANDLE}")
