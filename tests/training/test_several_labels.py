"""Training on a CSV file whose images have several labels."""

import numpy as np
import pytest
from PIL import Image

from keras_vit.data.manifest import read_manifest
from keras_vit.io.run_folder import read_config
from keras_vit.training import config as configs
from keras_vit.training import train


def trained(tmp_path, **training):
    rows = ["image,label"]
    generator = np.random.default_rng(0)
    for number in range(24):
        pixels = generator.integers(0, 256, (8, 8), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png,{('a|b', 'b', 'c')[number % 3]}")
    (tmp_path / "x.csv").write_text("\n".join(rows))
    recipe = configs.Recipe(
        data=configs.DataConfig(csv=str(tmp_path / "x.csv"), reader="pillow"),
        model=configs.ModelConfig(
            image_size=8,
            patch_size=4,
            hidden_dim=8,
            num_layers=1,
            mlp_dim=8,
            num_heads=1,
        ),
        preprocessing=configs.PreprocessingConfig(train="squash"),
        training=configs.TrainingConfig(batch_size=4, epochs=1, **training),
        run_dir=str(tmp_path / "run"),
    )
    return train(recipe)


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
