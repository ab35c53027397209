"""The parts of DINO, against the original head and a step in NumPy."""

import dataclasses
import functools
import math
import pathlib
import re

import keras
import numpy as np
import pytest
from gradients import value_and_gradient
from keras import ops

from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.training.tasks.dino import (
    DRAWS,
    DINOBatches,
    DINOConfig,
    DINOHead,
    OutputLoss,
    Views,
    block_masks,
    check_batch,
    collapsed_teacher,
    dino_network,
    dino_schedules,
    through_hidden,
)
from keras_vit.training.tasks.feature_watch import (
    CollapseWatch,
    collapsed_features,
)

REFERENCE = pathlib.Path(__file__).parents[1] / "reference"
FOLDER = REFERENCE / "self_supervision"
TOLERANCE: dict = {"rtol": 1e-5, "atol": 1e-5}
CONFIG = DINOConfig(
    local_crops=2,
    head_dim=12,
    bottleneck_dim=6,
    out_dim=10,
    blur_sigma=1.0,
    norm_last_layer=False,
)


def floats(x):
    return np.array(x, "float32")


def array(x):
    return np.array(ops.convert_to_numpy(x))


SCHEDULES = np.tile(floats([0.05, 0.9, 1, 1]), (4, 1))


def encoder(**options):
    return VisionTransformer(
        ViTConfig(
            image_size=(8, 8),
            patch_size=(2, 2),
            channels=3,
            hidden_dim=8,
            num_layers=1,
            mlp_dim=16,
            num_heads=2,
            num_classes=0,
            **options,
        )
    )


@pytest.fixture(scope="module")
def network():
    keras.utils.set_random_seed(0)
    made = dino_network(encoder(), CONFIG)
    made.compile(keras.optimizers.SGD(1.0), OutputLoss())
    return made


@pytest.fixture(scope="module")
def inputs():
    random = np.random.default_rng(0)
    images = random.uniform(0, 255, (4, 12, 12, 3)).astype("float32")
    drawn = random.random((4, 4, len(DRAWS)), "float32")
    return {"image": images, "drawn": drawn, "schedules": SCHEDULES}


# --- The head ---


@pytest.mark.parametrize("name", ["dino_head", "dino_head_free_norm"])
def test_the_head_and_its_gradient_are_those_of_the_original(name):
    with np.load(FOLDER / f"{name}.npz") as arrays:
        data = {key: x.astype("float32") for key, x in arrays.items()}
    free = name.endswith("free_norm")
    head = DINOHead(16, 8, 24, norm_last_layer=not free)
    head.build((5, 10))
    dense = [(head.dense[i], f"mlp.{2 * i}") for i in range(3)]
    places = {f"{name}.weight": layer.kernel for layer, name in dense}
    places |= {f"{name}.bias": layer.bias for layer, name in dense}
    places["last_layer.weight_v"] = head.kernel
    if free:
        places["last_layer.weight_g"] = head.length
    for key, variable in places.items():
        value = data[f"param/{key}"].T
        variable.assign(value.reshape(variable.shape))
    np.testing.assert_allclose(array(head(data["x"])), data["y"], **TOLERANCE)
    upstream = ops.convert_to_tensor(data["upstream"])
    _, gradient = value_and_gradient(
        lambda x: ops.sum(head(x) * upstream),
        data["x"],
    )
    np.testing.assert_allclose(array(gradient), data["grad_x"], **TOLERANCE)


# --- A step ---


def head_logits(x, head):
    names = "kernel0 bias0 kernel1 bias1 kernel2 bias2".split()
    for i in range(3):
        x = x @ head[names[2 * i]] + head[names[2 * i + 1]]
        if i < 2:
            x = x * (1 + np.vectorize(math.erf)(x / 2**0.5)) / 2
    x = x / np.linalg.norm(x, axis=-1, keepdims=True)
    last = head["last"] / np.linalg.norm(head["last"], axis=0)
    return x @ (last * head["length"])


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def in_numpy(weights, features, known, center):
    """Return loss, center and teacher's probabilities, in float64."""
    student = softmax(head_logits(features, weights[0]) / 0.1)
    student = student.swapaxes(0, 1)  # Crop by crop.
    teacher = head_logits(known, weights[1])
    said = softmax((teacher - center) / 0.05)
    said = said.reshape(4, 2, 10).swapaxes(0, 1)
    terms = [
        -(said[g] * np.log(student[v])).sum(-1).mean()
        for g in range(2)
        for v in range(4)
        if v != g
    ]
    return np.mean(terms), 0.9 * center + 0.1 * teacher.mean(0), said


