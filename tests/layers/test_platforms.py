"""Each platform has its own program, and all of them the same values."""

import functools
import re
import types

import keras
import numpy as np
import numpy_forward
import pytest
import virtual_devices
from keras import ops
from packaging.version import Version
from random_layers import flax_attention, normal, randomise
from tiny_models import tiny_vit

from keras_vit import layers
from keras_vit.layers import attention, common, transformer_block
from keras_vit.models.vit import ViTConfig, attention_bytes
from keras_vit.runtime import platforms
from keras_vit.runtime.platforms import by_platform


@pytest.fixture(autouse=True)
def on_jax(backend):
    if backend != "jax":
        pytest.skip("Other backends lower for the machine that they are on.")


@pytest.fixture
def as_on_a_tpu(monkeypatch):
    take_other_paths(monkeypatch)


def take_other_paths(monkeypatch):
    def other_of(*tensors, other, **paths):
        return other(*tensors)

    for module in (attention, common, platforms):
        monkeypatch.setattr(module, "by_platform", other_of)


def exported(function, *tensors, platform):
    import jax

    export = jax.export.export(jax.jit(function), platforms=[platform])
    return export(*tensors).mlir_module()


@pytest.mark.parametrize(
    ("platform", "operation"),
    [("cpu", "sine"), ("tpu", "cosine"), ("cuda", "tanh"), ("rocm", "tanh")],
)
def test_a_program_has_the_function_of_its_platform_alone(platform, operation):
    def compute(x):
        return by_platform(x, cpu=ops.sin, other=ops.cos, gpu=ops.tanh)

    text = exported(compute, np.ones(3, "float32"), platform=platform)
    others = {"sine", "cosine", "tanh"} - {operation}
    assert f"stablehlo.{operation} " in text
    assert not any(f"stablehlo.{name} " in text for name in others)


@pytest.mark.parametrize("count", [1, 2])
def test_the_first_tokens_are_the_same_on_tpus(as_on_a_tpu, count):
    x = normal(2, 3, 5, 4)
    x[:, :, 3] = np.inf  # Of a token that nobody asks for.
    found = common.first_tokens(ops.convert_to_tensor(x), count)
    np.testing.assert_array_equal(found, x[:, :, :count])


def test_a_block_of_some_tokens_is_the_same_on_tpus(as_on_a_tpu):
    block = layers.TransformerBlock(num_heads=2, mlp_dim=16)
    x = normal(2, 5, 8)
    block.build(x.shape)
    randomise(block)
    expected = np.array(block(x))[:, :2]
    np.testing.assert_allclose(block(x, queries=2), expected, atol=1e-5)


def test_without_a_gpu_s_own_function_a_gpu_has_the_other():
    def compute(x):
        return by_platform(x, cpu=ops.sin, other=ops.cos)

    text = exported(compute, np.ones(3, "float32"), platform="cuda")
    assert "stablehlo.cosine " in text


def test_outside_of_a_program_the_device_of_the_tensor_decides():
    x = ops.convert_to_tensor([0.5])
    found = by_platform(x, cpu=ops.sin, other=ops.cos)
    np.testing.assert_allclose(found, np.sin([0.5]), 1e-6)
    found = by_platform([0.5], cpu=ops.sin, other=ops.cos)
    np.testing.assert_allclose(found, np.sin([0.5]), 1e-6)


def test_a_gradient_outside_of_a_program_compiles_nothing():
    import jax

    called = []

    def compute(x):
        return by_platform(x, cpu=lambda x: called.append(x) or 3 * x, other=x)

    assert jax.grad(compute)(2.0) == 3
    assert len(called) == 1


def gradient_of(layer, tokens, valid=None, training=True):
    """The function of the weights and tokens, for jax.grad."""
    import jax

    upstream = normal(*tokens.shape, seed=5)

    def loss(weights, x):
        y, _ = layer.stateless_call(weights, [], x, valid, training=training)
        return ops.sum(y * upstream)

    return jax.grad(loss, argnums=(0, 1))


def test_the_weights_are_computed_again_on_tpus_alone():
    """XLA would keep them in the slowest memory."""
    layer = layers.SelfAttention(4)
    layer.build((2, 7, 16))
    weights = [x.value for x in layer.trainable_variables]
    tokens = normal(2, 7, 16)
    gradient = gradient_of(layer, tokens)
    counts = {
        platform: [
            exported(gradient, weights, tokens, platform=platform).count(name)
            for name in (
                "stablehlo.exponential",
                "stablehlo.optimization_barrier",
            )
        ]
        for platform in ("cpu", "tpu")
    }
    assert counts == {"cpu": [1, 0], "tpu": [2, 1]}


