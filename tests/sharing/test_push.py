"""What is uploaded to the hub, and loaded from it: on a server of this machine.

The server speaks the hub's API as huggingface_hub asks for it; the clients are
huggingface_hub itself, transformers and timm.
"""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import shared_models as shared
import tiny_runs
from hub_server import TOKEN
from shared_models import IMAGES, NAMES, build, hub, output, run
from text_cases import FOLDER as PAIRS
from timm_stub import import_timm

import keras_vit
from keras_vit import data
from keras_vit.cli import main
from keras_vit.data import PreprocessingConfig
from keras_vit.training import ModelConfig, train

__all__ = ["hub", "run"]  # fixtures

pytestmark = pytest.mark.filterwarnings(
    # huggingface_hub 2.4.0 and its client.
    "ignore:Use 'content=:DeprecationWarning"
)


def test_a_model_comes_back_from_the_hub(hub):
    model = build(classifier_activation="softmax")
    address = keras_vit.push_to_hub(model, "me/shapes", class_names=NAMES)
    assert address == f"{hub.url}/me/shapes"
    found = keras_vit.load_checkpoint("hf://me/shapes")
    assert found.config == model.config
    np.testing.assert_allclose(output(found), output(model), atol=1e-6)


def test_a_pair_comes_back_from_the_hub(hub):
    pytest.importorskip("tokenizers")
    source = PAIRS / "clip_quick_gelu"
    keras_vit.push_to_hub(source, "me/pair", texts=True)
    expected = np.load(source / "expected.npz")
    texts = ["a photo of a cat", "a photo of a dog"]  # The first two of these.
    found = keras_vit.text.as_text_encoder("hf://me/pair").vectors(texts)
    np.testing.assert_allclose(found, expected["text_embeds"][:2], atol=1e-5)
    images = np.zeros((1, 32, 32, 3), "uint8")
    names = ["cat", "dog"]
    probabilities = [
        keras_vit.prediction.load_zero_shot(x, names).probabilities(images)
        for x in ("hf://me/pair", source)
    ]
    np.testing.assert_allclose(*probabilities, atol=1e-5)


# transformers remembers the newest commit of a name: each test has another.
def test_transformers_gives_its_logits(hub):
    model = build()
    keras_vit.push_to_hub(model, "me/logits", class_names=NAMES)
    found = shared.in_transformers("me/logits")
    np.testing.assert_allclose(found, output(model), atol=1e-5)


# ViT and Siglip of transformers.
@pytest.mark.parametrize("pooling", ["token", "mean"])
def test_the_pipeline_of_transformers_names_what_predict_names(hub, pooling):
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    image_module = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(5).integers(0, 256, (16, 16, 3), "uint8")
    image = image_module.fromarray(pixels)
    model = build(
        include_preprocessing=True,
        pooling=pooling,
        class_token=pooling == "token",
    )
    rule = PreprocessingConfig(evaluation="squash")
    keras_vit.push_to_hub(
        model, f"me/{pooling}", class_names=NAMES, preprocessing=rule
    )
    classify = transformers.pipeline("image-classification", f"me/{pooling}")
    theirs = {x["label"]: x["score"] for x in classify(image)}
    (ours,) = keras_vit.predict(f"hf://me/{pooling}", image, top=3)
    assert theirs == pytest.approx(dict(ours.classes), abs=1e-5)


def test_a_run_predicts_from_the_hub_as_from_its_folder(hub, run):
    keras_vit.push_to_hub(run, "me/shapes")
    image = np.random.default_rng(5).integers(0, 256, (30, 20, 3), "uint8")
    (expected,) = keras_vit.predict(run, image)
    (found,) = keras_vit.predict("hf://me/shapes", image)
    assert dict(found.classes) == pytest.approx(
        dict(expected.classes), abs=1e-6
    )


def test_a_keras_file_predicts_alike(hub, run):
    keras_vit.push_to_hub(run, "me/shapes", format="keras")
    assert "model.keras" in hub.files("me/shapes")
    image = np.random.default_rng(5).integers(0, 256, (30, 20, 3), "uint8")
    (expected,) = keras_vit.predict(run, image)
    assert keras_vit.predict("hf://me/shapes", image)[0] == expected


