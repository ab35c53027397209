"""The applications with tiny sizes: the same structure, quick to run."""

import keras
import numpy as np

import keras_vit
from keras_vit import sizes

LABELS = np.array([0, 1, 2, 4])
SPARSE = keras.losses.SparseCategoricalCrossentropy
# One of each kind of structure; the other sizes differ in numbers alone.
KINDS = ("ViT_B16", "ViT_R_Ti16", "ViT_R50_B16", "Mixer_S8", "BiT_R50x1")


def shrink(monkeypatch):
    """Replaces the sizes of all applications by tiny ones."""
    for table in (sizes.VIT, sizes.MIXER, sizes.BIT):
        for name, fields in table.items():
            monkeypatch.setitem(table, name, tiny(fields))


def tiny(fields):
    fields = dict(fields)
    small = {
        "num_layers": 2,
        "mlp_dim": 16,
        "tokens_mlp_dim": 8,
        "channels_mlp_dim": 16,
        "width": 32,
    }
    fields |= {k: v for k, v in small.items() if k in fields}
    if "num_heads" in fields:
        fields["hidden_dim"] = 4 * fields["num_heads"]
    elif "hidden_dim" in fields:
        fields["hidden_dim"] = 16
    for stages in ("units", "resnet_units"):
        if stages in fields:
            fields[stages] = (1,) * len(fields[stages])
    if "resnet_units" in fields:
        fields["resnet_width"] = 32
    return fields


def input_shape(name):
    """A rectangle that the model's patches divide."""
    if name in sizes.BIT:
        return (33, 47, 3)
    table = sizes.MIXER if name in sizes.MIXER else sizes.VIT
    side = table[name]["patch_size"][0]
    units = table[name].get("resnet_units")
    if units is not None:
        side *= 4 * 2 ** max(len(units) - 1, 0)
    return (2 * side, side, 3)


def build(name, **options):
    options = {
        "weights": None,
        "input_shape": input_shape(name),
        "classes": 5,
        **options,
    }
    return getattr(keras_vit, name)(**options)


def images(name, count=4):
    shape = (count, *input_shape(name))
    return np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")


def shake(model):
    """Moves every weight, so that no zero hides a mistake."""
    generator = np.random.default_rng(1)
    for weight in model.trainable_weights:
        noise = generator.normal(0, 0.1, weight.shape)
        weight.assign(weight + noise.astype("float32"))
    return model
