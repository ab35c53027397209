"""What the models share: one frozen config is the whole record of a model.

Axes: B batch, T tokens, D hidden dimension, or input features of a dense layer,
M its output features, r the rank of low-rank adaptations (LoRA).
"""

import contextlib
import dataclasses
import functools
import inspect
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.io.checks import check_kind
from keras_vit.layers.common import resolved_policy, serialized_dtype
from keras_vit.models.options import changed, options_of
from keras_vit.preprocessing import MID_GREY
from keras_vit.runtime.workarounds import (
    keeping_variables,
    set_initializer,
    sublayers,
)
from keras_vit.trained_as import TrainedAs

__all__ = [
    "BlockFeatures",
    "ConfiguredModel",
    "block_fields",
    "check_blocks",
    "head",
    "keeping",
    "merged",
    "preprocessing",
    "remade",
]

MAX_RECORD = 2**19  # bytes, of what a model was trained on in its config


def keeping(name):
    """A method of Keras after whose errors the model has its variables."""
    method = getattr(keras.Model, name)

    @functools.wraps(method)
    def call(self, *arguments, **options):
        if name != "predict":
            check_loss(self)
        with keeping_variables(self):
            return method(self, *arguments, **options)

    return call


class ConfiguredModel(keras.Model):
    """A functional Keras model that is built from a frozen config.

    Subclasses have the class of their config in `config_class` and build the
    graph in `outputs_of`. A saved model holds the config, the
    dtype policies and which layers are frozen, not the graph: it is built
    anew on loading.

    Args:
        config: the config, a frozen dataclass.
        name: str, name of the model.
        dtype: dtype policy of all layers, by name or as a Keras policy;
            Keras's global policy by default.
        trainable: bool, whether training changes the weights.

    Attributes:
        config: the config that was given.
        trained_as: a `TrainedAs`, saved with the model: what it was trained
            on, which `keras_vit.predict` and others go by.

    Raises:
        ValueError: when Keras is set to channels-first images.
    """

    config_class: type
    config: Any
    trained_as: TrainedAs = TrainedAs()

    def __init__(self, config, *, name=None, dtype=None, trainable=True):
        check_channels_last()
        check_kind(type(self).config_class, config=config)
        policy = keras.dtype_policies.get(dtype)
        inputs = type(self).input_of(config)
        outputs = type(self).build_outputs(config, inputs, policy)
        super().__init__(inputs, outputs, name=name)
        self.config = config
        # Not the map of a loaded model: Keras scales losses by this name.
        self.dtype_policy = resolved_policy(policy, None)
        self.trainable = trainable

    @staticmethod
    def input_of(config):
        """Return the Keras tensor that the model is built on."""
        shape = (*config.image_size, config.channels)
        return keras.Input(shape, name="image", dtype="float32")

    @staticmethod
    def outputs_of(config, images, dtype=None):
        """Return the output of the model for a Keras tensor of images."""
        raise NotImplementedError

    @classmethod
    def build_outputs(cls, config, images, dtype=None):
        """Return `outputs_of`, where each field that is set is read.

        Raises:
            ValueError: for a field that no layer of the model reads.
        """
        fields = Fields(config, {"image_size", "channels"})
        outputs = cls.outputs_of(fields, images, dtype)
        rows = options_of(config)
        for name, value in changed(config).items():
            if name in rows and not rows[name].idle and name not in fields.read:
                raise ValueError(
                    f"No layer of this {cls.__name__} reads {name}, so that "
                    f"it would do nothing. Received: {name}={value!r}. Leave "
                    f"it out, for its default {getattr(type(config), name)!r}."
                )
        return outputs

    fit, evaluate, predict = map(keeping, ("fit", "evaluate", "predict"))

    def call(self, inputs, training=None, mask=None):
        # On JAX, Keras's `predict` asks no layer whether a shape fits.
        self.check_shape(keras.tree.flatten(inputs)[0].shape)
        return super().call(inputs, training=training, mask=mask)

    def check_shape(self, shape):
        """Raise a ValueError where a batch is of another size."""
        check_sides(self.config.image_size, shape)

    def get_config(self):
        known = self.trained_as.to_fields()
        # Of a config of more than a MiB nothing is loaded.
        if len(json.dumps(known)) > MAX_RECORD:
            known.pop("class_names")
        return {
            **({"trained_as": known} if known else {}),
            "name": self.name,
            "trainable": self.trainable,
            "dtype": serialized_dtype(self),
            "config": dataclasses.asdict(self.config),
            "frozen": [
                layer.path
                for layer in sublayers(self)
                if self.trainable and not layer.trainable
            ],
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        frozen = set(config.pop("frozen", ()))
        known = config.pop("trained_as", {})
        config["config"] = cls.config_class(**config["config"])
        config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        model = cls(**config)
        model.trained_as = TrainedAs.from_fields(known, "the saved model")
        for layer in sublayers(model):
            if layer.path in frozen:
                layer.trainable = False
        return model


class Fields(Mapping):
    """The fields of a config, of which it records those that are read.

    Args:
        config: the config. Its fields and properties are attributes here, too.
        read: names that were read, a set that grows.
        **changes: fields that have other values here.
    """

    def __init__(self, config: Any, read: set[str], **changes: Any):
        self.config = config
        self.read = read
        self.changes = changes

    def __getattr__(self, name: str) -> Any:
        if isinstance(
            found := getattr(type(self.config), name, None), property
        ):
            return found.__get__(self)
        self.read.add(name)
        if name in self.changes:
            return self.changes[name]
        return getattr(self.config, name)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self.changes or name in vars(self.config)

    def __iter__(self) -> Iterator[str]:
        return iter({**vars(self.config), **self.changes})

    def __len__(self) -> int:
        return len(list(iter(self)))

    def but(self, **changes: Any) -> "Fields":
        """Return the same fields with other values for some."""
        return Fields(self.config, self.read, **{**self.changes, **changes})


def check_sides(image_size: tuple[int, int], shape) -> None:
    """Raises a ValueError where a batch (B, H, W, C) is of another size.

    Sides that are not known yet are left to Keras, and other ranks as well.
    """
    if getattr(shape, "rank", len(image_size) + 2) is None or len(shape) != 4:
        return
    known = zip(shape[1:3], image_size, strict=True)
    # A model of any size has no sides to expect.
    if any(x and y and x != y for x, y in known):
        raise ValueError(
            f"The model is for images of {image_size[0]}x{image_size[1]} "
            f"pixels. Received: images of shape {tuple(shape)}. Resize them, "
            "or make the model with their input_shape."
        )


def check_loss(model: ConfiguredModel) -> None:
    """Raises a ValueError for logits and a loss of probabilities.

    It is NaN of them, or a number that training does not make smaller.
    """
    loss = getattr(model, "loss", None)
    activation = getattr(model.config, "classifier_activation", None)
    if not activation and _takes_probabilities(loss):
        name = getattr(loss, "__name__", None) or getattr(loss, "name", loss)
        raise ValueError(
            f"The model gives logits, and the loss {name!r} takes "
            "probabilities. Compile it with the loss from_logits=True, such "
            "as keras.losses.SparseCategoricalCrossentropy(from_logits=True), "
            'or make the model with classifier_activation="softmax".'
        )


def _takes_probabilities(loss: Any) -> bool:
    found = loss
    if isinstance(loss, str):
        with contextlib.suppress(ValueError):  # Keras says it.
            found = keras.losses.get(loss)
    if isinstance(found, keras.losses.Loss):
        return found.get_config().get("from_logits") is False
    if not inspect.isfunction(found):
        return False
    parameter = inspect.signature(found).parameters.get("from_logits")
    return parameter is not None and parameter.default is False


def check_channels_last() -> None:
    """Raises a ValueError when Keras is set to channels-first images."""
    if keras.config.image_data_format() != "channels_last":
        raise ValueError(
            "The models of keras_vit take channels-last images (height, "
            "width, channels). Received: image_data_format="
            f"{keras.config.image_data_format()!r}. Call "
            'keras.config.set_image_data_format("channels_last").'
        )


def remade(
    model: ConfiguredModel,
    values: Mapping[str, np.ndarray],
    *,
    dtype=None,
    **changes: Any,
) -> Any:
    """A new model like this one, all of it trainable, with given weights.

    Args:
        model: what it is like, with its name.
        values: an array for each of its weights, by path; they are cast.
        dtype: its dtype policy; that of the model by default.
        changes: fields of the config that differ, none that changes the
            weights.
    """
    config = dataclasses.replace(model.config, **changes)
    dtype = model.dtype_policy if dtype is None else dtype
    # What is made in the scope starts as its value: nothing is drawn.
    with keras.StatelessScope():
        found = type(model)(config, name=model.name, dtype=dtype)
        for variable in found.weights:
            set_initializer(variable, _constant(values[variable.path]))
    found.trained_as = model.trained_as
    return found


def _constant(value):
    return lambda shape, dtype=None: keras.ops.cast(value, dtype)


def block_fields(config: Fields, i: int) -> Fields:
    """Return the fields of a config for block i, counted from 0.

    The rate of stochastic depth is that of the last block; it grows linearly
    from 0 for the first.
    """
    depth = max(config.num_layers - 1, 1)
    rate = config.stochastic_depth_rate * i / depth
    return config.but(stochastic_depth_rate=rate)


def head(config, features, dtype=None):
    """The classification layer, in float32 under mixed precision.

    Its kernel starts at zero, as in the original. Without classes the
    features (batch, D) are returned. A head_bias of None is no bias.
    """
    if not config.num_classes:
        return features
    classify = keras.layers.Dense(
        config.num_classes,
        activation=config.classifier_activation,
        use_bias=config.head_bias is not None,
        kernel_initializer="zeros",
        bias_initializer=keras.initializers.Constant(config.head_bias or 0.0),
        dtype=_head_policy(dtype, "predictions"),
        name="predictions",
    )
    if getattr(config, "unit_features", False):
        unit = keras.layers.UnitNormalization(
            dtype=_head_policy(dtype, "unit_features"), name="unit_features"
        )
        features = unit(features)  # (B, D)
    return classify(features)


def _head_policy(dtype, name):
    """Float32 for a mixed policy, so that logits are not rounded."""
    policy = keras.dtype_policies.get(dtype)
    policy = resolved_policy(policy, name)
    if policy.name in ("mixed_bfloat16", "mixed_float16"):
        return keras.dtype_policies.get("float32")
    return policy


def preprocessing(config, images, dtype=None):
    """Scales [0, 255] inside the model if the config says so.

    To [-1, 1], or to the mean and deviation that its weights were trained on.
    """
    if not config.include_preprocessing:
        return images
    scale, offset = 1 / MID_GREY, -1
    if getattr(config, "pixel_mean", None) is not None:
        mean, std = np.array(config.pixel_mean), np.array(config.pixel_std)
        scale, offset = (1 / (255 * std)).tolist(), (-mean / std).tolist()
    return keras.layers.Rescaling(
        scale, offset=offset, dtype=dtype, name="rescaling"
    )(images)


LORA = ("lora_kernel_a", "lora_kernel_b")  # Keras's names of A and B


def merged(
    model: Any,
    to_numpy: Callable[[Any], np.ndarray] = keras.ops.convert_to_numpy,
) -> Any:
    """Return the same model without LoRA, products added to their kernels.

    They are added in float32, whatever the precision of the model: Keras
    itself rounds a kernel that it saves to bfloat16 under mixed_bfloat16.

    Args:
        model: a model of keras_vit.
        to_numpy: returns the whole value of a variable.

    Returns:
        A new model, all of it trainable; the model itself if it has no LoRA.
    """
    if not any(_has_lora(x) for x in sublayers(model)):
        return model
    products = {
        f"{layer.path}/kernel": _product(layer, to_numpy)
        for layer in sublayers(model)
        if _has_lora(layer)
    }
    values = {
        x.path: to_numpy(x) + products.get(x.path, 0)
        for x in model.weights
        if x.name not in LORA
    }
    return remade(model, values)


def _product(layer, to_numpy):
    """alpha / rank * A B, float32 (D, M)."""
    by_name = {x.name: to_numpy(x) for x in layer.variables if x.name in LORA}
    a, b = (by_name[name].astype("float32") for name in LORA)
    return np.float32(layer.lora_alpha / layer.lora_rank) * (a @ b)


def _has_lora(layer):
    return isinstance(layer, keras.layers.Dense) and layer.lora_enabled


# --- Features after blocks ---

BLOCK = "block_"
# What may follow the last block, and
NORM, NECK, POOL = "encoder_norm", "neck", "pool"
CLASS = ("class_token", "class_block_")  # what reads all patches then.


class BlockFeatures(keras.Model):
    """A network from images to the features after some blocks of a model.

    It shares the layers of the model, which stays as it is. Features are
    treated as the model treats those of its last block: normalised by its
    final layer normalisation, projected by its neck, and pooled as its head
    does, in its own order.
    A model that normalises after pooling leaves single tokens as they are.
    Of a model with class attention the tokens are those of the patches, which
    its class token reads where they are pooled.

    Args:
        model: a model of keras_vit with blocks: a Vision Transformer, a
            variant of it, or a Mixer.
        blocks: numbers of blocks, as `check_blocks` returns them.
        norm: bool, whether the final normalisation and the neck are applied.
        pool: bool, whether tokens are pooled to one vector.

    Input shape:
        That of the model.

    Output shape:
        For each block (B, T, D), or (B, D) if pooled, in float32. Class
        token, distillation token and registers come first.

    Raises:
        ValueError: when a model without pooling is to be pooled.

    Example:

    >>> model = keras_vit.ViT_B16(weights=None)
    >>> [x.shape for x in BlockFeatures(model, [5, 11])(images)]
    [(2, 197, 768), (2, 197, 768)]
    """

    predict = keeping("predict")

    def __init__(
        self,
        model: keras.Model,
        blocks: Sequence[int],
        *,
        norm: bool = True,
        pool: bool = False,
    ):
        super().__init__(name="block_features")
        names = _names_after_blocks(model, pool)
        if pool and POOL not in names:
            raise ValueError(
                f"The model {model.name!r} does not pool its tokens. Received: "
                "pooled features of its blocks. Ask for its tokens."
            )
        if not pool:
            names = list(itertools.takewhile(lambda x: x != POOL, names))
        names = [x for x in names if norm or x not in (NORM, NECK)]
        self.after = [model.get_layer(x) for x in names]
        outputs = [model.get_layer(f"{BLOCK}{i}").output for i in blocks]
        self.states = keras.Model(model.input, outputs)
        # It has no weights of its own: Keras need not try a batch first.
        self.built = True

    def call(self, images):
        return [
            self._finish(x) for x in keras.tree.flatten(self.states(images))
        ]

    def _finish(self, x):
        for layer in self.after:
            x = layer(x)
        return ops.cast(x, "float32")


def _names_after_blocks(model, pool) -> list:
    """The layers of a model that follow its last block, up to the pooling."""
    names = [x.name for x in model.layers]
    last = max(i for i, x in enumerate(names) if x.startswith(BLOCK))
    kept = (NORM, NECK, POOL, *CLASS) if pool else (NORM, NECK, POOL)
    return [x for x in names[last + 1 :] if x.startswith(kept)]


def check_blocks(model: keras.Model, blocks: int | Sequence[int]) -> list[int]:
    """The numbers of blocks from 0; negative ones count from the end.

    Raises:
        ValueError: for a model without blocks, no block, or a number that
            the model has no block of.

    Example:
        >>> check_blocks(keras_vit.ViT_B16(weights=None), [0, -1])
        [0, 11]
    """
    names = {x.name for x in model.layers}
    count = sum(f"{BLOCK}{i}" in names for i in range(len(names)))
    if not count:
        raise ValueError(
            f"A {type(model).__name__} has no transformer blocks. Received: "
            f"the model {model.name!r}. Take a Vision Transformer or a Mixer."
        )
    if not isinstance(blocks, int):
        check_kind(tuple[int, ...], blocks=blocks)
    numbers = [blocks] if isinstance(blocks, int) else list(blocks)
    wrong = [x for x in numbers if not _is_block(x, count)]
    if wrong or not numbers:
        raise ValueError(
            f"The model has {count} blocks. Received: blocks={blocks!r}. Give "
            f"numbers from 0 to {count - 1}, or -1 for the last block."
        )
    return [int(x) % count for x in numbers]


def _is_block(number, count):
    return -count <= number < count
