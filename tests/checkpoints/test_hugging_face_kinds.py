"""Vision encoders of transformers give their outputs here, or are refused.

Each is built by transformers itself, see `transformers_models`.
"""

import json
import pathlib
import shutil

import numpy as np
import pytest
from timm_stub import import_timm
from transformers_models import (
    AIMV2,
    BEIT,
    CLIP,
    DINOV2,
    GELU,
    KINDS,
    LABELS,
    OPTIONS,
    SIZE,
    TEXTS,
    VISION,
    built,
    change,
    close,
    drawn,
    image_features,
    loaded,
    logits,
    pooled,
    randomized,
    tokens,
    torch,
    transformers,
    written,
)

from keras_vit.checkpoints import load_checkpoint, read_info, save_checkpoint

REFERENCE = pathlib.Path(__file__).parents[1] / "reference"


@pytest.mark.parametrize("name", [*KINDS, *OPTIONS])
def test_the_outputs_are_those_of_transformers(name, tmp_path):
    name, fields, outputs = OPTIONS.get(name) or (name, *KINDS[name])
    model = built(name, fields)
    folder = written(model, tmp_path)
    images, theirs = drawn()
    with torch.no_grad():
        close(loaded(folder)(images), outputs(model, theirs))
        ours = loaded(folder, include_top=False)
        close(ours(images), tokens(model, theirs))


def test_a_mask_token_changes_nothing(tmp_path):
    model = built("ViTModel", VISION, use_mask_token=True)
    folder = written(model, tmp_path)
    images, theirs = drawn()
    ours = loaded(folder)
    close(ours(images), pooled(model, theirs))
    assert "embeddings.mask_token" in ours.load_report.dropped


SIGLIP2 = {**VISION, "num_patches": 16}


def in_patches(images):
    """What SigLIP 2 takes of square images, nothing padded."""
    x = torch.tensor(images).unfold(1, 8, 8).unfold(2, 8, 8)
    x = x.permute(0, 1, 2, 4, 5, 3).flatten(3).flatten(1, 2)  # (B, N, 192)
    side = images.shape[1] // 8
    return {
        "pixel_values": x,
        "pixel_attention_mask": torch.ones(x.shape[:2], dtype=torch.long),
        "spatial_shapes": torch.tensor([[side, side]] * len(x)),
    }


@pytest.mark.parametrize("size", [16, 32, 48])
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("Siglip2VisionModel", SIGLIP2),
        ("Siglip2Model", {"text_config": TEXTS, "vision_config": SIGLIP2}),
        (
            "Siglip2ForImageClassification",
            {"text_config": TEXTS, "vision_config": SIGLIP2, **LABELS},
        ),
    ],
)
def test_siglip_2_of_square_images(name, fields, size, tmp_path):
    model = built(name, fields)
    folder = written(model, tmp_path)
    images, _ = drawn(size)
    take = getattr(model, "get_image_features", model)
    with torch.no_grad():
        found = take(**in_patches(images))
    wanted = found.logits if "logits" in found else found.pooler_output
    options = {"input_shape": (size, size, 3)} if size != SIZE else {}
    close(loaded(folder, **options)(images), wanted)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("TimmWrapperModel", {}),
        ("TimmWrapperForImageClassification", {"num_labels": 5}),
    ],
)
def test_a_model_of_timm_inside(name, changes, tmp_path, monkeypatch):
    from transformers.models.timm_wrapper import modeling_timm_wrapper as module

    monkeypatch.setattr(module, "timm", import_timm(), raising=False)
    monkeypatch.setattr(module, "requires_backends", lambda *names: None)
    arguments = {"depth": 2, "embed_dim": 32, "num_heads": 2, "img_size": SIZE}
    config = transformers.TimmWrapperConfig(
        architecture="vit_base_patch16_clip_quickgelu_224",
        model_args=arguments,
        **changes,
    )
    model = randomized(getattr(module, name)(config))
    folder = written(model, tmp_path)
    images, theirs = drawn()
    outputs = logits if changes else pooled
    with torch.no_grad():
        close(loaded(folder)(images), outputs(model, theirs))


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("ViTModel", {}),
        ("ViTMSNModel", {}),
        ("Dinov2Model", {"mlp_ratio": 2}),
        ("CLIPVisionModel", {"patch_size": 112}),
        ("SiglipVisionModel", {"patch_size": 112}),
    ],
)
def test_what_a_config_leaves_out_is_what_transformers_takes(
    name, fields, tmp_path
):
    """Files of the hub have no more than what differs from the defaults."""
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "patch_size": 112}
    model = built(name, {**sizes, **fields})
    folder = written(model, tmp_path)
    path = folder / "config.json"
    kept = ("model_type", "architectures", "patch_size")
    config = {
        x: y for x, y in json.loads(path.read_text()).items() if x in kept
    }
    path.write_text(json.dumps(config))
    images, theirs = drawn(224)
    ours = loaded(folder, include_top=False)
    with torch.no_grad():
        close(ours(images), tokens(model, theirs))
    assert ours.config.num_heads == 12


