"""Gradients of the whole batch under tf.distribute, before anything is done.

Keras 3.15 sums the gradients of the replicas at the end of an update. What
comes before sees one replica's share: a norm is clipped at up to as many times
the limit as there are replicas, float16's overflow is looked for in the first
share alone, and accumulating gradients fails. This is the one place where that
is mended.
"""

import keras
from keras import ops

__all__ = ["has_strategy", "sum_gradients_first"]


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
    if not has_strategy():
        return
    apply = optimizer.apply

    def apply_summed(grads, trainable_variables=None):
        return apply(_summed(grads), trainable_variables)

    optimizer.apply = apply_summed
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    # They are summed by now: Keras's own sum, where it comes, has no part.
    inner._all_reduce_sum_gradients = lambda grads_and_vars: grads_and_vars
    if inner.gradient_accumulation_steps and not _is_tpu():
        _accumulate_outside_of_replicas(inner)


def has_strategy() -> bool:
    """Whether this is the scope of a strategy of tf.distribute.

    Example:
        >>> has_strategy()
        False
    """
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return tf.distribute.has_strategy()


def _is_tpu():
    # One program is traced for all replicas: they need not meet.
    import tensorflow as tf

    return isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)


def _summed(gradients):
    import tensorflow as tf

    there = [gradient for gradient in gradients if gradient is not None]
    context = tf.distribute.get_replica_context()
    summed = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, there))
    return [None if x is None else next(summed) for x in gradients]


def _accumulate_outside_of_replicas(optimizer):
    """Asks whether it is time for an update where all replicas meet.

    Keras asks in each replica, from within whose branches replicas cannot
    reach each other: "merge_call called while defining a new graph".
    """
    import tensorflow as tf

    steps = optimizer.gradient_accumulation_steps

    def accumulated(variables):
        indices = map(optimizer._get_variable_index, variables)
        return [optimizer._accumulated_gradients[i] for i in indices]

    def update(gradients, variables):
        pairs = zip(gradients, accumulated(variables), strict=True)
        means = optimizer._clip_gradients([(x + y) / steps for x, y in pairs])
        optimizer._apply_weight_decay(variables)
        optimizer._backend_update_step(
            means, variables, optimizer.learning_rate
        )
        optimizer._backend_reset_gradient_accumulators()

    def increment(gradients, variables):
        optimizer._backend_increment_gradient_accumulators(
            gradients, accumulated(variables)
        )

    def where_all_meet(strategy, *values):
        def in_each(function):
            strategy.extended.call_for_each_replica(function, args=values)

        # `iterations` counts the updates alone.
        is_time = ops.equal((optimizer._iterations + 1) % steps, 0)
        ops.cond(is_time, lambda: in_each(update), lambda: in_each(increment))

    def apply(gradients, variables):
        tf.distribute.get_replica_context().merge_call(
            where_all_meet, args=(gradients, variables)
        )
        if optimizer.use_ema:
            optimizer._update_model_variables_moving_average(
                optimizer._trainable_variables
            )

    optimizer._backend_apply_gradients = apply
