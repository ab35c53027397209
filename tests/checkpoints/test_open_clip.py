"""Image towers of open_clip in each of its layouts; see also test_reference."""

import json
import shutil

import numpy as np
import pytest
from reference_cases import FOLDER, TOLERANCE, expected, path_of
from safetensors.numpy import load_file, save_file

from keras_vit.checkpoints import load_checkpoint

NAME = "open_clip_tiny"
OPTIONS = {"activation": "quick_gelu", "num_heads": 2}
WEIGHTS = "open_clip_model.safetensors"
CONFIG = "open_clip_config.json"


def tensors(name=NAME):
    return load_file(path_of(name) / WEIGHTS)


def check(model, name=NAME):
    found = model.predict(expected(name)["image"], verbose=0)
    np.testing.assert_allclose(found, expected(name)["logits"], **TOLERANCE)


def written(path, content):
    save_file(content, path)
    return path


def visual(prefix, rest=()):
    found = {x: y for x, y in tensors().items() if x.startswith("visual.")}
    return {
        **{prefix + x.removeprefix("visual."): y for x, y in found.items()},
        **dict(rest),
    }


# What OpenAI's own state dict has beside the towers.
SIZES = {
    x: np.array(8) for x in ("input_resolution", "context_length", "vocab_size")
}


@pytest.mark.parametrize(
    "content",
    [
        {**tensors(), **SIZES},
        {f"module.{x}": y for x, y in tensors().items()},
        visual("visual."),
        visual(""),
        visual("visual.", {"text.ln_final.bias": np.ones(2, "float32")}),
    ],
    ids=["openai", "module", "visual", "tower alone", "custom text"],
)
def test_the_image_tower_is_that_of_open_clip(content, tmp_path):
    path = written(tmp_path / "x.safetensors", content)
    model = load_checkpoint(path, **OPTIONS)
    check(model)
    assert model.config.pixel_mean[0] == 0.48145466


def test_a_file_alone_does_not_tell_its_activation(tmp_path):
    path = written(tmp_path / "x.safetensors", tensors())
    with pytest.raises(ValueError, match=f"{CONFIG}.*activation="):
        load_checkpoint(path, num_heads=2)


def test_what_is_taken_of_a_file_alone_is_said(tmp_path):
    path = tmp_path / "x.safetensors"
    shutil.copy(path_of(NAME) / WEIGHTS, path)
    taken = "layer_norm_epsilon=1e-05, pooling='token'"
    with pytest.warns(UserWarning, match=f"leave open .* {taken}"):
        load_checkpoint(path, **OPTIONS)


def test_a_tower_without_a_first_norm_does_not_tell_its_pooling(tmp_path):
    content = tensors("open_clip_mean_tiny")
    path = written(tmp_path / "x.safetensors", content)
    with pytest.raises(ValueError, match=f"no ln_pre.*{CONFIG}"):
        load_checkpoint(path, activation="gelu", num_heads=2)


def test_what_its_config_says_of_images_travels_with_it():
    model = load_checkpoint(path_of(NAME))
    known = model.trained_as
    assert known.image_size == (32, 32)
    assert known.preprocessing["evaluation"] == "cover_crop"
    assert known.preprocessing["resize_method"] == "bicubic"
    assert not known.assumed


@pytest.mark.parametrize(
    "change",
    [
        {"attentional_pool": True},
        {"scaled_cosine_attn": True},
        {"pool_type": "none"},
        {"head_width": 3.5},
        {"image_size": 64},
    ],
    ids=str,
)
def test_a_config_with_what_is_not_computed_is_refused(change, tmp_path):
    folder = shutil.copytree(path_of(NAME), tmp_path / "model")
    content = json.loads((folder / CONFIG).read_text())
    content["model_cfg"]["vision_cfg"] |= change
    (folder / CONFIG).write_text(json.dumps(content))
    (field,) = change
    with pytest.raises(ValueError, match=f"{field}|pooling"):
        load_checkpoint(folder)


TIMM = "timm_vit_tiny"
PROJECTION = np.random.default_rng(0).normal(size=(6, 32)).astype("float32")


def trunk(projected):
    """A tower of timm, as TimmModel of open_clip has it inside."""
    content = load_file(FOLDER / "timm_vit_tiny.safetensors")
    kept = {
        f"visual.trunk.{x}": y
        for x, y in content.items()
        if not (projected and x.startswith("head."))
    }
    head = {"visual.head.proj.weight": PROJECTION} if projected else {}
    texts = {
        "text.token_embedding.weight": np.ones((2, 2), "float32"),
        "logit_scale": np.ones((), "float32"),
    }
    return {**kept, **head, **texts}


def timm_folder(path, projected, **vision):
    path.mkdir()
    vision = {"timm_model_name": "vit_tiny_patch16_224", **vision}
    content = {"model_cfg": {"vision_cfg": vision}}
    (path / CONFIG).write_text(json.dumps(content))
    written(path / WEIGHTS, trunk(projected))
    return path


@pytest.mark.parametrize("projected", [False, True])
def test_a_trunk_of_timm(projected, tmp_path):
    vision = {"timm_pool": "", "timm_proj": "linear" if projected else None}
    folder = timm_folder(tmp_path / "model", projected, **vision)
    wanted = expected(TIMM)["logits"]
    if projected:
        wanted = expected(TIMM)["pre_logits"] @ PROJECTION.T
    model = load_checkpoint(folder, num_heads=4, input_shape=(32, 32, 3))
    found = model.predict(expected(TIMM)["image"], verbose=0)
    np.testing.assert_allclose(found, wanted, **TOLERANCE)


def test_a_projection_alone_does_not_tell_the_pooling_before_it(tmp_path):
    path = written(tmp_path / "x.safetensors", trunk(projected=True))
    with pytest.raises(ValueError, match=f"{CONFIG}.*architecture="):
        load_checkpoint(path, num_heads=4)


def test_a_head_of_two_layers_is_refused(tmp_path):
    folder = timm_folder(tmp_path / "model", True, timm_proj="mlp")
    with pytest.raises(ValueError, match="timm_proj='mlp'"):
        load_checkpoint(folder)
