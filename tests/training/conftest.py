import pytest
from tiny_runs import DATASET, recipe

from keras_vit.training import train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return train(recipe(folder), dataset=DATASET)
