"""A run that is resumed over images that are not those it began with."""

import json
import os
import signal

import keras
import numpy as np
import pytest
import yaml
from PIL import Image
from tiny_runs import recipe, values

from keras_vit.data import DataConfig
from keras_vit.data.manifest import read_manifest
from keras_vit.training import train


class Stop(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        raise KeyboardInterrupt


class Signal(keras.callbacks.Callback):
    """Ends a run in the midst of an epoch, with a checkpoint."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 4:
            os.kill(os.getpid(), signal.SIGTERM)


def save(path, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8), np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def folder(tmp_path):
    """Images of two classes, and a run on them that was stopped."""
    for number in range(40):
        kind = ("ant", "bee")[number % 2]
        save(tmp_path / "data" / kind / f"{number}.png", number)
    with pytest.raises(KeyboardInterrupt):
        resumed(tmp_path, callbacks=[Stop()])
    return tmp_path


def resumed(folder, callbacks=(), **data):
    chosen = recipe(
        folder / "run",
        data=DataConfig(folder=str(folder / "data"), reader="pillow", **data),
        training={"batch_size": 4},
    )
    return train(chosen, callbacks=callbacks)


def test_a_fold_of_several_labels_ends_with_the_same_weights(tmp_path):
    """Stopped in the midst of an epoch, with a checkpoint, and resumed."""
    lines = ["image,label"]
    for number in range(40):
        save(tmp_path / "data" / f"{number}.png", number)
        labels = ("ant", "bee", "ant|bee", "bee|cat")[number % 4]
        lines.append(f"data/{number}.png,{labels}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))

    def run(name, callbacks=()):
        source = DataConfig(
            csv=str(tmp_path / "labels.csv"), folds=3, fold=1, reader="pillow"
        )
        chosen = recipe(
            tmp_path / name, data=source, training={"batch_size": 4}
        )
        return train(chosen, callbacks=callbacks)

    whole = run("whole")
    assert whole.model.output_shape == (None, 3)
    with pytest.raises(KeyboardInterrupt):
        run("stopped", [Signal()])
    assert list((tmp_path / "stopped" / "checkpoints").iterdir())
    for one, two in zip(
        values(whole.model), values(run("stopped").model), strict=True
    ):
        np.testing.assert_array_equal(one, two)


def test_the_same_images_go_on(folder):
    before = (folder / "run" / "images.csv.gz").read_bytes()
    assert len(resumed(folder).history["loss"]) == 2
    assert (folder / "run" / "images.csv.gz").read_bytes() == before


def test_the_table_of_the_data_is_printed_and_kept(folder, capsys):
    save(folder / "data" / "bee" / "more.png", 77)
    run = resumed(folder, accept_changes=True)
    text = (folder / "run" / "data.txt").read_text()
    assert text in capsys.readouterr().out
    assert f"| all images |    {len(run.dataset.train)} |" in text


def test_other_images_stop_the_run_until_they_are_accepted(folder):
    for number in range(40, 44):
        save(folder / "data" / "bee" / f"{number}.png", number)
    (folder / "data" / "ant" / "0.png").unlink()
    save(folder / "data" / "ant" / "2.png", 100)
    with pytest.raises(ValueError, match="are not those") as raised:
        resumed(folder)
    message = str(raised.value)
    assert "--data.accept_changes true" in message
    assert "4 added ('bee/40.png', 'bee/41.png', 'bee/42.png' ...)" in message
    assert "1 removed ('ant/0.png')" in message
    assert "1 with other contents ('ant/2.png')" in message
    run = resumed(folder, accept_changes=True)
    assert len(run.history["loss"]) == 2
    assert len(read_manifest(folder / "run" / "images.csv.gz")) == 43


def test_an_epoch_that_has_become_shorter_ends(folder):
    with pytest.raises(KeyboardInterrupt):
        resumed(folder, callbacks=[Signal()])
    for number in range(14):
        kind = ("ant", "bee")[number % 2]
        (folder / "data" / kind / f"{number}.png").unlink()
    run = resumed(folder, accept_changes=True)
    assert len(run.history["loss"]) == 2
    assert np.isfinite(run.history["loss"]).all()


@pytest.mark.parametrize("accept", [False, True])
def test_a_renamed_class_is_refused(folder, accept):
    (folder / "data" / "ant").rename(folder / "data" / "zebra")
    message = "20 renamed .*'ant' is missing and 'zebra' is new"
    with pytest.raises(ValueError, match=message):
        resumed(folder, accept_changes=accept)


def test_rows_of_the_head_follow_the_names(folder):
    """A run that counted its classes the other way round."""
    names = folder / "run" / "class_names.json"
    names.write_text(json.dumps(["bee", "ant"]))
    save(folder / "data" / "bee" / "new.png", 1000)
    run = resumed(folder, accept_changes=True)
    assert run.dataset.class_names == ("bee", "ant")
    for path, label in zip(
        run.dataset.train.contents, run.dataset.train.labels, strict=True
    ):
        assert f"/{run.dataset.class_names[label]}/" in path
    assert run.model.trained_as.class_names == ("bee", "ant")


def test_a_run_of_an_earlier_version_keeps_its_parts(folder):
    """By position, and without a list of its images to compare."""
    path = folder / "run" / "config.yaml"
    config = yaml.safe_load(path.read_text())
    del config["data"]["split_by"]
    path.write_text(yaml.safe_dump(config))
    (folder / "run" / "images.csv.gz").unlink()
    found = resumed(folder).dataset
    assert [len(found.train), len(found.validation), len(found.test)] == [
        *(28, 4, 8)
    ]