def test_the_second_config_of_a_tower_counts(tmp_path):
    """CLIP's old files have it; transformers takes it as a whole."""
    gelu = {**CLIP, "vision_config": {**VISION, **GELU}}
    folder = written(built("CLIPModel", gelu), tmp_path)
    change(folder, vision_config_dict={**VISION, "num_attention_heads": 4})
    model = transformers.CLIPModel.from_pretrained(folder).eval()
    images, theirs = drawn()
    close(loaded(folder)(images), image_features(model, theirs))
    assert loaded(folder).config.num_heads == 4
    assert loaded(folder).config.activation == "quick_gelu"


@pytest.mark.parametrize("size", [16, 48])
@pytest.mark.parametrize(
    "name",
    [
        *("Dinov2Model", "Dinov2WithRegistersModel", "PixioModel"),
        *("Tipsv2VisionModel", "DINOv3ViTModel"),
        *("CLIPVisionModel", "SiglipVisionModel"),
        *("ViTModel", "DPTModel"),
    ],
)
def test_positions_are_resampled_as_in_transformers(name, size, tmp_path):
    model = built(name, KINDS[name][0])
    folder = written(model, tmp_path)
    images, theirs = drawn(size)
    asked = name in ("CLIPVisionModel", "SiglipVisionModel", "ViTModel")
    options = {"interpolate_pos_encoding": True} if asked else {}
    ours = loaded(folder, input_shape=(size, size, 3))
    with torch.no_grad():
        close(ours(images), model(theirs, **options).pooler_output)


def test_pixels_beside_the_patches_are_not_read(tmp_path):
    """As in SigLIP's So400m, which takes 384 pixels for 27 patches of 14."""
    model = built("SiglipVisionModel", {**VISION, "image_size": SIZE + 5})
    images, theirs = drawn(SIZE + 5)
    ours = loaded(written(model, tmp_path))
    assert f"image_size=({SIZE}, {SIZE}) of" in str(ours.load_report)
    with torch.no_grad():
        close(ours(images[:, :SIZE, :SIZE]), pooled(model, theirs))


