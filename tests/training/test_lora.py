"""Low-rank adaptation: what is trained, what is saved, what is refused."""

import dataclasses
import re

import keras
import numpy as np
import pytest
import tiny_training as tiny
from tiny_runs import DATASET, Interrupt, recipe, values

import keras_vit
from keras_vit.checkpoints.engine.keras_files import load_model
from keras_vit.models import VisionTransformer
from keras_vit.models.configured_model import merged
from keras_vit.runtime.workarounds import sublayers
from keras_vit.training import (
    ModelConfig,
    TrainingConfig,
    checkpointing,
    train,
)
from keras_vit.training.build import (
    add_lora,
    count_parameters,
    freeze,
    make_model,
)
from keras_vit.training.run.files import save_model
from keras_vit.variants import VariantConfig

DENSE = ("attention/qkv", "attention/out", "mlp/dense", "mlp/dense_1")


def model(**options):
    """A tiny model whose weights, the head's too, are all different."""
    plain = {"dropout_rate": 0.0, "stochastic_depth_rate": 0.0}
    found = tiny.model(**{**plain, **options})
    random = np.random.default_rng(0)
    for weight in found.weights:
        weight.assign(random.normal(0, 0.3, weight.shape))
    return found


def adapted(rank=2, alpha=None, **options):
    """The same with LoRA, whose products are not zero."""
    found = model(**options)
    add_lora(found, rank, alpha=alpha)
    random = np.random.default_rng(1)
    for weight in found.weights:
        if weight.name == "lora_kernel_b":
            weight.assign(random.normal(0, 0.3, weight.shape))
    return found


def by_path(network):
    return {
        x.path: np.array(keras.ops.convert_to_numpy(x)) for x in network.weights
    }


def images(count=6):
    shape = (count, 8, 8, 1)
    return np.random.default_rng(2).integers(0, 256, shape).astype("float32")


def logits(network):
    return network.predict(images(), verbose=0)


def lora_recipe(folder, rank=2, **training):
    return recipe(folder, training={"lora_rank": rank, **training})


def test_a_model_starts_as_it_was():
    network = model()
    before = logits(network)
    add_lora(network, rank=2)
    np.testing.assert_allclose(logits(network), before, atol=1e-6)


def test_lora_is_in_every_dense_layer_of_the_blocks():
    network = adapted(rank=3, num_layers=2)
    paths = [x.path for x in network.trainable_weights]
    expected = {
        f"block_{i}/{name}/lora_kernel_{x}"
        for i in range(2)
        for name in DENSE
        for x in "ab"
    }
    assert set(paths) == {*expected, "predictions/kernel", "predictions/bias"}
    dim, mlp_dim, classes = 8, 16, len(tiny.CLASS_NAMES)
    of_block = 3 * ((dim + 3 * dim) + 2 * dim + 2 * (dim + mlp_dim))
    head = (dim + 1) * classes
    plain = count_parameters(model(num_layers=2))
    assert plain[0] == plain[1]
    assert count_parameters(network) == (
        2 * of_block + head,
        plain[1] + 2 * of_block,
    )


@pytest.mark.parametrize("alpha", [None, 6.0])
def test_a_step_is_that_of_the_gradient_of_the_product(alpha):
    """dB = s A'dW and dA = s dW B', with dW of the model without LoRA."""
    network = adapted(rank=2, alpha=alpha, num_layers=2)
    plain = merged(network)
    scale = 1.0 if alpha is None else alpha / 2
    before, rate = by_path(network), 0.5
    targets = np.eye(len(tiny.CLASS_NAMES))[np.arange(6) % 3]
    for each in (network, plain):
        each.compile(keras.optimizers.SGD(rate), loss=tiny.loss())
        assert len(each.trainable_weights) > 2
    start = by_path(plain)
    network.train_on_batch(images(), targets)
    plain.train_on_batch(images(), targets)
    after, end = by_path(network), by_path(plain)
    for layer in (f"block_{i}/{name}" for i in range(2) for name in DENSE):
        step = end[f"{layer}/kernel"] - start[f"{layer}/kernel"]  # -rate dW
        a, b = (before[f"{layer}/lora_kernel_{x}"] for x in "ab")
        expected = {"a": scale * step @ b.T, "b": scale * a.T @ step}
        assert np.abs(step).max() > 1e-4
        for name, change in expected.items():
            path = f"{layer}/lora_kernel_{name}"
            np.testing.assert_allclose(
                after[path] - before[path], change, rtol=1e-3, atol=2e-6
            )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lora")
    return train(lora_recipe(folder), dataset=DATASET)


