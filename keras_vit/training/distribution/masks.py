"""Dropout and stochastic depth under tf.distribute: masks of its own for each.

Keras 3.15 gives all replicas the seeds of one, so that they drop the same
places of their shares of a batch. This is the one place where that is mended.
"""

import functools

import keras

from keras_vit.training.distribution.gradients import has_strategy

__all__ = ["draw_own_masks"]

# Seeds of a layer are below 1e9 and those of replicas this far apart, modulo
# 2**31 - 2 as Keras has it: two meet as seldom as those of two layers.
APART = 0x9E3779B1


def draw_own_masks(model: keras.Model) -> None:
    """Lets each replica draw other random numbers in the layers of a model.

    The first replica draws what one device draws. What a generator keeps in
    its variable stays the same on all, so that checkpoints hold it.

    Args:
        model: a Keras model, made in the scope in which it is used. It is left
            as it is where that is none of tf.distribute.

    Example:
        >>> with strategy.scope():
        ...     model = keras_vit.ViT_S16(weights=None, dropout_rate=0.1)
        ...     draw_own_masks(model)
    """
    if not has_strategy():
        return
    for layer in model._flatten_layers():
        for generator in layer._seed_generators:
            generator.next = functools.partial(_next_of_replica, generator)


def _next_of_replica(generator, ordered=True):
    import tensorflow as tf

    seed = type(generator).next(generator, ordered)
    context = tf.distribute.get_replica_context()
    if context is None:
        return seed
    replica = tf.cast(context.replica_id_in_sync_group, seed.dtype)
    return seed + tf.stack([replica * APART, tf.zeros_like(replica)])
