"""timm and transformers build what a folder of ours says, with our outputs."""

import json
from typing import Any

import keras
import numpy as np
import pytest
from arrays import open_tensors
from timm_stub import import_timm

from keras_vit.checkpoints import load_checkpoint, save_checkpoint
from keras_vit.models import (
    BiT,
    BiTConfig,
    Mixer,
    MixerConfig,
    VisionTransformer,
    ViTConfig,
)
from keras_vit.trained_as import TrainedAs

pytest.importorskip("torch")
MODELS = {ViTConfig: VisionTransformer, MixerConfig: Mixer, BiTConfig: BiT}
PIXELS: dict[str, Any] = {
    "pixel_mean": (0.5, 0.4, 0.3),
    "pixel_std": (0.2, 0.3, 0.1),
}


def vit(**options):
    tiny: dict[str, Any] = {
        **{"image_size": 32, "patch_size": 8, "hidden_dim": 16, "mlp_dim": 25},
        **{"num_layers": 2, "num_heads": 2, "num_classes": 5},
        "activation": "gelu",
    }
    return ViTConfig(**{**tiny, **options})


def randomised(config):
    model = MODELS[type(config)](config)
    random = np.random.default_rng(0)
    for weight in model.weights:
        scale = 0.3
        if len(weight.shape) == 4:
            scale = np.prod(weight.shape[:3]) ** -0.5
        center = float(weight.path.endswith("gamma"))
        values = random.normal(center, scale, weight.shape)
        if "moving_variance" in weight.path:
            values = np.abs(values) + 0.5
        if weight.path.endswith("qkv/bias") and not config.key_bias:
            values = values.reshape(config.num_heads, 3, -1)
            values = values * [[1], [0], [1]]  # That of the key is zero.
        weight.assign(values.reshape(weight.shape))
    return model


def images(model):
    config = model.config
    size = [x or 40 for x in config.image_size]
    random = np.random.default_rng(1)
    batch = random.uniform(-1, 1, (2, *size, config.channels))
    return batch.astype("float32")


