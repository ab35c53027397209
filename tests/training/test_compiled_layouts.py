"""How devices share a step, read in the program that XLA makes of it.

On virtual devices of a CPU; tests/test_compiled_programs.py asks the compiler
for TPUs.
"""

import collections
import json
import math
import re

import keras
import pytest
import virtual_devices

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="the layouts are those of JAX"
)

BLOCKS, DIM, HIDDEN, TOKENS, DEVICES = 2, 64, 256, 17, 4
LAYOUTS = ("data_parallel", "fsdp", "model_parallel")
PROGRAM = """
import json, sys
import jax
from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.training.distribution.topologies import Step, lowered

config = ViTConfig(**json.loads(sys.argv[1]))
found = {}
for layout in json.loads(sys.argv[2]):
    for task in ("training", "evaluation"):
        step = Step(lambda: VisionTransformer(config), 8, task, layout)
        program = lowered(step, jax.devices()).compile()
        state = jax.tree.leaves(program.input_shardings[0])
        shapes = jax.tree.leaves(program.in_avals[0])
        found[f"{layout} {task}"] = {
            "text": program.as_text(),
            "shares": [
                [shape.shape, sharding.shard_shape(shape.shape)]
                for shape, sharding in zip(shapes, state, strict=True)
            ],
        }
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def programs():
    config = {"image_size": 32, "patch_size": 8, "num_layers": BLOCKS}
    config |= {"hidden_dim": DIM, "mlp_dim": HIDDEN, "num_heads": 4}
    config |= {"num_classes": 10}
    arguments = (json.dumps(config), json.dumps(LAYOUTS))
    return json.loads(
        virtual_devices.run(PROGRAM, *arguments, devices=DEVICES, backend="jax")
    )


def collectives(text, kind):
    """How often a collective makes arrays of each shape."""
    lines = re.findall(rf"= (.*?) {kind}(?:-start)?\(", text)
    shapes = [re.findall(r"\w+\[([\d,]+)\]", line) for line in lines]
    return collections.Counter(sum(shapes, []))


KERNELS = [f"{DIM},{3 * DIM}", f"{DIM},{DIM}"]
KERNELS += [f"{DIM},{HIDDEN}", f"{HIDDEN},{DIM}"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_devices_hold_shares_of_the_slots_as_of_the_weights(programs, layout):
    shares = programs[f"{layout} training"]["shares"]
    kernels = collections.Counter(
        (",".join(map(str, whole)), math.prod(whole) // math.prod(share))
        for whole, share in shares
        if ",".join(map(str, whole)) in KERNELS
    )
    parts = {"data_parallel": 1, "fsdp": DEVICES, "model_parallel": 2}
    # The weight, its momentum and its velocity, of each block.
    assert kernels == {(x, parts[layout]): 3 * BLOCKS for x in KERNELS}


@pytest.mark.parametrize("task", ["training", "evaluation"])
def test_fsdp_gathers_each_kernel_by_itself(programs, task):
    """Once for both directions where XLA removes what keeps them apart.

    For CPUs it does so up to JAX 0.10, and no longer in 0.12.
    """
    gathered = collectives(programs[f"fsdp {task}"]["text"], "all-gather")
    twice = task == "training" and gathered[KERNELS[0]] > BLOCKS
    assert gathered == dict.fromkeys(KERNELS, BLOCKS * (1 + twice))


def test_fsdp_sums_each_gradient_once(programs):
    text = programs["fsdp training"]["text"]
    shares = [
        (int(x) // DEVICES, y) for x, y in (k.split(",") for k in KERNELS)
    ]
    # One share of a first axis of as many as there are devices.
    assert collectives(text, "reduce-scatter") == {
        f"1,{rows},{columns}": BLOCKS for rows, columns in shares
    }
    assert not {*collectives(text, "all-reduce")} & {*KERNELS}
    # What blocks compute stays where its images are.
    assert not re.findall(r"(?:all-to-all|collective-permute)\(", text)


@pytest.mark.parametrize(
    ("task", "times"), [("training", 2), ("evaluation", 1)]
)
def test_model_parallel_sums_twice_a_block_and_direction(programs, task, times):
    text = programs[f"model_parallel {task}"]["text"]
    images = 8 // (DEVICES // 2)
    summed = collectives(text, "all-reduce")
    # The last block is of the class token alone.
    streams = sum(
        summed[f"{images},{tokens},{DIM}"] + summed[f"{images * tokens},{DIM}"]
        for tokens in (TOKENS, 1)
    )
    assert streams == times * 2 * BLOCKS
    assert not collectives(text, "all-gather")


def test_data_parallel_exchanges_gradients_alone(programs):
    text = programs["data_parallel training"]["text"]
    summed = collectives(text, "all-reduce")
    assert all(summed[kernel] == BLOCKS for kernel in KERNELS)
    assert not re.findall(r"(?:all-gather|all-to-all)\(", text)
    text = programs["data_parallel evaluation"]["text"]
    assert set(collectives(text, "all-reduce")) <= {"2"}