def head_arrays(head):
    found = {"last": head.kernel, "length": head.length}
    for i, layer in enumerate(head.dense):
        found |= {f"kernel{i}": layer.kernel, f"bias{i}": layer.bias}
    return {name: array(x).astype("float64") for name, x in found.items()}


def test_a_step_is_that_of_numpy(network, inputs):
    """Loss, gradients of the head, the new teacher and the new center."""
    layer = network.get_layer("self_distillation")
    center = np.random.default_rng(1).normal(0, 0.1, 10)
    layer.center.assign(center.astype("float32"))
    random = np.random.default_rng(2)  # Other values for the two heads.
    for variable in (*layer.head.variables, *layer.teacher_head.variables):
        noise = random.normal(0, 0.3, variable.shape)
        variable.assign(array(variable) + noise.astype("float32"))
    parts = keras.Model(network.input, layer.input)
    features, views, _ = (array(x) for x in parts(inputs))
    known = array(layer.teacher(views)).astype("float64")
    weights = head_arrays(layer.head), head_arrays(layer.teacher_head)
    loss, new_center, _ = in_numpy(weights, features, known, center)
    pairs = [*network.pairs.x, *layer.heads()]
    before = [(array(new), array(old)) for new, old in pairs]
    found = network.train_on_batch(inputs, np.zeros((4, 4), "float32"))
    np.testing.assert_allclose(found, loss, **TOLERANCE)
    np.testing.assert_allclose(array(layer.center), new_center, **TOLERANCE)
    for (new, old), (_, was) in zip(pairs, before, strict=True):
        np.testing.assert_allclose(
            array(old), 0.9 * was + 0.1 * array(new), err_msg=old.path,
            rtol=1e-6, atol=1e-6,
        )  # fmt: skip
    stepped = head_arrays(layer.head)
    for name, value in weights[0].items():
        gradient = value - stepped[name]  # The rate is 1.
        way = np.random.default_rng(3).normal(size=value.shape)
        ends = []
        for sign in (1, -1):
            moved = {**weights[0], name: value + sign * 1e-6 * way}
            ends.append(in_numpy((moved, weights[1]), features, known, center))
        slope = (ends[0][0] - ends[1][0]) / 2e-6
        np.testing.assert_allclose(
            (gradient * way).sum(), slope, err_msg=name, rtol=1e-4, atol=1e-5
        )
    encoder_moved = [
        np.abs(array(new) - was).max()
        for (new, _), (was, _) in zip(pairs, before, strict=True)
    ]
    assert min(encoder_moved) > 0


