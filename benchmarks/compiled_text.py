"""What a compiled program of XLA moves, read in its text.

The text is the scheduled program. On TPUs a layout with `S(1)` is of the chip's
own memory (VMEM), into which XLA puts what fits; everything else is in HBM, and
all of it on GPUs.
"""

import collections
import math
import re
from typing import NamedTuple

BITS = {
    **dict.fromkeys(("pred", "s8", "u8", "f8e4m3fn", "f8e5m2"), 8),
    **dict.fromkeys(("bf16", "f16", "s16", "u16"), 16),
    **dict.fromkeys(("f32", "s32", "u32"), 32),
    **dict.fromkeys(("f64", "s64", "u64", "c64"), 64),
}
ARRAY = re.compile(r"\b(\w+)\[([\d,]*)\](?:\{([^}]*)\})?")
INSTRUCTION = re.compile(r"\s+(?:ROOT )?(%\S+) = (.+?) ([a-z][\w-]*)\((.*)$")
COMPUTATION = re.compile(r"(?:ENTRY )?(%\S+) \(.*\{$")
# Names for bytes that are there already, or are on their way.
FREE = {"bitcast", "constant", "get-tuple-element", "parameter", "tuple"}
FREE |= {"after-all", "partition-id", "opt-barrier"}
FREE_CALLS = ("AllocateBuffer", "ConcatBitcast")
TRANSCENDENTAL = {"cosine", "erf", "exponential", "exponential-minus-one"}
TRANSCENDENTAL |= {"log", "log-plus-one", "logistic", "power", "rsqrt", "sine"}
TRANSCENDENTAL |= {"cbrt", "sqrt", "tan", "tanh"}
# Where JAX goes on in a path of a platform, a function or a device's share.
NO_LAYER = re.compile(r"cond|branch_\d+_fun|call|shard_map")
COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute")
COLLECTIVES += ("reduce-scatter",)


class Array(NamedTuple):
    """One array of an instruction, as it lies in memory."""

    size: int  # bytes
    on_chip: bool


class Instruction(NamedTuple):
    """One instruction of a computation."""

    name: str
    kind: str
    arrays: tuple[Array, ...]  # that it makes
    operands: tuple[str, ...]
    text: str


class Traffic(NamedTuple):
    """What an instruction reads and writes."""

    hbm: int  # bytes to and from HBM
    total: int  # bytes of all operands and results, in VMEM as well
    instruction: Instruction


