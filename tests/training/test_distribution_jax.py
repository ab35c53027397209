"""Several JAX devices train as one does: virtual ones, in their own process."""

import functools
import json

import numpy as np
import pytest
import virtual_devices
import whole_runs

STEPS, DEVICES = 30, 8
# Gates and values are one kernel; tokens are added and turned.
DINOV3 = {
    "rope": "axial",
    "rope_pairs": "halves",
    "position_embedding": "none",
    "register_tokens": 2,
    "layer_scale_init": 0.5,
    "gated_mlp": True,
    "activation": "silu",
}
run = functools.partial(virtual_devices.run, backend="jax")

LOSSES = """
import json, sys
import keras
import numpy as np
import tiny_training as tiny
from keras_vit.training.distribution import setup

with_average = sys.argv[1] == "average"
fields = json.loads(sys.argv[2])
random = np.random.default_rng(0)
classes = random.integers(0, 3, (30, 16))
images = random.uniform(0, 155, (30, 16, 8, 8, 1)) + (
    50 * classes[..., None, None, None]
)

labels = np.eye(3, dtype="float32")[classes]

def loss(model, batch):
    model.reset_metrics()
    return float(model.train_on_batch(*batch))

def losses(choice):
    keras.utils.set_random_seed(3)
    chosen = setup(choice, batch_size=16)
    with chosen.scope():
        model = tiny.model(hidden_dim=16, mlp_dim=32, **fields)
        rule = keras.optimizers.SGD(
            0.1,
            momentum=0.9,
            global_clipnorm=0.5,
            use_ema=with_average,
            ema_momentum=0.9,
            gradient_accumulation_steps=2 if with_average else None,
        )
        model.compile(rule, tiny.loss())
        found = [
            loss(model, batch)
            for batch in zip(images.astype("float32"), labels)
        ]
        rule.finalize_variable_values(model.trainable_variables)
    kernel = model.get_layer("block_0").mlp.dense.kernel.value
    return {
        "told": str(chosen),
        "losses": found,
        "share": list(kernel.addressable_shards[0].data.shape),
        "holders": len(kernel.sharding.device_set),
        "weights": [float(np.abs(x).sum()) for x in model.get_weights()],
    }

choices = "single", "data_parallel", "fsdp", "model_parallel"
print(json.dumps({choice: losses(choice) for choice in choices}))
"""
RUNS = """
import json, pathlib, sys
import keras
import numpy as np
from tiny_runs import DATASET, Interrupt, recipe, values
from keras_vit.training import ModelConfig, build, train
from keras_vit.training.run import resume
from keras_vit.training.distribution import setup
import dataclasses

folder = pathlib.Path(sys.argv[1])

def trained(name, choice, callbacks=()):
    asked = recipe(folder / name, distribution=choice)
    return train(asked, dataset=DATASET, callbacks=callbacks).model

one = trained("one", "single")
try:
    trained("several", "fsdp", [Interrupt()])
except KeyboardInterrupt:
    pass
several = trained("several", "data_parallel")
for x, y in zip(values(one), values(several), strict=True):
    # Biases of keys, whose gradient is nothing but rounding, are some 1e-6.
    np.testing.assert_allclose(x, y, rtol=1e-5, atol=5e-6)

# One image is no batch that four devices could share.
image = np.random.default_rng(0).uniform(0, 255, (1, 8, 8, 1))
np.testing.assert_allclose(one(image), several(image), rtol=1e-4, atol=1e-5)

weights = ModelConfig(weights=str(folder / "one"), head="keep", name=None)
asked = dataclasses.replace(recipe(folder / "more"), model=weights)
with setup("fsdp").scope():
    loaded = build.make_model(asked, DATASET.class_names)
    for x, y in zip(values(one), values(loaded), strict=True):
        np.testing.assert_array_equal(x, y)
    kernel = loaded.get_layer("block_0").mlp.dense.kernel.value
    assert kernel.addressable_shards[0].data.shape == (8 // 4, 8)
print("same")
"""
WHOLE = """
import sys
import whole_runs
whole_runs.main(*sys.argv[1:])
"""
FLOPS = """
import json
import jax
import keras
import numpy as np
from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.training.distribution import setup
from keras_vit.training.tasks import DINOConfig, dino_network
from keras_vit.training.tasks.dino import DRAWS

inputs = {
    "image": np.zeros((16, 24, 24, 3), "float32"),
    "drawn": np.zeros((16, 4, len(DRAWS)), "float32"),
    "schedules": np.ones((16, 4), "float32"),
    "order": np.tile(np.arange(16, dtype="int32"), (16, 2, 1)),
    "hidden": np.full((16, 2, 1), 3, "int32"),
}
found = []
for choice in ("single", "data_parallel"):
    chosen = setup(choice, batch_size=16)
    with chosen.scope():
        network = dino_network(
            VisionTransformer(
                ViTConfig(
                    image_size=16, patch_size=4, hidden_dim=64, num_layers=1,
                    mlp_dim=128, num_heads=2, num_classes=0,
                )
            ),
            DINOConfig(
                local_crops=2, local_size=8, head_dim=64, bottleneck_dim=16,
                out_dim=64, ibot_weight=1.0,
            ),
        )

    def loss(trained, others, inputs):
        outputs, others = network.stateless_call(
            trained, others, inputs, training=True
        )
        return keras.ops.mean(outputs[:, 0]), others

    groups = network.trainable_variables, network.non_trainable_variables
    values = [[x.value for x in group] for group in groups]
    given = inputs
    if chosen.native is not None:
        given = {
            name: jax.device_put(
                x, chosen.native.get_data_layout(x.shape).backend_layout
            )
            for name, x in inputs.items()
        }
    step = jax.jit(jax.value_and_grad(loss, has_aux=True))
    compiled = step.lower(*values, given).compile()
    found.append(compiled.cost_analysis()["flops"])
    keras.distribution.set_distribution(None)
print(json.dumps(found))
"""
PARTIAL = """
import keras
import numpy as np
import tiny_training as tiny
from keras_vit.training.distribution import setup

with setup("data_parallel").scope():
    model = tiny.model()
    model.compile("sgd", tiny.loss())
    try:
        images, labels = np.ones((10, 8, 8, 1)), np.eye(3)[[0] * 10]
        model.evaluate(images, labels, batch_size=8, verbose=0)
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
    else:
        print("evaluated")
"""


