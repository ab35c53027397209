"""What is written is read by the code of others, with the same numbers."""

import numpy as np
import numpy_forward
import pytest
from arrays import read_arrays
from exported import arrays, format_of, saved
from reference_cases import CASES, TOLERANCE, expected, load, path_of

from keras_vit.checkpoints import load_checkpoint, save_checkpoint
from keras_vit.training.run import files as run_folder

pytestmark = pytest.mark.filterwarnings("ignore")

READ_ALONE = (
    *("hf_dinov2", "hf_dinov3", "hf_aimv2", "hf_beit", "hf_clip", "hf_siglip"),
    *("hf_tipsv2", "hf_sam", "hub_", "open_clip"),
)
# Files that other names or layouts are also right for, and that are only read.
OTHER_LAYOUT = (
    *("linen", "root_only", "scan", "gammas", *READ_ALONE),
    # Separate projections are written as one; of these rows are stacked.
    *("eva02", "aimv2", "rope_mixed", "naflex"),
    # Of two biases that are added up one is written, and zeros.
    "tiny_parallel",
    "patch_stem",  # positions of a class token, which are zero
)


@pytest.mark.parametrize(
    "name", [x for x in CASES if not any(y in x for y in OTHER_LAYOUT)]
)
def test_file_is_written_as_it_was_read(name, tmp_path):
    before = arrays(path_of(name))
    after = arrays(saved(load(name), tmp_path, format_of(name)))
    before = {key.removeprefix("params/"): x for key, x in before.items()}
    assert set(after) == set(before)
    for key, value in before.items():
        np.testing.assert_array_equal(after[key], value, err_msg=key)


NUMPY = {
    "google": numpy_forward.vit,
    "mixer": numpy_forward.mixer,
    "bit": numpy_forward.bit,
}


@pytest.mark.parametrize("name", [x for x in CASES if format_of(x) in NUMPY])
def test_numpy_forward_reads_what_is_written(name, tmp_path):
    format = format_of(name)
    path = saved(load(name), tmp_path, format)
    options = {}
    if CASES[name].get("classifier") == "gap":
        options["pooling"] = "gap"
    found = NUMPY[format](read_arrays(path), expected(name)["image"], **options)
    np.testing.assert_allclose(
        found["logits"], expected(name)["logits"], **TOLERANCE
    )


@pytest.mark.parametrize("name", ["vit_tiny_augreg", "vit_tiny_gap"])
def test_numpy_forward_reads_google_weights_in_big_vision_layout(
    name, tmp_path
):
    file = read_arrays(saved(load(name), tmp_path, "big_vision"))
    position = file.pop("pos_embedding")
    token = "cls" in file
    file["Transformer/posembed_input/pos_embedding"] = np.pad(
        position, [(0, 0), (int(token), 0), (0, 0)]
    )
    found = numpy_forward.vit(
        file, expected(name)["image"], "token" if token else "gap"
    )
    np.testing.assert_allclose(
        found["logits"], expected(name)["logits"], **TOLERANCE
    )


@pytest.mark.parametrize(
    ("name", "format", "reason"),
    [
        ("hf_vit_tiny", "google", "activation='gelu_tanh'.*'timm'"),
        ("vit_tiny_google", "timm", "no place for pre_logits.*'google'"),
        ("timm_vit_tiny_gap", "hugging_face", "norm_after_pooling"),
        ("hybrid_tiny_google", "timm", "standardization"),
        (
            "timm_vit_tiny_inner_norms",
            "hugging_face",
            "no place for .*attention_inner_norm.*'timm'",
        ),
        ("mixer_tiny_google", "bit", "other families"),
        ("mixer_tiny_google", "gogle", "Unknown format"),
    ],
)
def test_format_that_cannot_hold_the_model(name, format, reason, tmp_path):
    with pytest.raises(ValueError, match=f"(?s){reason}"):
        save_checkpoint(load(name), tmp_path / "file", format=format)
    assert not list(tmp_path.iterdir())


def test_the_model_of_a_run_is_written_as_what_it_started_from(tmp_path):
    model = load("vit_tiny_google")
    path = tmp_path / "model.keras"
    names = [str(number) for number in range(model.output_shape[-1])]
    run_folder.save_model(model, names, path)
    before = arrays(path_of("vit_tiny_google"))
    after = arrays(saved(load_checkpoint(path), tmp_path, "google"))
    assert set(after) == set(before)
    for key, value in before.items():
        np.testing.assert_array_equal(after[key], value, err_msg=key)


@pytest.mark.parametrize("pixels", [None, ((0.5, 0.4, 0.3), (0.2, 0.3, 0.1))])
def test_the_scale_of_pixels_comes_back(pixels, tmp_path):
    mean, std = pixels or (None, None)
    options = {"pixel_mean": mean, "pixel_std": std}
    model = load("timm_vit_tiny", include_preprocessing=True, **options)
    path = saved(model, tmp_path, "timm")
    again = load_checkpoint(path, include_preprocessing=True)
    assert again.config == model.config