REFUSED = {
    "ASTModel": {**VISION, "num_mel_bins": 32, "max_length": 48},
    "YolosModel": {**VISION, "image_size": [SIZE, SIZE]},
    "CLIPTextModel": TEXTS,
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_models_are_refused_by_their_names(name, tmp_path):
    fields = dict(REFUSED[name])
    if name == "ASTModel":
        fields.pop("image_size")
    model = built(name, fields)
    folder = written(model, tmp_path)
    kind = type(model).config_class.model_type
    message = f"model_type='{kind}' and architectures=\\['{name}'\\]"
    with pytest.raises(ValueError, match=message):
        load_checkpoint(folder)


BIT = {"embedding_size": 32, "hidden_sizes": [128, 256], "depths": [1, 1]}


@pytest.mark.parametrize(
    ("name", "fields", "changes"),
    [
        ("ViTModel", VISION, {"pooler_act": "mish"}),
        ("ViTModel", VISION, {"qkv_bias": False}),
        ("ViTModel", VISION, {"hidden_act": "mish"}),
        ("DPTModel", VISION, {"is_hybrid": True}),
        ("Dinov2Model", DINOV2, {"use_swiglu_ffn": True}),
        ("Dinov2Model", DINOV2, {"image_size": [16, 64]}),
        ("Dinov2Model", DINOV2, {"image_size": 64}),
        ("Siglip2VisionModel", SIGLIP2, {"num_patches": 15}),
        ("Aimv2VisionModel", AIMV2, {"use_head": True}),
        ("Aimv2VisionModel", VISION, {"use_head": False}),
        ("Aimv2Model", CLIP, {"vision_config": {**VISION, "use_head": False}}),
        ("Tipsv2VisionModel", DINOV2, {"qkv_bias": False}),
        ("Tipsv2VisionModel", DINOV2, {"use_swiglu_ffn": True}),
        ("Aimv2VisionModel", AIMV2, {"is_native": True}),
        ("Aimv2VisionModel", AIMV2, {"qkv_bias": True}),
        ("Aimv2VisionModel", AIMV2, {"mlp_bias": True}),
        ("BeitModel", BEIT, {"use_shared_relative_position_bias": True}),
        ("BeitModel", BEIT, {"use_relative_position_bias": False}),
        ("BeitModel", BEIT, {"image_size": [16, 64]}),
        (
            "Data2VecVisionModel",
            BEIT,
            {"use_shared_relative_position_bias": True},
        ),
        ("DINOv3ViTModel", VISION, {"key_bias": True}),
        ("DINOv3ViTModel", VISION, {"proj_bias": False}),
        ("DINOv3ViTModel", VISION, {"mlp_bias": False}),
        ("DINOv3ViTModel", VISION, {"query_bias": False}),
        ("DINOv3ViTModel", VISION, {"use_gated_mlp": True}),
        ("CLIPModel", CLIP, {"vision_config": {**VISION, "qkv_bias": False}}),
        ("BitModel", BIT, {"num_groups": 16}),
        ("BitModel", BIT, {"global_padding": "SAME"}),
        ("BitModel", BIT, {"embedding_dynamic_padding": True}),
        ("BitModel", BIT, {"hidden_act": "gelu"}),
        ("BitModel", BIT, {"output_stride": 8}),
        ("BitModel", BIT, {"layer_type": "bottleneck"}),
        ("BitModel", BIT, {"width_factor": 2}),
    ],
)
def test_a_field_that_is_not_honoured_is_named(name, fields, changes, tmp_path):
    folder = written(built(name, fields), tmp_path, **changes)
    (field,) = changes
    words = {
        "hidden_act": "activation 'mish'|hidden_act='gelu'",
        "vision_config": "(qkv_bias|use_head)=False",
        "image_size": r"image_size=\((16|64), 64\)",
        "use_relative_position_bias": "relative_position_bias=True by",
        "query_bias": "qkv_bias=True by its tensors",
        "use_gated_mlp": "gated_mlp=False by its tensors",
        "use_swiglu_ffn": "gated_mlp=False by its tensors",
    }
    with pytest.raises(ValueError, match=words.get(field, f"{field}=")):
        load_checkpoint(folder)


def test_bit_is_that_of_transformers(tmp_path):
    model = built("BitForImageClassification", {**BIT, **LABELS})
    folder = written(model, tmp_path)
    images, theirs = drawn()
    with torch.no_grad():
        close(loaded(folder)(images), logits(model, theirs))


@pytest.mark.parametrize(
    "change",
    [{"global_padding": None}, {"layer_type": "preactivation"}, {}],
)
def test_the_resnet_of_a_hybrid_is_held_to_what_is_here(change, tmp_path):
    """Today's transformers has no such model."""
    backbone = {
        "layer_type": "bottleneck",
        "global_padding": "SAME",
        "embedding_dynamic_padding": True,
        **change,
    }
    config = {"model_type": "vit-hybrid", "backbone_config": backbone}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (field,) = change or ("holds 0 .safetensors",)
    with pytest.raises(ValueError, match=field):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["CLIPForImageClassification"])
