"""Gradients of the whole batch under tf.distribute, before anything is done.

Keras 3.15 gives all replicas the seeds of one, so that they drop the same
places of their shares of a batch. This is the one place where that is mended.

`MultiWorkerMirroredStrategy.reduce` takes one value, where that of
`MirroredStrategy` takes structures of them. Keras's `fit` gives it a tuple of
images and labels (keras#20585), and asks for the mean of numbers over an axis
that they do not have. `mend_reduce` is the one place where both are mended.
"""

import functools

import keras
import numpy as np
from keras import ops

from keras_vit.training.distribution.start import place_in_tf_config

__all__ = [
    "draw_own_masks",
    "has_strategy",
    "mend_reduce",
    "multiworker",
    "placed",
    "shared_text",
    "strategy",
    "sum_gradients_first",
]


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


def multiworker(devices: list[str], steps_per_execution: int):
    """Each device of each process holds the model and computes a share.

    Args:
        devices: not used, all take part.
        steps_per_execution: int, what the model is compiled with.

    Returns:
        A tf.distribute.MultiWorkerMirroredStrategy.

    Raises:
        ValueError: for several steps in a call, or without TF_CONFIG.
    """
    if steps_per_execution > 1:
        raise ValueError(
            "The processes of TensorFlow cannot meet in a loop of steps. "
            f"Received: training.steps_per_execution={steps_per_execution}. "
            "Set it to 1, or KERAS_BACKEND to jax."
        )
    return strategy()


@functools.cache
def strategy():
    """The strategy of the processes in TF_CONFIG.

    TensorFlow makes it before anything else, and once.

    Returns:
        A mended tf.distribute.MultiWorkerMirroredStrategy.

    Raises:
        ValueError: without TF_CONFIG, or after TensorFlow has computed.
    """
    import tensorflow as tf

    if place_in_tf_config() is None:
        raise ValueError(
            "multiworker needs the processes in the environment variable "
            "TF_CONFIG, which is not set. On one host, use mirrored."
        )
    try:
        made = tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        if "program startup" not in str(error):
            raise
        raise ValueError(
            "The processes of a run must find each other before TensorFlow "
            "computes anything. Call keras_vit.training.distribution.setup "
            "first of all, or unset TF_CONFIG for a run of one process."
        ) from None
    mend_reduce(made)
    return made


def mend_reduce(strategy) -> None:
    """Lets a strategy reduce what Keras's `fit` gives it.

    Args:
        strategy: a tf.distribute.MultiWorkerMirroredStrategy.

    Example:
        >>> strategy = tf.distribute.MultiWorkerMirroredStrategy()
        >>> mend_reduce(strategy)
        >>> with strategy.scope():
        ...     model.fit(batches)
    """
    reduce = strategy.reduce

    def first(value):
        return strategy.experimental_local_results(value)[0]

    def reduce_any(reduce_op, value, axis=None):
        if keras.tree.is_nested(value):
            # A batch, of which Keras wants to know the shapes; its images may
            # be whole numbers, of which TensorFlow takes no means.
            return keras.tree.map_structure(first, value)
        return reduce(reduce_op, value, None if _is_number(value) else axis)

    strategy.reduce = reduce_any


def _is_number(value):
    """Whether it has no axis, on each replica."""
    first = getattr(value, "values", [value])[0]
    return len(first.shape) == 0


def placed(batches):
    """Gives the batches of this process to the replicas of `fit`.

    Args:
        batches: tf.data.Dataset of the share of this process, or None. All
            is returned as it is where no strategy of several processes is in
            use.

    Returns:
        What `fit` takes.

    Raises:
        ValueError: when the share cannot be cut into one for each replica,
            or is no tf.data.Dataset.
    """
    if keras.backend.backend() != "tensorflow":
        return batches
    import tensorflow as tf

    used = tf.distribute.get_strategy()
    several = isinstance(used, tf.distribute.MultiWorkerMirroredStrategy)
    if not several or batches is None:
        return batches
    if not isinstance(batches, tf.data.Dataset):
        raise ValueError(
            "The processes of TensorFlow take batches of a tf.data.Dataset. "
            f"Received: {type(batches).__name__}."
        )
    replicas = len(used.extended.worker_devices)
    if replicas > 1:
        size = keras.tree.flatten(batches.element_spec)[0].shape[0]
        if not size or size % replicas:
            raise ValueError(
                f"The {replicas} devices of a process share its images of a "
                f"batch. Received: {size} images. Give batches of one size, "
                f"a multiple of {replicas}."
            )
        batches = batches.rebatch(size // replicas)
    return used.distribute_datasets_from_function(lambda context: batches)


def shared_text(text: str | None) -> str:
    """Gives a text of the first process to all.

    Args:
        text: the text; None in the other processes.

    Returns:
        The text.
    """
    content = np.frombuffer((text or "").encode(), np.uint8).astype("int32")
    (size,) = _sum_over_processes(np.array([len(content)], "int32"))
    content = content if len(content) else np.zeros(size, "int32")
    return bytes(_sum_over_processes(content).astype("uint8")).decode()


def _sum_over_processes(array):
    """The sum over the processes, of which all but one give zeros."""
    import tensorflow as tf

    def one_replica():
        context = tf.distribute.get_replica_context()
        first = tf.equal(context.replica_id_in_sync_group, 0)
        value = tf.where(first, tf.constant(array), 0)
        return context.all_reduce(tf.distribute.ReduceOp.SUM, value)

    found = strategy().run(tf.function(one_replica))
    return strategy().experimental_local_results(found)[0].numpy()