def test_timm_builds_what_transformers_has_no_class_for(hub):
    torch = pytest.importorskip("torch")
    timm = import_timm()
    model = build(qkv_bias=False, activation="gelu", layer_norm_epsilon=1e-6)
    keras_vit.push_to_hub(model, "me/shapes", class_names=NAMES, format="timm")
    theirs = timm.create_model("hf-hub:me/shapes", pretrained=True).eval()
    pixels = torch.from_numpy(np.moveaxis(IMAGES, -1, 1).copy())
    with torch.no_grad():
        found = theirs(pixels).numpy()
    np.testing.assert_allclose(found, output(model), atol=1e-5)
    ours = keras_vit.load_checkpoint("hf://me/shapes")
    np.testing.assert_allclose(output(ours), output(model), atol=1e-6)


def test_a_branch_is_made_and_read(hub):
    first, second = build(), build(num_layers=2)
    keras_vit.push_to_hub(first, "me/branches")
    keras_vit.push_to_hub(second, "me/branches", revision="deeper")
    assert keras_vit.load_checkpoint("hf://me/branches").config == first.config
    deeper = keras_vit.load_checkpoint("hf://me/branches@deeper")
    assert deeper.config == second.config
    found = shared.in_transformers("me/branches", revision="deeper")
    np.testing.assert_allclose(found, output(second), atol=1e-5)


def test_private_and_the_message_are_passed_on(hub):
    keras_vit.push_to_hub(
        build(), "me/shapes", private=True, commit_message="The first shapes"
    )
    assert hub.private["me/shapes"]
    assert hub.messages == ["The first shapes"]


def test_what_is_there_of_others_stays(hub):
    hub.make("me/shapes", {"notes.txt": b"mine", "README.md": b"# My card"})
    keras_vit.push_to_hub(build(), "me/shapes")
    files = hub.files("me/shapes")
    assert (files["notes.txt"], files["README.md"]) == (b"mine", b"# My card")


def test_the_model_of_others_is_not_replaced(hub, capsys):
    hub.make("me/shapes", {"model.safetensors": b"theirs"})
    with pytest.raises(ValueError, match=r"model\.safetensors.*--overwrite"):
        keras_vit.push_to_hub(build(), "me/shapes")
    assert hub.files("me/shapes")["model.safetensors"] == b"theirs"
    keras_vit.push_to_hub(build(), "me/shapes", overwrite=True)
    assert hub.files("me/shapes")["model.safetensors"] != b"theirs"


def test_a_second_upload_leaves_no_weights_of_the_first(hub):
    keras_vit.push_to_hub(build(), "me/shapes", format="keras")
    second = build(num_layers=2)
    keras_vit.push_to_hub(second, "me/shapes")
    files = hub.files("me/shapes")
    assert "model.keras" not in files and "model.safetensors" in files
    assert keras_vit.load_checkpoint("hf://me/shapes").config == second.config


def test_a_card_that_was_edited_stays_and_one_of_ours_is_renewed(hub):
    keras_vit.push_to_hub(build(), "me/shapes", class_names=NAMES)
    keras_vit.push_to_hub(build(), "me/shapes", class_names=("a", "b", "c"))
    card = hub.files("me/shapes")["README.md"].decode()
    assert "circle" not in card
    hub.write("me/shapes", "main", {"README.md": card.encode() + b"More."})
    keras_vit.push_to_hub(build(), "me/shapes", class_names=NAMES)
    assert hub.files("me/shapes")["README.md"].endswith(b"More.")


def test_the_same_again_makes_no_commit(hub):
    for _ in range(2):
        keras_vit.push_to_hub(build(), "me/shapes")
    assert len(hub.messages) == 1


@pytest.mark.parametrize("faults", [{"fails_every": 3}, {"fails_first": True}])
def test_requests_of_an_upload_may_fail(hub, faults):
    vars(hub).update(faults)
    model = build()
    keras_vit.push_to_hub(model, "me/shapes", class_names=NAMES)
    assert len(hub.messages) == 1
    hub.fails_every = None
    found = keras_vit.load_checkpoint("hf://me/shapes")
    np.testing.assert_allclose(output(found), output(model), atol=1e-6)


