"""What teachers of a Noisy Student say, and who learns what from it."""

import dataclasses

import keras
import numpy as np
import pytest
from noisy_student.iterations import (
    NoisyStudentConfig,
    NoisyStudentRecipe,
    join_labelled,
    pseudo_labels,
    select,
    split_labelled,
)
from noisy_student.networks import (
    EFFICIENTNETS,
    efficientnet,
    filters_of,
    network_task,
)
from PIL import Image

from keras_vit import data
from keras_vit.training import DataConfig, Recipe, TrainingConfig

SHARES = np.array(
    [
        [0.9, 0.1, 0.0],
        [0.4, 0.35, 0.25],
        [0.2, 0.7, 0.1],
        [0.6, 0.3, 0.1],
        [0.8, 0.2, 0.0],
    ],
    "float32",
)


def config(**fields):
    return NoisyStudentConfig(**fields)


def test_soft_labels_are_what_the_teacher_says():
    rows, labels = select(SHARES, config())
    assert rows.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(labels, SHARES)


def test_hard_labels_are_its_most_probable_classes():
    _, labels = select(SHARES, config(labels="hard"))
    assert labels.tolist() == np.eye(3)[[0, 0, 1, 0, 0]].tolist()


def test_doubtful_images_are_left_out():
    rows, labels = select(SHARES, config(min_confidence=0.65))
    assert rows.tolist() == [0, 2, 4]
    np.testing.assert_array_equal(labels, SHARES[[0, 2, 4]])


def test_classes_get_as_many_images_the_most_confident_first():
    rows, _ = select(SHARES, config(images_per_class=3))
    # Of the first class 0.9, 0.8 and 0.6; the only one of the second thrice.
    assert rows.tolist() == [0, 4, 3, 2, 2, 2]


def test_a_teacher_that_is_sure_of_nothing_is_told_of():
    with pytest.raises(ValueError, match="most confident answer is 0.900"):
        select(SHARES, config(min_confidence=0.95))


def test_the_teacher_is_asked_for_every_image_in_order():
    images = np.zeros((5, 4, 4, 1), "uint8")
    images[:, 0, 0, 0] = [0, 10, 20, 30, 40]
    examples = data.Examples(images, np.zeros(5, "int32"))
    model = keras.Sequential(
        [
            keras.Input((4, 4, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(3, use_bias=False),
        ]
    )
    kernel = np.zeros((16, 3), "float32")
    kernel[0] = [0.0, 0.05, 0.1]
    model.set_weights([kernel])
    recipe = Recipe(
        preprocessing=data.PreprocessingConfig(evaluation="squash"),
    )
    recipe = dataclasses.replace(
        recipe, training=dataclasses.replace(recipe.training, batch_size=2)
    )
    found = pseudo_labels(model, examples, recipe)
    scores = images[:, 0, 0].astype("float64") * kernel[0]
    odds = np.exp(scores)
    expected = odds / odds.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, 1e-5)


def digits(count):
    return data.open_dataset(
        DataConfig(
            name="digits",
            train_split=f"train[:{count}]",
            validation_split="train[40:48]",
            test_split="train[48:60]",
        )
    )


def test_held_back_images_and_labelled_ones_are_all_of_them():
    dataset = digits(40)
    recipe = NoisyStudentRecipe(noisy_student=config(held_back_fraction=0.25))
    labelled, rest = split_labelled(recipe, dataset)
    assert (len(labelled), len(rest)) == (30, 10)
    names = {x.name_of(i) for x in (labelled, rest) for i in range(len(x))}
    train = dataset.train
    assert names == {train.name_of(i) for i in range(len(train))}


@pytest.fixture
def photos(tmp_path):
    """Images without classes, in folders of any depth."""
    for number, place in enumerate(["a.png", "b/c.png", "b/d/e.png"]):
        path = tmp_path / "photos" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        colour = (10 * number, 200, 0)
        Image.new("RGB", (6 + number, 5), colour).save(path)
    return tmp_path / "photos"


def test_images_of_a_folder_join_those_in_memory(photos):
    dataset = digits(20)
    recipe = NoisyStudentRecipe(noisy_student=config(unlabelled=str(photos)))
    labelled, rest = split_labelled(recipe, dataset)
    assert len(labelled) == 20
    assert [rest.name_of(i)[-7:] for i in range(3)] == [
        "s/a.png",
        "b/c.png",
        "d/e.png",
    ]
    shares = np.full((3, 10), 0.1, "float32")
    both = join_labelled(labelled, rest, shares)
    stream = data.training_stream(
        both, 10, image_size=4, channels=3, batch_size=23
    )
    images, labels = next(iter(stream.from_step(0)))
    assert tuple(images.shape) == (23, 4, 4, 3)
    soft = np.sort(np.asarray(labels), axis=1)
    assert (soft.max(axis=1) == 1).sum() == 20
    np.testing.assert_array_equal(soft[soft.max(axis=1) < 1], shares)
    green = np.asarray(images)[..., 1].mean(axis=(1, 2)) == 200
    assert green.sum() == 3
    assert (np.asarray(labels)[green] < 1).all()


def test_an_empty_folder_is_named(tmp_path):
    dataset = digits(20)
    recipe = NoisyStudentRecipe(noisy_student=config(unlabelled=str(tmp_path)))
    with pytest.raises(ValueError, match="no images in"):
        split_labelled(recipe, dataset)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"networks": ({},)}, "a teacher and a student"),
        ({"labels": "firm"}, "Unknown labels"),
        ({"held_back_fraction": 1.0}, "held_back_fraction=1.0"),
        ({"held_back_fraction": 0.2, "unlabelled": "x"}, "does nothing with"),
        ({"min_confidence": 1.0}, "min_confidence=1.0"),
        ({"images_per_class": 0}, "images_per_class=0"),
    ],
)
def test_wrong_settings_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        config(**fields)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ({"name": "EfficientNetB8"}, "EfficientNetB7"),
        ({"name": "EfficientNetB0", "size": 3}, "image_size"),
        ({"hidden": 3}, "hidden_dim"),
        ({"name": "ViT_B15"}, "ViT_B16"),
    ],
)
def test_wrong_networks_are_named(network, message):
    with pytest.raises(ValueError, match=message):
        network_task(Recipe(), network)


