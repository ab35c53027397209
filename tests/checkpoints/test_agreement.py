"""What a name or config says of a model is what its tensors show, or refused.

timm builds each model otherwise than its architecture says; its files must
give its numbers, or be refused, whoever tells the architecture.
"""

import json
import re
import shutil

import keras
import numpy as np
import pytest
from reference_cases import path_of
from timm_models import SIZES, built, size_of, write

from keras_vit.checkpoints import load_checkpoint

pytest.importorskip("torch")

# Name of timm -> how a model is built otherwise; sizes are not compared.
CHANGED = {
    "gates": ("vit_base_patch16_rope_224", {"swiglu_mlp": True}),
    "no_gates": ("eva02_base_patch14_224", {"swiglu_mlp": False}),
    "no_gates_dinov3": (
        "vit_small_plus_patch16_dinov3",
        {"swiglu_mlp": False, "swiglu_align_to": None},
    ),
    "gates_of_beit": ("beit_base_patch16_224", {"swiglu_mlp": True}),
    "mean": ("vit_base_patch16_224", {"global_pool": "avg"}),
    "mean_of_clip": ("vit_base_patch16_clip_224", {"global_pool": "avg"}),
    "mean_of_dinov2": ("vit_base_patch14_dinov2", {"global_pool": "avg"}),
    "mean_of_cait": ("cait_xxs24_224", {"global_pool": "avg"}),
    "mean_of_siglip": ("vit_base_patch16_siglip_224", {"global_pool": "avg"}),
    "token_of_beit": ("beit_base_patch16_224", {"global_pool": "token"}),
    "token_of_eva": ("eva02_base_patch14_224", {"global_pool": "token"}),
    "no_class_token": (
        "vit_base_patch16_224",
        {"class_token": False, "global_pool": "avg"},
    ),
    "no_late_norm": (
        "vit_base_patch16_224",
        {"global_pool": "avg", "fc_norm": False},
    ),
    "late_norm": ("vit_base_patch16_224", {"fc_norm": True}),
    "no_final_norm": ("vit_base_patch16_224", {"final_norm": False}),
    "registers": ("vit_base_patch16_224", {"reg_tokens": 3}),
    "no_relative_positions": ("samvit_base_patch16", {"use_rel_pos": False}),
    "windows": (
        "samvit_base_patch16",
        {"window_size": 3, "global_attn_indexes": [0]},
    ),
    "inner_norms": ("vit_base_patch16_224", {"qk_norm": True}),
}
# Those that tensors show, and that the name of the architecture leaves to them.
SHOWN = {"registers", "inner_norms"}
# Those that leave no trace in the tensors.
HIDDEN = {"mean_of_cait", "no_late_norm"}


@pytest.fixture(scope="module", params=CHANGED)
def changed(request):
    name, options = CHANGED[request.param]
    small = {"neck_chans": 32} if "samvit" in name else {}
    if "patch14" in name:
        small["img_size"] = 56
    return request.param, name, built(name, **{**small, **options}), options


def config_of(model, name, options):
    """What timm's own `save_config_for_hf` writes of it, in its words."""
    size = list(size_of(model))
    return {
        "architecture": name,
        "num_classes": model.num_classes,
        "global_pool": getattr(model, "global_pool", "avg"),
        "model_args": {**SIZES, "img_size": size, **options},
    }


def equals(model, path, **options):
    """Compare with timm's own numbers; False where the file is refused."""
    import torch

    shape = 2, *size_of(model), 3
    images = np.random.default_rng(1).uniform(-1, 1, shape).astype("float32")
    with torch.no_grad():
        wanted = model(torch.tensor(np.moveaxis(images, -1, 1))).numpy()
    try:
        ours = load_checkpoint(path, **options)
    except ValueError as error:
        assert path.name in str(error) or path.parent.name in str(error)
        return False
    found = keras.ops.convert_to_numpy(ours(images))
    scale = max(1, np.abs(wanted).max())
    np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-5 * scale)
    return True


def test_a_config_tells_how_timm_built_it(changed, tmp_path):
    _, name, model, options = changed
    folder = write(model, tmp_path, config=config_of(model, name, options))
    assert equals(model, folder)


def test_a_config_that_leaves_it_out_is_completed_or_refused(changed, tmp_path):
    kind, name, model, _ = changed
    if kind in HIDDEN:
        pytest.skip("Only its config tells how it was built.")
    config = config_of(model, name, {})
    del config["global_pool"]
    folder = write(model, tmp_path, config=config)
    assert equals(model, folder) or kind not in SHOWN


def test_an_architecture_of_other_tensors_is_refused(changed, tmp_path):
    kind, name, model, _ = changed
    if kind in HIDDEN:
        pytest.skip("Only its config tells how it was built.")
    path = write(model, tmp_path, "weights")
    size = (*size_of(model), 3)
    told = {"architecture": name, "num_heads": 2, "input_shape": size}
    assert equals(model, path, **told) or kind not in SHOWN