def test_each_request_of_a_download_may_fail_at_first(hub):
    model = build()
    keras_vit.push_to_hub(model, "me/shapes", class_names=NAMES)
    hub.requests.clear()
    hub.fails_first = True
    found = keras_vit.load_checkpoint("hf://me/shapes")
    np.testing.assert_allclose(output(found), output(model), atol=1e-6)


def test_a_commit_whose_answer_is_lost_is_not_made_again(hub):
    hub.loses_commits = 1
    keras_vit.push_to_hub(build(), "me/shapes")
    assert len(hub.messages) == 1


def test_nothing_is_uploaded_of_a_model_that_does_not_come_back(hub):
    model = build()
    model.weights[0].assign(np.full(model.weights[0].shape, np.nan))
    with pytest.raises(ValueError, match="NaN"):
        keras_vit.push_to_hub(model, "me/shapes")
    assert hub.repositories == {}


def test_nothing_is_uploaded_of_a_model_that_computes_nan(hub):
    model = build()
    for weight in model.weights:
        weight.assign(np.full(weight.shape, 1e30))
    with pytest.raises(ValueError, match="another output.*Check the weights"):
        keras_vit.push_to_hub(model, "me/shapes")
    assert hub.repositories == {}


def test_nothing_is_uploaded_when_another_model_comes_back(hub, monkeypatch):
    other = build()
    other.weights[-1].assign(np.ones(other.weights[-1].shape))
    monkeypatch.setattr(
        "keras_vit.sharing.shared_folder.load_checkpoint",
        lambda *_, **__: other,
    )
    with pytest.raises(ValueError, match="another output"):
        keras_vit.push_to_hub(build(), "me/shapes")
    assert hub.repositories == {}


