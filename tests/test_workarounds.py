"""What Keras still lacks or does wrong, for each of our workarounds.

A test that fails says that a workaround of its name can go: delete both.
"""

import contextlib
import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.layers.common import TokenDense
from keras_vit.runtime import workarounds


def only_on(backend, *names):
    if backend not in names:
        pytest.skip(f"of {', '.join(names)} alone")


def numpy(tensor):
    return np.array(ops.convert_to_numpy(tensor))


def test_sublayers_have_no_public_name():
    assert not hasattr(keras.Layer, "flatten_layers")


def test_keras_leaves_the_weights_of_schedule_free_at_y():
    kind = vars(keras.optimizers).get("ScheduleFreeAdamW")
    made = workarounds.schedule_free()
    if kind is None or made is None:
        pytest.skip("This Keras has no ScheduleFreeAdamW.")
    variable = keras.Variable(np.zeros(1, "float32"))
    optimizer = made(learning_rate=1.0, beta_1=0.5)
    optimizer.build([variable])
    for _ in range(2):  # z is -1 and -2, x their average.
        optimizer.apply([ops.ones(1)], [variable])
    optimizer.finalize_variable_values([variable])
    np.testing.assert_allclose(
        numpy(variable), 0.5 * -2 + 0.5 * -1.5, rtol=1e-5
    )


def test_keras_takes_the_new_z_for_the_old(backend):
    only_on(backend, "torch", "tensorflow")
    kind = vars(keras.optimizers).get("ScheduleFreeAdamW")
    made = workarounds.schedule_free()
    if kind is None or made is None:
        pytest.skip("This Keras has no ScheduleFreeAdamW.")
    variable = keras.Variable(np.zeros(1, "float32"))
    optimizer = kind(learning_rate=1.0, beta_1=0.5)
    optimizer.build([variable])
    for _ in range(2):
        optimizer.apply([ops.ones(1)], [variable])
    assert abs(numpy(variable)[0] - (0.5 * -2 + 0.5 * -1.5)) > 0.1


def test_torch_keeps_parameters_by_path(backend):
    only_on(backend, "torch")
    one, two = (keras.layers.Dense(1, name="dense") for _ in range(2))
    x = keras.Input((1,))
    inner = keras.Model(x, two(x), name="inner")
    model = keras.Model(x, one(x) + inner(x))
    assert len(dict(model.named_parameters())) == 2
    workarounds.put_apart(inner, "inner")
    model = keras.Model(x, one(x) + inner(x))
    assert len(dict(model.named_parameters())) == 4


def test_initializers_have_no_public_name():
    assert not hasattr(keras.Variable, "initializer")


def test_a_weight_of_a_stateless_scope_is_made_when_it_ends():
    """Which `set_initializer` builds upon."""
    with keras.StatelessScope():
        variable = keras.Variable("zeros", shape=(2,))
        workarounds.set_initializer(
            variable, lambda shape, dtype: np.full(shape, 7, dtype)
        )
    np.testing.assert_array_equal(numpy(variable), [7, 7])


def test_variables_without_values_are_made_later():
    with keras.StatelessScope(initialize_variables=False):
        variable = keras.Variable("zeros", shape=(2,))
    with keras.StatelessScope():
        pass
    np.testing.assert_array_equal(numpy(variable), [0, 0])


def test_variables_that_failed_are_made_again():
    with pytest.raises(AssertionError), keras.StatelessScope():
        keras.Variable(no_value, shape=(2,))
    with pytest.raises(AssertionError), keras.StatelessScope():
        pass
    workarounds.global_state.set_global_attribute(workarounds.WAITING, [])


def test_variables_whose_values_fail_are_forgotten():
    with pytest.raises(AssertionError), workarounds.values_at_the_end():
        keras.Variable(no_value, shape=(2,))
    with keras.StatelessScope():
        other = keras.Variable("ones", shape=(2,))
    np.testing.assert_array_equal(numpy(other), [1, 1])