@pytest.mark.parametrize("head", ["shared", "own"])
def test_hidden_patches_are_learned_as_in_numpy(inputs, head):
    """The loss, the gradients of the heads and the centre of iBOT."""
    config = dataclasses.replace(CONFIG, ibot_weight=0.5, ibot_head=head)
    random = np.random.default_rng(5)
    order = random.random((4, 2, 16)).argsort(-1).astype("int32")
    hidden = np.array([[3, 0], [8, 1], [0, 0], [5, 8]], "int32")[..., None]
    inputs = {**inputs, "order": order, "hidden": hidden}
    network = dino_network(encoder(), config)
    network.compile(keras.optimizers.SGD(1.0), OutputLoss())
    layer = network.get_layer("self_distillation")
    pairs = [(layer.head, layer.teacher_head)]
    pairs += [layer.own_heads] if head == "own" else []
    for variable in [x for y in pairs for z in y for x in z.variables]:
        noise = random.normal(0, 0.3, variable.shape)
        variable.assign(array(variable) + noise.astype("float32"))
    center = random.normal(0, 0.1, 10)
    layer.patch_center.assign(center.astype("float32"))
    parts = keras.Model(network.input, layer.input)
    features, views, _, tokens, *_ = (array(x) for x in parts(inputs))
    known, maps = (array(x).astype("float64") for x in layer.teacher(views))
    weights = [[head_arrays(x) for x in pair] for pair in pairs]

    def wanted(weights):
        loss = in_numpy(weights[0], features, known, np.zeros(10))[0]
        student, teacher = (
            head_logits(x, y)
            for x, y in zip((tokens, maps), weights[-1], strict=True)
        )
        images, moved = [], []
        for crop in range(8):
            image, view = crop // 2, crop % 2
            places = order[image, view, : hidden[image, view, 0]]
            said = softmax((teacher[crop, places] - center) / 0.05)
            logs = np.log(softmax(student[crop, places] / 0.1))
            terms = -(said * logs).sum(-1)
            images.append(terms.sum() / max(len(places), 1))
            moved += [*teacher[crop, places]]
        moved = 0.9 * center + 0.1 * np.mean(moved, axis=0)
        return loss + 0.5 * np.mean(images), moved

    loss, moved = wanted(weights)
    mask = network.get_layer("corrupt_patches").mask
    before = array(mask)
    found = network.train_on_batch(inputs, np.zeros((4, 4), "float32"))
    np.testing.assert_allclose(found, loss, **TOLERANCE)
    np.testing.assert_allclose(array(layer.patch_center), moved, **TOLERANCE)
    assert (array(mask) != before).all()
    for place, (student, _) in enumerate(pairs):
        stepped = head_arrays(student)
        for name, value in weights[place][0].items():
            way = random.normal(size=value.shape)
            ends = []
            for sign in (1, -1):
                shifted = [[*pair] for pair in weights]
                near = value + sign * 1e-6 * way
                shifted[place][0] = {**weights[place][0], name: near}
                ends.append(wanted(shifted)[0])
            np.testing.assert_allclose(
                ((value - stepped[name]) * way).sum(),
                (ends[0] - ends[1]) / 2e-6,
                err_msg=name, rtol=1e-4, atol=1e-5,
            )  # fmt: skip


def test_sinkhorn_spreads_the_hidden_patches_of_a_batch(inputs):
    """As of these patches alone, one after one."""
    config = dataclasses.replace(CONFIG, ibot_weight=0.5, centering="sinkhorn")
    random = np.random.default_rng(5)
    order = random.random((4, 2, 16)).argsort(-1).astype("int32")
    hidden = np.array([[3, 0], [8, 1], [0, 0], [5, 8]], "int32")[..., None]
    network = dino_network(encoder(), config)
    layer = network.get_layer("self_distillation")
    logits = random.normal(0, 0.2, (8, 8, 10)).astype("float32")
    count = hidden.reshape(8, 1)
    mask = np.arange(8) < count
    said = np.exp(logits[mask].astype("float64") / 0.05)  # (places, K)
    for _ in range(3):
        said = said / said.sum(0) / 10
        said = said / said.sum(1, keepdims=True) / len(said)
    found = array(layer.said_of_patches(logits, mask, 0.05))
    np.testing.assert_allclose(found[mask], said * len(said), **TOLERANCE)
    assert (found[~mask] == 0).all()
    inputs = {**inputs, "order": order, "hidden": hidden}
    inputs["hidden"] = 0 * hidden  # No patch of a batch: no loss of them.
    assert np.isfinite(array(network(inputs))).all()


def test_sinkhorn_has_no_center(inputs):
    """As nothing reads it."""
    config = dataclasses.replace(CONFIG, ibot_weight=0.5, centering="sinkhorn")
    order = np.tile(np.arange(16, dtype="int32"), (4, 2, 1))
    hidden = np.full((4, 2, 1), 3, "int32")
    network = dino_network(encoder(), config)
    inputs = {**inputs, "order": order, "hidden": hidden}
    found = array(network(inputs, training=True))
    assert np.isfinite(found).all()
    momentum = network.get_layer("self_distillation").momentum
    assert float(momentum) == np.float32(0.9)
    assert not [x.path for x in network.variables if "center" in x.path]


