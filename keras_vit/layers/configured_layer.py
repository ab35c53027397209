"""What every layer of keras_vit shares: a config that Keras can rebuild."""

import inspect
from collections.abc import Mapping
from typing import Any

import keras

from keras_vit.runtime.workarounds import sublayers

__all__ = ["ConfiguredLayer", "resolved_policy", "serialized_dtype"]


class ConfiguredLayer(keras.layers.Layer):
    """A Keras layer that keeps each constructor argument under its own name.

    Its config is read from those attributes. It also records the dtype
    policies of sub-layers that `quantize` has changed, without which a
    quantised model could be saved but not loaded.
    """

    @classmethod
    def argument_names(cls) -> list[str]:
        """Arguments of the constructor, those of the base classes included."""
        names = {}
        for base in reversed(cls.__mro__):
            if issubclass(base, ConfiguredLayer) and "__init__" in vars(base):
                parameters = list(inspect.signature(base.__init__).parameters)
                names |= dict.fromkeys(parameters[1:-1])  # self, **kwargs
        return list(names)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], **others):
        """Makes the layer from the fields that are named as its arguments.

        Args:
            fields: dict, such as those of the config of a model.
            **others: arguments that differ from the fields, `name` and
                `dtype`.

        Returns:
            The layer.
        """
        names = cls.argument_names()
        return cls(**{x: fields[x] for x in names if x in fields} | others)

    def compute_output_shape(self, input_shape, *others):
        return input_shape  # Unless a layer says otherwise.

    def get_config(self):
        config = super().get_config()
        for name in self.argument_names():
            value = getattr(self, name)
            if isinstance(value, keras.layers.Layer):
                value = keras.saving.serialize_keras_object(value)
                value.pop("build_config", None)  # This layer builds it.
            config[name] = value
        config["dtype"] = serialized_dtype(self)
        return config

    @classmethod
    def from_config(cls, config):
        made = {
            name: keras.saving.deserialize_keras_object(value)
            for name, value in config.items()
            if name != "dtype" and is_serialized(value)
        }
        return super().from_config(config | made)

    def dtype_of(self, name: str):
        """The dtype policy for a sub-layer that is made in `build`.

        Keras's dense layers, once quantised, save only with a policy of their
        own, not with a map of policies.
        """
        return resolved_policy(self.dtype_policy, f"{self.path}/{name}")


def is_serialized(value) -> bool:
    """Whether a value of a config is a layer as Keras writes it down."""
    return isinstance(value, dict) and "class_name" in value


def serialized_dtype(layer: keras.layers.Layer) -> dict:
    """Serialises the dtype policy of a layer and of the layers inside it.

    Sub-layers inherit the policy of their parent; those that do not (after
    `quantize`, or a float32 head in a mixed-precision model) become entries
    of a `keras.dtype_policies.DTypePolicyMap`, keyed by their path.
    """
    default = resolved_policy(layer.dtype_policy, None)
    exceptions = {}
    for sublayer in sublayers(layer):
        policy = resolved_policy(sublayer.dtype_policy, sublayer.path)
        if not sublayers(sublayer) and policy.name != default.name:
            exceptions[sublayer.path] = policy
    if exceptions:
        default = keras.dtype_policies.DTypePolicyMap(default, exceptions)
    return keras.dtype_policies.serialize(default)


def resolved_policy(policy, path: str | None):
    """The policy for the path of a layer, where `policy` may be a map."""
    if not isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        return policy
    return policy.default_policy if path is None else policy[path]