HYBRID: dict[str, Any] = {"resnet_standardization": "variance"}
HYBRID |= {"patch_size": 1}
HYBRID |= {"resnet_standardization_epsilon": 1e-8}
HYBRID |= {"resnet_group_norm_epsilon": 1e-5}
BIT: dict[str, Any] = {"num_classes": 3, "standardization_epsilon": 1e-8}
PLAIN_RESNET: dict[str, Any] = {
    **{"normalization": "batch_norm", "standardization": None},
    **{"root_padding": "lowest", "image_size": (None, None)},
    "num_classes": 3,
}
BEIT: dict[str, Any] = {
    **{"relative_position_bias": True, "position_embedding": "none"},
    **{"key_bias": False, "layer_scale_init": 0.1},
}
SAM: dict[str, Any] = {
    **{"relative_position_bias": True, "relative_position_kind": "decomposed"},
    **{"class_token": False, "pooling": "mean", "final_norm": False},
    **{"neck_dim": 6, "layer_norm_epsilon": 1e-5},
}
RELATIVE: dict[str, Any] = {
    **{"relative_position_bias": True, "position_embedding": "none"},
    **{"class_token": False, "pooling": "mean"},
}
MIXER: dict[str, Any] = {"patch_size": 32, "hidden_dim": 512, "num_layers": 8}
MIXER |= {"image_size": 64, "num_classes": 3, "activation": "gelu"}
IN_TIMM: dict[str, Any] = {"hidden_dim": 384, "activation": "gelu"}
IN_TIMM |= {"image_size": 64, "num_classes": 3}
FOR_TIMM = {
    "token": vit(),
    "tanh": vit(activation="gelu_tanh"),
    "quick": vit(activation="quick_gelu"),
    "swish": vit(activation="swish"),
    "epsilon": vit(layer_norm_epsilon=1e-5),
    "clip": vit(
        norm_before_blocks=True, patch_bias=False, layer_norm_epsilon=1e-5
    ),
    "clip_of_small_epsilon": vit(norm_before_blocks=True, patch_bias=False),
    "mean": vit(pooling="mean", class_token=False),
    "mean_beside_the_token": vit(pooling="mean"),
    "mean_then_norm": vit(pooling="mean", norm_after_pooling=True),
    "token_then_norm": vit(norm_after_pooling=True),
    "max": vit(pooling="max"),
    "map": vit(pooling="map", class_token=False),
    "map_beside_the_token": vit(pooling="map", activation="gelu_tanh"),
    "tokens": vit(pooling="none", num_classes=0),
    "features": vit(pooling="mean", num_classes=0),
    "head_on_tokens": vit(pooling="none"),
    "registers": vit(register_tokens=3),
    "registers_alone": vit(
        register_tokens=2, class_token=False, pooling="mean"
    ),
    "layer_scale": vit(layer_scale_init=0.1),
    "no_qkv_bias": vit(qkv_bias=False),
    "rectangle": vit(image_size=(24, 40)),
    "flat_patches": vit(image_size=(16, 48), patch_size=(4, 8)),
    "grey": vit(channels=1),
    "distilled": vit(distillation_token=True, pooling="prefix"),
    "differential": vit(differential_attention=True, qkv_bias=False),
    "parallel": vit(mlp_placement="beside", image_size=(24, 40)),
    "parallel_scaled": vit(
        **{"mlp_placement": "beside", "layer_scale_init": 0.1},
        **{"qkv_bias": False, "qk_norm": True, "register_tokens": 2},
    ),
    "parallel_differential": vit(
        **{"mlp_placement": "beside", "differential_attention": True},
        **{"pooling": "mean", "class_token": False},
    ),
    "sam": vit(**SAM, image_size=(24, 40), window_size=2),
    "sam_of_the_image": vit(**SAM, qkv_bias=False),
    "axial": vit(
        **{"rope": "axial", "rope_reference_grid": (7, 9), "rope_offset": 1.0},
        **{"rope_axes": "column_first", "image_size": (24, 40)},
        **{"norm_before_blocks": True, "patch_bias": False},
    ),
    "axial_gated": vit(
        **{"rope": "axial", "key_bias": False, "gated_mlp": True},
        **{"activation": "silu", "pooling": "mean", "norm_after_pooling": True},
        **{"layer_norm_epsilon": 1e-6, "attention_inner_norm": True},
    ),
    "axial_after": vit(
        **{"rope": "axial", "norm_placement": "after", "mlp_inner_norm": True},
        **{"qkv_bias": False, "layer_norm_epsilon": 1e-5, "final_norm": False},
    ),
    "centered": vit(
        **{"rope": "centered", "rope_pairs": "halves", "key_bias": False},
        **{"rope_temperature": 100.0, "register_tokens": 3},
        **{"layer_norm_epsilon": 1e-5, "layer_scale_init": 0.1},
    ),
    "grouped": vit(
        **{"rope": "centered", "rope_pairs": "halves", "num_heads": 4},
        **{"hidden_dim": 16, "num_layers": 2, "key_value_heads": (4, 2)},
        **{"layer_scale_init": 0.1, "mlp_layer_scale": False},
        **{"normalization": "rms_norm", "qk_norm": True},
        **{"position_embedding": "none", "register_tokens": 2},
    ),
    "class_attention": vit(
        **{"talking_heads": True, "class_attention_layers": 3},
        **{"layer_scale_init": 0.1, "image_size": (24, 40)},
    ),
    "class_attention_mean": vit(
        **{"talking_heads": True, "class_attention_layers": 1},
        **{"layer_scale_init": 0.1, "qkv_bias": False, "pooling": "mean"},
    ),
    "distilled_features": vit(
        distillation_token=True, pooling="prefix_mean", num_classes=0
    ),
    "root": vit(image_size=64, resnet_units=(), **{**HYBRID, "patch_size": 8}),
    "hybrid": vit(image_size=64, resnet_units=(2, 2, 2, 2), **HYBRID),
    "hybrid_padded": vit(image_size=72, resnet_units=(2, 2, 2, 2), **HYBRID),
    "relative_table": vit(**RELATIVE),
    "relative_table_beside_the_token": vit(
        **{**RELATIVE, "class_token": True, "pooling": "token"}
    ),
    "relative_mlp": vit(
        **RELATIVE,
        relative_position_kind="mlp",
        relative_position_dim=6,
        layer_scale_init=0.1,
        qkv_bias=False,
    ),
    "relative_swin_rectangle": vit(
        **RELATIVE,
        relative_position_kind="mlp_swin",
        norm_placement="after",
        image_size=(24, 40),
        num_classes=0,
    ),
    "shared_mlp": vit(
        **{**RELATIVE, "pooling": "none"},
        relative_position_kind="mlp",
        relative_positions_shared=True,
        qk_norm=True,
        norm_after_pooling=True,
    ),
    "shared_table": vit(**RELATIVE, relative_positions_shared=True),
    "beit": vit(**BEIT, pooling="mean", norm_after_pooling=True),
    "beit_rectangle": vit(**BEIT, image_size=(24, 40), num_classes=0),
    "beit_without_scales": vit(
        **{**BEIT, "layer_scale_init": None, "position_embedding": "learned"},
    ),
    "beit_without_relative_positions": vit(
        key_bias=False, layer_scale_init=0.1, pooling="mean"
    ),
    "mixer": MixerConfig(**MIXER),
    "resmlp": MixerConfig(
        **{**IN_TIMM, "num_layers": 12, "channels_mlp_dim": 1536},
        **{"mixing": "linear", "tokens_mlp_dim": 0},
        **{"normalization": "affine", "layer_scale_init": 0.1},
    ),
    "gmlp": MixerConfig(
        **{**IN_TIMM, "num_layers": 30, "hidden_dim": 128},
        **{"mixing": "spatial_gating", "tokens_mlp_dim": 0},
        channels_mlp_dim=768,
    ),
    "gmixer": MixerConfig(
        **{**IN_TIMM, "num_layers": 12, "activation": "silu"},
        **{"gated_mlp": True, "tokens_mlp_dim": 192},
        channels_mlp_dim=768,
    ),
    "mixer_tokens": MixerConfig(**{**MIXER, "num_classes": 0}, pooling="none"),
    "bit": BiTConfig(**BIT, image_size=(40, 40)),
    "resnet_basic": BiTConfig(
        **{**PLAIN_RESNET, "units": (2, 2, 2, 2), "unit": "basic"}
    ),
    "resnet_basic_deep": BiTConfig(
        **{**PLAIN_RESNET, "units": (2, 2, 2, 2), "unit": "basic"},
        stem="deep",
        downsampling="average",
        activation="silu",
        channels=1,
    ),
    "resnet": BiTConfig(**{**PLAIN_RESNET, "num_classes": 0}),
    "resnet_tiered": BiTConfig(
        **PLAIN_RESNET, stem="tiered", downsampling="average"
    ),
    "resnet_deep_groups": BiTConfig(
        **{**PLAIN_RESNET, "normalization": "group_norm"},
        stem="deep",
        downsampling="average",
    ),
    "resnet_deep_evolved": BiTConfig(
        **{**PLAIN_RESNET, "normalization": "evolved"},
        stem="deep",
        downsampling="average",
    ),
    "bit_of_any_size": BiTConfig(**BIT, image_size=(None, None), pooling="max"),
}


