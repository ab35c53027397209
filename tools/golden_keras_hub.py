"""Golden data of presets of keras-hub, see `make_golden.py`.

keras-hub 0.32.0 must be installed, with Keras on torch. Each model is saved as
a preset, and what the preset gives when keras-hub loads it again is expected.
"""

import importlib
import os
import pathlib
import shutil

import numpy as np

os.environ.setdefault("KERAS_BACKEND", "torch")
import keras  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests" / "reference"
TINY = {
    **{"patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 16},
    **{"intermediate_dim": 32, "image_shape": (32, 32, 3)},
}
VIT = {x: y for x, y in TINY.items() if x != "intermediate_dim"}
VIT |= {"mlp_dim": 32}
TEXTS = {
    **{"vocabulary_size": 12, "embedding_dim": 16, "hidden_dim": 16},
    **{"num_layers": 2, "num_heads": 2, "intermediate_dim": 4},
    "max_sequence_length": 5,
}
PALI_GEMMA = {
    **{"vocabulary_size": 5, "image_size": 32, "num_layers": 1},
    **{"num_query_heads": 1, "num_key_value_heads": 1, "hidden_dim": 10},
    **{"intermediate_dim": 4, "head_dim": 4, "vit_patch_size": 8},
    **{"vit_num_heads": 2, "vit_hidden_dim": 16, "vit_num_layers": 2},
    **{"vit_intermediate_dim": 32, "dtype": "bfloat16"},
}
GATED = {"use_gated_mlp": True, "hidden_activation": "silu"}
# ImageNet's mean and deviation, as keras-hub writes them.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PIXELS = {
    "image_size": (32, 32),
    "scale": [1 / 255 / x for x in STD],
    "offset": [-x / y for x, y in zip(MEAN, STD, strict=True)],
}
# By name: the class in keras_hub.models, its arguments, and those of a task.
CASES = {
    "hub_vit_tiny": (
        "ViTBackbone",
        VIT,
        {"pooling": "gap", "intermediate_dim": 12},
    ),
    "hub_deit_tiny": ("DeiTBackbone", TINY, {"pooling": "token"}),
    "hub_dinov2_tiny": (
        "DINOV2Backbone",
        {
            **TINY,
            "num_register_tokens": 3,
            "position_embedding_shape": (48,) * 3,
        },
        None,
    ),
    "hub_dinov2_swiglu_tiny": (
        "DINOV2Backbone",
        {
            **{**TINY, "use_swiglu_ffn": True, "use_mask_token": False},
            "position_embedding_shape": (32, 32, 3),
        },
        None,
    ),
    "hub_dinov3_tiny": (
        "DINOV3Backbone",
        {**TINY, "use_key_bias": False, "num_register_tokens": 3},
        None,
    ),
    "hub_dinov3_gated_tiny": (
        "DINOV3Backbone",
        {
            **{**TINY, **GATED, "num_register_tokens": 0, "rope_theta": 50.0},
            **{"image_shape": (32, 16, 3), "layer_norm_eps": 1e-3},
        },
        None,
    ),
    "hub_clip_tiny": (
        "CLIP",
        {**TINY, "intermediate_activation": "gelu"},
        None,
    ),
    "hub_metaclip_2_tiny": ("MetaCLIP2", TINY, None),
    "hub_siglip_tiny": ("SigLIP", TINY, None),
    "hub_pali_gemma_tiny": ("PaliGemmaBackbone", PALI_GEMMA, None),
}


def write(name) -> dict:
    """Writes the files of a case; returns its entry in cases.json."""
    keras_hub = importlib.import_module("keras_hub")

    kind, arguments, task = CASES[name]
    path = FOLDER / name
    shutil.rmtree(path, ignore_errors=True)
    model = built(keras_hub.models, kind, arguments, task)
    randomise(model)
    model.save_to_preset(path)
    (path / "metadata.json").unlink()  # It has the date.
    loaded = type(model).from_preset(str(path), dtype="float32")
    shape = (2, *image_shape(arguments))
    images = np.random.default_rng(1).uniform(-1, 1, shape).astype("float32")
    arrays = {"image": images, **expected(loaded, images)}
    if hasattr(loaded, "text_encoder"):
        arrays |= of_texts(loaded, images)
    if task:
        arrays |= of_pixels(loaded, shape)
    np.savez_compressed(FOLDER / f"{name}.expected.npz", **arrays)
    return {
        "checkpoint": f"{name}/",
        "expected": f"{name}.expected.npz",
        "family": "vit",
        "format": "keras-hub",
        "image_size": shape[1:3],
        "constructor": f"keras_hub.models.{type(model).__name__}",
        "arguments": arguments,
        **({"task": task} if task else {}),
    }


def image_shape(arguments) -> tuple:
    return arguments.get("image_shape", (32, 32, 3))


