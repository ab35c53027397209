"""Pre-training of masked autoencoders, and what starts from it."""

import dataclasses
import importlib.util
import json
import pathlib
import shutil

import numpy as np
import pytest
import tiny_training as tiny
from masked_patch.reconstructions import in_pixels
from PIL import Image
from recipe_scripts import script
from tiny_runs import DATASET, Interrupt, recipe, values

import keras_vit
from keras_vit.data.config import DataConfig
from keras_vit.data.manifest import read_manifest
from keras_vit.evaluation.probes import fit_neighbours
from keras_vit.training import ModelConfig, train
from keras_vit.training.tasks import MAE, MAEConfig
from keras_vit.training.tasks.feature_watch import (
    KnownClasses,
    half_probed_accuracy,
    left_out_accuracy,
    with_known_classes,
)
from keras_vit.training.tasks.mae import normalized_patches

PRETRAIN = script("pretrain")
CONFIG = MAEConfig(0.5, True, 8, 1, 2, 8)


def hidden(run_dir, **options):
    made = recipe(run_dir, **options)
    return PRETRAIN.PretrainRecipe(**vars(made), method="mae", mae=CONFIG)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mae") / "run"
    return train(hidden(folder), dataset=DATASET, task=MAE)


def test_it_learns_and_keeps_the_encoder_alone(run):
    assert run.history["loss"][-1] < run.history["loss"][0]
    assert run.history["val_loss"][-1] > 0
    assert run.model.output_shape == (None, 8)
    names = {layer.name for layer in run.model.layers}
    assert not {"predictions", "visible_tokens", "decoder_norm"} & names