@pytest.mark.parametrize("name", FOR_TIMM)
def test_timm_builds_the_model_of_a_folder(name, tmp_path):
    import torch

    timm = import_timm()
    model = randomised(FOR_TIMM[name])
    save_checkpoint(model, tmp_path / "saved", format="timm")
    theirs = timm.create_model(f"local-dir:{tmp_path}/saved", pretrained=True)
    if isinstance(model.config, ViTConfig):
        # Two epsilons differ by less than the tolerance.
        epsilon = model.config.layer_norm_epsilon
        block = theirs.blocks[0]
        norm = getattr(block, "norm1", None) or block.in_norm
        assert norm.eps == pytest.approx(epsilon)
    batch = images(model)
    with torch.no_grad():
        found = theirs.eval()(torch.tensor(np.moveaxis(batch, -1, 1))).numpy()
    wanted = keras.ops.convert_to_numpy(model(batch))
    assert np.isfinite(wanted).all()
    atol = 5e-5 * max(1, np.abs(wanted).max())
    np.testing.assert_allclose(found, wanted, rtol=0, atol=atol)
    again = load_checkpoint(tmp_path / "saved")
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(again(batch)), wanted, rtol=0, atol=atol
    )


def test_a_file_holds_the_config_of_the_folder(tmp_path):
    model = randomised(vit(pooling="mean", activation="quick_gelu"))
    save_checkpoint(model, tmp_path / "x", format="timm")
    save_checkpoint(model, tmp_path / "x.safetensors", format="timm")
    metadata = open_tensors(tmp_path / "x.safetensors").metadata
    content = json.loads((tmp_path / "x" / "config.json").read_text())
    assert json.loads(metadata["timm_config"]) == content


