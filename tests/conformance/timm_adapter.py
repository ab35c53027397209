"""Gives timm's own tests our models: `pytest -p timm_adapter test_models.py`.

A plugin of pytest. What the tests take from timm, `create_model` and
`list_models`, hands out models of keras_vit instead, on the torch backend: a
narrow model of timm with random weights is written as a file, loaded here, and
what computes is ours alone. Images have the size that timm gives; as models
here have one size, all are fixed.
"""

import functools
import gc
import pathlib
import re
import tempfile
import warnings
from typing import Any

import keras
import numpy as np
import torch
from listed import mark
from make_coverage import MODULES, OWN, SIZES
from safetensors.torch import save_file
from timm_models import randomised
from timm_stub import import_timm

from keras_vit.checkpoints import load_checkpoint, save_checkpoint
from keras_vit.models import Mixer
from keras_vit.models.configured_model import BlockFeatures, remade

timm: Any = import_timm()
create_theirs, list_theirs = timm.create_model, timm.list_models
cfg_value = timm.get_pretrained_cfg_value

DEPTH = 3  # their tests expect three levels of features
TAKEN = {
    x
    for module in MODULES
    if module != "resnetv2"  # not narrowed
    for x in list_theirs(module=module, pretrained=True)
}
ARCHITECTURES = {x.partition(".")[0] for x in TAKEN}
MIXERS = set(list_theirs(module="mlp_mixer"))  # as wide as they are
# Pixels of a side, in place of their limits for models of full width.
LIMITS = dict.fromkeys(("MAX_FWD_SIZE", "MAX_BWD_SIZE", "MAX_FFEAT_SIZE"), 518)
# Tests of all architectures; the others have one of SHARE.
EVERY = ("test_model_forward", "test_model_backward")
SHARE = 8
PARAMETER = re.compile(r"\[\d+-(\w+)\]")
# Tests of their older torch: on real tensors, as Keras has none of "meta".
REAL_TENSORS = "_HAS_DEVICE_CONTEXT"


class Ours(torch.nn.Module):
    """A model of keras_vit with the methods that timm's tests call."""

    model: Any

    def __init__(self, name, path, theirs, **options):
        super().__init__()
        self.source = {"name": name, "path": path, **options}
        self.default_cfg = {**theirs.default_cfg, "fixed_input_size": True}
        self.num_classes = theirs.num_classes
        self.take(loaded(**self.source))
        self.in_chans = self.model.input_shape[-1]

    @functools.cached_property
    def token_shape(self):
        return self.without_pooling().output_shape

    @property
    def num_features(self):
        return self.token_shape[-1]

    @property
    def feature_dim(self):
        return -1 if len(self.token_shape) == 3 else 1

    @property
    def head_hidden_size(self):
        return loaded(**self.source, classes=0).output_shape[-1]

    @property
    def feature_info(self):
        reduction = self.model.input_shape[1] // grid_of(self.model)[0]
        blocks = [self.model.get_layer(f"block_{i}") for i in range(DEPTH)]
        return [
            {
                "num_chs": block.output.shape[-1],
                "reduction": reduction,
                "module": block.name,
            }
            for block in blocks
        ]

    def take(self, model):
        """Compute with this model; its trainable weights are parameters."""
        self.__dict__["model"] = model
        self._parameters.clear()
        for variable in model.trainable_variables:
            self.register_parameter(
                variable.path.replace(".", "_"), variable.value
            )

    def forward(self, x):
        return self.model(self.pixels(x), training=self.training)

    def pixels(self, x):
        """Channels last, without the pixels that patches do not divide."""
        height, width = self.model.input_shape[1:3]
        return x.movedim(1, -1)[:, :height, :width]

    def without_pooling(self):
        options = {} if is_mixer(self.model) else {"pooling": "none"}
        if options:
            return loaded(**{**self.source, **options}, classes=0)
        norm = self.model.get_layer("encoder_norm").output
        return keras.Model(self.model.input, norm)

    def forward_features(self, x):
        return self.without_pooling()(self.pixels(x))

    def forward_head(self, x, pre_logits=False):
        model = loaded(**self.source, classes=0) if pre_logits else self.model
        names = [layer.name for layer in model.layers]
        first = names.index("pool") if "pool" in names else len(names)
        for layer in model.layers[first:]:
            x = layer(x)
        return x

    def reset_classifier(self, num_classes, global_pool=None):
        assert num_classes == 0 and global_pool is None
        self.take(loaded(**self.source, classes=0))
        self.num_classes = 0

    def forward_intermediates(self, x, output_fmt="NCHW"):
        images = self.pixels(x)
        model = (
            self.without_pooling() if not is_mixer(self.model) else self.model
        )
        states = BlockFeatures(model, range(DEPTH), norm=False)(images)
        (final,) = BlockFeatures(model, [DEPTH - 1])(images)
        return final, [self.map_of(state) for state in states]

    def map_of(self, tokens):
        """(N, C, height, width) of the tokens of patches."""
        if tokens.ndim == 4:
            return tokens.movedim(-1, 1)
        rows, columns = grid_of(self.model)
        patches = tokens[:, tokens.shape[1] - rows * columns :]
        return patches.reshape(len(tokens), rows, columns, -1).movedim(-1, 1)

    def set_grad_checkpointing(self):
        values = {x.path: x.numpy() for x in self.model.weights}
        self.take(remade(self.model, values, rematerialize=True))

    def state_dict(self, *arguments, **options):
        """The tensors of the file that is written for timm."""
        from safetensors.torch import load_file

        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.safetensors"
            save_checkpoint(self.model, path, format="timm")
            return load_file(path)


