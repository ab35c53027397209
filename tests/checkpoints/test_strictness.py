"""Nothing is loaded in part, and a model that fails to load is as it was."""

import shutil

import keras
import numpy as np
import pytest
from arrays import read_arrays
from reference_cases import expected, load, path_of

from keras_vit.checkpoints import (
    check_weights,
    load_checkpoint,
    load_weights,
    read_info,
    save_checkpoint,
)
from keras_vit.checkpoints.files.npz import write_npz

NAME = "vit_tiny_augreg"
MIXER = "mixer_tiny_google"


def values(model):
    return {
        weight.path: keras.ops.convert_to_numpy(weight).copy()
        for weight in model.weights
    }


def blank():
    """A model that the file fits, with other weights than the file's."""
    model = load(NAME)
    for weight in model.weights:
        weight.assign(np.full(weight.shape, 0.5))
    return model


def write(path, **changes):
    arrays = {**read_arrays(path_of(NAME)), **changes}
    write_npz(path, [(k, x) for k, x in arrays.items() if x is not None])
    return path


def last_bias_is_nan(file):
    bias = np.array(file["head/bias"])
    bias[-1] = np.nan
    return {"head/bias": bias}


FAILURES = {
    "missing": lambda file: {"head/bias": None},
    "unused": lambda file: {"surprise": np.ones(2, "float32")},
    "nan": last_bias_is_nan,
    "shape": lambda file: {"cls": np.ones((1, 1, 47), "float32")},
}


@pytest.mark.parametrize("failure", FAILURES)
def test_model_is_as_it_was_when_loading_fails(failure, tmp_path):
    model = blank()
    before = values(model)
    changes = FAILURES[failure](read_arrays(path_of(NAME)))
    with pytest.raises(ValueError, match="weights.npz"):
        load_weights(model, write(tmp_path / "weights.npz", **changes))
    for path, value in values(model).items():
        np.testing.assert_array_equal(value, before[path], err_msg=path)


def test_model_is_as_it_was_when_a_checksum_is_wrong(tmp_path):
    data = bytearray(path_of(NAME).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "weights.npz").write_bytes(data)
    model = blank()
    before = values(model)
    with pytest.raises(ValueError, match="weights.npz"):
        load_weights(model, tmp_path / "weights.npz")
    for path, value in values(model).items():
        np.testing.assert_array_equal(value, before[path], err_msg=path)


def test_keras_weights_that_do_not_fit_change_nothing(tmp_path):
    load(NAME).save_weights(tmp_path / "ten.weights.h5")
    model = load(NAME, classes=7)
    before = values(model)
    with pytest.raises(ValueError, match="ten.weights.h5"):
        load_weights(model, tmp_path / "ten.weights.h5")
    for path, value in values(model).items():
        np.testing.assert_array_equal(value, before[path], err_msg=path)


def test_error_lists_missing_and_unused_together(tmp_path):
    path = write(
        tmp_path / "weights.npz",
        **{
            "Transformer/encoderblock_1/LayerNorm_0/scale": None,
            "Transformer/encoderblock_1/MlpBlock_3/Dense_1/kernel": None,
            "surprise": np.ones(2, "float32"),
        },
    )
    message = (
        "(?s)Missing in the file: block_1/attention_norm/gamma, "
        "block_1/mlp/dense_1/kernel"
    )
    with pytest.raises(ValueError, match="Unused: surprise"):
        load_checkpoint(path)
    path = write(
        tmp_path / "weights.npz",
        **{
            "Transformer/encoderblock_1/LayerNorm_0/scale": None,
            "Transformer/encoderblock_1/MlpBlock_3/Dense_1/kernel": None,
        },
    )
    with pytest.raises(ValueError, match=message):
        load_checkpoint(path)


@pytest.mark.parametrize("name", ["vit_tiny_google", MIXER])
def test_every_tensor_is_needed(name, tmp_path):
    file = read_arrays(path_of(name))
    for missing in file:
        rest = [(k, x) for k, x in file.items() if k != missing]
        write_npz(tmp_path / "weights.npz", rest)
        with pytest.raises(ValueError, match="weights.npz"):
            load_checkpoint(tmp_path / "weights.npz")


def test_existing_head_of_another_size_stays():
    model = load(NAME, classes=7)
    head = model.get_layer("predictions")
    head.kernel.assign(np.ones((48, 7)))
    load_weights(model, path_of(NAME))
    assert (keras.ops.convert_to_numpy(head.kernel) == 1).all()
    assert "fresh      predictions/kernel" in str(model.load_report)


def test_load_weights_gives_the_files_numbers():
    model = blank()
    load_weights(model, path_of(NAME))
    logits = keras.ops.convert_to_numpy(model(expected(NAME)["image"]))
    np.testing.assert_allclose(
        logits, expected(NAME)["logits"], rtol=0, atol=5e-5
    )


