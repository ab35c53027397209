"""Workarounds for Keras and the backends, each with what tells it can go.

The one module that uses private names of Keras, JAX or TensorFlow. What is
said of Keras was measured on 3.15.1. "Until" names the issue or the test that
shows that Keras still needs it: when that test fails, delete the workaround.
Tests without a path are in tests/test_workarounds.py.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops
from keras.src.backend.common import global_state

from keras_vit.runtime.interrupts import interrupt_behind

__all__ = [
    "after_step",
    "attend_in_place",
    "backend_is",
    "biased_product",
    "draw_own_masks",
    "fused",
    "has_strategy",
    "is_schedule_free",
    "jax_store",
    "keeping_variables",
    "layout_of",
    "leave_out_tpu_attention",
    "loop_reduction",
    "mend_reduce",
    "move_towards",
    "observe_gradients",
    "put_apart",
    "rematerialize",
    "schedule_free",
    "schedule_free_pairs",
    "set_initializer",
    "set_layout",
    "set_value",
    "sublayers",
    "sum_gradients_first",
    "taken_over",
    "torch_devices",
    "values_at_the_end",
    "with_layer_rates",
    "without_optimizer",
    "without_values",
]


def backend_is(*names: str) -> bool:
    """Whether the backend is one of these.

    For what a backend needs written another way, outside of data/ and of
    training/distribution/.
    """
    return keras.backend.backend() in names


# --- Layers and variables ---


def sublayers(layer: keras.Layer) -> list[keras.Layer]:
    """The layers inside a layer, and those inside them.

    `layer.layers` of a model ends at its direct layers. Until
    `test_sublayers_have_no_public_name`.
    """
    return list(layer._flatten_layers(include_self=False))


def set_initializer(variable: keras.Variable, initializer: Callable) -> None:
    """Gives a variable made in a `StatelessScope` another initial value.

    Keras makes its value when the scope ends. A model that is to be loaded
    would otherwise draw all its weights first. Until
    `test_initializers_have_no_public_name`.
    """
    variable._initializer = initializer


def put_apart(layer: keras.Layer, prefix: str) -> None:
    """Puts a prefix before the paths of the variables of a layer.

    On torch Keras keeps what it sets to zero before each step by path: of two
    models in one network whose paths are the same, the gradients of one add
    up. Until `test_torch_keeps_parameters_by_path`.
    """
    for variable in layer.variables:
        variable._path = f"{prefix}/{variable.path}"


# What Keras keeps of variables that are yet to get their values.
WAITING = "uninitialized_variables"


@contextlib.contextmanager
def without_values() -> Iterator[None]:
    """Let models be built whose weights have shapes and take no memory.

    Keras would make their values with those of the next model. Until
    `test_variables_without_values_are_made_later`.
    """
    before = list(global_state.get_global_attribute(WAITING, []))
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        global_state.set_global_attribute(WAITING, before)


@contextlib.contextmanager
def values_at_the_end() -> Iterator[None]:
    """Let models be built whose weights get their values when this ends.

    Where one of them fails Keras would go on with all of them at the next
    model, and fail again. Until `test_variables_that_failed_are_made_again`.
    """
    before = list(global_state.get_global_attribute(WAITING, []))
    try:
        with keras.StatelessScope():
            yield
    except BaseException:
        global_state.set_global_attribute(WAITING, before)
        raise


def set_value(variable: keras.Variable, value) -> None:
    """Lets a variable hold a tensor as it is.

    `assign` would distribute the tensor over the devices again. Until
    `test_assign_keeps_the_layout`.
    """
    variable._value = value


def layout_of(variable: keras.Variable):
    """How JAX's devices share a variable; None where nothing was said.

    Keras's own `ModelParallel.get_variable_layout` asks for it so. Until
    `test_layouts_have_no_public_name`.
    """
    return getattr(variable, "_layout", None)


def set_layout(variable: keras.Variable, layout) -> None:
    """Lets JAX's devices share the next value of a variable so.

    None is one device. Until `test_layouts_have_no_public_name`.
    """
    variable._layout = layout


@contextlib.contextmanager
def without_optimizer(model: keras.Model) -> Iterator[None]:
    """Saves a model without what it was compiled with, a third of the size.

    Keras saves the optimizer's slots with no way to leave them out. Until
    `test_a_compiled_model_is_saved_with_its_optimizer`.
    """
    compiled, optimizer = model.compiled, getattr(model, "optimizer", None)
    model.compiled, model.optimizer = False, None
    try:
        yield
    finally:
        model.compiled, model.optimizer = compiled, optimizer


@contextlib.contextmanager
def keeping_variables(model: keras.Model) -> Iterator[None]:
    """Leaves a model its variables when `fit` or `predict` ends in an error.

    On JAX, Keras takes them out before the first step, and not always puts
    them back (docs/keras-reports.md). Here they stay: the first step donates
    what they hold, so that they take no memory. Until
    `test_an_error_in_predict_takes_the_variables`.
    """
    if not backend_is("jax") or "_purge_model_variables" in vars(model):
        yield
        return
    model._purge_model_variables = lambda **asked: None
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(RuntimeError):  # Lost in a step.
            model.jax_state_sync()
        model._jax_state = None
        if (interrupt := interrupt_behind(error)) is not error:
            raise interrupt from None
        raise
    finally:
        del model._purge_model_variables


def taken_over(array: np.ndarray):
    """The array as a tensor of the backend, in the memory that it has.

    Keras copies it, which takes longer and holds several more of the largest
    weights. Until `test_a_converted_array_is_a_copy`.
    """
    whole = array.flags.writeable and array.flags.c_contiguous
    if not whole or not array.size:
        return array  # A part of something stays as it is.
    taker = TAKERS.get(keras.backend.backend())
    return taker(array) if taker else array


def _taken_by_jax(array):
    import jax

    return jax.device_put(array)


def _taken_by_tensorflow(array):
    import tensorflow as tf

    # DLPack and torch know no dtype of ml_dtypes, and TensorFlow aborts at
    # memory that its vector instructions cannot read.
    if array.dtype.isbuiltin != 1 or array.ctypes.data % ALIGNMENT:
        return array
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def _taken_by_torch(array):
    import torch

    return array if array.dtype.isbuiltin != 1 else torch.from_numpy(array)


ALIGNMENT = 64  # bytes, Eigen's with AVX-512
TAKERS = {
    "jax": _taken_by_jax,
    "tensorflow": _taken_by_tensorflow,
    "torch": _taken_by_torch,
}


def rematerialize(layer: keras.layers.Layer, function: Callable, x):
    """Computes `function(x)` without keeping what it computes on the way.

    `keras.remat` alone fails on layers with dropout: JAX sees the seed state
    leave the rematerialised function, TensorFlow refuses variables inside it
    (keras#20936, keras#20964). Here the function gets all state of the layer
    as arguments, and the seeds move on outside of it. Until
    `test_remat_fails_on_dropout`.

    Args:
        layer: a built layer; it owns all variables that `function` uses.
        function: from one tensor to one tensor.
        x: tensor.
    """
    weights, seeds = [], []
    for variable in layer.variables:
        is_seed = variable.name == "seed_generator_state"
        (seeds if is_seed else weights).append(variable)
    drawn = [ops.copy(v) for v in seeds]
    for seed in seeds:
        # What keras.random.SeedGenerator.next does to its state.
        seed.assign(seed + ops.array([0, 1], dtype=seed.dtype))

    def pure(x, *values):
        state = list(zip([*weights, *seeds], [*values, *drawn], strict=True))
        with keras.StatelessScope(state_mapping=state):
            return function(x)

    return keras.remat(pure)(x, *(ops.convert_to_tensor(v) for v in weights))


# --- Functions ---


def biased_product(x, kernel, bias, activation: Callable | None = None):
    """Return `activation(x kernel + bias)`, on torch in fewer passes.

    Keras reads and writes all of a product again to add the bias. Here torch
    adds it within the product or, where nothing is differentiated, in the
    memory of the product, as it computes GELU: fresh memory costs more than
    either. A program that torch compiles or exports has Keras's operations: it
    fuses them, and the readers of its files look for a product. Until
    `test_keras_adds_the_bias_in_another_pass`.

    Args:
        x: tensor (..., D).
        kernel: variable or tensor (D, M).
        bias: variable or tensor (M,).
        activation: function of a tensor, or None.

    Returns:
        Tensor (..., M).
    """
    x, kernel, bias = map(ops.convert_to_tensor, (x, kernel, bias))
    activate = activation or keras.activations.linear
    if not backend_is("torch") or not x.dtype == kernel.dtype == bias.dtype:
        return activate(ops.add(ops.matmul(x, kernel), bias))
    import torch

    if torch.compiler.is_compiling():
        return activate(ops.add(ops.matmul(x, kernel), bias))
    if torch.is_grad_enabled():
        return activate(torch.nn.functional.linear(x, kernel.T, bias))
    x = torch.matmul(x, kernel).add_(bias)  # (..., M)
    if isinstance(activate, functools.partial) and activate.func is ops.gelu:
        form = "tanh" if activate.keywords["approximate"] else "none"
        return torch.ops.aten.gelu_(x, approximate=form)
    return activate(x)


def attend_in_place(query, key, value, *, flash: bool | None = False):
    """Return `softmax(q k^T / sqrt(d)) v`, on torch of heads as they lie.

    Keras copies all three there, which takes longer than the attention of 197
    tokens. Until `test_keras_copies_the_heads`.

    Args:
        query: tensor (B, N, H, d).
        key: tensor (B, M, H, d).
        value: tensor (B, M, H, d).
        flash: `flash_attention` of Keras, for other backends.

    Returns:
        Tensor (B, N, H, d).
    """
    if not backend_is("torch"):
        return ops.dot_product_attention(
            query, key, value, flash_attention=flash
        )
    import torch

    heads = (x.transpose(1, 2) for x in (query, key, value))
    x = torch.nn.functional.scaled_dot_product_attention(*heads)
    return x.transpose(1, 2)  # (B, N, H, d)


# --- Optimizers ---


def observe_gradients(
    optimizer: keras.optimizers.Optimizer, observe: Callable[[list], None]
) -> None:
    """Calls a function with the gradients of each update, before clipping.

    All together, without the loss scale, the accumulated ones averaged. Until
    `test_gradients_have_no_hook`.
    """
    clip = optimizer._clip_gradients

    def observe_and_clip(gradients):
        observe(gradients)
        return clip(gradients)

    optimizer._clip_gradients = observe_and_clip


def after_step(model: keras.Model, found, update: Callable[[], None]):
    """Update variables that are not trained, after a training step of Keras.

    Keras has no hook there. On JAX the step returns the values of the
    variables, and does not assign them. Until
    `test_steps_have_no_hook_after_the_optimizer`.

    Args:
        model: whose `train_step` it is.
        found: what the `train_step` of the base class returned.
        update: assigns variables of the model that are not trainable.

    Returns:
        What `train_step` returns.
    """
    if not backend_is("jax"):
        update()
        return found
    logs, (trained, others, *rest) = found
    pairs = [
        *zip(model.trainable_variables, trained, strict=True),
        *zip(model.non_trainable_variables, others, strict=True),
    ]
    with keras.StatelessScope(state_mapping=pairs) as scope:
        update()
    others = [scope.get_current_value(x) for x in model.non_trainable_variables]
    return logs, (trained, others, *rest)


def move_towards(variable: keras.Variable, target: keras.Variable, share):
    """Move a variable a share of the way to another, as a moving average does.

    Keras makes three tensors of its size for that; on torch it is one pass over
    memory.

    Args:
        variable: is assigned.
        target: variable of the same shape.
        share: scalar tensor, 1 minus the momentum.
    """
    if not backend_is("torch"):
        way = ops.subtract(target, variable)
        variable.assign(ops.add(variable, share * ops.stop_gradient(way)))
        return
    import torch

    with torch.no_grad():
        variable.value.lerp_(target.value, share)


def schedule_free() -> type | None:
    """Return Keras's ScheduleFreeAdamW, whose x is the average of all z.

    Keras takes z before a step from its variable, which on torch and
    TensorFlow has the value after it by then: x is off by the difference.
    None where Keras has no such class. Until
    `test_keras_takes_the_new_z_for_the_old`.
    """
    base = vars(keras.optimizers).get("ScheduleFreeAdamW")
    if base is None or backend_is("jax"):
        return base

    class ScheduleFreeAdamW(base):
        def update_step(self, gradient, variable, learning_rate):
            momentum = self._momentums[self._get_variable_index(variable)]
            old = ops.copy(ops.convert_to_tensor(momentum))
            super().update_step(gradient, variable, learning_rate)
            step = ops.cast(self.iterations + 1, variable.dtype)
            share = (1 - 1 / step) * (1 - self.beta_1)
            self.assign_add(variable, share * ops.subtract(momentum, old))

    return ScheduleFreeAdamW


def is_schedule_free(optimizer) -> bool:
    """Return whether an optimizer trains at y and is evaluated at x.

    Keras leaves the weights at y, between z, which takes the steps, and x,
    their average, which its documentation evaluates. Until
    `test_keras_leaves_the_weights_of_schedule_free_at_y`.
    """
    kind = vars(keras.optimizers).get("ScheduleFreeAdamW", ())
    return isinstance(optimizer, kind)


def schedule_free_pairs(optimizer, variables) -> list[tuple]:
    """Return the pairs of a variable, y, and its z."""
    return [
        (x, optimizer._momentums[optimizer._get_variable_index(x)])
        for x in variables
    ]


def fused(base: type) -> type:
    """An optimizer of Keras whose Adam is torch's one kernel on CPUs.

    Keras's own takes ten passes over all weights on torch: of 47 million, 0.54
    s of a processor, 0.08 s in one pass. What it computes is the same: torch's
    epsilon is that of the corrected deviation. Until
    `test_keras_has_no_fused_adam`.

    Args:
        base: class of a Keras optimizer, of the backend.

    Returns:
        A subclass that Keras saves as `base`, or `base` where it is not Adam on
        torch.
    """
    if not (backend_is("torch") and issubclass(base, keras.optimizers.Adam)):
        return base
    import torch
    from torch.optim.adamw import adamw

    class Fused(base):
        def _parallel_update_step(self, grads, variables, learning_rate):
            of = [self._get_variable_index(x) for x in variables]
            values = [x.value for x in variables]
            moments = [self._momentums[i].value for i in of]
            velocities = [self._velocities[i].value for i in of]
            if (
                self.amsgrad
                or torch.compiler.is_compiling()
                or not all(map(_is_flat, (*values, *moments, *velocities)))
            ):
                super()._parallel_update_step(grads, variables, learning_rate)
                return
            done = int(self.iterations)
            adamw(
                [x.data for x in values],
                [x.to(torch.float32).contiguous() for x in grads],
                moments,
                velocities,
                [],
                [torch.tensor(float(done)) for _ in values],
                fused=True,
                amsgrad=False,
                beta1=self.beta_1,
                beta2=self.beta_2,
                lr=float(learning_rate),
                weight_decay=0.0,  # Keras's is done.
                eps=self.epsilon / (1 - self.beta_2 ** (done + 1)) ** 0.5,
                maximize=False,
            )

    def _is_flat(x):
        on_cpu = x.device.type == "cpu" and x.dtype == torch.float32
        return on_cpu and x.is_contiguous()

    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(Fused, name, getattr(base, name))
    return Fused


def with_layer_rates(base: type, rates: dict[str, float]) -> type:
    """A Keras optimizer with a factor of the learning rate per variable.

    The factor holds for the weight decay as well. Keras's `MultiOptimizer`
    clips the gradients of each group on its own, and with gradient
    accumulation Keras takes the moving average at each call, whether the
    weights moved or not; here each update counts once. Until
    `test_multi_optimizer_clips_each_group` and
    `test_the_average_counts_calls_that_only_accumulate`.

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


# --- Several devices and processes ---


def has_strategy() -> bool:
    """Whether this is the scope of a strategy of tf.distribute."""
    if not backend_is("tensorflow"):
        return False
    import tensorflow as tf

    return tf.distribute.has_strategy()


def sum_gradients_first(optimizer: keras.optimizers.Optimizer) -> None:
    """Gives an optimizer the summed gradients of all replicas.

    Under tf.distribute, Keras clips the share of each replica, looks for an
    overflow on the first one alone, and cannot accumulate. Until
    tests/training/test_distribution_mends.py. The optimizer is made in the
    scope in which it is used; without a strategy it stays as it is.
    """
    if not has_strategy():
        return
    apply = optimizer.apply

    def apply_summed(grads, trainable_variables=None):
        return apply(_summed(grads), trainable_variables)

    optimizer.apply = apply_summed
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    # Summed by now: Keras's own sum, where it comes, does nothing.
    inner._all_reduce_sum_gradients = lambda grads_and_vars: grads_and_vars
    if inner.gradient_accumulation_steps and not _is_tpu():
        _accumulate_outside_of_replicas(inner)


def _is_tpu():
    # One program is traced for all replicas: they need not meet.
    import tensorflow as tf

    return isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)