def test_timm_learns_pixels_and_class_names_from_the_folder(tmp_path):
    timm = import_timm()
    model = randomised(vit(**PIXELS))
    names = ["ant", "bee", "cat", "dog", "eel"]
    save_checkpoint(model, tmp_path / "x", format="timm", class_names=names)
    theirs = timm.create_model(f"local-dir:{tmp_path}/x", pretrained=True)
    settings = theirs.pretrained_cfg
    assert tuple(settings["mean"]) == PIXELS["pixel_mean"]
    assert tuple(settings["std"]) == PIXELS["pixel_std"]
    assert tuple(settings["input_size"]) == (3, 32, 32)
    assert settings["label_names"] == names
    # A head of another size is left out, which timm does by these names.
    other = timm.create_model(
        f"local-dir:{tmp_path}/x", pretrained=True, num_classes=2
    )
    assert other.head.weight.shape == (2, 16)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (vit(layer_norm_epsilon=1e-12), "layer_norm_epsilon=1e-06 or 1e-05"),
        (vit(activation="tanh"), "act_layer for activation='tanh'"),
        (vit(patch_bias=False), "patch_bias or norm_before_blocks"),
        (vit(norm_before_blocks=True), "patch_bias or norm_before_blocks"),
        (
            vit(image_size=64, resnet_units=(1,), **HYBRID),
            r"no architecture of resnet_units=\(1,\)",
        ),
        (MixerConfig(**{**MIXER, "num_layers": 2}), "no Mixer of .*layers=2"),
        (
            MixerConfig(**{**MIXER, "activation": "gelu_tanh"}),
            "activation='gelu' in its Mixers",
        ),
        (BiTConfig(**BIT, units=(1,)), r"no ResNet of units=\(1,\)"),
        (BiTConfig(num_classes=3), "standardization_epsilon=1e-08"),
    ],
)
def test_what_timm_cannot_build_is_refused_as_a_folder(
    config, reason, tmp_path
):
    model = randomised(config)
    with pytest.raises(ValueError, match=rf"{reason}.*can in a file"):
        save_checkpoint(model, tmp_path / "saved", format="timm")
    assert not list(tmp_path.iterdir())
    save_checkpoint(model, tmp_path / "saved.safetensors", format="timm")
    again = load_checkpoint(tmp_path / "saved.safetensors")
    assert again.config == model.config