@pytest.fixture(autouse=True)
def on_jax(backend):
    if backend != "jax":
        pytest.skip("What is tested here is there on JAX alone.")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "fields", "width"),
    [("plain", {}, 32), ("average", {}, 32), ("plain", DINOV3, 64)],
    ids=["plain", "average", "DINOv3"],
)
def test_every_layout_has_the_losses_of_one_device(
    kind, fields, width, monkeypatch
):
    """With dropout, stochastic depth, clipping; and averages, accumulation."""
    # As users run it: without optimisation the roundings are others.
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    found = json.loads(run(LOSSES, kind, json.dumps(fields), devices=DEVICES))
    one = found.pop("single")
    assert len(one["losses"]) == STEPS
    assert one["losses"][-1] < 0.9 * one["losses"][0]
    shares = {
        "data_parallel": [16, width],
        "fsdp": [16 // DEVICES, width],
        "model_parallel": [16, width // 2],
    }
    assert found.keys() == shares.keys()
    for choice, several in found.items():
        assert several["told"].startswith(f"{choice}: 8 devices (cpu:0, ")
        assert several["share"] == shares[choice]
        assert several["holders"] == DEVICES
        for name in ("losses", "weights"):
            np.testing.assert_allclose(several[name], one[name], 1e-5)


@pytest.mark.slow
def test_a_run_goes_on_among_others_and_weights_load_into_shares(tmp_path):
    assert run(RUNS, tmp_path, devices=4) == "same"


@pytest.mark.slow
def test_a_whole_run_is_that_of_one_device(tmp_path):
    """With all of the above, Mixup, metrics and a padded evaluation."""
    model = {"dropout_rate": 0.1, "stochastic_depth_rate": 0.1}
    options = {"model": model, "training": {"accumulation_steps": 2}}
    choices = "single", "data_parallel", "fsdp", "model_parallel"
    told = run(WHOLE, tmp_path, json.dumps(options), *choices, devices=DEVICES)
    one, *several = json.loads(told).values()
    assert len(several) == 3
    for other in several:
        whole_runs.check_same(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("name", whole_runs.METHODS)
def test_learning_without_labels_is_that_of_one_device(tmp_path, name):
    """The centre of DINO and Sinkhorn are of the whole batch."""
    options = json.dumps(whole_runs.unlabelled(name, tmp_path))
    choices = "single", "data_parallel"
    told = run(WHOLE, tmp_path, options, *choices, devices=DEVICES)
    whole_runs.check_unlabelled(*json.loads(told).values())


@pytest.mark.slow
def test_devices_share_the_crops_of_dino():
    """Each computes an eighth, and not all of them."""
    one, several = json.loads(run(FLOPS, devices=DEVICES))
    assert several < 1.1 * one / DEVICES


@pytest.mark.slow
def test_plain_keras_fails_on_a_batch_that_is_not_full():
    """Where it does not, the batches need no padding any more."""
    assert "divisible" in run(PARTIAL, devices=4)
