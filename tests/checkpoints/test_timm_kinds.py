"""timm's Vision Transformers give their outputs here, or are refused.

Each is built by timm itself, narrow and of two blocks, with random weights.
The activation, the epsilon, the heads and the pooling are in no tensor.
"""

import warnings

import keras
import numpy as np
import pytest
from timm_models import (
    SIZES,
    built,
    built_mixer,
    config_of,
    randomised,
    size_of,
    write,
)
from timm_stub import import_timm

from keras_vit.checkpoints import load_checkpoint, read_info
from keras_vit.checkpoints.dialects import timm as timm_dialect

pytest.importorskip("torch")

KINDS = {
    "plain": ("vit_base_patch16_224", {}),
    "no_qkv_bias": ("vit_base_patch16_224_miil", {}),
    "clip": ("vit_base_patch16_clip_224", {}),
    "clip_quickgelu": ("vit_base_patch16_clip_quickgelu_224", {}),
    "dinov2": ("vit_base_patch14_dinov2", {"img_size": 56}),
    "dinov2_registers": ("vit_base_patch14_reg4_dinov2", {"img_size": 56}),
    "deit3": ("deit3_base_patch16_224", {}),
    "siglip": ("vit_base_patch16_siglip_224", {}),
    "siglip_tanh": ("vit_base_patch32_siglip_256", {"img_size": 96}),
    "siglip_gap_tanh": ("vit_large_patch16_siglip_gap_512", {}),
    "registers_gap": ("vit_medium_patch16_reg4_gap_256", {}),
    "registers_gap_bias": ("vit_so150m2_patch16_reg1_gap_256", {}),
    "registers_map": ("vit_so150m_patch16_reg4_map_256", {}),
    "layer_scale_gap": ("vit_medium_patch16_gap_240", {}),
    "distilled": ("deit_base_distilled_patch16_224", {}),
    "distilled_features": (
        "deit_base_distilled_patch16_224",
        {"num_classes": 0},
    ),
    "norm_after_pooling": ("eva_large_patch14_196", {"img_size": 56}),
    "rectangle": ("vit_base_patch16_224", {"img_size": (32, 80)}),
    "no_final_norm": ("vit_base_patch16_radio_v3", {}),
    "post_norm": ("vit_base_patch16_rpn_224", {}),
    "swiglu": ("vit_giant_patch14_dinov2", {"img_size": 56}),
    "aimv2": ("aimv2_large_patch14_224", {"img_size": 56}),
    "inner_norms": ("beit3_base_patch16_224", {}),
    "beit": ("beit_base_patch16_224", {}),
    "relpos": ("vit_relpos_medium_patch16_224", {"img_size": 224}),
    "relpos_token": ("vit_relpos_medium_patch16_cls_224", {"img_size": 224}),
    "relpos_mean": ("vit_relpos_base_patch16_clsgap_224", {"img_size": 224}),
    "relpos_post_norm": (
        "vit_relpos_base_patch32_plus_rpn_256",
        {"img_size": 256},
    ),
    "relpos_shared": ("vit_srelpos_small_patch16_224", {"img_size": 224}),
    "relpos_rectangle": (
        "vit_relpos_small_patch16_224",
        {"img_size": (32, 80)},
    ),
    "eva": ("eva_giant_patch14_224", {"img_size": 56}),
    "eva_post_norm": ("eva02_enormous_patch14_clip_224", {"img_size": 56}),
    "eva02": ("eva02_base_patch14_224", {"img_size": 56}),
    "eva02_packed": ("eva02_small_patch14_224", {"img_size": 56}),
    "eva02_clip": ("eva02_base_patch16_clip_224", {}),
    "dinov3": ("vit_base_patch16_dinov3", {"img_size": 256}),
    "dinov3_bias": ("vit_base_patch16_dinov3_qkvb", {"img_size": 256}),
    "dinov3_gated": ("vit_small_plus_patch16_dinov3", {"img_size": 256}),
    "perception": ("vit_pe_core_base_patch16_224", {}),
    "perception_spatial": (
        "vit_pe_spatial_gigantic_patch14_448",
        {"img_size": 56},
    ),
    "rope": ("vit_base_patch16_rope_224", {"img_size": 224}),
    "rope_and_positions": ("vit_base_patch16_rope_ape_224", {}),
    "rope_mixed": ("vit_base_patch16_rope_mixed_ape_224", {}),
    "cait": ("cait_xxs24_224", {}),
    "grouped_queries": (
        "vit_large_patch16_sapiens2",
        {"img_size": (64, 48), "num_kv_heads": (2, 1)},
    ),
    "differential": ("vit_dwee_patch16_reg1_gap_256", {}),
    "parallel": ("vit_pwee_patch16_reg1_gap_256", {}),
    "parallel_differential": ("vit_dpwee_patch16_reg1_gap_256", {}),
    "rope_registers": (
        "vit_medium_patch16_rope_reg1_gap_256",
        {"img_size": 256},
    ),
}


