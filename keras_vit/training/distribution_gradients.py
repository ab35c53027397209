"""Gradients of the whole batch under tf.distribute, before anything is done.

Keras 3.15 sums the gradients of the replicas at the end of an update. What
comes before (clipping, the test for float16's overflow, accumulation) sees one
replica's share: a norm is clipped at up to as many times the limit as there
are replicas. This is the one place where that is mended.
"""

import keras

__all__ = ["sum_gradients_first"]


def sum_gradients_first(optimizer: keras.optimizers.Optimizer) -> None:
    """Lets an optimizer get the summed gradients of all replicas.

    Args:
        optimizer: a Keras optimizer, made in the scope in which it is used.
            It is left as it is where that is none of tf.distribute.

    Example:
        >>> with strategy.scope():
        ...     optimizer = keras.optimizers.SGD(0.1, global_clipnorm=1.0)
        ...     sum_gradients_first(optimizer)
        ...     model.compile(optimizer, "mse")
    """
    if not _has_strategy():
        return
    apply = optimizer.apply

    def apply_summed(grads, trainable_variables=None):
        return apply(_summed(grads), trainable_variables)

    optimizer.apply = apply_summed
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    # They are summed by now: Keras's own sum, where it comes, has no part.
    inner._all_reduce_sum_gradients = lambda grads_and_vars: grads_and_vars


def _has_strategy():
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return tf.distribute.has_strategy()


def _summed(gradients):
    import tensorflow as tf

    there = [gradient for gradient in gradients if gradient is not None]
    context = tf.distribute.get_replica_context()
    summed = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, there))
    return [None if x is None else next(summed) for x in gradients]
