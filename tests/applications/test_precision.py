"""Mixed precision, compiled steps and quantisation, on tiny sizes."""

import keras
import numpy as np
import pytest
import shrunken
from shrunken import LABELS, SPARSE, images, shake


@pytest.fixture(autouse=True)
def tiny_sizes(monkeypatch):
    shrunken.shrink(monkeypatch)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("ViT_R50_B16", "mixed_bfloat16"),
        ("Mixer_S8", "mixed_float16"),
        pytest.param("ViT_R50_B16", "mixed_float16", marks=SLOW),
        pytest.param("Mixer_S8", "mixed_bfloat16", marks=SLOW),
        pytest.param("BiT_R50x1", "mixed_bfloat16", marks=SLOW),
        pytest.param("BiT_R50x1", "mixed_float16", marks=SLOW),
    ],
)
def test_mixed_precision_trains_and_reloads(name, policy, tmp_path):
    model = shake(shrunken.build(name, dtype=policy))
    assert {w.dtype for w in model.trainable_weights} == {"float32"}
    inner = model.get_layer(index=len(model.layers) // 2)
    assert inner.compute_dtype == policy.removeprefix("mixed_")
    model.compile(keras.optimizers.SGD(1e-3), SPARSE())
    history = model.fit(images(name), LABELS, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    outputs = model.predict(images(name), verbose=0)
    assert outputs.dtype == "float32"
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.get_config()["dtype"] == model.get_config()["dtype"]
    np.testing.assert_array_equal(
        loaded.predict(images(name), verbose=0), outputs
    )


def test_the_head_is_in_float32_under_a_mixed_policy_of_all():
    policy = keras.config.dtype_policy()
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        model = shrunken.build("ViT_R50_B16")
    finally:
        keras.config.set_dtype_policy(policy)
    assert model.get_layer("block_0").compute_dtype == "bfloat16"
    assert model.get_layer("predictions").compute_dtype == "float32"


def kernel_after_fit(name, backend, **options):
    """One kernel after two steps on four images, two at a time."""
    keras.utils.set_random_seed(0)
    model = shake(shrunken.build(name))
    # torch.compile needs a compiler and minutes; it has a test of its own.
    model.compile(
        keras.optimizers.SGD(0.1, **options),
        SPARSE(),
        jit_compile=backend != "torch",
    )
    model.fit(images(name), LABELS, batch_size=2, shuffle=False, verbose=0)
    return np.array(model.get_layer("predictions").kernel)


@pytest.mark.parametrize(
    "name", ["ViT_B16", pytest.param("BiT_R50x1", marks=SLOW)]
)
def test_compiled_accumulated_and_averaged_steps(name, backend):
    plain = kernel_after_fit(name, backend)
    accumulated = kernel_after_fit(name, backend, gradient_accumulation_steps=2)
    averaged = kernel_after_fit(name, backend, use_ema=True, ema_momentum=0.5)
    start = np.array(
        shake(shrunken.build(name)).get_layer("predictions").kernel
    )
    for kernel in (plain, accumulated, averaged):
        assert np.isfinite(kernel).all()
        assert (kernel != start).any()
    # One step of the mean gradient goes about half as far as two steps.
    ratio = np.linalg.norm(accumulated - start) / np.linalg.norm(plain - start)
    assert 0.3 < ratio < 0.8
    assert (averaged != plain).any()


# torch warns of its own parts and of what it leaves uncompiled.
@pytest.mark.filterwarnings("ignore")
@SLOW
def test_torch_compiles_a_step(backend):
    if backend != "torch":
        pytest.skip("jit_compile is torch.compile on the torch backend only")
    model = shake(shrunken.build("ViT_B16"))
    model.compile(keras.optimizers.SGD(1e-2), SPARSE(), jit_compile=True)
    history = model.fit(images("ViT_B16"), LABELS, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


# Relative error of the logits that each precision is allowed; a model that
# answers 0 has 1. The tiny random models are hard on int4.
QUANTIZATIONS = {"int8": 0.1, "int4": 0.7, "float8": 0.5}


@pytest.mark.parametrize(
    "name, mode",
    [
        ("ViT_B16", "int8"),
        pytest.param("ViT_B16", "int4", marks=SLOW),
        ("ViT_B16", "float8"),
        *(
            pytest.param(name, mode, marks=SLOW)
            for name in ("ViT_R50_B16", "Mixer_S8")
            for mode in QUANTIZATIONS
        ),
    ],
)
def test_quantised_models_reload(name, mode, tmp_path):
    options = {"representation_dim": 8} if name == "ViT_B16" else {}
    model = shake(shrunken.build(name, classifier_activation=None, **options))
    exact = model.predict(images(name), verbose=0)
    model.quantize(mode)
    quantised = model.predict(images(name), verbose=0)
    error = np.linalg.norm(quantised - exact) / np.linalg.norm(exact)
    assert 0 < error < QUANTIZATIONS[mode]
    for generation in ("first", "second"):
        path = tmp_path / f"{generation}.keras"
        model.save(path)
        model = keras.models.load_model(path)
        np.testing.assert_array_equal(
            model.predict(images(name), verbose=0), quantised
        )