@pytest.mark.once
def test_an_interrupted_run_ends_with_the_same_weights(run, tmp_path):
    made = hidden(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train(made, dataset=DATASET, task=MAE, callbacks=[Interrupt()])
    other = train(made, dataset=DATASET, task=MAE)
    for one, two in zip(
        values(run.network), values(other.network), strict=True
    ):
        np.testing.assert_array_equal(one, two)


@pytest.mark.once
def test_the_report_and_what_starts_from_the_run(run, tmp_path):
    result = PRETRAIN.report(run, hidden(run.folder))
    assert result["method"] == "mae"
    assert result["loss"] > 0
    assert (run.folder / "mae.png").stat().st_size > 1000
    assert json.loads((run.folder / "result.json").read_text())["method"]
    made = recipe(tmp_path / "tuned")
    weights = ModelConfig(weights=str(run.folder), image_size=8)
    started = train(dataclasses.replace(made, model=weights), dataset=DATASET)
    assert started.model.output_shape == (None, 3)


@pytest.mark.once
@pytest.mark.parametrize("reader", ["pillow", "tensorflow"])
def test_a_folder_of_images_alone_is_enough(reader, tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    noise = np.random.default_rng(0).integers(0, 255, (20, 8, 8), "uint8")
    for number, image in enumerate(noise):
        Image.fromarray(image).save(photos / f"{number}.png")
    made = hidden(
        tmp_path / "run",
        training={"steps": 2, "epochs": None},
        data=DataConfig(folder=str(photos), reader=reader),
    )
    result = PRETRAIN.run(made)
    assert result["val_loss"] > 0
    folder = tmp_path / "run"
    images = read_manifest(folder / "images.csv.gz")
    assert len(images) == 20
    parts = (folder / "data.txt").read_text()
    assert "Task: none, without labels" in parts
    (row,) = parts.splitlines()[5:]
    assert row.startswith(f"| all images | {result['num_train_images']:>5} |")
    with pytest.raises(ValueError, match="at least two classes"):
        PRETRAIN.run(
            dataclasses.replace(
                made, method="supervised", mae=MAEConfig(), overwrite=True
            )
        )


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """A folder of three classes, which the mean of an image tells apart."""
    folder = tmp_path_factory.mktemp("known")
    images = tiny.examples(30, seed=3)
    for i, label in enumerate(images.labels):
        (folder / str(label)).mkdir(exist_ok=True)
        pixels = np.asarray(images.contents[i])[..., 0]
        Image.fromarray(pixels).save(folder / str(label) / f"{i}.png")
    return folder


@pytest.mark.once
def test_nearest_neighbours_select_the_model(known, tmp_path):
    """What is kept has the accuracy that was the best of the training."""
    made = hidden(tmp_path / "run")
    made = dataclasses.replace(made, knn_folder=str(known))
    task = with_known_classes(MAE, str(known))
    run = train(made, dataset=DATASET, task=task)
    result = PRETRAIN.report(run, made)
    assert result["val_knn"] == max(run.history["val_knn"])
    assert len(run.history["val_knn"]) == 2
    assert "Images of known classes" in (run.folder / "report.html").read_text()
    model = keras_vit.load_checkpoint(run.folder)
    files = sorted(known.rglob("*.png"))
    features = keras_vit.embed(model, list(map(str, files)))
    labels = np.array([int(x.parent.name) for x in files])
    found = left_out_accuracy(features, labels)
    assert found == result["val_knn"]
    assert half_probed_accuracy(features, labels) == result["val_probe"]
    # Another order of the random numbers would give other weights.
    plain = train(hidden(tmp_path / "plain"), dataset=DATASET, task=MAE)
    np.testing.assert_array_equal(run.history["loss"], plain.history["loss"])


@pytest.mark.once
def test_a_resumed_run_is_selected_by_the_same_neighbours(known, tmp_path):
    folder = pathlib.Path(shutil.copytree(known, tmp_path / "known"))
    task = with_known_classes(MAE, str(folder))
    made = hidden(tmp_path / "run")
    made = dataclasses.replace(made, knn_folder=str(folder))
    with pytest.raises(KeyboardInterrupt):
        train(made, dataset=DATASET, task=task, callbacks=[Interrupt()])
    one, other = sorted(folder.rglob("*.png"))[::20]
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    with pytest.raises(ValueError, match="knn_folder.*not those.*checksum"):
        train(made, dataset=DATASET, task=task)
    one.write_bytes(content)
    run = train(made, dataset=DATASET, task=task)
    assert len(run.history["val_knn"]) == 2


@pytest.mark.once
def test_each_reader_finds_the_same_neighbours(run, known, tmp_path):
    found = []
    for reader in ("pillow", "tensorflow"):
        made = hidden(tmp_path, data=DataConfig(name="digits", reader=reader))
        callback = KnownClasses(run.model, str(known), made)
        callback.set_model(run.network)
        callback.on_epoch_end(0, logs := {})
        found.append((logs["val_knn"], logs["val_probe"]))
    assert found[0] == found[1]
    assert min(found[0]) > 0


@pytest.mark.once
def test_without_scipy_the_neighbours_remain(
    run, known, tmp_path, monkeypatch, capsys
):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda x: None if x == "scipy" else find(x)
    )
    callback = KnownClasses(run.model, str(known), hidden(tmp_path))
    assert "pip install scipy" in capsys.readouterr().out
    callback.set_model(run.network)
    callback.on_epoch_end(0, logs := {})
    assert logs.keys() == {"val_knn"}


@pytest.mark.once
def test_an_image_is_left_out_in_its_turn():
    random = np.random.default_rng(0)
    features, labels = random.normal(size=(40, 5)), random.integers(0, 3, 40)
    right = 0
    for i in range(40):
        others = np.arange(40) != i
        votes = fit_neighbours(features[others], labels[others], 3)
        right += votes.scores(features[i : i + 1])[0].argmax() == labels[i]
    assert left_out_accuracy(features, labels) == right / 40


@pytest.mark.once
def test_a_probe_is_fitted_to_one_half_of_each_class():
    """By scikit-learn's logistic regression of whitened features."""
    from sklearn.linear_model import LogisticRegression

    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 61)
    features = random.normal(size=(61, 4)) + random.normal(size=(3, 4))[labels]
    fitted, held_out = [], []
    for label in range(3):
        (places,) = np.nonzero(labels == label)
        fitted += [*places[::2]]
        held_out += [*places[1::2]]
    mean, deviation = (x(features[fitted], 0) for x in (np.mean, np.std))
    white = (features - mean) / deviation
    probe = LogisticRegression(C=1.0, tol=1e-9, max_iter=1000)
    probe.fit(white[fitted], labels[fitted])
    wanted = probe.score(white[held_out], labels[held_out])
    assert 0.4 < wanted < 1
    assert half_probed_accuracy(features, labels) == wanted
    one_of_each = half_probed_accuracy(np.eye(2), np.arange(2))
    assert one_of_each == 0.0


@pytest.mark.once
def test_neighbours_that_cannot_be_found_are_refused(known, tmp_path):
    with pytest.raises(ValueError, match="methods without labels"):
        PRETRAIN.PretrainRecipe(knn_folder=str(known))
    metric = {"best_metric": "val_knn"}
    with pytest.raises(ValueError, match="without one"):
        train(hidden(tmp_path, training=metric), dataset=DATASET, task=MAE)
    (tmp_path / "one" / "class").mkdir(parents=True)
    (file,) = [*known.rglob("*.png")][:1]
    shutil.copy(file, tmp_path / "one" / "class")
    with pytest.raises(ValueError, match="two classes"):
        task = with_known_classes(MAE, str(tmp_path / "one"))
        train(hidden(tmp_path / "a"), dataset=DATASET, task=task)
    assert not (tmp_path / "a").exists()


def test_normalised_patches_come_back_as_pixels():
    true = np.random.default_rng(0).uniform(-1, 1, (2, 4, 12)).astype("float32")
    found = in_pixels(normalized_patches(true), true)
    np.testing.assert_allclose(found, true, atol=1e-5)