CUDNN = "__cudnn$fmha"  # its custom calls


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Keras and JAX find cuDNN: programs are lowered, and cannot be run."""
    from jax._src.cudnn import fused_attention_stablehlo as cudnn

    names = ["gpu:0"]
    monkeypatch.setattr("keras.distribution.list_devices", lambda: names)
    monkeypatch.setattr(cudnn, "check_cudnn_version", lambda: 91_000)
    monkeypatch.setattr(cudnn, "check_compute_capability", lambda least: True)


def program_of_a_gpu(tokens, valid=None, gradient=True, **options):
    """What bfloat16 attention has there, or its gradient with the forward."""
    import jax

    layer = layers.SelfAttention(4, dtype="bfloat16", **options)
    x = normal(2, tokens, 32)
    layer.build(x.shape)
    weights = [x.value for x in layer.trainable_variables]
    function = gradient_of(layer, x, valid)
    if not gradient:
        weights, function = [], lambda weights, x: layer(x, valid)
    traced = jax.jit(function).trace(weights, x)
    return traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.skipif(
    Version(keras.__version__) < Version("3.13.1"),
    reason="It calls JAX's check as an older JAX had it, and finds no cuDNN.",
)
@pytest.mark.parametrize("flash", [None, True])
@pytest.mark.parametrize(
    ("tokens", "gradient", "calls"),
    [(6, False, 1), (5, False, 1), (6, True, 2), (5, True, 0)],
)
def test_gpus_have_fused_attention_and_gradients_of_any_number_of_tokens(
    as_on_a_gpu, caplog, tokens, gradient, calls, flash
):
    options = {"gradient": gradient, "flash_attention": flash}
    text = program_of_a_gpu(tokens, **options)
    assert len(re.findall(rf"custom_call @{re.escape(CUDNN)}", text)) == calls
    assert not caplog.records


def test_padded_tokens_have_no_fused_attention_on_gpus(as_on_a_gpu, caplog):
    """JAX refuses its mask, which Keras would log for each layer."""
    valid = np.arange(6)[None] < np.array([[6], [4]])  # (2, 6)
    text = program_of_a_gpu(6, valid=valid)
    assert CUDNN not in text
    assert not caplog.records


def test_jax_differentiates_even_tokens_alone(as_on_a_gpu):
    """Where it does not, `with_gradients` goes."""
    import jax

    def attend(x):
        return jax.nn.dot_product_attention(x, x, x, implementation="cudnn")

    def lower(tokens):
        x = jax.ShapeDtypeStruct((2, tokens, 4, 8), "bfloat16")
        return jax.eval_shape(jax.grad(lambda x: attend(x).sum()), x)

    assert lower(6).shape == (2, 6, 4, 8)
    with pytest.raises(NotImplementedError, match="sequence length Q 5"):
        lower(5)


def test_fused_attention_has_the_gradients_of_the_explicit_one(as_on_a_gpu):
    import jax

    heads = [normal(2, 5, 3, 4, seed=i).astype("bfloat16") for i in range(3)]
    attend = platforms.with_gradients(
        lambda query, key, value: 0 * query, lambda q, k, v: q * k * v
    )
    assert not np.any(attend(*heads))
    found = jax.grad(lambda *heads: attend(*heads).sum(), argnums=(0, 2))
    query, key, value = heads
    for x, y in zip(found(*heads), (key * value, query * key), strict=True):
        np.testing.assert_array_equal(x, y)


def test_what_tpus_predict_has_one_exponential_and_waits_for_nothing():
    layer = layers.SelfAttention(4)
    layer.build((2, 7, 16))
    text = exported(layer, normal(2, 7, 16), platform="tpu")
    assert text.count("stablehlo.exponential") == 1
    assert text.count("stablehlo.optimization_barrier") == 0


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_wide_blocks_predict_in_parts_on_tpus_alone(
    monkeypatch, gated, training
):
    """Heads before the scores, the hidden layer before its product."""
    mlp = layers.GatedMLP(32) if gated else None
    block = layers.TransformerBlock(num_heads=2, mlp_dim=32, mlp=mlp)
    x = normal(2, 5, 16)
    block.build(x.shape)

    count = functools.partial(barriers, block, x, training)
    # Training has one in its gradient, which nobody asks for here.
    assert count("tpu") == 0
    monkeypatch.setattr(common, "WIDE_HEADS", 15)
    monkeypatch.setattr(transformer_block, "WIDE_MLP", 15)
    assert count("tpu") == (0 if training else 2)
    assert count("cpu") == count("cuda") == 0


def barriers(layer, x, training, platform):
    """Of what a platform computes: where it waits for a tensor."""

    def compute(x):
        return layer(x, training=training)

    text = exported(compute, x, platform=platform)
    return text.count("stablehlo.optimization_barrier")


def test_no_platform_has_the_products_of_another():
    """Forward and backward."""
    layer = layers.SelfAttention(4)
    layer.build((2, 7, 16))
    weights = [x.value for x in layer.trainable_variables]
    tokens = normal(2, 7, 16)
    found = {
        platform: exported(
            gradient_of(layer, tokens), weights, tokens, platform=platform
        ).count("stablehlo.dot_general")
        for platform in ("cpu", "tpu")
    }
    # qkv, scores, sums, out; two gradients of each; the last product itself is
    # in no gradient. On TPUs qkv are three, and scores come again.
    assert found == {"cpu": 3 + 8, "tpu": 5 + 12 + 1}


OPTIONS = {
    "plain": {},
    "no biases": {"qkv_bias": False, "projection_bias": False},
    "norms": {"qk_norm": True, "attention_inner_norm": True},
    "groups": {"key_value_heads": 2},
    "one group": {"key_value_heads": 1},
    "rotary": {"rotary": None},
}


def made(options):
    if "rotary" in options:
        rotary = layers.RotaryEmbedding((2, 3), num_prefix_tokens=1)
        options = {"rotary": rotary}
    return layers.SelfAttention(4, **options)


def test_attention_of_tpus_is_that_of_numpy(as_on_a_tpu):
    tokens = normal(2, 7, 16)
    layer = layers.SelfAttention(4)
    layer.build(tokens.shape)
    randomise(layer)
    expected, _ = numpy_forward.self_attention(flax_attention(layer), tokens)
    found = ops.convert_to_numpy(layer(tokens))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_tpus_predict_of_scores_that_are_not_rounded():
    """Closer to the equations than weights of scores in bfloat16."""
    tensors = [3 * normal(2, 3, 50, 16, seed=i) for i in range(3)]
    rounded = [ops.cast(x, "bfloat16") for x in tensors]
    query, key, value = (np.asarray(x, "float64") for x in rounded)
    scores = query @ key.swapaxes(-1, -2) / 4
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ value

    def error(training):
        found = np.asarray(common.attended(*rounded, training=training))
        assert str(found.dtype) == "bfloat16"
        return np.sqrt(np.mean((found.astype("float64") - expected) ** 2))

    largest = np.abs(expected).max()
    assert error(training=False) < 2**-9 * largest
    assert error(training=False) < 0.7 * error(training=True)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_values_and_gradients_are_those_of_cpus(
    name, padded, training, monkeypatch
):
    tokens = normal(2, 7, 16)
    valid = None
    if padded:
        valid = np.arange(7)[None] < np.array([[7], [4]])  # (2, 7)
    layer = made(OPTIONS[name])
    layer.build(tokens.shape)
    randomise(layer)
    weights = [x.value for x in layer.trainable_variables]

    def results():
        y, _ = layer.stateless_call(
            weights, [], tokens, valid, training=training
        )
        gradient = gradient_of(layer, tokens, valid, training)
        of_weights, of_x = gradient(weights, tokens)
        return [np.array(x) for x in (y, of_x, *of_weights)]

    expected = results()
    take_other_paths(monkeypatch)
    found = results()
    assert max(np.abs(x).max() for x in expected) > 1
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-5)


def test_a_quantised_projection_is_the_same_on_tpus(as_on_a_tpu):
    tokens = normal(2, 7, 16)
    layer = layers.SelfAttention(4)
    layer.build(tokens.shape)
    randomise(layer)
    exact, _ = numpy_forward.self_attention(flax_attention(layer), tokens)
    layer.qkv.quantize("int8")
    found = ops.convert_to_numpy(layer(tokens))
    assert 1e-6 < np.abs(found - exact).max() < 0.2


# Images, MiB of one, devices: parts.
PARTS = {
    (64, 1, 1): 1,
    (66, 1, 1): 2,
    (75, 1, 1): 3,
    (65, 1, 1): 1,  # Five parts would be of less than half of what fits.
    (67, 1, 1): 1,
    (96, 1.5, 1): 3,
    (512, 1.6, 8): 2,
    (500, 1.6, 8): 1,  # The devices have no shares of one size.
    (0, 1, 1): 1,
}


@pytest.mark.parametrize("case", PARTS)
def test_a_part_of_a_batch_stays_on_the_chip(monkeypatch, case):
    assert counted(monkeypatch, *case) == PARTS[case]


def test_parts_do_not_gather_shared_kernels_again(monkeypatch):
    assert counted(monkeypatch, 512, 1.6, 8, spec=(None, "batch")) == 1


def counted(monkeypatch, batch, megabytes, devices, spec=(None, None)):
    """The parts of a batch that devices share."""
    import jax

    layer = types.SimpleNamespace(variables=["kernel"])
    mesh = types.SimpleNamespace(size=devices)
    sharding = types.SimpleNamespace(spec=spec, mesh=mesh)
    monkeypatch.setattr(platforms, "sharding_of", lambda kernel: sharding)
    counts = []

    def compute(x):
        size = int(megabytes * 2**20)
        counts.append(platforms.parts_of(x, size, layer))
        return x

    jax.eval_shape(compute, np.empty((batch, 1)))
    return counts[0]


def test_weights_of_attention_fill_tiles():
    config = ViTConfig(hidden_dim=768, num_heads=12)  # 197 tokens
    numbers = 12 * 200 * 256
    assert attention_bytes(config, "bfloat16") == 2 * numbers
    assert attention_bytes(config, "float32") == 4 * numbers


@pytest.fixture
def parted_model(monkeypatch):
    """A model of which two images, of 2 heads and 5 tokens, fit."""
    one = 2 * 8 * 128 * 4  # tiles of 8 x 128, in float32
    monkeypatch.setattr(platforms, "MICROBATCH_BYTES", 2 * one)
    model = tiny_vit()
    randomise(model)
    return model


def test_parts_of_a_batch_are_put_together_in_order(parted_model, monkeypatch):
    import jax

    images = normal(6, 8, 8, 3)
    expected = np.array(parted_model(images))  # Outside of a program.
    take_other_paths(monkeypatch)
    found = jax.jit(lambda x: parted_model(x, training=False))(images)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.ptp(expected, axis=0).min() > 0.01


@pytest.mark.parametrize("training", [False, True])
def test_tpus_alone_predict_in_parts(parted_model, training):
    six = normal(6, 8, 8, 3)
    count = functools.partial(barriers, parted_model, six, training)
    assert count("tpu") == (0 if training else 3 - 1)
    assert barriers(parted_model, six[:2], training, "tpu") == 0
    assert count("cpu") == count("cuda") == 0


SHARED = """
import jax
import keras
import numpy as np
from keras_vit.runtime import platforms
from keras_vit.layers import attention, common
from random_layers import normal, randomise
from tiny_models import tiny_vit

