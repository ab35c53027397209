"""Training on a CSV file whose images have several labels."""

import numpy as np
import pytest
from PIL import Image
from tiny_runs import recipe

from keras_vit.data import DataConfig
from keras_vit.data.manifest import read_manifest
from keras_vit.io.run_folder import read_config
from keras_vit.training import train


def trained(tmp_path, **training):
    rows = ["image,label"]
    generator = np.random.default_rng(0)
    for number in range(24):
        pixels = generator.integers(0, 256, (8, 8), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png,{('a|b', 'b', 'c')[number % 3]}")
    (tmp_path / "x.csv").write_text("\n".join(rows))
    chosen = recipe(
        tmp_path / "run",
        data=DataConfig(csv=str(tmp_path / "x.csv"), reader="pillow"),
        training={"batch_size": 4, "epochs": 1, **training},
    )
    return train(chosen)


def test_softmax_is_refused_and_says_why(tmp_path):
    with pytest.raises(ValueError, match="loss sigmoid.*by '|'") as raised:
        trained(tmp_path, loss="softmax")
    assert "label_kind one" in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_sigmoid_learns_each_class(tmp_path):
    run = trained(tmp_path)  # The data tells it.
    assert read_config(tmp_path / "run")["training"]["loss"] == "sigmoid"
    assert np.isfinite(run.history["loss"]).all()
    assert run.model.trained_as.problem == "multilabel"
    images = read_manifest(tmp_path / "run" / "images.csv.gz")
    assert {x.label for x in images} == {"a|b", "b", "c"}
    table = (tmp_path / "run" / "data.txt").read_text()
    assert "8 of 24 images have several labels, separated by '|'" in table