def test_model_that_differs_from_the_files_family_is_told():
    model = load(NAME)
    load_weights(model, path_of("vit_tiny_augreg"))
    assert not model.load_report.notes
    other = load("hf_vit_tiny", activation="gelu_tanh")
    assert "activation='gelu_tanh'" in str(other.load_report)


def test_guess_of_heads_is_told(tmp_path):
    from safetensors.numpy import load_file, save_file

    tensors = load_file(path_of("timm_vit_tiny"))
    wide = {}
    for name, x in tensors.items():
        factors = [4 if size in (32, 96) else 1 for size in x.shape]
        wide[name] = np.tile(x, factors)
    save_file(wide, tmp_path / "wide.safetensors")
    # No published architecture is of this width.
    with pytest.warns(UserWarning, match="taken as num_heads=2, activ"):
        model = load_checkpoint(tmp_path / "wide.safetensors")
    assert model.config.num_heads == 2
    with pytest.raises(ValueError, match="num_heads="):
        load_checkpoint(path_of("timm_vit_tiny"))


@pytest.mark.once
@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("m.keras", {"num_heads": 5}, "has 3 attention heads, but num_heads=5"),
        ("m.keras", {"architecture": "x"}, "is of the format keras. Received"),
        (MIXER, {"num_heads": 3}, "has no attention heads, but num_heads=3"),
        (MIXER, {"architecture": "x"}, "is of the format mixer. Received"),
        (
            "timm_mixer_tiny",
            {"architecture": "deit_tiny_patch16_224.fb_in1k"},
            "holds a Mixer, but 'deit_tiny_patch16_224.fb_in1k' is a Vision",
        ),
    ],
)
@pytest.mark.parametrize("read", [load_checkpoint, read_info])
def test_what_a_file_shows_itself_is_not_overridden(
    read, name, options, message, tmp_path
):
    if name == "m.keras":
        path = tmp_path / name
        load(NAME).save(path)
    else:
        path = path_of(name)
    with pytest.raises(ValueError, match=message):
        read(path, **options)


@pytest.mark.once
def test_a_config_with_the_architecture_of_another_publisher(tmp_path):
    save_checkpoint(load(NAME), tmp_path, format="hugging_face")
    text = '{"architecture": "vit_tiny_patch16_224"}'
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(
        ValueError, match=r"hugging_face.*Its config.json is of"
    ):
        load_checkpoint(tmp_path)


@pytest.mark.once
def test_a_config_with_the_architecture_of_another_family(tmp_path):
    shutil.copy(path_of("timm_mixer_tiny"), tmp_path / "model.safetensors")
    text = '{"architecture": "vit_tiny_patch16_224"}'
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match="holds a Mixer, but 'vit_tiny_patch"):
        load_checkpoint(tmp_path)


@pytest.mark.once
def test_a_head_of_the_file_starts_nowhere_else():
    message = "has that layer. Received: head_bias=-3.0. Leave it out"
    with pytest.raises(ValueError, match=message):
        load(NAME, head_bias=-3.0)
    model = load(NAME, classes=7, head_bias=-3.0)
    bias = keras.ops.convert_to_numpy(model.get_layer("predictions").bias)
    np.testing.assert_array_equal(bias, np.full(7, -3.0))


@pytest.mark.once
def test_info_is_of_the_file_alone(tmp_path):
    path = path_of(NAME)
    fields = read_info(path, num_classes=10, pooling="mean").fields
    assert (fields["num_classes"], fields["pooling"]) == (10, "mean")
    with pytest.raises(ValueError, match="has num_classes=10, but num_cl"):
        read_info(path, num_classes=7)
    load(NAME).save(tmp_path / "model.keras")
    message = "has activation='gelu_tanh', but activation='relu' is given"
    with pytest.raises(ValueError, match=message):
        read_info(tmp_path / "model.keras", activation="relu")


def test_info_reads_no_arrays():
    info = read_info(path_of("vit_tiny_google"))
    assert info.format == "google"
    assert info.fields["representation_dim"] == 24
    file = read_arrays(path_of("vit_tiny_google"))
    assert info.num_parameters == sum(x.size for x in file.values())


def test_check_weights_offers_close_names():
    check_weights(None)
    check_weights(path_of(NAME))
    with pytest.raises(ValueError, match="Did you mean vit_tiny_augreg.npz"):
        check_weights(path_of(NAME).with_name("vit_tiny_augregg.npz"))
    with pytest.raises(ValueError, match="weights=3 of type int"):
        check_weights(3)


def test_keras_file_is_loaded_with_surgery(tmp_path):
    load(NAME).save(tmp_path / "model.keras")
    model = load_checkpoint(tmp_path / "model.keras")
    image = expected(NAME)["image"]
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(model(image)),
        expected(NAME)["logits"],
        rtol=0,
        atol=5e-5,
    )
    changed = load_checkpoint(
        tmp_path / "model.keras", classes=3, input_shape=(48, 48, 3)
    )
    assert changed.output_shape == (None, 3)
    assert "position_embedding/embedding" in changed.load_report.resampled