def test_the_student_does_not_see_what_is_hidden():
    model = encoder()
    random = np.random.default_rng(0)
    model.set_weights(
        [random.normal(size=x.shape) for x in model.get_weights()]
    )
    image = keras.Input((8, 8, 3))
    source = keras.Input((16,), dtype="int32")
    network = keras.Model(
        [image, source], list(through_hidden(model, image, source))
    )
    images = random.uniform(0, 255, (2, 8, 8, 3)).astype("float32")
    places = np.tile(np.arange(16, dtype="int32"), (2, 1))
    features, tokens = (array(x) for x in network([images, places]))
    np.testing.assert_allclose(features, array(model(images)), atol=1e-5)
    norm = model.get_layer("encoder_norm").output
    plain = array(keras.Model(model.input, norm)(images))
    np.testing.assert_allclose(tokens, plain[:, 1:], atol=1e-5)
    places[:, 6] = -1  # Of row 1, column 2.
    other = images.copy()
    other[:, 2:4, 4:6] = 0
    found, again = (array(network([x, places])[1]) for x in (images, other))
    np.testing.assert_array_equal(again, found)
    other[:, :2, :2] = 0
    changed = array(network([other, places])[1])
    assert np.abs(changed - found).max() > 1e-3


def test_an_evaluation_moves_nothing(network, inputs):
    before = [array(x) for x in network.variables]
    network.evaluate(inputs, np.zeros((4, 4), "float32"), verbose=0)
    for old, new in zip(before, network.variables, strict=True):
        np.testing.assert_array_equal(old, array(new))


@pytest.mark.parametrize("column", [2, 3])
def test_what_is_frozen_at_first_stays(network, inputs, column):
    """The prototypes, or the encoder, of a student that learns."""
    layer = network.get_layer("self_distillation")
    schedules = SCHEDULES.copy()
    schedules[:, column] = 0
    own = {2: layer.head.kernel, 3: network.pairs.x[0][0]}
    before = {i: array(x) for i, x in own.items()}
    network.train_on_batch(
        {**inputs, "schedules": schedules}, np.zeros((4, 4), "float32")
    )
    moved = {i for i, x in own.items() if (array(x) != before[i]).any()}
    assert moved == {2, 3} - {column}


def test_no_two_variables_have_one_path(network):
    """torch would not set the gradients of one of them to zero."""
    paths = [x.path for x in network.variables]
    assert len({*paths}) == len(paths)


def test_small_crops_are_batches_of_their_own(network):
    sizes = {x.name: x.size for x in network.layers if isinstance(x, Views)}
    assert sizes == {"global_views": 8, "local_views": 4}
    assert any(x.name == "resampled" for x in network.layers)


# --- Views ---


def drawn(**values):
    """What leaves an image as it is, but for some numbers."""
    usual = dict.fromkeys(DRAWS, 0.5)
    usual |= {"flip": 1, "jitter": 1, "grey": 1, "blur": 1, "solarize": 1}
    numbers = [{**usual, **values}[name] for name in DRAWS]
    return floats(numbers)[None, None]


IMAGE = np.random.default_rng(4).uniform(0, 255, (1, 8, 8, 3)).astype("float32")


def cut(size=8, scale=(1.0, 1.0), **values):
    views = Views(size, scale, (0.5,), (0.5,))
    return array(views(IMAGE, drawn(**values)))[0]


def test_views_are_parts_of_an_image():
    np.testing.assert_allclose(cut(), IMAGE[0], atol=1e-3)
    np.testing.assert_allclose(cut(flip=0), IMAGE[0, :, ::-1], atol=1e-3)
    part = cut(4, (0.25, 0.25), top=1, left=0)
    np.testing.assert_allclose(part, IMAGE[0, 4:, :4], atol=1e-3)
    wide = cut(4, (0.75, 0.75), ratio=1)  # 4 / 3: the width is the whole side.
    assert wide.shape == (4, 4, 3)


def test_large_images_are_averaged():
    """A half of the size: the triangle of four pixels, 1 3 3 1."""
    part = cut(4)[1:-1, 1:-1]
    weights = np.zeros((4, 8))
    for i in range(4):
        for j, x in zip(range(2 * i - 1, 2 * i + 3), (1, 3, 3, 1), strict=True):
            if 0 <= j < 8:
                weights[i, j] = x
    weights /= weights.sum(1, keepdims=True)
    wanted = np.einsum("is,stc,jt->ijc", weights, IMAGE[0], weights)
    np.testing.assert_allclose(part, wanted[1:-1, 1:-1], atol=1e-3)