def test_an_efficientnet_has_no_blocks_for_lora():
    training = TrainingConfig(lora_rank=2)
    network = {"name": "EfficientNetB0", "image_size": 32}
    recipe, task = network_task(Recipe(training=training), network)
    with pytest.raises(ValueError, match="has none.*lora_rank=2"):
        task.make_model(recipe, ["cat", "dog"])


def trainable(model):
    return sum(int(np.prod(x.shape)) for x in model.trainable_variables)


# Factors of width and depth: arXiv:1905.11946, table 1 and its authors' code.
FACTORS = {"B0": (1.0, 1.0), "B3": (1.2, 1.4), "B7": (2.0, 3.1)}


@pytest.mark.parametrize(
    "name",
    ["B0", *(pytest.param(x, marks=pytest.mark.slow) for x in ("B3", "B7"))],
)
def test_our_scaling_makes_the_networks_of_keras(name):
    with keras.StatelessScope(initialize_variables=False):
        ours = efficientnet(*FACTORS[name], (64, 64, 3))
        theirs = getattr(keras.applications, f"EfficientNet{name}")(
            include_top=False, weights=None, input_shape=(64, 64, 3)
        )
    assert trainable(ours) == trainable(theirs)
    shapes = [
        sorted(tuple(x.shape) for x in model.trainable_variables)
        for model in (ours, theirs)
    ]
    assert shapes[0] == shapes[1]
    keras.utils.clear_session()


def test_filters_of_l2_are_those_published():
    """1280 and 32 times 4.3, in multiples of 8."""
    assert (filters_of(1280, 4.3), filters_of(32, 4.3)) == (5504, 136)


@pytest.mark.slow
def test_l2_has_480_million_parameters():
    """Table 7 of arXiv:1911.04252."""
    recipe, task = network_task(
        Recipe(), {"name": "EfficientNetL2", "image_size": 64}
    )
    with keras.StatelessScope(initialize_variables=False):
        model = task.make_model(recipe, [str(i) for i in range(1000)])
    assert round(trainable(model) / 1e6) == 480
    keras.utils.clear_session()


def test_every_efficientnet_is_of_keras_or_l2():
    missing = [x for x in EFFICIENTNETS if not hasattr(keras.applications, x)]
    assert missing == ["EfficientNetL2"]