FOR_TRANSFORMERS = {
    "vit": vit(layer_norm_epsilon=1e-12),
    "rectangle": vit(image_size=(24, 40)),
    "pixels": vit(**PIXELS),
    "softmax": vit(classifier_activation="softmax"),
    "scaled_inside": vit(**PIXELS, include_preprocessing=True),
    "deit": vit(distillation_token=True),
    "deit_of_two_heads": vit(distillation_token=True, pooling="prefix"),
    "bit": BiTConfig(**BIT, image_size=(40, 40)),
}


@pytest.mark.parametrize("name", FOR_TRANSFORMERS)
def test_the_pipeline_of_transformers_classifies_a_photo(name, tmp_path):
    """Its scores are ours for a photo of the model's size."""
    transformers = pytest.importorskip("transformers")
    from PIL import Image

    model = randomised(FOR_TRANSFORMERS[name])
    config = model.config
    names = [f"name_{i}" for i in range(config.num_classes)]
    save_checkpoint(
        model, tmp_path / "x", format="hugging_face", class_names=names
    )
    random = np.random.default_rng(3)
    pixels = random.integers(0, 256, (*config.image_size, 3), dtype="uint8")
    pipeline = transformers.pipeline(
        "image-classification", model=str(tmp_path / "x"), device="cpu"
    )
    found = pipeline(Image.fromarray(pixels), top_k=config.num_classes)
    found = {x["label"]: x["score"] for x in found}
    ours = keras.ops.convert_to_numpy(model(prepared(config, pixels)))[0]
    if config.classifier_activation is None:
        ours = np.exp(ours - ours.max()) / np.exp(ours - ours.max()).sum()
    np.testing.assert_allclose(
        [found[x] for x in names], ours, rtol=0, atol=5e-5
    )


def prepared(config, pixels):
    batch = pixels[None].astype("float32")
    if config.include_preprocessing:
        return batch
    mean = np.array(getattr(config, "pixel_mean", None) or (0.5,) * 3)
    deviation = np.array(getattr(config, "pixel_std", None) or (0.5,) * 3)
    return ((batch / 255 - mean) / deviation).astype("float32")


# The kinds of transformers_models that a model is written back as, and the
# class that it is then of, where it is another.
WRITTEN_BACK = {
    **dict.fromkeys(
        (
            "Dinov2Model",
            "Dinov2ForImageClassification",
            "Dinov2WithRegistersModel",
            "Dinov2WithRegistersForImageClassification",
            "DINOv3ViTModel",
            "Aimv2VisionModel",
            "BeitModel",
            "BeitForImageClassification",
            "SiglipVisionModel",
            "SiglipForImageClassification",
            "CLIPVisionModel",
            "CLIPVisionModelWithProjection",
            "swiglu",
            "swiglu with registers",
            "aimv2 with its head",
            "dinov3 without registers",
            "dinov3 of 7B",
            "beit with a class token",
            "beit without relative positions",
        )
    ),
    "data2vec without scales": "BeitModel",
    "MetaClip2VisionModelWithProjection": "CLIPVisionModelWithProjection",
    "SiglipModel": "SiglipVisionModel",
}


@pytest.mark.parametrize("name", WRITTEN_BACK)
def test_a_kind_of_transformers_is_written_back(name, tmp_path):
    """Its own class reads the folder, every tensor of it, with our outputs."""
    transformers = pytest.importorskip("transformers")
    import transformers_models as kinds

    class_name, fields, outputs = kinds.OPTIONS.get(name) or (
        name,
        *kinds.KINDS[name],
    )
    model = kinds.built(class_name, fields)
    ours = kinds.loaded(kinds.written(model, tmp_path / "theirs"))
    move_positions_of_prefix_tokens(ours)
    save_checkpoint(ours, tmp_path / "ours", format="hugging_face")
    content = json.loads((tmp_path / "ours" / "config.json").read_text())
    (found,) = content["architectures"]
    assert found == (WRITTEN_BACK[name] or class_name)
    again, report = getattr(transformers, found).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(report.values()), report
    images, theirs = kinds.drawn()
    outputs = kinds.pooled if name == "SiglipModel" else outputs
    with kinds.torch.no_grad():
        kinds.close(ours(images), outputs(again.eval(), theirs))
    kinds.close(
        kinds.loaded(tmp_path / "ours")(images),
        kinds.torch.tensor(keras.ops.convert_to_numpy(ours(images))),
    )