def _summed(gradients):
    import tensorflow as tf

    present = [gradient for gradient in gradients if gradient is not None]
    context = tf.distribute.get_replica_context()
    summed = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, present))
    return [None if x is None else next(summed) for x in gradients]


def _accumulate_outside_of_replicas(optimizer):
    """Decides where all replicas meet whether it is time for an update.

    Keras decides in each replica, from within whose branches replicas cannot
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

    Keras gives all replicas the seeds of one, so that they drop the same
    places of their shares of a batch. The first replica draws what one device
    draws, and the variables of the generators stay the same on all. Until
    tests/training/test_distribution_mends.py. The model is made in the scope
    in which it is used; without a strategy of tf.distribute it stays as it is.
    """
    if not has_strategy():
        return
    for layer in (model, *sublayers(model)):
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


def loop_reduction(steps_per_execution: int):
    """How mirrored devices sum, where a call has several steps.

    TensorFlow's own choice, its collectives, fails in a loop of steps
    (keras#19246). None leaves the choice to TensorFlow. Until
    tests/training/test_distribution_mends.py.
    """
    import tensorflow as tf

    several = steps_per_execution > 1
    return tf.distribute.HierarchicalCopyAllReduce() if several else None


def mend_reduce(strategy) -> None:
    """Lets a MultiWorkerMirroredStrategy reduce what Keras's `fit` gives it.

    Its `reduce` takes one value, where that of `MirroredStrategy` takes
    structures of them. `fit` gives it a tuple of images and labels
    (keras#20585, tensorflow#72388), and asks for the mean of numbers over an
    axis that they do not have. Until tests/training/test_several_processes.py.
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
    return len(getattr(value, "values", [value])[0].shape) == 0


def jax_store() -> Any:
    """JAX's key-value store of the processes of a run.

    Nothing public waits for longer than a collective may take. Until
    `test_the_store_of_jax_has_no_public_name`.
    """
    from jax._src.distributed import global_state

    return global_state.client


def leave_out_tpu_attention(devices: list[str]) -> None:
    """Turns Keras's fused attention off where the devices are TPUs.

    JAX's kernel there takes no 197 tokens and is not shared among devices
    (keras#21116). Until the step with it lowers in
    tests/training/test_lowering.py.
    """
    if devices and devices[0].startswith("tpu"):
        keras.config.disable_flash_attention()


def torch_devices() -> list[str]:
    """Names torch's devices, as `keras.distribution.list_devices` of others.

    Until `test_torch_has_no_distribution` (keras#23418).
    """
    import torch

    if not torch.accelerator.is_available():
        return ["cpu:0"]
    kind = torch.accelerator.current_accelerator()
    return [f"{kind}:{i}" for i in range(torch.accelerator.device_count())]