def test_colours_change_as_drawn():
    x = IMAGE[0]
    grey = x @ floats([0.299, 0.587, 0.114])
    np.testing.assert_allclose(cut(jitter=0, brightness=0), 0.6 * x, atol=1e-2)
    np.testing.assert_allclose(
        cut(grey=0), np.repeat(grey[..., None], 3, -1), atol=1e-2
    )
    np.testing.assert_allclose(
        cut(solarize=0), np.where(x >= 128, 255 - x, x), atol=1e-2
    )
    pale = cut(jitter=0, contrast=0)
    np.testing.assert_allclose(
        pale, grey.mean() + 0.6 * (x - grey.mean()), atol=1e-2
    )
    dull = cut(jitter=0, saturation=0)
    wanted = grey[..., None] + 0.8 * (x - grey[..., None])
    np.testing.assert_allclose(dull, wanted, atol=1e-2)
    inside = np.ones((1, 8, 8, 3), "float32") * [[[[120.0, 100.0, 90.0]]]]
    views = Views(8, (1.0, 1.0), (0.5,), (0.5,))
    turned = array(views(inside, drawn(jitter=0, hue=1)))[0, 0, 0]
    np.testing.assert_allclose(turned @ [0.299, 0.587, 0.114], 104.84, atol=0.2)
    assert np.abs(turned - [120, 100, 90]).max() > 5


def test_blur_is_gaussian():
    image = np.zeros((1, 15, 15, 1), "float32")
    image[0, 7, 7] = 255
    views = Views(15, (1.0, 1.0), (1.0,), (0.0,), largest_sigma=1.1)
    found = array(views(image, drawn(blur=0, sigma=0.9)))[0, :, :, 0]
    line = np.exp(-((np.arange(15) - 7.0) ** 2) / 2)  # Sigma is 1.
    line /= line.sum()
    np.testing.assert_allclose(found / 255, np.outer(line, line), atol=1e-4)


# --- Schedules and batches ---


def test_schedules_are_those_of_the_paper():
    config = dataclasses.replace(
        CONFIG,
        teacher_momentum=0.996,
        teacher_temperature=0.07,
        warmup_teacher_temperature_epochs=3,
        freeze_encoder_epochs=2.0,
    )
    found = dino_schedules(config, 70, 7)
    with np.load(FOLDER / "schedules.npz") as arrays:
        momentum = arrays["momentum"]
    np.testing.assert_allclose(found[:, 1], momentum, **TOLERANCE)
    np.testing.assert_allclose(found[[0, 20, 69], 0], [0.04, 0.07, 0.07])
    np.testing.assert_array_equal(found[:, 2], np.arange(70) >= 7)
    np.testing.assert_array_equal(found[:, 3], np.arange(70) >= 14)


def test_batches_depend_on_their_number_alone():
    images = np.zeros((4, 12, 12, 3), "uint8")
    batches = DINOBatches(CONFIG, 0, 4, dino_schedules(CONFIG, 10, 5))
    found = [batches.training(x, (images, None))[0] for x in (3, 3, 4, 99)]
    np.testing.assert_array_equal(found[0]["drawn"], found[1]["drawn"])
    assert (found[0]["drawn"] != found[2]["drawn"]).any()
    assert found[0]["drawn"].shape == (4, 4, len(DRAWS))
    np.testing.assert_array_equal(
        found[3]["schedules"][0], found[3]["schedules"][3]
    )
    evaluated = batches.evaluation(3, (images, None, np.ones(4)))[0]
    assert (found[0]["drawn"] != evaluated["drawn"]).any()


def test_some_patches_of_some_crops_are_hidden():
    config = dataclasses.replace(CONFIG, ibot_weight=1.0)
    images = np.zeros((64, 12, 12, 3), "uint8")
    schedules = dino_schedules(config, 10, 5)
    batches = DINOBatches(config, 0, 64, schedules, grid=(4, 5))
    found = [batches.training(x, (images, None))[0] for x in (3, 3, 4)]
    order, hidden = found[0]["order"], found[0]["hidden"]
    np.testing.assert_array_equal(order, found[1]["order"])
    assert (hidden != found[2]["hidden"]).any()
    assert (np.sort(order) == np.arange(20)).all()
    counts = np.unique(hidden)
    assert counts.min() == 0 and set(counts) == {0, *range(2, 11)}
    assert 0.3 < (hidden > 0).mean() < 0.7