def compare(model, path, **options):
    import torch

    height, width = size_of(model)
    images = np.random.default_rng(1).uniform(-1, 1, (2, height, width, 3))
    images = images.astype("float32")
    with torch.no_grad():
        wanted = model(torch.tensor(np.moveaxis(images, -1, 1))).numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*its tensors leave open")
        ours = load_checkpoint(path, **options)
    found = keras.ops.convert_to_numpy(ours(images))
    scale = max(1, np.abs(wanted).max())
    np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-5 * scale)
    return ours


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    name, options = KINDS[request.param]
    return name, built(name, **options)


def test_the_name_of_the_file_tells_the_architecture(kind, tmp_path):
    name, model = kind
    path = write(model, tmp_path, f"{name}.tag_in1k")
    # The heads of the name are those of its own width.
    size = (*model.patch_embed.img_size, 3)
    square = size[0] == size[1]
    options = {} if square else {"input_shape": size}
    compare(model, path, num_heads=2, **options)


def test_the_config_beside_the_file_tells_the_architecture(kind, tmp_path):
    name, model = kind
    folder = write(model, tmp_path, config=config_of(model, name))
    compare(model, folder)


AMBIGUOUS = {
    "clip": "does not tell its activation, which is 'gelu' or 'quick_gelu'",
    "siglip": "does not tell its activation, which is 'gelu' or 'gelu_tanh'",
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_what_tensors_leave_open_is_an_error(name, tmp_path):
    architecture, options = KINDS[name]
    model = built(architecture, **options)
    path = write(model, tmp_path, "weights")
    with pytest.raises(ValueError, match=AMBIGUOUS[name]):
        load_checkpoint(path, num_heads=2)
    compare(model, path, num_heads=2, activation="gelu")
    compare(model, path, num_heads=2, architecture=architecture)


def test_a_bare_file_gives_the_output_of_timm_or_is_refused(kind, tmp_path):
    """Many of these have the tensors of another kind."""
    name, model = kind
    path = write(model, tmp_path, "weights")
    size = (*model.patch_embed.img_size, 3)
    try:
        compare(model, path, num_heads=2, input_shape=size)
    except ValueError as error:
        assert "fetch the file again" not in str(error)
        assert "architecture=" in str(error)


@pytest.mark.parametrize(
    "name",
    [
        "vit_small_patch16_18x2_224",
    ],
)
@pytest.mark.parametrize("carrier", ["name", "config", "bare"])
def test_what_is_computed_otherwise_is_refused(name, carrier, tmp_path):
    model = built(name)
    config = config_of(model, name) if carrier == "config" else None
    stem = {"name": name, "bare": "weights"}.get(carrier, "model")
    path = write(model, tmp_path, stem, config)
    with pytest.raises(ValueError):
        load_checkpoint(path, num_heads=2)


def test_arguments_of_timm_that_are_not_honoured_are_named(tmp_path):
    name, _ = KINDS["plain"]
    model = built(name)
    config = config_of(model, name, norm_layer="rmsnorm", block_fn="x")
    folder = write(model, tmp_path, config=config)
    with pytest.raises(ValueError, match="with block_fn, norm_layer, which"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architecture": "vit_bass_patch16_224"}, "'vit_base_patch16_224'"),
        ({"global_pool": "avgmax"}, "global_pool='avgmax'"),
        ({"model_args": {**SIZES, "act_layer": "mish"}}, "activation 'mish'"),
        ({"model_args": [1]}, "no dictionary"),
        ({"model_args": {**SIZES, "num_heads": 4.5}}, "num_heads=4.5"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(tmp_path, change, message):
    name, _ = KINDS["plain"]
    model = built(name)
    config = {**config_of(model, name), **change}
    folder = write(model, tmp_path, config=config)
    with pytest.raises(ValueError, match=message):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("act_layer", "global_pool"),
    [("quick_gelu", "token"), ("gelu_tanh", "avg"), ("relu", "max")],
)
def test_options_of_the_config_are_honoured(tmp_path, act_layer, global_pool):
    name, _ = KINDS["plain"]
    options = {"act_layer": act_layer, "global_pool": global_pool}
    model = built(name, **options, fc_norm=False)
    config = config_of(model, name, **options, fc_norm=False)
    compare(model, write(model, tmp_path, config=config))


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.mark.parametrize("channels", [3, 1])
def test_pixels_are_scaled_as_the_config_says(tmp_path, channels):
    name, _ = KINDS["plain"]
    model = built(name)
    config = config_of(model, name)
    config["pretrained_cfg"] |= {"mean": MEAN, "std": STD}
    folder = write(model, tmp_path, config=config)
    shape = (64, 64, channels)
    ours = load_checkpoint(
        folder, include_preprocessing=True, input_shape=shape
    )
    pixels = np.random.default_rng(2).integers(0, 256, (1, *shape))
    pixels = pixels.astype("float32")
    mean, std = (np.array(MEAN), np.array(STD))
    if channels == 1:
        mean, std = mean.mean(), std.mean()
    plain = load_checkpoint(folder, input_shape=shape)
    wanted = plain(((pixels / 255 - mean) / std).astype("float32"))
    np.testing.assert_allclose(
        *map(keras.ops.convert_to_numpy, (ours(pixels), wanted)),
        rtol=0,
        atol=1e-4,
    )
    again = type(ours).from_config(ours.get_config())
    assert again.config == ours.config


def test_pixels_of_the_architecture_where_all_its_weights_agree(tmp_path):
    name, options = KINDS["dinov2"]
    path = write(built(name, **options), tmp_path, name)
    model = load_checkpoint(path, num_heads=2, include_preprocessing=True)
    assert model.config.pixel_mean == MEAN
    assert model.config.pixel_std == STD
    # Of this one there are weights of both kinds.
    path = write(built("vit_base_patch16_224"), tmp_path, "weights")
    with pytest.warns(UserWarning, match="does not tell how pixels are"):
        load_checkpoint(path, num_heads=2, include_preprocessing=True)


@pytest.mark.parametrize("size", [(48, 80), (256, 64)])
def test_two_grids_that_fit_are_an_error_that_names_both(tmp_path, size):
    """3x5 patches and a class token are as many as 4x4 patches."""
    name, _ = KINDS["plain"]
    model = built(name, img_size=size)
    path = write(model, tmp_path, "weights")
    grid = f"{size[0] // 16}x{size[1] // 16} patches with positions"
    with pytest.raises(ValueError, match=f"can be .*{grid}"):
        load_checkpoint(path, num_heads=2, input_shape=(*size, 3))
    folder = write(model, tmp_path, config=config_of(model, name))
    compare(model, folder)


def test_an_unknown_architecture_is_an_error_with_the_nearest(tmp_path):
    path = write(built("vit_base_patch16_224"), tmp_path, "weights")
    with pytest.raises(ValueError, match="mean 'vit_base_patch16_clip_224'"):
        load_checkpoint(path, architecture="vit_base_patch16_klip_224")


def test_the_table_is_what_timm_has():
    timm = import_timm()
    published = {x.partition(".")[0] for x in timm.list_pretrained()}
    known = timm_dialect.architectures()
    assert len(known) > 250
    assert {x for x in known if known[x].is_published} == published & set(known)
    assert set(known) <= set(timm.list_models())


def test_info_of_a_folder_names_what_it_holds(tmp_path):
    name, options = KINDS["dinov2_registers"]
    model = built(name, **options)
    info = read_info(write(model, tmp_path, config=config_of(model, name)))
    assert info.fields["register_tokens"] == 4
    assert info.fields["pooling"] == "token"


@pytest.mark.parametrize(
    ("left_out", "field"),
    [("norm.weight norm.bias", "final_norm"), ("norm1.bias", "normalization")],
)
def test_a_file_without_a_norm_is_not_taken_for_one_that_has_none(
    tmp_path, left_out, field
):
    from safetensors.torch import save_file

    name, options = KINDS["plain"]
    model = built(name, **options)
    tensors = {k: x.contiguous() for k, x in model.state_dict().items()}
    kept = {
        key: tensor
        for key, tensor in tensors.items()
        if not key.endswith(("norm1.bias", "norm2.bias"))
        and field == "normalization"
        or key not in left_out.split()
        and field == "final_norm"
    }
    path = tmp_path / "weights.safetensors"
    save_file(kept, path)
    for extra in ({}, {"architecture": name}):
        with pytest.raises(ValueError, match=f"give {field}="):
            load_checkpoint(path, num_heads=2, **extra)


@pytest.mark.parametrize("size", [(64, 64), (32, 96)])
def test_mobileclip_has_convolutions_before_its_patches(size, tmp_path):
    name = "vit_base_mci_224"
    wide = {"embed_dim": None, "num_heads": None}
    model = built(name, img_size=size, **wide)
    config = {
        "architecture": name,
        "num_classes": model.num_classes,
        "model_args": {"img_size": list(size), "depth": 2},
    }
    ours = compare(model, write(model, tmp_path, config=config))
    assert ours.config.patch_stem == (4, 2)
    assert ours.config.pixel_mean == (0, 0, 0)
    named = write(model, tmp_path, f"{name}.apple_mclip")
    compare(model, named, input_shape=(*size, 3))


RESNETS = {
    "resnetv2_18": (65, 47),
    "resnetv2_18d": (54, 39),
    "resnetv2_50": (33, 64),
    "resnetv2_50t": (50, 39),
    "resnetv2_50d_gn": (64, 64),
    "resnetv2_50d_evos": (50, 39),
}


@pytest.mark.parametrize("name", RESNETS)
def test_resnets_of_other_normalisations(name, tmp_path):
    import torch

    made = import_timm().create_model(name, pretrained=False, num_classes=7)
    model = randomised(made)
    images = np.random.default_rng(1).uniform(-1, 1, (2, *RESNETS[name], 3))
    images = images.astype("float32")
    with torch.no_grad():
        wanted = model(torch.tensor(np.moveaxis(images, -1, 1))).numpy()
    ours = load_checkpoint(write(model, tmp_path, "weights"))
    found = keras.ops.convert_to_numpy(ours(images))
    scale = max(1, np.abs(wanted).max())
    np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-5 * scale)


def test_a_resnet_without_a_last_normalisation_is_refused(tmp_path):
    """As timm's backbones of hybrids have none, which compute otherwise."""
    from safetensors.torch import save_file

    model = import_timm().create_model("resnetv2_18", pretrained=False)
    tensors = model.state_dict()
    kept = {x: y for x, y in tensors.items() if not x.startswith("norm.")}
    save_file(kept, tmp_path / "weights.safetensors")
    with pytest.raises(ValueError, match="encoder_norm"):
        load_checkpoint(tmp_path / "weights.safetensors")


MIXERS = ("mixer_s32_224", "gmixer_12_224", "gmlp_ti16_224", "resmlp_12_224")


@pytest.mark.parametrize("name", MIXERS)
def test_mixers_of_other_kinds(name, tmp_path):
    model = built_mixer(name)
    compare(model, write(model, tmp_path, f"{name}.tag_in1k"))
    config = config_of(model, name, num_blocks=2)
    compare(model, write(model, tmp_path, config=config))
    path = write(model, tmp_path, "weights")
    if name != "gmixer_12_224":
        compare(model, path)
        return
    with pytest.raises(ValueError, match="gated MLPs and does not tell their"):
        load_checkpoint(path)
    compare(model, path, activation="silu")


RELATIVE = [
    *({"rel_pos_type": x} for x in ("bias", "mlp", "mlp_swin")),
    *(
        {"rel_pos_type": x, "shared_rel_pos": True, "rel_pos_dim": 16}
        for x in ("bias", "mlp", "mlp_swin")
    ),
]


@pytest.mark.parametrize("token", [{}, {"class_token": True, "fc_norm": True}])
@pytest.mark.parametrize("options", RELATIVE)
def test_relative_positions_of_the_config(options, token, tmp_path):
    name = "vit_relpos_base_patch16_224"
    arguments = {**options, **token, "qkv_bias": True, "qk_norm": True}
    model = built(name, img_size=(48, 80), **arguments)
    config = config_of(model, name, **arguments)
    compare(model, write(model, tmp_path, config=config))


@pytest.mark.filterwarnings(  # both in timm
    "ignore:Using a non-tuple sequence", "ignore:torch.searchsorted"
)
@pytest.mark.parametrize("size", [(96, 96), (32, 80)])
@pytest.mark.parametrize("options", RELATIVE)
def test_relative_positions_at_another_image_size(options, size, tmp_path):
    name = "vit_relpos_base_patch16_cls_224"
    model = built(name, **options)
    config = config_of(model, name, **options)
    folder = write(model, tmp_path, config=config)
    model.set_input_size(size)
    compare(model, folder, input_shape=(*size, 3))


def test_positions_of_cait_have_no_class_token_at_another_size(tmp_path):
    import torch

    timm = import_timm()
    name, size = KINDS["cait"][0], (48, 96)
    path = write(built(name), tmp_path, name)
    larger = built(name, img_size=size)
    small = built(name).state_dict()
    small["pos_embed"] = timm.layers.resample_abs_pos_embed(
        small["pos_embed"], new_size=[3, 6], num_prefix_tokens=0
    )
    larger.load_state_dict(small)
    images = np.random.default_rng(1).uniform(-1, 1, (2, *size, 3))
    images = images.astype("float32")
    with torch.no_grad():
        wanted = larger(torch.tensor(np.moveaxis(images, -1, 1))).numpy()
    ours = load_checkpoint(path, input_shape=(*size, 3))
    assert ours.config.num_heads == 2  # As its tensors tell.
    found = keras.ops.convert_to_numpy(ours(images))
    scale = max(1, np.abs(wanted).max())
    np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-5 * scale)


@pytest.mark.parametrize("size", [(64, 64), (48, 96)])
@pytest.mark.parametrize(
    "name",
    [
        "naflexvit_base_patch16_gap",
        "naflexvit_base_patch16_par_gap",
        "naflexvit_base_patch16_parfac_gap",
        "naflexvit_base_patch16_siglip",
        "naflexvit_base_patch16_radio_v3",
    ],
)
def test_naflexvit_of_one_size_of_images(name, size, tmp_path):
    import torch

    model = built(name, img_size=None)
    path = write(model, tmp_path, name)
    images = np.random.default_rng(1).uniform(-1, 1, (2, *size, 3))
    images = images.astype("float32")
    with torch.no_grad():
        wanted = model(torch.tensor(np.moveaxis(images, -1, 1))).numpy()
    ours = load_checkpoint(path, num_heads=2, input_shape=(*size, 3))
    found = keras.ops.convert_to_numpy(ours(images))
    scale = max(1, np.abs(wanted).max())
    np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-5 * scale)
