"""Keras's optimizers, put right where layers or steps are not all alike."""

import itertools

from keras import ops

__all__ = ["layer_depths", "with_layer_rates"]


def layer_depths(model) -> dict[str, int]:
    """How far each weight is from the classification layer, in blocks.

    As in "BEiT" (arXiv:2106.08254), appendix B: 0 for the classification
    layer, pooling and the last normalisation, 1 for the last block, and one
    more than the first block for the patches and what is added to them.

    Args:
        model: a Keras model whose blocks are the layers block_0, block_1, ...

    Returns:
        Path of a variable to its depth, for the trainable variables.

    Raises:
        ValueError: when the model has no such blocks.

    Example:
        >>> layer_depths(model)["patch_embed/kernel"]
        13
    """
    names = [layer.name for layer in model.layers]
    blocks = [name for name in names if name.startswith("block_")]
    if not blocks:
        raise ValueError(
            "layer_decay counts the blocks of a Vision Transformer or Mixer. "
            f"Received: the model {model.name!r}, which has none. Use "
            "layer_decay=1."
        )
    first, last = names.index(blocks[0]), names.index(blocks[-1])
    depths = {}
    for place, layer in enumerate(model.layers):
        depth = max(last - place + 1, 0) if place >= first else len(blocks) + 1
        for variable in layer.trainable_variables:
            depths[variable.path] = depth
    return depths


def with_layer_rates(base: type, rates: dict[str, float]) -> type:
    """A Keras optimizer with one factor of the learning rate a variable.

    Keras's `MultiOptimizer` would clip the gradients of each group on its
    own. The factor holds for the weight decay as well.

    With gradient accumulation the moving average takes each update once:
    Keras (3.15) takes it at each call, whether the weights moved or not.

    Args:
        base: class of a Keras optimizer, of the backend.
        rates: path of a variable to its factor; 1 where there is none.

    Returns:
        A subclass with the same arguments.
    """

    class LayerRates(base):
        _factor = 1.0

        def _get_current_learning_rate(self):
            return super()._get_current_learning_rate() * self._factor

        def _apply_weight_decay(self, variables):
            decayed = [x for x in variables if self._use_weight_decay(x)]
            for factor, members in self._grouped(decayed):
                self._factor = factor
                super()._apply_weight_decay(members)
            self._factor = 1.0

        def _backend_update_step(self, grads, variables, learning_rate):
            gradient = dict(zip(map(id, variables), grads, strict=True))
            for factor, members in self._grouped(variables):
                super()._backend_update_step(
                    [gradient[id(x)] for x in members],
                    members,
                    learning_rate * factor,
                )

        def _grouped(self, variables):
            def factor(variable):
                return rates.get(variable.path, 1.0)

            ordered = sorted(variables, key=factor)
            groups = itertools.groupby(ordered, key=factor)
            return [(rate, list(members)) for rate, members in groups]

        def _update_model_variables_moving_average(self, variables):
            decay, steps = self.ema_momentum, self.gradient_accumulation_steps
            if steps:
                updated = ops.equal((self._iterations + 1) % steps, 0)
                self.ema_momentum = ops.where(updated, decay, 1.0)
            super()._update_model_variables_moving_average(variables)
            self.ema_momentum = decay

    return LayerRates