def test_a_variable_without_values_never_gets_them():
    with workarounds.without_values():
        variable = keras.Variable(no_value, shape=(10**12,))
    with keras.StatelessScope():
        pass
    assert variable.shape == (10**12,)


def test_nor_does_one_of_a_model_that_could_not_be_built():
    with pytest.raises(ValueError, match="no such layer"):
        with workarounds.without_values():
            keras.Variable(no_value, shape=(10**12,))
            raise ValueError("no such layer")
    with keras.StatelessScope():
        pass


def no_value(shape, dtype=None):
    raise AssertionError("It takes no memory.")


def test_assign_keeps_the_layout():
    assert isinstance(keras.Variable.value, property)
    assert keras.Variable.value.fset is None


def test_layouts_have_no_public_name():
    assert not hasattr(keras.Variable, "layout")


def test_a_compiled_model_is_saved_with_its_optimizer(tmp_path):
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64)])
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    path = tmp_path / "model.keras"
    model.save(path, include_optimizer=False)
    whole = path.stat().st_size
    with workarounds.without_optimizer(model):
        model.save(path)
    assert path.stat().st_size < whole / 2
    assert model.compiled


def test_a_converted_array_is_a_copy():
    array = np.zeros((512, 512), "float32")
    tensor = ops.convert_to_tensor(array)
    numpy(tensor)  # JAX copies in the background.
    array[0, 0] = 1
    assert numpy(tensor)[0, 0] == 0


