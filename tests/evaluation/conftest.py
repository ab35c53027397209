import keras
import pytest
from few_shot_cases import make_examples, tiny

from keras_vit.evaluation.few_shot import feature_model


@pytest.fixture(scope="module")
def train():
    return make_examples(90, seed=0)


@pytest.fixture(scope="module")
def test():
    return make_examples(70, seed=1)


@pytest.fixture(scope="module")
def features():
    keras.utils.set_random_seed(1)
    return feature_model(tiny())