def test_a_classifier_of_tokens_that_are_not_normalised(name, tmp_path):
    folder = written(built(name, {**CLIP, **LABELS}), tmp_path)
    with pytest.raises(ValueError, match="tokens that are not normalised"):
        load_checkpoint(folder)


def test_a_pooler_of_the_first_patch_is_refused(tmp_path):
    model = built("IJepaModel", VISION, add_pooling_layer=True)
    with pytest.raises(ValueError, match="takes the first patch"):
        load_checkpoint(written(model, tmp_path))


@pytest.mark.parametrize("bias", ["query_bias", "value_bias"])
def test_one_bias_of_two_is_refused(bias, tmp_path):
    folder = written(built("DINOv3ViTModel", {**VISION, bias: False}), tmp_path)
    with pytest.raises(ValueError, match=f"{bias[0]}_proj.bias|qkv_bias=False"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("BeitModel", VISION),
        ("Aimv2VisionModel", {**AIMV2, "is_native": True}),
    ],
)
def test_no_positions_are_made_up(name, fields, tmp_path):
    folder = written(built(name, fields), tmp_path)
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match="has no position embedding"):
        load_checkpoint(folder, num_heads=2)


def test_relative_positions_are_resampled_as_in_transformers(tmp_path):
    model = built("BeitModel", {**BEIT, "use_mean_pooling": False})
    folder = written(model, tmp_path)
    ours = load_checkpoint(folder, input_shape=(48, 48, 3), include_top=False)
    assert "distances in 4x4 -> 6x6 (linear)" in str(ours.load_report)
    images = np.random.default_rng(1).uniform(-1, 1, (2, 48, 48, 3))
    images = images.astype("float32")
    with torch.no_grad():
        theirs = model(
            torch.tensor(np.moveaxis(images, -1, 1)),
            interpolate_pos_encoding=True,
        ).last_hidden_state
    close(ours(images), theirs)


def test_siglip_without_its_head_gives_the_same_tokens(tmp_path):
    model = built("SiglipVisionModel", {**VISION, "vision_use_head": False})
    images, theirs = drawn()
    ours = loaded(written(model, tmp_path), include_top=False)
    with torch.no_grad():
        close(ours(images), tokens(model, theirs))


def test_a_pooler_that_is_not_there_may_have_any_activation(tmp_path):
    name, fields = "ViTForImageClassification", {**VISION, **LABELS}
    folder = written(built(name, fields), tmp_path, pooler_act="mish")
    load_checkpoint(folder)


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_new", "silu"])
def test_a_pooler_has_the_activation_of_its_config(activation, tmp_path):
    model = built("ViTModel", {**VISION, "pooler_act": activation})
    images, theirs = drawn()
    ours = loaded(written(model, tmp_path / "theirs"))
    close(ours(images), pooled(model, theirs))
    save_checkpoint(ours, tmp_path / "ours", format="hugging_face")
    again = transformers.ViTModel.from_pretrained(tmp_path / "ours")
    close(ours(images), pooled(again, theirs))


def test_without_a_config_the_activation_of_clip_is_asked_for(tmp_path):
    model = built("CLIPVisionModel", {**VISION, **GELU})
    folder = written(model, tmp_path)
    (folder / "config.json").unlink()
    path = folder / "model.safetensors"
    with pytest.raises(ValueError, match="does not tell its activation"):
        load_checkpoint(path, num_heads=2)
    images, theirs = drawn()
    ours = load_checkpoint(path, num_heads=2, activation="gelu")
    close(ours(images), pooled(model, theirs))


