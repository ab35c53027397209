import gc
import itertools
import weakref
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from numbered import numbered

from keras_vit.data import FitStream
from keras_vit.data.batches import ThreadedBatches


def listed():
    images, labels = numbered().contents, np.eye(10, dtype="float32")
    return [(images[i : i + 3], labels[i : i + 3]) for i in (0, 3, 6)]


class Listed(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return listed()[index]


FOREIGN = {
    "list": lambda: FitStream(listed()),
    "PyDataset": lambda: FitStream(Listed()),
    "arrays": lambda: FitStream(
        (numbered().contents, np.eye(10, dtype="float32")), batch_size=3
    ),
    "tf.data": lambda: FitStream(
        tf.data.Dataset.from_tensor_slices(
            (numbered().contents, np.eye(10, dtype="float32"))
        ).batch(3, drop_remainder=True)
    ),
    "torch": lambda: FitStream(torch_loader()),
}


def torch_loader():
    torch = pytest.importorskip("torch")
    images = torch.from_numpy(numbered().contents)
    labels = torch.eye(10)
    dataset = torch.utils.data.TensorDataset(images, labels)
    return torch.utils.data.DataLoader(dataset, 3, drop_last=True)


@pytest.mark.parametrize("kind", FOREIGN)
def test_whatever_fit_takes_continues_at_a_step(kind):
    source = FOREIGN[kind]()
    assert source.steps_per_epoch == 3
    found: Any = source.from_step(4)
    taken = (
        [found[i] for i in range(3)]
        if isinstance(found, keras.utils.PyDataset)
        else list(itertools.islice(found, 3))
    )
    firsts = [int(np.asarray(images)[0, 0, 0, 0]) for images, _ in taken]
    assert firsts == [3, 6, 0]
    assert source.names_of(4) == ["batch 1 of epoch 1"]


@pytest.mark.parametrize("kind", FOREIGN)
def test_fit_takes_whatever_fit_takes(kind):
    source = FOREIGN[kind]()
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10)])
    model.compile("sgd", "mse")
    model.fit(
        source.from_step(1),
        epochs=2,
        steps_per_epoch=3,
        shuffle=False,
        verbose=0,
    )
    assert int(model.optimizer.iterations) == 6


def test_data_that_can_be_read_once_only_says_so():
    source = FitStream(iter(listed()), steps_per_epoch=3)
    found = source.from_step(0)
    for _ in range(3):
        next(found)
    with pytest.raises(ValueError, match="0 batches where steps_per_epoch=3"):
        next(found)
    with pytest.raises(ValueError, match="does not say how many"):
        FitStream(iter(listed()))


def test_batches_that_were_read_are_let_go():
    """Apart from those that are read ahead."""
    made = {}

    def make(number):
        images = np.zeros((2, 3))
        made[number] = weakref.ref(images)
        return (images,)

    batches = ThreadedBatches(make, batch_size=2, num_batches=40)
    for batch in batches:
        del batch
    gc.collect()
    alive = [number for number, batch in made.items() if batch() is not None]
    assert len(made) == 40
    assert set(alive) <= {39}