def test_remat_fails_on_dropout(backend):
    only_on(backend, "jax")
    import jax

    class Block(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.dropout = keras.layers.Dropout(0.5)

        def call(self, x):
            return keras.remat(lambda y: self.dropout(y, training=True))(x)

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
    model.add(Block())
    model.compile("sgd", "mse")
    with pytest.raises(jax.errors.UnexpectedTracerError):
        for _ in range(2):
            model.train_on_batch(np.ones((2, 4)), np.ones((2, 4)))


def test_gradients_have_no_hook():
    assert not hasattr(keras.optimizers.Optimizer, "clip_gradients")


def test_steps_have_no_hook_after_the_optimizer():
    """For instance one that `fit` calls with the variables of JAX in place."""
    names = ("after_step", "on_step_end", "after_apply", "post_step")
    assert not [x for x in names if hasattr(keras.Model, x)]


def apply(optimizer, gradients, variables):
    tensors = [ops.convert_to_tensor(np.float32(x)) for x in gradients]
    optimizer.apply(tensors, variables)
    return [numpy(variable).item() for variable in variables]


@contextlib.contextmanager
def kernels_of_torch():
    """Collect the names of the kernels that run inside."""
    from torch.utils._python_dispatch import TorchDispatchMode

    ran = set()

    class Recorded(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            ran.add(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    with Recorded():
        yield ran


def adam_steps(kind, dtype):
    """Return the weights after three steps, and the kernels of torch."""
    import torch

    ran = set()
    random = np.random.default_rng(0)
    variables = [
        keras.Variable(random.normal(size=shape), dtype=dtype, name="kernel")
        for shape in ((3, 5), (5,))
    ]
    optimizer = kind(0.1, weight_decay=0.1, epsilon=0.01)
    optimizer.build(variables)
    kept = variables[0].value.dtype
    for step in range(3):
        # Strides as a product's gradient may have them.
        found = [
            random.normal(size=x.shape[::-1]) * 10**step for x in variables
        ]
        grads = [torch.tensor(x).to(kept) for x in found]
        grads = [grads[0].mT, grads[1]]
        with kernels_of_torch() as kernels:
            optimizer.apply(grads)
        ran |= kernels
    return [x.numpy() for x in variables], ran


def test_keras_has_no_fused_adam(backend):
    if backend != "torch":
        pytest.skip("the others compile a step")
    plain = type(keras.optimizers.AdamW())
    kind = workarounds.fused(plain)
    for dtype, tolerance in (("float32", 1e-5), ("float64", 0)):
        wanted, kernels = adam_steps(plain, dtype)
        found, ours = adam_steps(kind, dtype)
        assert "_fused_adamw_" not in kernels
        assert ("_fused_adamw_" in ours) == (dtype == "float32")
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x, y, rtol=0, atol=tolerance)
    assert workarounds.fused(keras.optimizers.SGD) is keras.optimizers.SGD


def test_keras_adds_the_bias_in_another_pass(backend):
    only_on(backend, "torch")
    import torch

    x = torch.ones(2, 3, 4)
    gelu = functools.partial(ops.gelu, approximate=True)
    for kind, grad, expected in (
        (keras.layers.Dense, True, {"mm", "add", "gelu"}),
        (keras.layers.Dense, False, {"mm", "add", "gelu"}),
        (TokenDense, True, {"addmm", "gelu"}),
        (TokenDense, False, {"mm", "add_", "gelu_"}),
    ):
        layer = kind(5, gelu)
        layer.build(x.shape)
        with kernels_of_torch() as kernels, torch.set_grad_enabled(grad):
            layer(x)
        names = {"mm", "bmm", "addmm", "add", "add_", "gelu", "gelu_"}
        assert kernels & names == expected


def test_keras_copies_the_heads(backend):
    only_on(backend, "torch")
    import torch

    random = np.random.default_rng(0)
    qkv, upstream = (random.normal(size=(2, 5, n, 4)) for n in (9, 3))
    found = []
    for attend, copies in (
        (ops.dot_product_attention, True),
        (workarounds.attend_in_place, False),
    ):
        x = torch.tensor(qkv, requires_grad=True)
        with kernels_of_torch() as kernels:
            y = attend(*x.unflatten(2, (3, 3)).unbind(3))  # (B, N, H, d)
        assert ("clone" in kernels) == copies
        (of_x,) = torch.autograd.grad(y, x, torch.tensor(upstream))
        found.append((y.detach().numpy(), of_x.numpy()))
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def test_multi_optimizer_clips_each_group():
    """3 and 4 have the norm 5: clipped to 1 together, they were 0.6 and 0.8."""
    if not hasattr(keras.optimizers, "MultiOptimizer"):
        pytest.skip("This Keras has none.")
    variables = [keras.Variable(np.zeros(1, "float32")) for _ in range(2)]
    groups = {
        id(variable): keras.optimizers.SGD(1.0, global_clipnorm=1.0)
        for variable in variables
    }
    optimizer = keras.optimizers.MultiOptimizer(lambda x: groups[id(x)])
    optimizer.build(variables)
    moved = apply(optimizer, ([3.0], [4.0]), variables)
    np.testing.assert_allclose(moved, [-1, -1], rtol=1e-6)


def test_the_average_counts_calls_that_only_accumulate():
    """The weight is -1, -2, -3 after its updates: their average is -2.25."""
    variable = keras.Variable(np.zeros(1, "float32"))
    optimizer = keras.optimizers.SGD(
        1.0, use_ema=True, ema_momentum=0.5, gradient_accumulation_steps=2
    )
    for _ in range(6):
        apply(optimizer, [[1.0]], [variable])
    optimizer.finalize_variable_values([variable])
    np.testing.assert_allclose(numpy(variable), [-2.375], rtol=1e-6)


def test_the_store_of_jax_has_no_public_name(backend):
    only_on(backend, "jax")
    import jax

    public = {name for name in dir(jax.distributed) if name[0] != "_"}
    assert public == {"initialize", "is_initialized", "shutdown"}


def test_torch_has_no_distribution(backend):
    only_on(backend, "torch")
    with pytest.raises(AttributeError):
        keras.distribution.list_devices()


def test_an_error_in_predict_takes_the_variables(backend):
    """Keras's own models; ours are in tests/models/test_after_errors.py."""
    only_on(backend, "jax")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="incompatible"):
        model.predict(np.ones((2, 5)), verbose=0)
    with pytest.raises(TypeError, match="'NoneType' object is not callable"):
        model.predict(np.ones((2, 4)), verbose=0)