def test_no_known_format_quotes_the_model_type(tmp_path):
    from safetensors.numpy import save_file

    save_file(
        {"strange": np.ones(3, "float32")}, tmp_path / "model.safetensors"
    )
    (tmp_path / "config.json").write_text('{"model_type": "dinov2"}')
    with pytest.raises(ValueError, match="no known format.*'dinov2'"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("name", "other", "shown"),
    [
        ("ViTModel", "dinov2", "hugging_face"),
        ("ViTModel", "sam_vision_model", "hugging_face"),
        ("Dinov2Model", "vit", "dinov2"),
        ("Dinov2Model", "dinov2_with_registers", "dinov2"),
        ("Dinov2WithRegistersModel", "dinov2", "dinov2_with_registers"),
        ("SiglipVisionModel", "clip_vision_model", "siglip_vision_model"),
    ],
)
def test_a_config_of_another_kind_is_refused(name, other, shown, tmp_path):
    folder = written(built(name, VISION), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = other
    (folder / "config.json").write_text(json.dumps(config))
    message = f"has model_type='{other}', but tensors of '{shown}'"
    with pytest.raises(ValueError, match=message):
        load_checkpoint(folder)


MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27)


@pytest.mark.parametrize(
    ("file", "content", "wanted"),
    [
        (
            "preprocessor_config.json",
            {"image_mean": MEAN, "image_std": STD},
            (MEAN, STD),
        ),
        (
            "processor_config.json",
            {"image_processor": {"image_mean": MEAN, "image_std": STD}},
            (MEAN, STD),
        ),
        (
            "preprocessor_config.json",
            {"image_mean": [0.5] * 3, "image_std": [0.5] * 3},
            (None, None),
        ),
        (
            "preprocessor_config.json",
            {"image_mean": MEAN, "image_std": STD, "do_normalize": False},
            ((0.0,) * 3, (1.0,) * 3),
        ),
    ],
)
def test_pixels_are_scaled_as_the_processor_says(
    file, content, wanted, tmp_path
):
    folder = written(built("CLIPModel", CLIP), tmp_path)
    (folder / file).write_text(json.dumps(content))
    config = loaded(folder, include_preprocessing=True).config
    assert (config.pixel_mean, config.pixel_std) == wanted


@pytest.mark.parametrize(
    ("processor", "told"),
    [
        ({"size": {"height": 32, "width": 32}}, None),
        ({"size": 32}, None),
        ({"size": {"shortest_edge": 36}}, None),
        ({"size": {"height": 48, "width": 64}}, (48, 64)),
        ({"size": 36, "crop_size": 32, "do_center_crop": True}, None),
        ({"size": 32, "crop_size": 28, "do_center_crop": True}, (28, 28)),
        ({"size": 32, "crop_size": 28, "do_center_crop": False}, None),
    ],
)
@pytest.mark.parametrize("opened", ["", "model.safetensors"])
def test_images_of_another_size_than_the_config_are_noted(
    processor, told, opened, tmp_path
):
    folder = shutil.copytree(REFERENCE / "hf_vit_tiny", tmp_path / "x")
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    info = read_info(folder / opened)
    assert info.fields["image_size"] == (32, 32)
    notes = () if told is None else (f"prepares images of {told}",)
    assert len(info.notes) == len(notes)
    for note, words in zip(info.notes, notes, strict=True):
        assert words in note and "image_size=(32, 32) is that of" in note


def test_new_classes_get_a_layer_with_a_bias(tmp_path):
    folder = written(built("CLIPModel", CLIP), tmp_path)
    assert loaded(folder).config.head_bias is None
    model = loaded(folder, classes=3)
    kernel, bias = model.get_layer("predictions").weights
    assert kernel.shape[-1] == bias.shape[0] == 3
    again = type(model).from_config(loaded(folder).get_config())
    assert len(again.get_layer("predictions").weights) == 1


def test_info_of_a_folder_names_what_it_holds(tmp_path):
    name = "Dinov2WithRegistersForImageClassification"
    info = read_info(written(built(name, KINDS[name][0]), tmp_path))
    assert info.format == "hugging_face_dinov2"
    assert info.fields["register_tokens"] == 4
    assert info.fields["pooling"] == "token_and_mean"