distribution = keras.distribution.DataParallel()
keras.distribution.set_distribution(distribution)
model = tiny_vit()
randomise(model)
images = normal(24, 8, 8, 3)
weights = [
    [x.value for x in variables]
    for variables in (
        model.trainable_variables, model.non_trainable_variables
    )
]

def compiled():
    def infer(weights, images):
        return model.stateless_call(*weights, images, training=False)[0]

    layout = distribution.get_data_layout(images.shape).backend_layout
    shared = jax.device_put(images, layout)
    program = jax.jit(infer).lower(weights, shared).compile()
    return program.as_text(), program(weights, shared)

_, whole = compiled()
# Two images of a device's six.
platforms.MICROBATCH_BYTES = 2 * 2 * 8 * 128 * 4
for module in (attention, common, platforms):
    module.by_platform = lambda *tensors, other, **paths: other(*tensors)
text, parts = compiled()
np.testing.assert_allclose(parts, whole, atol=1e-5)
sent = sum(text.count(f" {x}") for x in (
    "all-", "collective-", "reduce-scatter"
))
print(len(jax.devices()), text.count("f32[2,8,8,3]") > 0, sent)
"""


def test_devices_send_nothing_for_parts_of_their_shares():
    told = virtual_devices.run(SHARED, devices=4, backend="jax")
    assert told == "4 True 0"