def test_only_lora_and_the_head_change(run):
    keras.utils.set_random_seed(0)
    begin = by_path(make_model(lora_recipe("x"), tiny.CLASS_NAMES))
    end = by_path(run.network)
    assert list(begin) == list(end)
    for path, value in end.items():
        trained = re.search("lora_kernel|predictions", path) is not None
        assert (begin[path] != value).any() == trained, path


def test_the_model_of_a_run_is_merged(run):
    assert not [x for x in run.model.weights if "lora" in x.path]
    np.testing.assert_allclose(
        logits(run.model), logits(run.network), rtol=1e-4, atol=1e-5
    )
    assert all(layer.trainable for layer in sublayers(run.model))
    saved, _ = load_model(run.folder / "model.keras")
    for one, other in zip(values(saved), values(run.model), strict=True):
        np.testing.assert_array_equal(one, other)
    assert saved.get_config() == run.model.get_config()


def test_any_format_takes_the_model_of_a_run(run, tmp_path):
    path = tmp_path / "model.npz"
    keras_vit.save_checkpoint(run.model, path, format="google")
    found = keras_vit.load_checkpoint(
        path, **{"include_preprocessing": True, "classifier_activation": None}
    )
    np.testing.assert_allclose(
        logits(found), logits(run.network), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("alpha", [None, 1.0])
def test_products_are_added_to_their_kernels(alpha, tmp_path):
    network = adapted(rank=4, alpha=alpha)
    plain = by_path(merged(network))
    weights = by_path(network)
    for path, value in plain.items():
        expected = weights[path].astype("float64")
        name = path.removesuffix("/kernel")
        if path.endswith("/kernel") and name.startswith("block_"):
            product = weights[f"{name}/lora_kernel_a"].astype("float64")
            product = product @ weights[f"{name}/lora_kernel_b"]
            expected = expected + product * (1 if alpha is None else alpha / 4)
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(
        logits(merged(network)), logits(network), rtol=1e-4, atol=1e-4
    )
    # The model itself stays as it is, and can be trained on.
    assert by_path(network).keys() == weights.keys()
    save_model(network, tiny.CLASS_NAMES, tmp_path / "model.keras")
    saved, _ = load_model(tmp_path / "model.keras")
    for path, value in by_path(saved).items():
        np.testing.assert_array_equal(value, plain[path])


def test_kernels_keep_their_precision_under_mixed_precision(tmp_path):
    config = model().config
    network = VisionTransformer(config, dtype="mixed_bfloat16")
    network.set_weights(model().get_weights())
    add_lora(network, 2)
    expected = by_path(model())
    save_model(network, tiny.CLASS_NAMES, tmp_path / "model.keras")
    saved, _ = load_model(tmp_path / "model.keras")
    assert saved.dtype_policy.name == "mixed_bfloat16"
    for path, value in by_path(saved).items():
        np.testing.assert_array_equal(value, expected[path])
    assert merged(model()).weights[0].dtype == "float32"


def test_a_model_without_lora_is_its_own_merged():
    network = model()
    assert merged(network) is network


def test_an_interrupted_run_ends_the_same(run, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(lora_recipe(tmp_path), dataset=DATASET, callbacks=[Interrupt()])
    assert checkpointing.checkpoint_steps(tmp_path / checkpointing.FOLDER)
    again = train(lora_recipe(tmp_path), dataset=DATASET)
    for one, other in zip(
        values(again.network), values(run.network), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(values(again.model), values(run.model), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.once
def test_another_rank_is_another_run(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(lora_recipe(tmp_path), dataset=DATASET, callbacks=[Interrupt()])
    with pytest.raises(ValueError, match="lora_rank: was 2, now 3"):
        train(lora_recipe(tmp_path, rank=3), dataset=DATASET)


@pytest.mark.once
def test_the_number_of_trained_parameters_is_shown(tmp_path, capsys):
    network = make_model(lora_recipe("x"), tiny.CLASS_NAMES)
    trained, total = count_parameters(network)
    train(lora_recipe(tmp_path, epochs=1), dataset=DATASET)
    line = f"Training {trained:,} of {total:,} parameters\n"
    assert line in capsys.readouterr().out


def test_lora_goes_with_what_saves_memory_and_averages(tmp_path):
    options = {
        "epochs": 1,
        "rematerialize": True,
        "accumulation_steps": 2,
        "ema_decay": 0.9,
        "also_train": ("encoder_norm",),
        "lora_alpha": 4.0,
    }
    run = train(lora_recipe(tmp_path, **options), dataset=DATASET)
    average, _ = load_model(tmp_path / checkpointing.FOLDER / "average.keras")
    for one, other in zip(values(average), values(run.model), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    gamma = by_path(run.model)["encoder_norm/gamma"]
    assert (gamma != 1).any()


def test_layers_are_trained_besides_the_head():
    network = model(num_layers=2)
    freeze(network, "head", also=["encoder_norm"])
    assert {x.path.split("/")[0] for x in network.trainable_weights} == {
        "encoder_norm",
        "predictions",
    }
    add_lora(network, 2, also=["block_1", "class_token"])
    trained = {x.path for x in network.trainable_weights}
    assert "block_1/mlp/dense/kernel" in trained
    assert "block_1/mlp/dense/lora_kernel_a" not in trained
    assert "block_0/mlp/dense/lora_kernel_a" in trained
    assert not any(x.startswith("encoder_norm") for x in trained)


@pytest.mark.parametrize("variant", [{"mlp": "local"}, {"attention": "axial"}])
def test_variants_learn_by_lora(variant):
    pooling = {"class_token": False, "pooling": "mean"}
    network = adapted(variant=VariantConfig(**variant), **pooling)
    assert len(network.trainable_weights) > 2
    np.testing.assert_allclose(
        logits(merged(network)), logits(network), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lora_rank": -1}, "lora_rank=-1"),
        ({"lora_rank": 2.0}, "lora_rank=2.0"),
        ({"lora_rank": True}, "lora_rank=True"),
        ({"lora_rank": 2, "lora_alpha": 0.0}, "lora_alpha must be above 0"),
        ({"lora_alpha": 2.0}, "Give a rank"),
        ({"lora_rank": 2, "trainable": "head"}, "Leave one of them out"),
        ({"also_train": ("encoder_norm",)}, "All layers are trained already"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**options)


@pytest.fixture
def built(monkeypatch):
    """How often a model is built."""
    counts = []
    original = keras.Model.__init__

    def counting(self, *arguments, **options):
        counts.append(self)
        original(self, *arguments, **options)

    monkeypatch.setattr(keras.Model, "__init__", counting)
    return counts


@pytest.mark.parametrize("rank", [8, 64])
def test_a_rank_that_saves_nothing_is_refused_first(rank, built, tmp_path):
    with pytest.raises(ValueError, match=f"hidden dimension, 8.*={rank}"):
        train(lora_recipe(tmp_path / "run", rank=rank), dataset=DATASET)
    assert not built and not (tmp_path / "run").exists()


def test_a_rank_is_refused_before_weights_are_loaded(run, built):
    built.clear()
    of_weights = dataclasses.replace(
        lora_recipe("x", rank=8),
        model=ModelConfig(weights=str(run.folder)),
    )
    with pytest.raises(ValueError, match="hidden dimension, 8"):
        make_model(of_weights, tiny.CLASS_NAMES)
    assert not built


def test_a_model_without_blocks_is_refused_first(built):
    of_bit = dataclasses.replace(
        lora_recipe("x"), model=ModelConfig("BiT_R50x1", size="tiny")
    )
    with pytest.raises(ValueError, match="a BiT has none"):
        make_model(of_bit, tiny.CLASS_NAMES)
    assert not built


def test_layers_that_there_are_not_are_named():
    with pytest.raises(ValueError, match="'norm'.*encoder_norm"):
        add_lora(model(), 2, also=["norm"])


def test_weights_of_a_run_are_adapted(run):
    of_weights = dataclasses.replace(
        lora_recipe("x"), model=ModelConfig(weights=str(run.folder))
    )
    network = make_model(of_weights, tiny.CLASS_NAMES)
    old, new = by_path(run.model), by_path(network)
    for path, value in old.items():
        if not path.startswith("predictions"):
            np.testing.assert_array_equal(new[path], value)
    assert count_parameters(network)[0] < count_parameters(network)[1] / 2
