"""The image encoder of SAM gives the tokens of timm, Meta and transformers.

Narrow, of two blocks, with random weights; tokens are compared as well as what
a head makes of their mean.
"""

import functools
import re
import warnings

import keras
import numpy as np
import pytest
from timm_models import built, config_of, write
from timm_stub import import_timm

from keras_vit.checkpoints import load_checkpoint, save_checkpoint
from keras_vit.models import VisionTransformer, ViTConfig

torch = pytest.importorskip("torch")

NAME = "samvit_large_patch16"
WINDOWS = {"window_size": 3, "global_attn_indexes": (1,)}


def images_of(size):
    images = np.random.default_rng(1).uniform(-1, 1, (2, *size, 3))
    images = images.astype("float32")
    return images, torch.tensor(np.moveaxis(images, -1, 1))


def close(found, wanted):
    found = keras.ops.convert_to_numpy(found)
    scale = max(1, np.abs(wanted).max())
    np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-5 * scale)


def in_rows(features):
    """Features (B, K, R, C) of torch as tokens (B, R * C, K)."""
    return features.flatten(2).transpose(1, 2).numpy()


@torch.no_grad()
def check(model, path, size, **options):
    """That the model of a file gives the tokens and outputs of timm."""
    images, theirs = images_of(size)
    options |= {"input_shape": (*size, 3)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*its tensors leave open")
        ours = load_checkpoint(path, **options)
        tokens = load_checkpoint(path, include_top=False, **options)
    close(tokens(images), in_rows(model.forward_features(theirs)))
    close(ours(images), model(theirs).numpy())
    return ours


KINDS = {
    "windows alone": {"global_attn_indexes": ()},
    "no windows": {"window_size": 0},
    "of four patches": {"window_size": 2, "global_attn_indexes": (0,)},
    "rectangle": {"img_size": (48, 80)},
    "larger windows than the image": {"window_size": 7},
    "features": {"num_classes": 0},
    "without biases": {"qkv_bias": False},
    "as it is": {},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("carrier", ["name", "config", "bare"])
def test_outputs_are_those_of_timm(kind, carrier, tmp_path):
    options = {**WINDOWS, **KINDS[kind]}
    model = built(NAME, **options)
    size = model.patch_embed.img_size
    names = {x: options[x] for x in WINDOWS}
    config = config_of(model, NAME, **names) if carrier == "config" else None
    stem = {"name": NAME, "bare": "weights"}.get(carrier, "model")
    path = write(model, tmp_path, stem, config)
    # timm has no such architecture.
    unknown = kind == "without biases" and not config
    given = {"architecture": NAME} if unknown else {}
    ours = check(model, path, size, **given)
    assert ours.config.num_heads == 2
    assert ours.config.layer_norm_epsilon == 1e-5
    assert ours.config.window_size == options["window_size"]
    blocks = tuple(options["global_attn_indexes"])
    if options["window_size"]:
        assert ours.config.global_attention_blocks == blocks


@pytest.mark.parametrize("size", [(96, 96), (32, 80), (64, 48)])
def test_positions_are_resampled_as_timm_does(size, tmp_path):
    """Those of the image and of global blocks; windows stay as large."""
    model = built(NAME, **WINDOWS)
    ours = check(model, write(model, tmp_path, NAME), size)
    assert ours.config.window_size == 3
    report = str(ours.load_report)
    assert "block_1/attention/position_bias/rows: rows 7 ->" in report or (
        size[0] == 64
    )
    assert "block_0/attention/position_bias" not in report


def test_a_model_without_positions_of_the_image(tmp_path):
    model = built(NAME, **WINDOWS, use_abs_pos=False)
    config = config_of(model, NAME, **WINDOWS, use_abs_pos=False)
    check(model, write(model, tmp_path, config=config), (64, 64))


def test_without_a_neck_of_convolutions_it_is_refused(tmp_path):
    name = "samvit_base_patch16_224"
    path = write(built(name), tmp_path, name)
    with pytest.raises(ValueError, match="normalisation with an epsilon of"):
        load_checkpoint(path)


def test_windows_of_two_sizes_are_refused(tmp_path):
    model = built(NAME, **WINDOWS)
    rows = model.blocks[0].attn.rel_pos_h
    model.blocks[0].attn.rel_pos_h = torch.nn.Parameter(rows[:3])
    path = write(model, tmp_path, NAME)
    with pytest.raises(ValueError, match=r"within \[\(2, 3\), \(4, 4\)\]"):
        load_checkpoint(path)


def test_a_config_of_other_windows_is_refused(tmp_path):
    model = built(NAME, **WINDOWS)
    config = config_of(model, NAME, **{**WINDOWS, "window_size": 2})
    with pytest.raises(ValueError, match="window_size=3 by its tensors, but"):
        load_checkpoint(write(model, tmp_path, config=config))
    model = built(NAME, **{**WINDOWS, "window_size": 4})
    config = config_of(model, NAME, **{**WINDOWS, "window_size": 2})
    with pytest.raises(ValueError, match="config tells, 2"):
        load_checkpoint(write(model, tmp_path, config=config))


# From timm's names to Meta's, by timm's `checkpoint_filter_fn`.
META = ((r"^", "image_encoder."), (r"mlp\.fc", "mlp.lin"))


def test_meta_s_own_file_is_the_model_that_timm_makes_of_it(tmp_path):
    """But for its epsilon, which timm does not set."""
    from safetensors.torch import save_file

    timm = import_timm()
    norm = functools.partial(torch.nn.LayerNorm, eps=1e-6)
    model = built(NAME, **WINDOWS, norm_layer=norm, num_classes=0)
    tensors = {}
    for name, tensor in model.state_dict().items():
        for pattern, replacement in META:
            name = re.sub(pattern, replacement, name)
        tensors[name] = tensor.contiguous()
    renamed = timm.models.vision_transformer_sam.checkpoint_filter_fn
    assert set(renamed(tensors, model)) == set(model.state_dict())
    tensors["prompt_encoder.no_mask_embed.weight"] = torch.ones((1, 256))
    tensors["mask_decoder.iou_token.weight"] = torch.ones((1, 256))
    save_file(tensors, tmp_path / "sam_vit_l_0b3195.safetensors")
    images, theirs = images_of((64, 64))
    ours = load_checkpoint(tmp_path / "sam_vit_l_0b3195.safetensors")
    assert ours.config.pooling == "none"
    assert ours.config.layer_norm_epsilon == 1e-6
    with torch.no_grad():
        close(ours(images), in_rows(model.forward_features(theirs)))


VISION = {
    **{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"image_size": 32, "patch_size": 8, "mlp_dim": 64, **WINDOWS},
    "output_channels": 12,
}
DECODER = {"hidden_size": 12, "mlp_dim": 16, "num_attention_heads": 2}


@pytest.mark.parametrize("name", ["SamVisionModel", "SamModel"])
def test_outputs_are_those_of_transformers(name, tmp_path):
    import transformers_models
    from transformers import SamConfig, SamVisionConfig

    config = SamVisionConfig(**VISION)
    if name == "SamModel":
        config = SamConfig(
            vision_config=VISION,
            prompt_encoder_config={"hidden_size": 12, "mask_input_channels": 4},
            mask_decoder_config={**DECODER, "iou_head_hidden_dim": 8},
        )
    model = getattr(transformers_models.transformers, name)(config)
    model = transformers_models.randomized(model)
    folder = transformers_models.written(model, tmp_path)
    images, theirs = images_of((32, 32))
    ours = transformers_models.loaded(folder)
    with torch.no_grad():
        features = model.vision_encoder(theirs).last_hidden_state
    close(ours(images), in_rows(features))
    assert ours.config.global_attention_blocks == (1,)
    # Its own head reads the mean of the tokens.
    ours = load_checkpoint(folder, pooling="mean", classes=3)
    assert ours.output_shape == (None, 3)


def test_what_no_tensor_shows_is_written_beside_them(tmp_path):
    """Of a grid as large as a window, which relative positions do not tell."""
    config = ViTConfig(
        **{"image_size": 24, "patch_size": 8, "hidden_dim": 16, "num_heads": 2},
        **{"num_layers": 3, "mlp_dim": 16, "num_classes": 0, "neck_dim": 6},
        **{"class_token": False, "pooling": "mean", "final_norm": False},
        **{"window_size": 3, "global_attention_blocks": (1,)},
        **{"relative_position_bias": True, "activation": "gelu"},
        relative_position_kind="decomposed",
    )
    path = tmp_path / "sam.safetensors"
    save_checkpoint(VisionTransformer(config), path, format="timm")
    assert load_checkpoint(path).config == config