def built(models, kind, arguments, task) -> keras.Model:
    """A backbone, alone, or with the encoder of texts, or with a task."""
    if not kind.endswith("Backbone"):
        vision = getattr(models, f"{kind}VisionEncoder")(
            **arguments, name="vision_encoder"
        )
        texts = getattr(models, f"{kind}TextEncoder")(
            **TEXTS, name="text_encoder"
        )
        projection = {} if kind == "SigLIP" else {"projection_dim": 10}
        return getattr(models, f"{kind}Backbone")(vision, texts, **projection)
    backbone = getattr(models, kind)(**arguments)
    if task is None:
        return backbone
    name = kind.removesuffix("Backbone")
    converter = getattr(models, f"{name}ImageClassifierPreprocessor")(
        image_converter(name)
    )
    return getattr(models, f"{name}ImageClassifier")(
        backbone, num_classes=10, preprocessor=converter, **task
    )


def image_converter(name):
    keras_hub = importlib.import_module("keras_hub")

    return getattr(keras_hub.layers, f"{name}ImageConverter")(**PIXELS)


def randomise(model) -> None:
    """Random weights, none of them zero or one."""
    random = np.random.default_rng(0)
    for weight in model.weights:
        if "float" not in weight.dtype:
            # Of CLIP they are zero until a checkpoint is loaded.
            weight.assign(np.arange(weight.shape[1])[None])
            continue
        size = np.prod(weight.shape[:-1]) if len(weight.shape) > 1 else 0
        scale = max(size**-0.5, 0.1) if size else 0.3
        center = float("gamma" in weight.path or "lambda" in weight.path)
        weight.assign(random.normal(center, scale, weight.shape))
    if hasattr(model, "embeddings") and hasattr(
        model.embeddings, "interpolated_position_embeddings"
    ):
        resample(model.embeddings)


def resample(layer) -> None:
    """Makes DINOv2's own table of positions that of its images."""
    table = layer._interpolate_position_embeddings(
        layer.position_embeddings,
        patch_size=layer.patch_size,
        source_shape=layer.position_embedding_shape,
        target_shape=layer.image_shape,
        antialias=layer.antialias_in_interpolation,
    )
    layer.interpolated_position_embeddings.assign(table)


def expected(model, images) -> dict:
    """What keras-hub computes."""
    backbone = getattr(model, "backbone", model)
    arrays = of_encoder(backbone, images)
    if backbone is not model:
        del arrays["pre_logits"]
        inner = keras.Model(model.input, model.layers[-1].input)
        arrays["pre_logits"] = numpy(inner(images))
        arrays["logits"] = numpy(model(images))
    return arrays


def of_texts(model, images) -> dict:
    """Of a model of images and texts; the last id ends a text of CLIP."""
    ids = np.random.default_rng(3).integers(3, 11, (3, 5)).astype("int32")
    ids[[0, 1, 2], [2, 3, 4]] = 2 if "MetaCLIP2" in type(model).__name__ else 11
    logits = model({"images": images, "token_ids": ids})["vision_logits"]
    return {
        "token_ids": ids,
        "texts": numpy(model.get_text_embeddings(ids)),
        "logits_per_image": numpy(logits),
    }


def of_encoder(model, images) -> dict:
    name = type(model).__name__
    if name == "PaliGemmaBackbone":
        encoder = model.vit_encoder
        inner = keras.Model(
            encoder.input, encoder.get_layer("image_encoder").output
        )
        tokens = numpy(inner(images))
        logits = numpy(encoder(images))
        return {"encoded": tokens, "pre_logits": tokens, "logits": logits}
    if name.startswith(("CLIP", "MetaCLIP2")):
        return of_tower(model, images)
    if name == "SigLIPBackbone":
        encoder = model.vision_encoder
        inner = keras.Model(encoder.input, encoder.post_layer_norm.output)
        return {
            "encoded": numpy(inner({"images": images})),
            "pre_logits": numpy(model.get_vision_embeddings(images)),
        }
    inputs = model.input
    named = {next(iter(inputs)): images} if type(inputs) is dict else images
    tokens = numpy(model(named))
    return {"encoded": tokens, "pre_logits": tokens[:, 0]}


def of_tower(model, images) -> dict:
    """Of the image encoders of CLIP and of MetaCLIP 2."""
    tokens = model.vision_encoder({"images": images})
    if hasattr(model, "vision_post_layer_norm"):
        tokens = model.vision_post_layer_norm(tokens)
    return {
        "encoded": numpy(tokens),
        "pre_logits": numpy(model.vision_pooler(tokens)),
        "logits": numpy(model.get_vision_embeddings(images)),
    }


def of_pixels(model, shape) -> dict:
    """What a task gives for images in [0, 255]."""
    pixels = np.random.default_rng(2).integers(0, 256, shape).astype("uint8")
    scaled = model.preprocessor.image_converter(pixels)
    return {"pixels": pixels, "pixel_logits": numpy(model(scaled))}


def numpy(tensor) -> np.ndarray:
    return keras.ops.convert_to_numpy(tensor)