def test_a_config_that_says_the_opposite_is_refused(tmp_path):
    name, options = CHANGED["mean"]
    model = built(name, **options)
    config = config_of(model, name, {"global_pool": "token"})
    folder = write(model, tmp_path, config=config)
    with pytest.raises(ValueError, match="has fc_norm.* global_pool='token'"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("depth", 10**9, "num_layers=1000000000"),
        ("depth", 3, "num_layers=2 by its tensors, but num_layers=3"),
        ("embed_dim", 64, "hidden_dim=128 by its tensors, but hidden_dim=64"),
        ("patch_size", 0, "patch_size=0"),
        ("patch_size", 8, "patch_size="),
        ("in_chans", 1, "channels=3 by its tensors, but channels=1"),
        ("reg_tokens", 4, "register_tokens=0 by its tensors, but"),
        ("num_heads", 7, "num_heads=7"),
        ("img_size", [-64, 64], "image_size=-64"),
    ],
)
def test_sizes_of_a_config_that_the_tensors_have_not(
    argument, value, message, tmp_path
):
    name = "vit_base_patch16_224"
    model = built(name)
    config = config_of(model, name, {argument: value})
    folder = write(model, tmp_path, config=config)
    with pytest.raises(ValueError, match=message):
        load_checkpoint(folder)


def test_what_tensors_leave_open_is_said(tmp_path):
    model = built("vit_tiny_patch16_224", embed_dim=192)
    path = write(model, tmp_path, "weights")
    taken = (
        "its tensors leave open what is taken as num_heads=3, "
        "activation='gelu', layer_norm_epsilon=1e-06, pooling='token'"
    )
    with pytest.warns(UserWarning, match=taken):
        ours = load_checkpoint(path)
    assert ours.config.num_heads == 3
    told = {"num_heads": 2, "activation": "gelu", "pooling": "token"}
    with pytest.warns(UserWarning) as said:
        assert equals(model, path, layer_norm_epsilon=1e-6, **told)
    assert any("taken as 4x4 patches" in str(x.message) for x in said)
    assert not any("num_heads=2" in str(x.message) for x in said)


def test_which_of_several_grids_was_taken_is_said(tmp_path):
    model = built("vit_base_patch16_224", img_size=(32, 128))
    path = write(model, tmp_path, "weights")
    told = {"architecture": "vit_base_patch16_224", "num_heads": 2}
    with pytest.warns(UserWarning, match="taken as 4x4 patches of .16, 16."):
        load_checkpoint(path, input_shape=(64, 64, 3), **told)
    with pytest.raises(ValueError, match="4x4 patches .* or 2x8 patches"):
        load_checkpoint(path, input_shape=(32, 128, 3), **told)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("eva02_base_patch14_224", {"img_size": 56, "qkv_fused": True}),
        ("vit_base_patch16_224", {"class_token": False, "global_pool": "max"}),
        ("vit_base_patch16_224", {"qk_norm": True, "init_values": 1e-5}),
    ],
)
def test_tensors_of_no_published_architecture_are_refused(
    name, options, tmp_path
):
    path = write(built(name, **options), tmp_path, "weights")
    with pytest.raises(ValueError, match="that no published architecture has"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("case", "field", "value", "message"),
    [
        ("hf_vit_tiny", "patch_size", 0, "patch_size=0"),
        ("hf_vit_tiny", "patch_size", 16, "patch_size=(8, 8) by its tensors"),
        ("hf_vit_tiny", "num_channels", 1, "channels=3 by its tensors, but"),
        ("hf_vit_tiny", "num_hidden_layers", 10**9, "num_layers=1000000000"),
        ("hf_vit_tiny", "hidden_size", 48, "hidden_dim=32 by its tensors"),
        ("hf_vit_tiny", "qkv_bias", "yes", "qkv_bias='yes'"),
    ],
)
def test_a_config_of_transformers_of_another_model(
    case, field, value, message, tmp_path
):
    folder = shutil.copytree(path_of(case), tmp_path / "folder")
    config = json.loads((folder / "config.json").read_text())
    config[field] = value
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=re.escape(message)):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [("use_rel_pos", False), ("use_abs_pos", False)],
)
def test_positions_that_a_config_of_transformers_denies(field, value, tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "mlp_dim": 64}
    config = transformers.SamVisionConfig(
        **sizes,
        num_attention_heads=2,
        image_size=64,
        output_channels=32,
        window_size=2,
        global_attn_indexes=[1],
    )
    transformers.SamVisionModel(config).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    content = {**json.loads(path.read_text()), field: value}
    assert load_checkpoint(tmp_path).config.window_size == 2
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"has {field}=false, but the tensors"):
        load_checkpoint(tmp_path)
