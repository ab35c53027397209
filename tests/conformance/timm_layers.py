"""Gives timm's own tests of layers ours: `pytest -p timm_layers ...`.

A plugin of pytest for timm's tests of `DropPath`, `AttentionPoolLatent` and
`resample_abs_pos_embed`, on the torch backend. The others are of layers that
there are none of.
"""

import importlib
from typing import Any

import keras
import torch
from listed import mark
from timm_stub import import_timm

from keras_vit.checkpoints.engine.matching import resample_position_embedding
from keras_vit.layers import AttentionPooling
from keras_vit.layers.transformer_block import stochastic_depth

timm: Any = import_timm()
layers: Any = importlib.import_module("timm.layers")
drop: Any = importlib.import_module("timm.layers.drop")

TAKEN = (
    "TestDropPath::",
    "TestDropPathModule::test_training_mode",
    "test_attention_pool_latent_basic",
    "test_attention_pool_latent_no_q_proj",
    "test_resample_abs_pos_embed",
    "TestPoolingCommon",
)


class DropPath(torch.nn.Module):
    """The stochastic depth of blocks, for maps of (N, C, height, width)."""

    layer: Any

    def __init__(self, drop_prob=0.0):
        super().__init__()
        self.__dict__["layer"] = stochastic_depth(drop_prob)

    def forward(self, x):
        tokens = x.flatten(2).movedim(1, 2)  # (N, tokens, C)
        tokens = self.layer(tokens, training=self.training)
        return tokens.movedim(1, 2).reshape(x.shape)


def drop_path(x, drop_prob=0.0, training=False, scale_by_keep=True):
    del scale_by_keep  # There is no other than with the scale.
    return DropPath(drop_prob).train(training)(x)


class AttentionPoolLatent(torch.nn.Module):
    """The pooling by a learned query, its weights as parameters."""

    layer: Any

    def __init__(self, in_features, num_heads=8, q_proj=True, mlp_ratio=4):
        super().__init__()
        layer = AttentionPooling(
            num_heads, int(mlp_ratio * in_features), project_query=q_proj
        )
        layer.build((None, None, in_features))
        self.__dict__["layer"] = layer
        self.q = torch.nn.Identity() if not q_proj else torch.nn.Module()
        for variable in layer.trainable_variables:
            name = variable.path.replace(".", "_")
            self.register_parameter(name, variable.value)

    def forward(self, x):
        return self.layer(x, training=self.training)


def resample_abs_pos_embed(posemb, new_size, old_size, num_prefix_tokens=1):
    old, new = tuple(old_size), tuple(new_size)
    found = resample_position_embedding(
        posemb.numpy(), old, new, method="bicubic_antialiased"
    )
    assert posemb.shape[1] - old[0] * old[1] == num_prefix_tokens
    return torch.from_numpy(found)


drop.DropPath, drop.drop_path = DropPath, drop_path
layers.AttentionPoolLatent = AttentionPoolLatent
layers.resample_abs_pos_embed = resample_abs_pos_embed


def is_ours(item) -> bool:
    """Return whether a test is of one of the layers, for all it is given."""
    values = item.callspec.params if hasattr(item, "callspec") else {}
    kind = values.get("pool_cls", "AttentionPoolLatent")
    return (
        any(x in item.nodeid for x in TAKEN)
        and kind == "AttentionPoolLatent"
        and "matching_dim" not in item.nodeid
        and "torchscript" not in item.nodeid
    )


def pytest_collection_modifyitems(config, items):
    mark(items)
    kept = [x for x in items if is_ours(x)]
    left_out = [x for x in items if not is_ours(x)]
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


def pytest_runtest_setup():
    keras.utils.set_random_seed(0)
