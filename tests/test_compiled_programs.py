"""What benchmarks/compiled.py reads in a compiled program, and compiles."""

import ast
import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
LIBTPU = importlib.util.find_spec("libtpu")
CUDA = importlib.util.find_spec("jax_cuda12_plugin")

# A program of XLA for a TPU, shortened. S(1) is VMEM.
PROGRAM = """
HloModule jit_step, is_scheduled=true

%fused (p.0: f32[8,128], p.1: bf16[16,128]) -> f32[8,128] {
  %p.0 = f32[8,128]{1,0:T(8,128)} parameter(0)
  %p.1 = bf16[16,128]{1,0:T(8,128)(2,1)} parameter(1)
  %slice.1 = bf16[8,128]{1,0:T(8,128)(2,1)} slice(%p.1), slice={[0:8], [0:128]}
  %convert.1 = f32[8,128]{1,0:T(8,128)} convert(%slice.1)
  ROOT %add.1 = f32[8,128]{1,0:T(8,128)} add(%p.0, %convert.1)
}

ENTRY %main.1 (x.1: f32[8,128], y.1: bf16[16,128], z.1: f32[5,100]) -> f32[] {
  %x.1 = f32[8,128]{1,0:T(8,128)} parameter(0)
  %y.1 = bf16[16,128]{1,0:T(8,128)(2,1)} parameter(1)
  %z.1 = f32[5,100]{1,0:T(8,128)} parameter(2)
  %copy-start.1 = (f32[8,128]{1,0:T(8,128)S(1)}, f32[8,128]{1,0:T(8,128)}, \
u32[]{:S(2)}) copy-start(%x.1)
  %copy-done.1 = f32[8,128]{1,0:T(8,128)S(1)} copy-done(%copy-start.1)
  %fusion.1 = f32[8,128]{1,0:T(8,128)S(1)} fusion(%copy-done.1, %y.1), \
kind=kLoop, calls=%fused, metadata={op_name="jit(step)/transpose(\
jvp(block_3))/cond/branch_0_fun/jit(call)/mlp/dense/add" stack_frame_id=2}
  %negate.1 = f32[5,100]{1,0:T(8,128)} negate(%z.1), \
metadata={op_name="jit(step)/jvp(head)/neg"}, \
backend_config={"window_config":{"estimated_cycles":"1200","is_mask":false}}
  %all-reduce.1 = f32[5,100]{1,0:T(8,128)} all-reduce(%negate.1), \
to_apply=%sum, backend_config={"estimated_cycles":"34"}
  %bitcast.1 = f32[4,256]{1,0:T(8,128)S(1)} bitcast(%fusion.1)
  ROOT %constant.1 = f32[]{:T(128)} constant(0)
}
"""
TILE = 8 * 128 * 4  # bytes, of float32


@pytest.fixture(scope="module")
def read():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("compiled_text")
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_what_is_moved_to_and_from_the_slow_memory(read):
    moved = {x.instruction.name: x for x in read.traffic(PROGRAM)}
    assert {name: x.hbm for name, x in moved.items()} == {
        "%copy-start.1": TILE,  # The other side is on the chip.
        "%fusion.1": TILE // 2,  # Half of y in bfloat16.
        "%negate.1": 2 * TILE,  # 5x100 numbers fill a tile of 8x128.
        "%all-reduce.1": 2 * TILE,
    }
    assert moved["%fusion.1"].total == TILE + TILE // 2 + TILE


def test_the_cycles_that_xla_expects(read):
    assert read.cycles(PROGRAM) == 1200 + 34
    assert read.cycles(GPU_PROGRAM) == 0


# A program of XLA for a GPU, shortened: products of 4x8 and 8x16 numbers by
# XLA and by cuBLAS, a convolution of patches, a tanh.
GPU_PROGRAM = """
HloModule jit_step, is_scheduled=true

%gemm (p.0: bf16[4,8], p.1: bf16[8,16]) -> bf16[4,16] {
  %p.0 = bf16[4,8]{1,0} parameter(0)
  %p.1 = bf16[8,16]{1,0} parameter(1)
  ROOT %dot.1 = bf16[4,16]{1,0} dot(%p.0, %p.1), lhs_contracting_dims={1}, \
rhs_contracting_dims={0}
}

%tanhs (p.2: bf16[4,16]) -> f32[4,16] {
  %p.2 = bf16[4,16]{1,0} parameter(0)
  %convert.1 = f32[4,16]{1,0} convert(%p.2)
  ROOT %tanh.1 = f32[4,16]{1,0} tanh(%convert.1)
}

ENTRY %main.1 (a.1: bf16[4,8], b.1: bf16[8,16]) -> f32[4,16] {
  %a.1 = bf16[4,8]{1,0} parameter(0)
  %b.1 = bf16[8,16]{1,0} parameter(1)
  %images.1 = bf16[2,4,4,3]{3,2,1,0} parameter(2)
  %kernel.1 = bf16[16,2,2,3]{3,2,1,0} parameter(3)
  %gemm.1 = bf16[4,16]{1,0} fusion(%a.1, %b.1), kind=kCustom, calls=%gemm
  %cublas.1 = (bf16[4,16]{1,0}, s8[0]{0}) custom-call(%a.1, %b.1), \
custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{\
"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],\
"rhs_contracting_dimensions":["0"]}}}
  %conv.1 = (bf16[2,2,2,16]{3,2,1,0}, u8[0]{0}) custom-call(%images.1, \
%kernel.1), window={size=2x2 stride=2x2}, dim_labels=b01f_o01i->b01f, \
custom_call_target="__cudnn$convForward"
  ROOT %tanh.2 = f32[4,16]{1,0} fusion(%gemm.1), kind=kLoop, calls=%tanhs
}
"""


