"""timm and transformers read what is written, with the same numbers."""

import functools

import keras
import numpy as np
import pytest
from exported import arrays, saved
from reference_cases import TOLERANCE, expected, load, path_of
from timm_stub import import_timm

from keras_vit.checkpoints import load_checkpoint, save_checkpoint

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        keras.backend.backend() != "torch", reason="the readers are of torch"
    ),
]


def as_torch(images):
    import torch

    return torch.tensor(np.moveaxis(images, -1, 1))


@functools.cache
def timm():
    return import_timm()


@pytest.mark.parametrize(
    "name",
    [
        "timm_vit_tiny",
        "timm_vit_tiny_gap",
        "timm_vit_tiny_layer_scale",
        "vit_tiny_augreg",
        "vit_tiny_gap",
        "vit_tiny_bigvision_tok",
        "vit_tiny_bigvision_map",
        "hf_vit_tiny",
    ],
)
def test_timm_reads_what_is_written(name, tmp_path):
    import torch

    model = load(name)
    path = saved(model, tmp_path, "timm")
    config = model.config
    pools = {"token": "token", "mean": "avg", "map": "map"}
    gelu = "gelu_tanh" if config.activation == "gelu_tanh" else "gelu"
    theirs = (
        timm()
        .models.vision_transformer.VisionTransformer(
            img_size=config.image_size,
            patch_size=config.patch_size,
            embed_dim=config.hidden_dim,
            depth=config.num_layers,
            num_heads=config.num_heads,
            mlp_ratio=config.mlp_dim / config.hidden_dim,
            num_classes=config.num_classes,
            global_pool=pools[config.pooling],
            class_token=config.class_token,
            fc_norm=config.norm_after_pooling,
            init_values=config.layer_scale_init,
            act_layer=gelu,
            norm_layer=functools.partial(
                torch.nn.LayerNorm, eps=config.layer_norm_epsilon
            ),
        )
        .eval()
    )
    if config.pooling == "map":
        # timm gives the pooling layer its own exact GELU.
        theirs.attn_pool.mlp.act = torch.nn.GELU(approximate="tanh")
    state = {key: torch.tensor(x) for key, x in arrays(path).items()}
    theirs.load_state_dict(state, strict=True)
    with torch.no_grad():
        found = theirs(as_torch(expected(name)["image"])).numpy()
    np.testing.assert_allclose(found, expected(name)["logits"], **TOLERANCE)


def test_timm_reads_a_mixer(tmp_path):
    import torch

    name = "mixer_tiny_google"
    path = saved(load(name), tmp_path, "timm")
    theirs = (
        timm()
        .models.mlp_mixer.MlpMixer(
            img_size=32,
            patch_size=8,
            embed_dim=32,
            num_blocks=2,
            mlp_ratio=(0.75, 2.0),
            num_classes=10,
            act_layer=functools.partial(torch.nn.GELU, approximate="tanh"),
        )
        .eval()
    )
    state = {key: torch.tensor(x) for key, x in arrays(path).items()}
    theirs.load_state_dict(state, strict=True)
    with torch.no_grad():
        found = theirs(as_torch(expected(name)["image"])).numpy()
    np.testing.assert_allclose(found, expected(name)["logits"], **TOLERANCE)


def test_timm_reads_a_bit(tmp_path):
    import torch

    name = "bit_tiny_two_stages"
    path = saved(load(name), tmp_path, "timm")
    resnet = timm().models.resnetv2
    theirs = resnet.ResNetV2(
        layers=(2, 1),
        channels=(256, 512),
        stem_chs=64,
        num_classes=10,
        stem_type="fixed",
        conv_layer=functools.partial(
            timm().layers.StdConv2d,
            eps=1e-10,
        ),
    ).eval()
    state = {key: torch.tensor(x) for key, x in arrays(path).items()}
    theirs.load_state_dict(state, strict=True)
    with torch.no_grad():
        found = theirs(as_torch(expected(name)["image"])).numpy()
    np.testing.assert_allclose(found, expected(name)["logits"], **TOLERANCE)


@pytest.mark.parametrize(
    "name",
    [
        "hf_vit_tiny",
        "hf_vit_tiny_in21k",
        "vit_tiny_augreg",
        "vit_tiny_bigvision_tok",
        "timm_resnetv2_bit_tiny",
    ],
)
def test_transformers_reads_what_is_written(name, tmp_path):
    transformers = pytest.importorskip("transformers")
    import torch

    model = load(name)
    folder = tmp_path / "model"
    save_checkpoint(model, folder, format="hugging_face")
    bit = "bit" in name
    kind = "Bit" if bit else "ViT"
    head = "ForImageClassification" if model.config.num_classes else "Model"
    theirs, loading = getattr(transformers, kind + head).from_pretrained(
        folder, output_loading_info=True
    )
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    with torch.no_grad():
        found = theirs.eval()(as_torch(expected(name)["image"]))
    key = "logits" if model.config.num_classes else "pooler_output"
    wanted = expected(name).get("logits", expected(name)["pre_logits"])
    np.testing.assert_allclose(found[key].numpy(), wanted, **TOLERANCE)


def distilled(pooling):
    model = load_checkpoint(
        path_of("hf_vit_tiny"), classes=5, pooling="mean", class_token=True
    )
    config = {**model.get_config()["config"]}
    config |= {"distillation_token": True, "pooling": pooling}
    model = type(model)(type(model.config)(**config))
    generator = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(generator.normal(0, 0.2, weight.shape))
    return model


@pytest.mark.parametrize(
    ("pooling", "kind"),
    [
        ("token", "DeiTForImageClassification"),
        ("prefix", "DeiTForImageClassificationWithTeacher"),
    ],
)
def test_transformers_reads_a_deit(pooling, kind, tmp_path):
    transformers = pytest.importorskip("transformers")
    import torch

    model = distilled(pooling)
    save_checkpoint(model, tmp_path / "deit", format="hugging_face")
    theirs = getattr(transformers, kind).from_pretrained(tmp_path / "deit")
    images = expected("hf_vit_tiny")["image"]
    with torch.no_grad():
        found = theirs.eval()(as_torch(images)).logits.numpy()
    ours = keras.ops.convert_to_numpy(model(images))
    np.testing.assert_allclose(found, ours, **TOLERANCE)
    theirs.save_pretrained(tmp_path / "again")
    again = load_checkpoint(tmp_path / "again")
    assert again.config.pooling == pooling
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(again(images)), ours, **TOLERANCE
    )


def test_timm_reads_a_distilled_deit(tmp_path):
    import torch

    model = distilled("prefix")
    path = saved(model, tmp_path, "timm")
    theirs = (
        timm()
        .models.deit.VisionTransformerDistilled(
            img_size=32,
            patch_size=8,
            embed_dim=32,
            depth=2,
            num_heads=4,
            mlp_ratio=2.0,
            num_classes=5,
            norm_layer=functools.partial(torch.nn.LayerNorm, eps=1e-12),
        )
        .eval()
    )
    state = {key: torch.tensor(x) for key, x in arrays(path).items()}
    theirs.load_state_dict(state, strict=True)
    images = expected("hf_vit_tiny")["image"]
    with torch.no_grad():
        found = theirs(as_torch(images)).numpy()
    ours = keras.ops.convert_to_numpy(model(images))
    np.testing.assert_allclose(found, ours, **TOLERANCE)