@pytest.mark.once
@pytest.mark.parametrize(
    "training",
    [{"trainable": "head"}, {"class_weight": "balanced"}, {"lora_rank": 2}],
)
def test_what_needs_classes_or_a_frozen_model_is_refused(training, tmp_path):
    name = next(iter(training))
    with pytest.raises(ValueError, match=f"training.{name}="):
        train(hidden(tmp_path, training=training), dataset=DATASET, task=MAE)


@pytest.mark.once
def test_a_decoder_of_a_folder_goes_on(tmp_path):
    """Or a new one, where another shape is asked for; rates are MAE's own."""
    folder = pathlib.Path(__file__).parents[1] / "reference" / "hf_mae_tiny"
    sizes = []
    for mae in (MAEConfig(), MAEConfig(decoder_dim=8, decoder_heads=2)):
        made = recipe(
            tmp_path / f"run{len(sizes)}",
            training={"steps": 2, "epochs": None},
        )
        made = PRETRAIN.PretrainRecipe(
            **{
                **vars(made),
                "model": ModelConfig(
                    weights=str(folder), image_size=24, channels=3
                ),
                "optimizer": type(made.optimizer)(warmup_steps=1),
            },
            method="mae",
            mae=mae,
        )
        assert made.optimizer.learning_rate == 1.5e-4 * 8 / 256
        assert made.optimizer.weight_decay == 0.05
        assert made.optimizer.beta_2 == 0.95
        found = train(made, dataset=DATASET, task=MAE)
        paths = {x.path: x for x in found.network.weights}
        sizes.append(paths["decoder_norm/gamma"].shape[0])
        assert not paths["position_embedding/embedding"].trainable
    assert sizes == [16, 8]
    # A public one also has its licence and address, as a teacher does.
    result = PRETRAIN.report(found, made)
    assert result["start"] == {"weights": "hf_mae_tiny"}
    assert (tmp_path / "run0" / "model.keras").exists()


@pytest.mark.once
def test_pixels_are_predicted_by_one_layer(tmp_path):
    """SimMIM: no decoder, and the picture is drawn."""
    made = dataclasses.replace(
        hidden(tmp_path / "run"), mae=MAEConfig(kind="simmim")
    )
    found = train(made, dataset=DATASET, task=MAE)
    assert found.history["loss"][-1] < found.history["loss"][0]
    assert PRETRAIN.report(found, made)["method"] == "mae"
    assert (tmp_path / "run" / "mae.png").stat().st_size > 1000
    assert found.model.output_shape == (None, 8)


@pytest.mark.once
@pytest.mark.parametrize(("kind", "area"), [("mae", 0.2), ("simmim", 0.67)])
def test_crops_are_those_of_the_method(kind, area):
    """Of the papers: 0.2 to 1 of the area, and 0.67 to 1; or what is given."""
    options = {"method": "mae", "mae": MAEConfig(kind=kind)}
    made = PRETRAIN.PretrainRecipe(**options)
    assert made.preprocessing.least_area == area
    config = type(made.preprocessing)
    for given in (config(least_area=0.5), config(train="squash")):
        made = PRETRAIN.PretrainRecipe(**options, preprocessing=given)
        assert made.preprocessing == given


def test_the_average_of_squares_is_that_of_the_method(tmp_path):
    """Table 8 of arXiv:2111.06377, and Adam's; or what is given."""
    for beta_2, fields in (
        (0.95, {"method": "mae"}),
        (0.999, {"method": "mae", "mae": MAEConfig(kind="simmim")}),
        (0.999, {"method": "dino"}),
        (0.999, {}),
    ):
        made = PRETRAIN.PretrainRecipe(run_dir=str(tmp_path), **fields)
        assert made.optimizer.beta_2 == beta_2
        for name, value in ((0.9, 0.9), (None, beta_2)):
            optimizer = dataclasses.replace(made.optimizer, beta_2=name)
            other = dataclasses.replace(made, optimizer=optimizer)
            assert other.optimizer.beta_2 == value
    for usual in (None, 0.999):  # the second of a config that had adamw
        sgd = type(made.optimizer)(name="sgd", beta_2=usual)
        assert dataclasses.replace(made, optimizer=sgd).optimizer.beta_2 is None
    with pytest.raises(ValueError, match="beta_2 does nothing with name='sgd'"):
        type(made.optimizer)(name="sgd", beta_2=0.95)


@pytest.mark.once
def test_options_of_another_method_are_refused(tmp_path):
    with pytest.raises(ValueError, match="'supervised' does not read mae"):
        PRETRAIN.PretrainRecipe(run_dir=str(tmp_path), mae=CONFIG)


@pytest.mark.once
def test_a_file_of_another_recipe_that_names_a_method_is_refused(tmp_path):
    """Fine-tuning learns classes, whatever the method of a config is."""
    path = tmp_path / "mae.yaml"
    path.write_text("method: mae\n")
    with pytest.raises(SystemExit, match="2"):
        script("finetune").main(["--config", str(path)])