def arrays(text: str) -> tuple[Array, ...]:
    """The arrays of a shape such as `(bf16[8,197]{1,0:T(8,128)S(1)}, ...)`."""
    found = []
    for dtype, dims, layout in ARRAY.findall(text):
        if dtype in BITS:
            sizes = [int(size) for size in dims.split(",") if size]
            count = math.prod(padded(sizes, layout))
            found.append(Array(count * BITS[dtype] // 8, "S(1)" in layout))
    return tuple(found)


def padded(sizes: list[int], layout: str) -> list[int]:
    """The sizes of an array with what fills its last tiles.

    Args:
        sizes: of the axes.
        layout: axes from the fastest to the slowest, then `T(rows,columns)`,
            or `T(columns)`.

    Returns:
        list of int.
    """
    tiled = re.match(r"([\d,]+):T\((\d+)(?:,(\d+))?\)", layout)
    if not tiled:
        return sizes
    tile = [int(size) for size in tiled.groups()[1:] if size][::-1]
    axes = [int(axis) for axis in tiled[1].split(",")]
    result = list(sizes)
    for axis, size in zip(axes, tile, strict=False):
        result[axis] = -(-sizes[axis] // size) * size
    return result


def computations(text: str) -> dict[str, dict[str, Instruction]]:
    """The instructions of each computation by their names; "ENTRY" as well."""
    found, current = {}, {}
    for line in text.splitlines():
        if begun := COMPUTATION.match(line):
            current = found[begun[1]] = {}
            if line.startswith("ENTRY"):
                found["ENTRY"] = current
        elif match := INSTRUCTION.match(line):
            name, shape, kind, rest = match.groups()
            operands = re.findall(r"%[\w.-]+", rest.partition("), ")[0])
            current[name] = Instruction(
                name, kind, arrays(shape), tuple(operands), line
            )
    return found


def traffic(text: str) -> list[Traffic]:
    """What each instruction of the program moves, those that move nothing out.

    A copy between the two memories counts once where it begins. Of an operand
    that a fusion takes slices of, the slices count.
    """
    program = computations(text)
    entry = program["ENTRY"]
    found = (_moved(one, entry, program) for one in entry.values())
    return [one for one in found if one.total]


def _moved(one, entry, program):
    kind = one.kind
    free = any(f'target="{name}"' in one.text for name in FREE_CALLS)
    if kind in FREE or kind.endswith(("-done", "-update")) or free:
        return Traffic(0, 0, one)
    if kind in ("copy-start", "slice-start"):
        source, made = one.arrays[0], one.arrays[1]
        moved = (source._replace(size=made.size), made)
    else:
        read = [entry[name].arrays for name in one.operands if name in entry]
        called = re.search(r"calls=(%[\w.-]+)", one.text)
        if kind == "fusion" and called:
            read = _sliced(read, program[called[1]])
        moved = (*sum(map(tuple, read), ()), *one.arrays)
    hbm = sum(array.size for array in moved if not array.on_chip)
    return Traffic(hbm, sum(array.size for array in moved), one)


def _sliced(read, inside):
    """The operands of a fusion, each as large as what is taken of it."""
    taken = collections.defaultdict(list)
    for one in inside.values():
        for name in one.operands:
            taken[name].append(one)
    result = list(read)
    for one in inside.values():
        users = taken[one.name]
        slices = all(x.kind in ("slice", "dynamic-slice") for x in users)
        if one.kind == "parameter" and users and slices:
            number = int(one.text.partition("parameter(")[2].partition(")")[0])
            size = sum(x.arrays[0].size for x in users)
            result[number] = tuple(
                x._replace(size=min(x.size, size)) for x in result[number]
            )
    return result


def products(text: str) -> int:
    """FLOPs of the matrix products and of cuDNN's convolutions of a program.

    XLA counts them itself on TPUs, and gives no count on GPUs.
    """
    total = 0
    for _, inside in _computations_once(text):
        for one in inside.values():
            total += 2 * math.prod(_sizes(one)) * _terms(one, inside)
    return total


def _terms(one, inside) -> int:
    """How many products each number of a result is the sum of, 0 for none."""
    axes = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", one.text)
    axes = axes or re.search(
        r'"lhs_contracting_dimensions":\[([\d,"]*)\]', one.text
    )
    if axes and one.operands[0] in inside:  # A product, or one of cuBLAS.
        left = _sizes(inside[one.operands[0]])
        return math.prod(left[int(x)] for x in re.findall(r"\d+", axes[1]))
    labels = re.search(r"dim_labels=\w+_(\w+)->", one.text)
    if labels and one.kind in ("custom-call", "convolution"):
        kernel = _sizes(inside[one.operands[1]])
        return math.prod(kernel) // kernel[labels[1].index("o")]
    return 0


def functions(text: str) -> int:
    """Numbers that a transcendental function is computed of."""
    return sum(
        math.prod(_sizes(one))
        for _, inside in _computations_once(text)
        for one in inside.values()
        if one.kind in TRANSCENDENTAL
    )


def _computations_once(text):
    program = computations(text)
    program.pop("ENTRY")  # There by its own name as well.
    return program.items()


def _sizes(one: Instruction) -> list[int]:
    """The sizes of the first array that an instruction makes."""
    found = ARRAY.search(one.text.partition(" = ")[2])
    return [int(x) for x in found[2].split(",") if x] if found else []


def cycles(text: str) -> int:
    """What XLA for TPUs expects of its instructions, one after the other.

    A model of its own, in which a fusion that reads its operands for each tile
    stands out. Programs for GPUs have none.
    """
    return sum(
        int(found[1])
        for one in computations(text)["ENTRY"].values()
        if (found := re.search(r'"estimated_cycles":"(\d+)"', one.text))
    )


def layer(one: Instruction) -> str:
    """The layer that an instruction comes from, "" where it says nothing.

    Of `jit(train_step)/transpose(jvp(block_3))/mlp/dense/dot_general` it is
    "gradient of block_3/mlp/dense".
    """
    named = re.search(r'op_name="([^"]*)"', one.text)
    if not named:
        return ""
    path = named[1].split(";")[-1]
    backward = "transpose(" in path
    parts = re.sub(r"\b(?:jit|jvp|transpose|vmap|pjit)\b|[()]", "", path)
    names = [
        name
        for name in parts.split("/")[1:-1]
        if name and not NO_LAYER.fullmatch(name)
    ]
    text = "/".join(names)
    return f"gradient of {text}".strip() if backward else text


def makes(one: Instruction) -> str:
    """The name of an instruction and the shapes that it makes."""
    shapes = [
        f"{dtype}[{sizes}]"
        for dtype, sizes, _ in ARRAY.findall(one.text.partition("(%")[0])
        if dtype in BITS
    ]
    return f"{one.kind} {', '.join(shapes)}"


def collectives(text: str) -> dict[str, list[int]]:
    """What one device gives to the others.

    XLA for TPUs writes a reduce-scatter as a fusion of its own,
    `all-reduce-scatter`, of a sum and the share that is kept of it.

    Returns:
        dict of a kind, such as "all-reduce", to [number, bytes of operands].
    """
    found = collections.defaultdict(lambda: [0, 0])
    for name, inside in _computations_once(text):
        scatters = name.startswith("%all-reduce-scatter")
        for one in inside.values():
            kind = one.kind.removesuffix("-start")
            if kind in COLLECTIVES:
                given = [inside[x].arrays for x in one.operands if x in inside]
                kind = "reduce-scatter" if scatters else kind
                found[kind][0] += 1
                found[kind][1] += sum(x.size for x in sum(given, ()))
    return dict(found)