def neighbours(order, hidden):
    """Pairs of hidden patches side by side, of each hidden one."""
    rank = np.argsort(order)
    mask = (rank < hidden).reshape(-1, 14, 14)
    return (mask[:, :, 1:] & mask[:, :, :-1]).sum() / mask.sum()


def test_blocks_are_hidden_of_the_same_crops_and_shares():
    """As far as blocks fit; the code of iBOT hides 97 % of the share."""
    images = np.zeros((64, 12, 12, 3), "uint8")
    found = []
    for masks in ("random", "blocks"):
        config = dataclasses.replace(CONFIG, ibot_weight=1.0, ibot_masks=masks)
        schedules = dino_schedules(config, 10, 5)
        batches = DINOBatches(config, 0, 64, schedules, grid=(14, 14))
        made, again = (batches.training(3, (images, None))[0] for _ in "ab")
        np.testing.assert_array_equal(made["order"], again["order"])
        assert (np.sort(made["order"]) == np.arange(196)).all()
        found.append((made["order"], made["hidden"]))
    (_, wanted), (_, hidden) = found
    assert ((hidden > 0) == (wanted > 0)).all()
    assert (hidden <= wanted).all()
    assert 0.97 * wanted.sum() < hidden.sum() < wanted.sum()
    # A row of 4 has 3 pairs; at random, 13 / 14 of the share have a neighbour.
    random, blocks = (neighbours(*x) for x in found)
    assert random < 0.5 and blocks > 0.7


