"""Distillation runs: what they keep, report and refuse."""

import dataclasses
import json
import pathlib
import shutil
import zipfile

import numpy as np
import pytest
from recipe_scripts import output_of, script
from tiny_runs import DATASET, Interrupt, recipe, values

import keras_vit
from keras_vit.training import train
from keras_vit.training.tasks import (
    DISTILLATION,
    DISTILLATION_WITH_LABELS,
    DistillConfig,
)

PRETRAIN = script("pretrain")
NAMES = DATASET.class_names


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher") / "run"
    return str(train(recipe(folder), dataset=DATASET).folder)


def distilled(run_dir, teacher, training=None, model=None, **options):
    """A student of another width and patch than the teacher's 8 and 4."""
    made = recipe(run_dir, training=training)
    sizes = {"hidden_dim": 12, "patch_size": 2, **(model or {})}
    made = dataclasses.replace(
        made, model=dataclasses.replace(made.model, **sizes)
    )
    config = DistillConfig(teacher=teacher, **options)
    return PRETRAIN.PretrainRecipe(
        **vars(made), method="distill", distill=config
    )


def trained(made, **options):
    labelled = made.distill.labels != "none"
    task = DISTILLATION_WITH_LABELS if labelled else DISTILLATION
    return train(made, dataset=DATASET, task=task, **options)


@pytest.fixture(scope="module")
def run(teacher, tmp_path_factory):
    folder = tmp_path_factory.mktemp("distill") / "run"
    return trained(distilled(folder, teacher))


def test_it_learns_and_keeps_the_student_alone(run, teacher):
    assert run.history["loss"][-1] < run.history["loss"][0]
    assert run.history["val_loss"][-1] < run.history["val_loss"][0]
    assert run.model.output_shape == (None, 12)
    with zipfile.ZipFile(run.folder / "model.keras") as archive:
        config = json.loads(archive.read("config.json"))
    assert config["class_name"] == "VisionTransformer"
    own = sum(x.size for x in values(run.model))
    theirs = sum(x.size for x in values(keras_vit.load_checkpoint(teacher)))
    heads = 2 * (12 * 8 + 8)
    files = sorted((run.folder / "checkpoints").glob("best-*.npz"))
    with np.load(files[-1]) as arrays:
        kept = sum(x.size for x in arrays.values() if x.dtype.kind == "f")
    moments = 2 * (2 * 8 + 1)
    assert kept == own + heads + moments
    assert (
        sum(x.size for x in values(run.network))
        > own + heads + moments + theirs / 2
    )


@pytest.mark.once
def test_an_interrupted_run_ends_with_the_same_weights(run, teacher, tmp_path):
    """And goes on with the teacher that it began with alone."""
    file = tmp_path / "teacher.keras"
    shutil.copy(pathlib.Path(teacher) / "model.keras", file)
    made = distilled(tmp_path / "run", str(file))
    with pytest.raises(KeyboardInterrupt):
        trained(made, callbacks=[Interrupt()])
    changed = keras_vit.load_checkpoint(file)
    changed.weights[0].assign(changed.weights[0] + 1)
    changed.save(file)
    with pytest.raises(ValueError, match="teacher is not the one.*checksum"):
        trained(made)
    shutil.copy(pathlib.Path(teacher) / "model.keras", file)
    other = trained(made)
    for one, two in zip(
        values(run.network), values(other.network), strict=True
    ):
        np.testing.assert_array_equal(one, two)


def test_the_report_names_the_teacher_and_the_student_embeds(run, teacher):
    result = PRETRAIN.report(run, distilled(run.folder, teacher))
    assert result["method"] == "distill"
    assert result["val_loss"] == run.kept["val_loss"]
    assert result["teacher"] == {"weights": "run"}
    page = (run.folder / "report.html").read_text()
    assert "teacher.weights" in page
    images = DATASET.test.contents
    found = keras_vit.embed(str(run.folder), images)
    np.testing.assert_allclose(
        found, run.model.predict(images, verbose=0), rtol=1e-4, atol=1e-5
    )


def test_the_licence_of_public_weights_is_in_the_result(run, tmp_path):
    made = distilled(run.folder, "ViT_B16/mae")
    assert PRETRAIN.named_teacher(made)["licence"] == "CC-BY-NC-4.0"


@pytest.mark.once
def test_logits_without_labels_bring_the_classes_of_the_teacher(
    teacher, tmp_path
):
    made = distilled(tmp_path / "run", teacher, logits=1.0, patches=0)
    found = trained(made)
    assert found.model.output_shape == (None, 3)
    loaded = keras_vit.load_checkpoint(str(found.folder))
    assert loaded.trained_as.class_names == NAMES
    answers = keras_vit.predict(str(found.folder), DATASET.test.contents)
    assert answers[0].classes[0][0] in NAMES


@pytest.mark.once
def test_with_labels_the_student_is_a_classifier(teacher, tmp_path):
    options = {"logits": 1.0, "features": 0, "patches": 0, "labels": "hard"}
    made = distilled(tmp_path / "run", teacher, **options)
    found = trained(made)
    assert 0 <= found.history["val_accuracy"][-1] <= 1
    result = PRETRAIN.report(found, made)
    assert result["top1"] == pytest.approx(found.kept["val_accuracy"])
    assert "are right" in PRETRAIN.summary(result)


@pytest.mark.once
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"teacher": None}, "needs a teacher. Received: distill.teacher=None"),
        ({"teacher_size": 6}, "patches of 4x4.* distill.teacher_size=6"),
        ({"model": {"channels": 3}}, "images of 1 channel"),
        ({"training": {"trainable": "head"}}, "training.trainable='head'"),
        ({"training": {"best_metric": "val_accuracy"}}, "best_metric"),
        (
            {"logits": 1, "labels": "hard", "training": {"loss": "sigmoid"}},
            "training.loss='sigmoid'",
        ),
    ],
)
def test_what_does_not_fit_is_refused(options, message, teacher, tmp_path):
    made = distilled(tmp_path / "run", **{"teacher": teacher, **options})
    with pytest.raises(ValueError, match=message):
        trained(made)
    assert not (tmp_path / "run" / "config.yaml").exists()


@pytest.mark.once
def test_teachers_without_the_head_that_is_needed_are_refused(
    run, teacher, tmp_path
):
    made = distilled(tmp_path / "run", str(run.folder), logits=1)
    with pytest.raises(ValueError, match="has no classes"):
        trained(made)
    made = distilled(tmp_path / "run", teacher, logits=1, labels="soft")
    data = dataclasses.replace(DATASET, class_names=("a", "b", "c"))
    with pytest.raises(ValueError, match="3 classes, 'circle', 'square'"):
        train(made, dataset=data, task=DISTILLATION_WITH_LABELS)


@pytest.mark.once
def test_a_trial_reads_no_teacher(tmp_path):
    printed = output_of(
        *("pretrain", "--smoke", "--method", "distill"),
        *("--distill.teacher", "ViT_B16/imagenet21k"),
        *("--distill.logits", "1", "--run_dir", tmp_path / "run"),
    )
    assert "from the teacher" in printed
    folder = tmp_path / "run-smoke"
    assert json.loads((folder / "result.json").read_text())["teacher"] == {
        **{"weights": "ViT_B16/imagenet21k", "licence": "Apache-2.0"},
        "url": PRETRAIN.named_teacher(distilled(folder, "ViT_B16/imagenet21k"))[
            "url"
        ],
    }
