"""Sapiens2 in the names of Meta's own files, and what they are here."""

import re

import keras
import numpy as np
import pytest
from timm_models import built, write
from timm_stub import import_timm

from keras_vit.checkpoints import load_checkpoint

pytest.importorskip("torch")

NAME = "vit_huge_patch16_sapiens2"
# From timm's names to Meta's, by timm's `eva.checkpoint_filter_fn`.
META = (
    (r"^norm\.", "ln1."),
    (r"^reg_token$", "storage_tokens"),
    (r"^patch_embed\.proj\.", "patch_embed.projection."),
    (r"\.attn\.([qkv])_proj\.", r".attn.w\1."),
    (r"\.gamma_1$", ".attn.gamma.weight"),
    (r"\.mlp\.fc1\.", ".ffn.w12."),
    (r"\.mlp\.fc2\.", ".ffn.w3."),
    (r"\.norm([12])\.", r".ln\1."),
)


def meta_names(tensors):
    found = {}
    for name, tensor in tensors.items():
        for pattern, replacement in META:
            name = re.sub(pattern, replacement, name)
        found[name] = tensor.contiguous()
    return found


def test_meta_s_own_file_is_the_model_that_timm_makes_of_it(tmp_path):
    import torch
    from safetensors.torch import save_file

    renamed = import_timm().models.eva.checkpoint_filter_fn
    size = (48, 64)
    model = built(NAME, img_size=size, num_kv_heads=(1, 2), num_classes=0)
    tensors = meta_names(model.state_dict())
    assert set(renamed(tensors, model)) == set(model.state_dict())
    tensors["mask_token"] = torch.ones((1, 128))
    tensors["rope_embed.periods"] = 100.0 ** (torch.arange(16) / 16)
    save_file(tensors, tmp_path / f"{NAME}.safetensors")
    images = np.random.default_rng(1).uniform(-1, 1, (2, *size, 3))
    images = images.astype("float32")
    with torch.no_grad():
        wanted = model(torch.tensor(np.moveaxis(images, -1, 1))).numpy()
    ours = load_checkpoint(
        tmp_path / f"{NAME}.safetensors", num_heads=2, input_shape=(*size, 3)
    )
    found = keras.ops.convert_to_numpy(ours(images))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-5)
    assert ours.config.key_value_heads == (1, 2)
    assert ours.config.layer_scale_init and not ours.config.mlp_layer_scale


def test_equal_numbers_of_heads_are_plain_attention(tmp_path):
    """As of the smallest model, whose 12 blocks all have full attention."""
    name = "vit_base_patch16_sapiens2"
    path = write(built(name, num_kv_heads=2), tmp_path, name)
    ours = load_checkpoint(path, num_heads=2, input_shape=(64, 64, 3))
    assert ours.config.key_value_heads is None
    assert ours.config.key_bias and ours.config.qk_norm


def test_keys_of_a_width_that_no_head_has_are_refused(tmp_path):
    from safetensors.torch import save_file

    model = built(NAME, img_size=(64, 48), num_kv_heads=(2, 1))
    tensors = {k: x.contiguous() for k, x in model.state_dict().items()}
    for weight in ("weight", "bias"):
        name = f"blocks.1.attn.k_proj.{weight}"
        tensors[name] = tensors[name][:48].contiguous()
    save_file(tensors, tmp_path / f"{NAME}.safetensors")
    with pytest.raises(ValueError, match=r"blocks\.1\.attn\.k_proj"):
        load_checkpoint(tmp_path / f"{NAME}.safetensors", num_heads=2)