class Features(torch.nn.Module):
    """What timm's `features_only` gives: a map of each block."""

    def __init__(self, ours):
        super().__init__()
        self.ours = ours
        self.default_cfg = ours.default_cfg
        info = timm.models.FeatureInfo
        self.feature_info = info(ours.feature_info, len(ours.feature_info))

    def forward(self, x):
        return self.ours.forward_intermediates(x)[1]


def is_mixer(model):
    return isinstance(model, Mixer)


def grid_of(model):
    config = model.config
    return getattr(config, "grid", None) or tuple(
        x // y
        for x, y in zip(config.image_size, config.patch_size, strict=True)
    )


def loaded(name, path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_checkpoint(path / f"{name}.safetensors", **options)


def create_model(
    name,
    pretrained=False,
    num_classes=None,
    features_only=False,
    feature_cls="getter",
    device="cpu",
    dtype=torch.float32,
):
    """A model of keras_vit, of three blocks and 128 wide."""
    assert not pretrained and feature_cls == "getter" and device == "cpu"
    narrow = {**OWN.get(name, SIZES), "depth": DEPTH}
    if "num_kv_heads" in narrow:
        narrow["num_kv_heads"] = (2, 1, 1)
    mixes = name in MIXERS
    options = {} if num_classes is None else {"num_classes": num_classes}
    theirs = create_theirs(name, **({} if mixes else narrow), **options)
    if mixes:
        theirs.blocks = theirs.blocks[:DEPTH]
    theirs = randomised(theirs)
    folder = tempfile.TemporaryDirectory()
    path = pathlib.Path(folder.name)
    tensors = {k: x.contiguous() for k, x in theirs.state_dict().items()}
    save_file(tensors, path / f"{name}.safetensors")
    heads = {} if mixes else {"num_heads": narrow.get("num_heads")}
    ours = Ours(name, path, theirs, **heads)
    ours.__dict__["folder"] = folder
    return Features(ours) if features_only else ours


def list_models(*arguments, include_tags=None, **options):
    """The architectures of timm that load here, each once."""
    names = list_theirs(*arguments, **options)
    return [x for x in names if x in ARCHITECTURES]


def get_pretrained_cfg_value(name, key):
    return True if key == "fixed_input_size" else cfg_value(name, key)


timm.create_model, timm.list_models = create_model, list_models
timm.get_pretrained_cfg_value = get_pretrained_cfg_value
timm.list_pretrained = lambda *arguments, **options: []


def pytest_collection_modifyitems(config, items):
    """Leave each eighth architecture to the slower tests."""
    mark(items)
    names = {name: i for i, name in enumerate(sorted(ARCHITECTURES))}
    kept, left_out = [], []
    for item in items:
        vars(item.module).update({REAL_TENSORS: False, **LIMITS})
        name = PARAMETER.search(item.name)
        number = names.get(name[1] if name else None)
        taken = number is not None and (
            item.originalname in EVERY or number % SHARE == 0
        )
        (kept if taken else left_out).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


def pytest_runtest_teardown(item, nextitem):
    # Keras's own collection after each test is most of the time.
    keras.utils.clear_session(free_memory=False)
    if nextitem is None or hash(nextitem.nodeid) % 20 == 0:
        gc.collect()


def pytest_runtest_setup():
    np.random.seed(0)
    torch.manual_seed(0)