def test_what_no_class_of_transformers_computes_is_refused(tmp_path):
    scaled = {"layer_scale_init": 0.1, "patch_size": 8, "num_classes": 0}
    for options, reason in (
        ({"mlp_dim": 25}, "has no mlp_ratio for mlp_dim=25"),
        (
            {"class_token": False, "pooling": "mean"},
            "no place for class_token=False in a Dinov2",
        ),
        ({"pooling": "max"}, "pooling='token' in place of 'max'"),
        ({"qk_norm": True}, "has no place for .*query_norm"),
    ):
        config = vit(**{**scaled, "mlp_dim": 32, **options})
        with pytest.raises(ValueError, match=reason):
            save_checkpoint(
                randomised(config), tmp_path / "x", format="hugging_face"
            )
        assert not list(tmp_path.iterdir())


def move_positions_of_prefix_tokens(model):
    """As training does, to those of registers too."""
    tables = [x for x in model.weights if x.path.startswith("position_")]
    for table in tables if model.config.class_token else ():
        values = keras.ops.convert_to_numpy(table).copy()
        prefix = values[:, : model.config.num_prefix_tokens]
        prefix += np.random.default_rng(2).normal(0, 0.1, prefix.shape)
        table.assign(values)


def test_a_config_json_that_was_edited_is_not_ignored(tmp_path):
    model = randomised(vit())
    save_checkpoint(model, tmp_path / "x", format="hugging_face")
    path = tmp_path / "x" / "config.json"
    content = json.loads(path.read_text()) | {"hidden_act": "quick_gelu"}
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="activation=quick_gelu, but .*gelu"):
        load_checkpoint(tmp_path / "x")


@pytest.mark.parametrize("names", [["a", "b"], ["a"] * 5])
def test_class_names_are_as_many_as_classes(names, tmp_path):
    with pytest.raises(ValueError, match="for each of 5 classes"):
        save_checkpoint(
            randomised(vit()), tmp_path / "x", format="timm", class_names=names
        )


@pytest.mark.parametrize(
    ("file", "format", "options"),
    [
        ("x.keras", "keras", {}),
        ("x.safetensors", "timm", {}),
        ("x.safetensors", "torchvision", {}),
        ("x.npz", "google", {"activation": "gelu_tanh"}),
        ("x", "hugging_face", {}),
    ],
)
def test_names_that_are_given_travel_in_every_format(
    tmp_path, file, format, options
):
    names = ("ant", "bee", "cat", "dog", "eel")
    model = randomised(vit(**options))
    model.trained_as = TrainedAs(class_names=tuple("abcde"))
    save_checkpoint(model, tmp_path / file, format=format, class_names=names)
    assert load_checkpoint(tmp_path / file).trained_as.class_names == names
    assert model.trained_as.class_names == tuple("abcde")


@pytest.mark.parametrize(
    ("file", "format", "count", "message"),
    [
        ("x.weights.h5", "keras", 5, "no place for class names"),
        ("x.keras", "keras", 4, "5 classes.*4 class names"),
        ("x.npz", "google", 9000, "room for 65,535 bytes"),
    ],
)
def test_names_without_a_place_are_refused(
    tmp_path, file, format, count, message
):
    classes = max(count, 5)
    model = randomised(vit(num_classes=classes, activation="gelu_tanh"))
    names = [f"class {i}" for i in range(count)]
    with pytest.raises(ValueError, match=message):
        save_checkpoint(
            model, tmp_path / file, format=format, class_names=names
        )
    assert not [*tmp_path.iterdir()]