def test_what_a_gpu_computes_and_moves(read):
    patches = 2 * 2 * 2  # of 2x2x3 numbers, 16 features
    product, convolution = 4 * 8 * 16, patches * 2 * 2 * 3 * 16
    assert read.products(GPU_PROGRAM) == 2 * (2 * product + convolution)
    assert read.functions(GPU_PROGRAM) == 4 * 16
    moved = {x.instruction.name: x.hbm for x in read.traffic(GPU_PROGRAM)}
    assert moved == {
        "%gemm.1": 2 * (4 * 8 + 8 * 16 + 4 * 16),
        "%cublas.1": 2 * (4 * 8 + 8 * 16 + 4 * 16),
        "%conv.1": 2 * (2 * 4 * 4 * 3 + 16 * 2 * 2 * 3 + patches * 16),
        "%tanh.2": (2 + 4) * 4 * 16,
    }


def test_the_layer_that_an_instruction_comes_from(read):
    found = {
        x.instruction.name: (read.layer(x.instruction), x.instruction)
        for x in read.traffic(PROGRAM)
    }
    assert found["%fusion.1"][0] == "gradient of block_3/mlp/dense"
    assert found["%negate.1"][0] == "head"
    assert found["%copy-start.1"][0] == ""
    assert read.makes(found["%fusion.1"][1]) == "fusion f32[8,128]"


def test_what_devices_exchange(read):
    assert read.collectives(PROGRAM) == {"all-reduce": [1, TILE]}


# A program of XLA for a TPU, shortened: 13 rows of 128, of which each of two
# devices gets the sum of 8, filled up.
SCATTERING = """
%all-reduce-scatter.1 (input.1: f32[13,128]) -> f32[8,128] {
  %input.1 = f32[13,128]{1,0:T(8,128)S(1)} parameter(0)
  %constant.1 = f32[] constant(0)
  %pad.1 = f32[16,128]{1,0:T(8,128)} pad(%input.1, %constant.1), padding=0_3x0_0
  %all-reduce.1 = f32[16,128]{1,0:T(8,128)} all-reduce(%pad.1), to_apply=%sum
  %multiply.1 = u32[] multiply(%partition-id.1, %constant.2)
  ROOT %dynamic-slice.1 = f32[8,128]{1,0:T(8,128)} \
dynamic-slice(%all-reduce.1, %multiply.1, %constant.3), \
dynamic_slice_sizes={8,128}
}

ENTRY %main.1 (x.1: f32[13,128]) -> f32[8,128] {
  %x.1 = f32[13,128]{1,0:T(8,128)} parameter(0)
  ROOT %fusion.1 = f32[8,128]{1,0:T(8,128)} fusion(%x.1), kind=kCustom, \
calls=%all-reduce-scatter.1
}
"""


def test_a_fusion_that_keeps_a_share_of_a_sum_scatters_it(read):
    assert read.collectives(SCATTERING) == {"reduce-scatter": [1, 2 * TILE]}


@pytest.mark.parametrize(
    ("sizes", "layout", "expected"),
    [
        ([5, 100], "1,0:T(8,128)", [8, 128]),
        ([5, 100], "0,1:T(8,128)(2,1)", [128, 104]),
        ([200], "0:T(128)", [256]),
        ([3, 5, 100], "1,2,0:T(8,128)S(1)", [3, 128, 104]),
        ([5, 100], "1,0", [5, 100]),
        ([], "", []),
    ],
)
def test_arrays_fill_their_tiles(read, sizes, layout, expected):
    assert read.padded(sizes, layout) == expected


