"""A program: what XLA plans for Keras's own training step, in bytes.

It reads a list of cases as JSON from its first argument and prints a list of
results. Nothing is allocated: the model is built while JAX only traces, and
the step is compiled from shapes. Run it in a process of its own, with as many
devices as XLA_FLAGS gives.
"""

import json
import re
import sys

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.planning.compiler import step_of
from keras_vit.text import TextConfig, TextTransformer
from keras_vit.training.distribution.topologies import lowered as lowered_step

OPTIMIZERS = {
    "adamw": keras.optimizers.AdamW,
    "sgd": lambda: keras.optimizers.SGD(momentum=0.9),
}
LAYOUTS = {
    "data_parallel": {},
    "fsdp": {r".*block_\d+/(attention|mlp)/.*kernel": ("data",)},
    "model_parallel": {
        r".*block_\d+/attention/qkv/kernel": (None, "model"),
        r".*block_\d+/attention/qkv/bias": ("model",),
        r".*block_\d+/attention/out/kernel": ("model", None),
        r".*block_\d+/mlp/dense/kernel": (None, "model"),
        r".*block_\d+/mlp/dense/bias": ("model",),
        r".*block_\d+/mlp/dense_1/kernel": ("model", None),
    },
}


def traced_model(case):
    """A compiled Keras model whose variables hold no numbers."""
    models = []

    def build():
        config = ViTConfig(**case["config"])
        model = VisionTransformer(config, dtype=case["precision"])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(OPTIMIZERS[case["optimizer"]](), loss)
        model.optimizer.build(model.trainable_variables)
        images = jnp.zeros((2, *model.input_shape[1:]))
        model._symbolic_build(data_batch=(images, jnp.zeros(2, "int32")))
        models.append(model)
        return 0

    jax.eval_shape(build)
    return models[0]


def partition(layout, variable):
    """How the axes of a variable are spread over the mesh."""
    # Those of the optimizer: AdamW/block_0_attention_qkv_kernel_momentum.
    path = variable.path
    for pattern, axes in LAYOUTS[layout].items():
        flat = pattern.replace("/", "_") + r"_(momentum|velocity)"
        if re.fullmatch(pattern, path) or re.fullmatch(flat, path):
            return PartitionSpec(*axes)
    return PartitionSpec()


def lowered(case):
    model = traced_model(case)
    layout, axis = case["layout"], case["model_axis"]
    devices = case["devices"]
    mesh = Mesh(
        np.array(jax.devices()[:devices]).reshape(devices // axis, axis),
        ("data", "model"),
    )

    def shape_of(variable):
        spec = partition(layout, variable)
        return jax.ShapeDtypeStruct(
            variable.shape, variable.dtype, sharding=NamedSharding(mesh, spec)
        )

    def batch_of(shape, dtype):
        sharding = NamedSharding(mesh, PartitionSpec("data"))
        return jax.ShapeDtypeStruct(
            (case["batch"], *shape), dtype, sharding=sharding
        )

    state = tuple(
        [shape_of(variable) for variable in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )
    )
    data = (batch_of(model.input_shape[1:], "float32"), batch_of((), "int32"))
    out = (None, jax.tree.map(lambda x: x.sharding, state))
    step = jax.jit(model.train_step, donate_argnums=0, out_shardings=out)
    return step.lower(state, data)


def analysis(case):
    found = lowered(case).compile().memory_analysis()
    assert found is not None
    return {
        "arguments": found.argument_size_in_bytes,
        "temporary": found.temp_size_in_bytes,
    }


def unlabelled(case):
    """A step without labels, as `plan --compile` makes it."""
    step = lowered_step(step_of(case), jax.devices()[:1])
    found = step.compile().memory_analysis()
    assert found is not None
    return {
        "arguments": found.argument_size_in_bytes,
        "temporary": found.temp_size_in_bytes,
        "flops": step.cost_analysis()["flops"],
    }


def saved(case):
    """Bytes of what JAX hands from the forward to the backward pass."""
    model = traced_model(case)

    def shapes(variables):
        return [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in variables]

    weights = shapes(model.trainable_variables)
    images = jax.ShapeDtypeStruct(
        (case["batch"], *model.input_shape[1:]), "float32"
    )

    def loss(weights, images):
        outputs, _ = model.stateless_call(
            weights, shapes_as_zeros(model), images, training=True
        )
        return keras.ops.mean(outputs)

    def backward(weights, images):
        return jax.vjp(lambda x: loss(x, images), weights)[1]

    kept = jax.tree.leaves(jax.eval_shape(backward, weights, images))
    return {"saved": sum(x.size * x.dtype.itemsize for x in kept)}


def embedded(case):
    """Bytes of a tower of texts that embeds, without training."""
    models = []

    def build():
        models.append(TextTransformer(TextConfig(**case["config"])))
        return 0

    jax.eval_shape(build)
    (model,) = models
    weights = [
        jax.ShapeDtypeStruct(x.shape, x.dtype)
        for x in model.trainable_variables
    ]
    ids = jax.ShapeDtypeStruct((case["batch"], *model.input_shape[1:]), "int32")

    def embed(weights, ids):
        return model.stateless_call(weights, shapes_as_zeros(model), ids)[0]

    found = jax.jit(embed).lower(weights, ids).compile().memory_analysis()
    assert found is not None
    return {
        "arguments": found.argument_size_in_bytes,
        "temporary": found.temp_size_in_bytes,
    }


def shapes_as_zeros(model):
    return [jnp.zeros(x.shape, x.dtype) for x in model.non_trainable_variables]


if __name__ == "__main__":
    kinds = {
        "analysis": analysis,
        "saved": saved,
        "embedded": embedded,
        "method": unlabelled,
    }
    print(
        json.dumps([kinds[x["kind"]](x) for x in json.loads(sys.argv[1])]),
    )
