"""What every layer of keras_vit shares: a config that Keras can rebuild."""

import inspect

import keras

from keras_vit.workarounds import sublayers

__all__ = ["ConfiguredLayer", "resolved_policy", "serialized_dtype"]


class ConfiguredLayer(keras.layers.Layer):
    """A Keras layer that keeps each constructor argument under its own name.

    The config is read from those attributes, so that no argument has to be
    written down a second time in a `get_config`. It also records the dtype
    policies of sub-layers that `quantize` has changed, without which a
    quantised model could be saved but not loaded.
    """

    def get_config(self):
        config = super().get_config()
        arguments = inspect.signature(type(self).__init__).parameters
        for name in arguments:
            if name not in ("self", "kwargs"):
                config[name] = getattr(self, name)
        config["dtype"] = serialized_dtype(self)
        return config

    def dtype_of(self, name: str):
        """The dtype policy that a sub-layer made in `build` is to have.

        Keras's dense layers, once quantised, save only with a policy of their
        own, not with a map of policies.

        Args:
            name: str, name of the sub-layer.

        Returns:
            A dtype policy that is not a map.
        """
        return resolved_policy(self.dtype_policy, f"{self.path}/{name}")


def serialized_dtype(layer: keras.layers.Layer) -> dict:
    """Serialises the dtype policy of a layer and of the layers inside it.

    Sub-layers inherit the policy of their parent; those that do not (after
    `quantize`, or a float32 head in a mixed-precision model) become entries
    of a `keras.dtype_policies.DTypePolicyMap`, keyed by their path.

    Args:
        layer: a layer or a model.

    Returns:
        The config of a `DTypePolicy`, or of a `DTypePolicyMap` where there
        are exceptions.
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
    """The policy for one path, where `policy` may be a map of them.

    Args:
        policy: a dtype policy of Keras or a map of them.
        path: str, path of a layer; None for layers that need no building.

    Returns:
        A dtype policy that is not a map.
    """
    if not isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        return policy
    return policy.default_policy if path is None else policy[path]