def test_without_the_compiler_it_is_said_how_to_get_it():
    if LIBTPU:
        pytest.skip("libtpu is installed.")
    ended = subprocess.run(
        [sys.executable, str(BENCHMARKS / "compiled.py")],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert 'pip install "keras-vision-transformer[tpu-compiler]"' in (
        ended.stderr
    )


COMPILE = """
import json, sys
import compiled
from compiled_sides import Program, ours, prepare

prepare()
from keras_vit.models.options import ViTConfig
from keras_vit.training.distribution.topologies import one_process, devices_of

found = {}
with one_process():
    devices = devices_of(sys.argv[2])
    for name, (choice, batch, task, fields) in json.loads(sys.argv[1]).items():
        program = Program(ViTConfig(**fields), task, batch, choice)
        executable = ours(program, devices).compile()
        found[name] = compiled.costs_of(executable)
print(json.dumps(found))
"""
TINY = {"image_size": 32, "patch_size": 8, "num_layers": 2, "hidden_dim": 64}
TINY |= {"mlp_dim": 128, "num_heads": 4, "num_classes": 10}


def compile_all(asked, topology="v5e:2x4"):
    """The costs of steps, compiled for the devices of a topology."""
    ended = subprocess.run(
        [sys.executable, "-c", COMPILE, json.dumps(asked), topology],
        cwd=BENCHMARKS,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])


def environment():
    import os

    paths = (str(BENCHMARKS), str(ROOT), os.environ.get("PYTHONPATH", ""))
    kept = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def notebook(name):
    """What a notebook sets in its first cell."""
    source = (ROOT / f"recipes/kaggle/{name}.py").read_text()
    return {
        target.id: ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        and isinstance(target := node.targets[0], ast.Name)
        and target.id in ("MODEL", "BATCH_SIZE")
    }


@pytest.mark.slow
@pytest.mark.skipif(not CUDA, reason="JAX's CUDA plugin is not installed.")
def test_a_step_compiles_for_eight_h100():
    """The products are those of the equations, forward and backward."""
    images = 16  # a device
    asked = {"step": ("data_parallel", 8 * images, "training", TINY)}
    (costs,) = compile_all(asked, "h100:8").values()
    tokens, dim, mlp = 17, 64, 128
    block = tokens * (4 * dim**2 + 2 * dim * mlp) + 2 * tokens**2 * dim
    embedded = 16 * (8 * 8 * 3) * dim
    # Without the gradient of the images.
    terms = 3 * (2 * block + 10 * dim) + 2 * embedded
    # XLA fills 17 tokens up to 24 for cuBLAS.
    assert 1 <= costs["flops"] / (2 * images * terms) < 1.2
    assert set(costs["collectives"]) == {"all-reduce"}
    assert costs["peak_bytes"] > 0


@pytest.mark.slow
@pytest.mark.skipif(not LIBTPU, reason="libtpu is not installed.")
def test_every_layout_compiles_for_a_v5e_8():
    choices = ("single", "data_parallel", "fsdp", "model_parallel")
    asked = {
        f"{choice} {task}": (choice, 16, task, TINY)
        for choice in choices
        for task in ("training", "inference")
    }
    found = compile_all(asked)
    exchanged = {
        name: {kind for kind, (number, _) in costs["collectives"].items()}
        for name, costs in found.items()
    }
    assert exchanged["single training"] == set()
    assert exchanged["data_parallel inference"] == set()
    assert exchanged["data_parallel training"] == {"all-reduce"}
    assert "all-gather" in exchanged["fsdp inference"]
    assert "all-reduce" in exchanged["model_parallel inference"]
    assert found["fsdp training"]["peak_bytes"] > 0


@pytest.mark.slow
@pytest.mark.skipif(not LIBTPU, reason="libtpu is not installed.")
def test_fsdp_scatters_the_gradients_of_a_block():
    """A device gets the sums of its shares of all kernels."""
    dim, mlp, depths = 1024, 2048, (2, 4)
    wide = {**TINY, "hidden_dim": dim, "mlp_dim": mlp, "num_heads": 8}
    asked = {
        str(depth): ("fsdp", 16, "training", {**wide, "num_layers": depth})
        for depth in depths
    }
    few, many = compile_all(asked).values()

    def of_a_block(found):
        return (found(many) - found(few)) / (depths[1] - depths[0])

    def exchanged(kind):
        return of_a_block(lambda costs: costs["collectives"][kind][1])

    kernels = 4 * dim**2 + 2 * dim * mlp  # numbers
    assert exchanged("reduce-scatter") == 2 * kernels  # bytes, in bfloat16
    assert exchanged("all-reduce") < 0.01 * kernels


@pytest.mark.slow
@pytest.mark.skipif(not LIBTPU, reason="libtpu is not installed.")
def test_the_models_of_the_notebooks_compile_for_a_v5e_8():
    """With a block of twelve, at the size and batch of each notebook."""
    from keras_vit.sizes import VIT

    asked = {}
    for name in ("tpu_v5e8", "tpu_strategy", "gpu_t4x2"):
        settings = notebook(name)
        model = settings["MODEL"]
        fields = dict(VIT[model["name"]], image_size=model["image_size"])
        asked[name] = (
            "data_parallel",
            settings["BATCH_SIZE"],
            "training",
            fields | {"num_layers": 1, "num_classes": 10},
        )
    found = compile_all(asked)
    assert found.keys() == asked.keys()
    memory = 16e9  # bytes of a chip
    assert all(0 < x["peak_bytes"] < memory for x in found.values())
