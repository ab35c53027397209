"""What the report of a run shows of the attention, or why it does not."""

import keras
import numpy as np
import pytest
from html_page import Page
from padded import padded_batches

from keras_vit import evaluation
from keras_vit.analysis import report
from keras_vit.analysis.report import explain_run
from keras_vit.models import Mixer, MixerConfig

LABELS = np.array([0, 0, 1, 1, 2, 2, 2])
CLASSES = np.array([0, 1, 1, 1, 2, 0, 2])  # images 1 and 5 are mistakes
SHARES = np.array([0.9, 0.6, 0.9, 0.8, 0.7, 0.8, 0.5])


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (7, 8, 8, 3), "uint8")


@pytest.fixture
def evaluated(tmp_path, images):
    """A folder with an evaluation in it."""
    found = evaluation.Predictions(
        LABELS, CLASSES[:, np.newaxis], SHARES[:, np.newaxis], 3
    )
    batches = list(padded_batches(images, LABELS, 4))
    evaluation.write_evaluation(tmp_path, found, batches, ["a", "b", "c"])
    return tmp_path


def arrays_of(folder):
    with np.load(folder / "attention.npz") as arrays:
        return dict(arrays)


def test_confident_mistakes_then_a_right_answer_of_each_class(
    evaluated, images, make_vit
):
    explain_run(evaluated, make_vit())
    arrays = arrays_of(evaluated)
    titles = arrays["titles"].tolist()
    assert titles[:2] == ["Image 5", "Image 1"]
    assert sorted(arrays["labels"][2:5]) == [0, 1, 2]
    rows = [int(title.split()[1]) for title in titles]
    np.testing.assert_array_equal(arrays["pictures"], images[rows])
    np.testing.assert_array_equal(arrays["labels"], LABELS[rows])
    np.testing.assert_array_equal(arrays["classes"][:, 0], CLASSES[rows])
    assert arrays["maps"].shape == (2, 7, 3, 2, 2)
    page = Page(report.render_report(evaluated))
    assert len([x for x in page.elements if "data-example" in x]) == 7


def test_model_that_takes_scaled_images_gets_them(evaluated, make_vit):
    plain = make_vit()
    explain_run(evaluated, plain)
    expected = arrays_of(evaluated)["rollout"]
    scaled = make_vit(include_preprocessing=False)
    scaled.set_weights(plain.get_weights())
    explain_run(evaluated, scaled)
    found = arrays_of(evaluated)["rollout"]
    assert np.abs(found.astype(int) - expected).max() <= 1


def test_images_of_several_labels_have_no_truth(tmp_path, images, make_vit):
    found = evaluation.Predictions(
        np.eye(3, dtype=bool)[LABELS],
        CLASSES[:, np.newaxis],
        SHARES[:, np.newaxis],
        3,
    )
    batches = list(padded_batches(images, LABELS, 4))
    evaluation.write_evaluation(tmp_path, found, batches, ["a", "b", "c"])
    explain_run(tmp_path, make_vit())
    arrays = arrays_of(tmp_path)
    assert "labels" not in arrays
    assert len(arrays["pictures"]) == 7


def mixer():
    config = MixerConfig(
        image_size=(8, 8),
        patch_size=(4, 4),
        hidden_dim=8,
        num_layers=1,
        tokens_mlp_dim=8,
        channels_mlp_dim=8,
    )
    return Mixer(config)


@pytest.mark.parametrize("case", ["Mixer", "nothing evaluated", "too large"])
def test_report_says_why_there_is_nothing(
    evaluated, case, make_vit, monkeypatch
):
    def no_memory(*arguments):
        raise RuntimeError("out of\nmemory")

    model, reason = make_vit(), "it could not be computed (out of memory)."
    monkeypatch.setattr(
        "keras_vit.analysis.report.page.attention_overview", no_memory
    )
    if case == "Mixer":
        model, reason = mixer(), "a Mixer has no attention."
    if case == "nothing evaluated":
        (evaluated / "predictions.npz").unlink()
        reason = "no images were evaluated."
    explain_run(evaluated, model)
    page = Page(report.render_report(evaluated))
    for part in ("attention", "inside"):
        assert f"Not shown: {reason}" in page.part(part)


def test_model_of_another_library_is_no_reason_to_fail(evaluated):
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten()])
    explain_run(evaluated, model)
    assert "no attention" in str(arrays_of(evaluated)["reason"])