REFUSALS = {
    "no permission": ({"/preupload/": 403}, "me/shapes", "403.*may write"),
    "a token that is not valid": (
        {"whoami": 401},
        "me/shapes",
        "401.*hf auth login",
    ),
    "somebody else's name": (
        {},
        "you/shapes",
        "you may not make it.*me/shapes",
    ),
    "no name": ({}, "shapes", "Expected user/name"),
    "a name that is none": ({}, "me/sha--pes", "twice in a row"),
    "a server that stays broken": ({"whoami": 500}, "me/shapes", "500"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_are_one_line_without_the_token(hub, run, capfd, case):
    hub.refuses, name, message = REFUSALS[case]
    assert main(["push", str(run), name]) == 2
    out, error = capfd.readouterr()
    lines = [x for x in error.splitlines() if x.startswith("keras-vit: ")]
    assert len(lines) == 1
    assert re.search(message, lines[0])
    assert TOKEN not in out + error
    assert hub.messages == []


def test_a_server_that_is_not_there_is_one_line(hub, run, capfd):
    hub.shutdown()
    hub.server_close()
    assert main(["push", str(run), "me/shapes"]) == 2
    assert "Check the network" in capfd.readouterr().err


def test_without_a_token_it_says_how_to_get_one(hub, run, capfd, monkeypatch):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    assert main(["push", str(run), "me/shapes"]) == 2
    error = capfd.readouterr().err
    assert "hf auth login" in error and error.count("\n") == 1
    assert hub.requests == []


def test_a_token_that_may_only_read_is_refused(hub, run, capfd):
    hub.role = "read"
    assert main(["push", str(run), "me/shapes"]) == 2
    assert "may only read" in capfd.readouterr().err


def test_models_of_others_are_refused_before_one_is_loaded(
    hub, run, monkeypatch
):
    hub.make("you/shapes")
    hub.make("me/shapes", {"model.safetensors": b"theirs"})
    monkeypatch.setattr(
        "keras_vit.sharing.push.open_shared", lambda *_: pytest.fail("loaded")
    )
    with pytest.raises(OSError, match="403.*you may write to"):
        keras_vit.push_to_hub(run, "you/shapes", overwrite=True)
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        keras_vit.push_to_hub(run, "me/shapes")


def test_a_record_that_was_edited_removes_nothing_else(hub):
    keras_vit.push_to_hub(build(), "me/shapes", class_names=NAMES)
    record = json.loads(hub.files("me/shapes")["keras_vit.json"])
    record["files"]["notes.txt"] = "0"
    hub.write(
        "me/shapes",
        "main",
        {"notes.txt": b"mine", "keras_vit.json": json.dumps(record).encode()},
    )
    keras_vit.push_to_hub(build(num_layers=2), "me/shapes")
    assert hub.files("me/shapes")["notes.txt"] == b"mine"


def test_it_is_refused_before_a_model_is_loaded(hub, monkeypatch, tmp_path):
    hub.refuses = {"whoami": 403}
    model = build()
    model.save(tmp_path / "model.keras")
    monkeypatch.setattr(
        "keras_vit.sharing.push.open_shared", lambda *_: pytest.fail("loaded")
    )
    with pytest.raises(OSError, match="403"):
        keras_vit.push_to_hub(tmp_path / "model.keras", "me/shapes")


def test_the_token_is_in_no_output_and_in_no_file(hub, run, tmp_path, capfd):
    assert main(["push", str(run), "me/shapes", "--private"]) == 0
    out, error = capfd.readouterr()
    assert out == f"{hub.url}/me/shapes\n"
    assert TOKEN not in out + error
    contents = list(hub.files("me/shapes").values())
    contents += [x.read_bytes() for x in tmp_path.rglob("*") if x.is_file()]
    assert len(contents) > 5
    assert not [x for x in contents if TOKEN.encode() in x]


def test_the_command_writes_a_folder_and_needs_no_hub(
    hub, run, tmp_path, capsys, monkeypatch
):
    monkeypatch.delenv("HF_TOKEN")
    target = tmp_path / "folder"
    words = ["push", str(run), "me/shapes", "--dry_run", str(target)]
    assert main(words) == 0
    assert capsys.readouterr().out == f"{target}\n"
    assert hub.requests == []
    assert keras_vit.load_checkpoint(target).config.num_classes == 3
    assert main(words) == 2
    assert "exists" in capsys.readouterr().err


ELSEWHERE = """
import sys

import keras_vit
from keras_vit.cli import main

run, photo = sys.argv[1:]
code = main(["push", run, "me/shapes", "--private"])
print(code, dict(keras_vit.predict("hf://me/shapes", photo)[0].classes))
"""


def test_another_process_takes_the_server_and_the_token_from_its_settings(
    hub, run, tmp_path
):
    image_module = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(5).integers(0, 256, (8, 8), "uint8")
    image_module.fromarray(pixels).save(tmp_path / "photo.png")
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HOME": str(tmp_path / "home"),
        "HF_TOKEN": TOKEN,
        "PYTHONPATH": str(pathlib.Path(__file__).parents[2]),
    }
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, run, tmp_path / "photo.png"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    address, answer = done.stdout.splitlines()
    (expected,) = keras_vit.predict(run, tmp_path / "photo.png")
    assert address == f"{hub.url}/me/shapes"
    assert answer.startswith("0 {") and expected.classes[0][0] in answer
    assert hub.private["me/shapes"]
    written = [x.read_bytes() for x in tmp_path.rglob("*") if x.is_file()]
    assert len(written) > 4
    assert not [x for x in written if TOKEN.encode() in x]
    assert TOKEN not in done.stdout + done.stderr


def test_a_run_starts_from_a_shared_model(hub, run, tmp_path):
    keras_vit.push_to_hub(run, "me/shapes")
    recipe = dataclasses.replace(
        tiny_runs.recipe(tmp_path / "next", training={"epochs": 1}),
        model=ModelConfig(weights="hf://me/shapes", head="keep"),
    )
    trained = train(recipe, dataset=tiny_runs.DATASET)
    first = keras_vit.load_checkpoint(run)
    assert trained.model.config.hidden_dim == first.config.hidden_dim
    turned = data.Dataset(
        tiny_runs.DATASET.train,
        tiny_runs.DATASET.validation,
        tiny_runs.DATASET.test,
        tiny_runs.DATASET.class_names[::-1],
    )
    again = dataclasses.replace(recipe, run_dir=str(tmp_path / "turned"))
    with pytest.raises(ValueError, match="in another order"):
        train(again, dataset=turned)
