"""Losses and schedules against the originals, see tests/reference."""

import pathlib

import keras
import numpy as np
import pytest
from gradients import value_and_gradient
from keras import ops

from keras_vit.runtime.workarounds import move_towards
from keras_vit.training.tasks import losses

FOLDER = pathlib.Path(__file__).parents[1] / "reference" / "self_supervision"


def golden(name):
    """The arrays of a file, floats as float32 tensors."""
    with np.load(FOLDER / f"{name}.npz") as arrays:
        return {
            key: tensor(x) if x.dtype.kind == "f" else x
            for key, x in arrays.items()
        }


def tensor(x):
    return ops.convert_to_tensor(np.asarray(x, "float32"))


def close(found, expected):
    found, expected = map(ops.convert_to_numpy, (found, expected))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def check(function, x, loss, gradient):
    value, found = value_and_gradient(function, x)
    close(value, loss)
    close(found, gradient)


@pytest.mark.parametrize("step", [0, 3])
def test_dino_loss_and_center(step):
    data = golden("dino_loss")
    crops, size = int(data["num_crops"]), data["student"].shape[-1]
    teacher = ops.reshape(data["teacher"][step], (2, -1, size))
    temperature = data["teacher_temp_schedule"][int(data["epoch"][step])]
    center = data["center_before"][step]
    probabilities = losses.centered(teacher, center, temperature)
    expected = ops.reshape(data["teacher_probs"][step], teacher.shape)
    close(probabilities, expected)
    check(
        lambda x: losses.dino_loss(
            ops.reshape(x, (crops, -1, size)), probabilities
        ),
        data["student"][step],
        data["loss"][step],
        data["grad_student"][step],
    )
    after = losses.moving_average(center, ops.mean(teacher, (0, 1)), 0.9)
    close(after, data["center_after"][step])


@pytest.mark.parametrize("iterations", [1, 3, 10])
def test_sinkhorn(iterations):
    data = golden("sinkhorn")
    found = losses.sinkhorn(data["logits"], 0.07, iterations)
    close(found, data[f"iterations_{iterations}"])


def test_sinkhorn_of_some_samples_is_that_of_these():
    """As the original does for its number of hidden patches."""
    data = golden("sinkhorn")
    rows = int(data["ibot_rows"])
    mask = np.arange(len(data["logits"])) < rows
    found = losses.sinkhorn(data["logits"], 0.07, mask=mask)
    close(found[:rows], data["ibot_iterations_3"])


def test_sinkhorn_of_large_logits_is_finite():
    logits = tensor(7 + np.eye(4))
    found = ops.convert_to_numpy(losses.sinkhorn(logits, 0.07))
    np.testing.assert_allclose(found.sum(axis=1), 1, 1e-5)


@pytest.mark.parametrize("step", [0, 2])
def test_ibot_loss_and_center(step):
    data = golden("ibot_loss")
    mask, center = data["masks"], data["center"]
    teacher = data["teacher"][step]
    probabilities = losses.centered(teacher, center[step], 0.07)
    hidden = ops.convert_to_numpy(probabilities)[mask]
    close(hidden, data["teacher_probs_of_masked"][step])
    check(
        lambda x: losses.ibot_loss(x, probabilities, mask),
        data["student"][step],
        data["loss"][step],
        data["grad_student"][step],
    )
    mean = ops.convert_to_numpy(teacher)[mask].mean(0)
    after = losses.moving_average(center[step], tensor(mean), 0.9)
    close(after, center[step + 1])


def test_koleo_loss():
    data = golden("koleo")
    found = data["distinct"], data["distinct_loss"], data["distinct_grad"]
    check(losses.koleo_loss, *found)


def test_koleo_of_one_image_is_refused():
    with pytest.raises(ValueError, match="features of one"):
        losses.koleo_loss(ops.ones((1, 4)))


@pytest.mark.parametrize(
    ("function", "inputs", "name"),
    [
        (losses.cosine_loss, "features", "cosine"),
        (lambda x, y: losses.kl_loss(x, y, 4.0), "logits", "kl"),
    ],
)
def test_distillation(function, inputs, name):
    data = golden("distillation")
    check(
        lambda x: function(x, data[f"teacher_{inputs}"]),
        data[f"student_{inputs}"],
        data[name],
        data[f"{name}_grad"],
    )


@pytest.mark.parametrize("name", ["dino", "ibot", "cosine", "kl", "hard"])
def test_a_teacher_gets_no_gradient(name):
    """Of its outputs: what is left is that of the sum that is added."""
    random = np.random.default_rng(0)
    student, labels = tensor(random.normal(size=(2, 3, 4))), tensor(np.eye(4))
    loss = {
        "dino": lambda x: losses.dino_loss(student, x),
        "ibot": lambda x: losses.ibot_loss(student, x, np.ones((2, 3))),
        "cosine": lambda x: losses.cosine_loss(student, x),
        "kl": lambda x: losses.kl_loss(student[0], x[0]),
        "hard": lambda x: losses.deit_hard_loss(
            student[0], student[0], x[0], labels[:3]
        ),
    }[name]
    teacher = random.dirichlet(np.ones(4), size=(2, 3))
    _, found = value_and_gradient(lambda x: loss(x) + ops.sum(x), teacher)
    np.testing.assert_array_equal(found, np.ones((2, 3, 4)))


def test_deit_losses_are_equations_2_and_3():
    data = golden("distillation")
    student, teacher = data["student_logits"], data["teacher_logits"]
    labels = tensor(np.eye(7)[[0, 3, 6, 1, 1]])

    def entropy(labels, logits):
        labels, logits = map(ops.convert_to_numpy, (labels, logits))
        logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        return -(labels * logs).sum(-1).mean()

    own = entropy(labels, student)
    found = losses.deit_soft_loss(student, teacher, labels, temperature=4.0)
    close(found, 0.9 * own + 0.1 * float(data["kl"]))
    other = ops.flip(student, axis=0)
    said = ops.convert_to_numpy(teacher).argmax(-1)
    hard = entropy(tensor(np.eye(7)[said]), other)
    found = losses.deit_hard_loss(student, other, teacher, labels)
    close(found, own / 2 + hard / 2)


def test_momentum_and_temperature_follow_the_originals():
    data = golden("schedules")
    steps = len(data["momentum"])
    close(
        losses.cosine_schedule(np.arange(steps), 0.996, 1.0, steps),
        data["momentum"],
    )
    warm = data["teacher_temp_epochs"]
    close(losses.warmed_up(np.arange(10), warm[0], warm[-1], 3), warm)


def test_a_teacher_is_a_moving_average():
    data = golden("ema_and_clip")
    teacher = data["teacher0_a"]
    moved = keras.Variable(teacher)
    for step in range(len(data["momentum"])):
        momentum = data["momentum"][step]
        student = keras.Variable(data["student_a"][step])
        teacher = losses.moving_average(teacher, student, momentum)
        share = ops.cast(1 - momentum, moved.dtype)
        move_towards(moved, student, share)
        for found in (teacher, moved):
            close(found, ops.reshape(data["teacher_after"][step][:12], (3, 4)))