def blockwise(drawn, most, height, width):
    """Algorithm 1 of arXiv:2106.08254, a block and a patch after the other."""
    mask = np.zeros((height, width), bool)
    least = (min(height, width) // 3) ** 2
    for size, ratio, top, left in drawn.astype("float64"):
        area = least + (most - mask.sum() - least) * size
        ratio = 0.3 * (1 / 0.3 / 0.3) ** ratio  # From 0.3 to 1 / 0.3.
        a, b = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if a > height or b > width:
            continue
        joined = mask.copy()
        i, j = int(top * (height - a + 1)), int(left * (width - b + 1))
        joined[i : i + a, j : j + b] = True
        if joined.sum() <= most:
            mask = joined
    return mask.ravel()


@pytest.mark.parametrize("kind", ["arrays", "tensors"])
def test_blocks_are_those_of_the_algorithm(kind):
    random = np.random.default_rng(7)
    drawn = random.random((40, 2, 20, 4), "float32")
    most = random.integers(0, 60, (40, 2, 1)).astype("float32")
    given = drawn, most
    if kind == "tensors":
        tf = pytest.importorskip("tensorflow")
        given = [tf.constant(x) for x in given]
    found = np.array(block_masks(given[0], given[1], (9, 13)))
    for place in np.ndindex(40, 2):
        wanted = blockwise(drawn[place], int(most[place][0]), 9, 13)
        np.testing.assert_array_equal(found[place] > 0, wanted)


def test_a_block_is_a_rectangle_at_a_uniform_place():
    """Of the least size and aspect ratio, but for rounding a half of a side."""
    random = np.random.default_rng(8)
    drawn = random.random((20_000, 1, 4), "float32")
    most = np.full((20_000, 1), 60, "float32")
    masks = block_masks(drawn, most, (14, 14)).reshape(-1, 14, 14) > 0
    masks = masks[masks.any((1, 2))]
    rows, columns = masks.any(2), masks.any(1)
    assert (masks == rows[:, :, None] & columns[:, None]).all()
    sides = []
    for lines in (rows, columns):
        side, first = lines.sum(1), lines.argmax(1)
        assert (lines[:, ::-1].argmax(1) == 14 - first - side).all()
        sides.append(side)
        for length in range(4, 9):
            places = first[side == length]
            counts = np.bincount(places, minlength=15 - length)
            mean = len(places) / (15 - length)
            assert mean > 50
            assert np.abs(counts - mean).max() < 4 * mean**0.5
    height, width = sides
    assert (height * width <= 60).all()
    assert ((height + 0.5) * (width + 0.5) > 16).all()
    assert np.unique(height * width).size > 20
    for one, two in ((height, width), (width, height)):
        assert ((one - 0.5) / (two + 0.5) < 1 / 0.3).all()
        assert (one / two).max() > 3


# --- Misuse and collapse ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"global_crops": 0}, "two at least"),
        ({"global_scale": (0.01, 0.04)}, "all crops are local"),
        ({"local_scale": (0.5, 0.2)}, "local_scale"),
        ({"local_crops": 0, "local_scale": (0.1, 0.4)}, "with local_crops=0"),
        ({"local_crops": 0, "local_size": 32}, "with local_crops=0"),
        ({"teacher_temperature": 0.1}, "The teacher is sharper"),
        ({"warmup_teacher_temperature": 0.3}, "The teacher is sharper"),
        ({"warmup_teacher_temperature": 0.02}, "temperature_epochs=0"),
        ({"teacher_momentum": 1.0}, "teacher_momentum"),
        ({"centering": "none"}, "centering"),
        ({"centering": "sinkhorn", "center_momentum": 0.5}, "has no center"),
        ({"ibot_weight": 1.0, "ibot_ratio": (0.5, 1.0)}, "ibot_ratio"),
        ({"ibot_weight": 1.0, "ibot_rate": 0.0}, "ibot_rate"),
        ({"ibot_head": "own"}, "ibot_head"),
        ({"ibot_masks": "blocks"}, "ibot_masks"),
        ({"ibot_weight": 1.0, "ibot_masks": "squares"}, "ibot_masks"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DINOConfig(**options)


@pytest.mark.parametrize(
    ("model", "dino"),
    [
        ({"position_embedding": "none"}, CONFIG),
        ({}, dataclasses.replace(CONFIG, local_size=3)),
        ({}, dataclasses.replace(CONFIG, local_size=10)),
    ],
)
def test_models_without_two_sizes_are_refused(model, dino):
    with pytest.raises(ValueError, match="dino"):
        dino_network(encoder(**model), dino)


def test_models_with_classes_are_refused():
    config = dataclasses.replace(encoder().config, num_classes=3)
    with pytest.raises(ValueError, match="3 classes.*num_classes=0"):
        dino_network(VisionTransformer(config), CONFIG)


@pytest.mark.parametrize(
    ("size", "dino", "message"),
    [
        (31, {}, "a batch of 31 images is small.*centre is the mean"),
        (255, {"centering": "sinkhorn"}, "a batch of 255 .*Sinkhorn spreads"),
        (32, {"teacher_temperature": 0.08}, "teacher_temperature=0.08"),
        (
            32,
            {
                "warmup_teacher_temperature": 0.09,
                "warmup_teacher_temperature_epochs": 3.0,
            },
            "warmup_teacher_temperature=0.09",
        ),
        (32, {}, "^$"),
        (256, {"centering": "sinkhorn"}, "^$"),
    ],
)
def test_small_batches_and_high_temperatures_are_warned_of(
    size, dino, message, capsys
):
    check_batch(size, DINOConfig(**dino))
    assert re.search(message, capsys.readouterr().out)


HEALTHY = {"feature_spread": 0.8, "teacher_entropy": 1.0, "mean_entropy": 2.2}


@pytest.mark.parametrize(
    ("logs", "message"),
    [
        ({"feature_spread": 0.001}, "features of all images are the same"),
        ({"feature_rank": 1.2}, "lie on a line"),
        ({"teacher_entropy": np.log(10) - 1e-4}, "10 prototypes equally"),
        ({"mean_entropy": 0.1}, "one prototype of all images"),
    ],
)
def test_a_collapse_ends_the_training(logs, message):
    signs = collapsed_features, functools.partial(collapsed_teacher, CONFIG)
    watch = CollapseWatch("dino", 3, signs)
    watch.on_epoch_end(0, HEALTHY | logs)
    watch.on_epoch_end(1, HEALTHY)  # It was none.
    watch.on_epoch_end(2, HEALTHY | logs)
    watch.on_epoch_end(3, HEALTHY | logs)
    with pytest.raises(ValueError, match=message):
        watch.on_epoch_end(4, HEALTHY | logs)
