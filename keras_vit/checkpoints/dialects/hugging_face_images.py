"""The preprocessor_config.json of transformers, read and written.

Its processors have two forms, which round differently; what is read here is
that with Pillow. DINOv3's has only the other one, which keeps fractions.

Sources: the image_processing_*.py of transformers 5.23.0.
"""

from keras_vit.checkpoints.dialects import shared
from keras_vit.checkpoints.dialects.shared import image_size
from keras_vit.checkpoints.files import config_values
from keras_vit.checkpoints.files.tensors import refuse

__all__ = ["pixels", "read", "usual", "written"]

IMAGENET = {
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
}
HALVES = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
CLIP = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
SQUARE = {"height": 224, "width": 224}
BILINEAR, BICUBIC = 2, 3  # in Pillow's numbers
SHORTEST = {
    "size": {"shortest_edge": 224},
    "crop_size": SQUARE,
    "do_center_crop": True,
    "resample": BICUBIC,
    **CLIP,
}
VIT = {"size": SQUARE, "resample": BILINEAR, **HALVES}
BEIT = {"size": SQUARE, "resample": BICUBIC, **HALVES, "crop_size": SQUARE}
# What a processor takes where its file is silent, by its name.
PROCESSORS = {
    "BeitImageProcessor": BEIT,
    "BitImageProcessor": SHORTEST,
    "BlipImageProcessor": {
        **BEIT,
        **CLIP,
        "size": {"height": 384, "width": 384},
    },
    "CLIPImageProcessor": SHORTEST,
    "DPTImageProcessor": {
        **BEIT,
        "size": {"height": 384, "width": 384},
    },
    "DeiTImageProcessor": {
        **BEIT,
        "size": {"height": 256, "width": 256},
        "do_center_crop": True,
    },
    "DINOv3ViTImageProcessor": {**VIT, **IMAGENET},
    "SamImageProcessor": {
        "size": {"longest_edge": 1024},
        "pad_size": {"height": 1024, "width": 1024},
        "do_pad": True,
        "resample": BILINEAR,
        **IMAGENET,
    },
    "SiglipImageProcessor": {**VIT, "resample": BICUBIC},
    "Siglip2ImageProcessor": {"resample": BILINEAR, **HALVES},
    "Tipsv2ImageProcessor": {
        "size": {"height": 448, "width": 448},
        "resample": BILINEAR,
        "do_normalize": False,
    },
    "ViTHybridImageProcessor": {**SHORTEST, **HALVES},
    "ViTImageProcessor": VIT,
}
# Those whose `size` of one number is the shorter side.
SHORTER = (
    *("BitImageProcessor", "CLIPImageProcessor", "SiglipImageProcessor"),
    "ViTHybridImageProcessor",
)
FRACTIONS = ("DINOv3ViTImageProcessor",)
SEQUENCES = "Siglip2ImageProcessor"
AS_SQUARES = (
    "its processor makes sequences of patches, which a NaFlexTransformer "
    "takes; images are squashed to the size of the model instead"
)
# The processor of a model_type, where it is not that of ViT.
OF_MODELS = {
    **dict.fromkeys(
        ("aimv2", "aimv2_vision_model", "clip", "clip_vision_model"),
        "CLIPImageProcessor",
    ),
    "metaclip_2": "CLIPImageProcessor",
    "metaclip_2_vision_model": "CLIPImageProcessor",
    **dict.fromkeys(
        ("bit", "dinov2", "dinov2_with_registers", "pixio"),
        "BitImageProcessor",
    ),
    "beit": "BeitImageProcessor",
    "data2vec-vision": "BeitImageProcessor",
    "deit": "DeiTImageProcessor",
    "dinov3_vit": "DINOv3ViTImageProcessor",
    "dpt": "DPTImageProcessor",
    "sam": "SamImageProcessor",
    "sam_vision_model": "SamImageProcessor",
    "siglip": "SiglipImageProcessor",
    "siglip_vision_model": "SiglipImageProcessor",
    "vit-hybrid": "ViTHybridImageProcessor",
}
METHODS = {
    0: "nearest",
    1: "lanczos3",
    2: "bilinear",
    3: "bicubic",
    4: "box",
    5: "hamming",
}
NUMBERS = {name: number for number, name in METHODS.items()} | {"area": 4}
# Options that change the image, and the only value that is known here.
FIXED = {
    "keep_aspect_ratio": (False,),
    "ensure_multiple_of": (1,),
    "size_divisor": (None,),
    "do_flip_channel_order": (False,),
}


def read(path, content: dict) -> dict:
    """Read how a processor resizes and crops, as the fields of a `TrainedAs`.

    Args:
        path: of the file, for messages.
        content: what it holds of images.

    Raises:
        ValueError: for sizes and methods that are none.
    """
    name = _name(content)
    if name == SEQUENCES:
        return {"assumed": (AS_SQUARES,)}
    content = {**PROCESSORS.get(name, VIT), **_given(content)}
    obstacles = [
        f"{option}={content[option]!r}"
        for option, known in FIXED.items()
        if content.get(option, known[0]) not in (None, *known)
    ]
    if name not in PROCESSORS:
        obstacles.append(f"the processor {name!r}")
    sizes = {} if obstacles else _sizes(path, name, content)
    if obstacles or sizes is None:
        what = ", ".join(obstacles) or f"size={content.get('size')!r}"
        return {
            "obstacle": f"{str(path)!r} prepares images with {what}, which "
            "is not done here. Give preprocessing=."
        }
    exact = name in FRACTIONS
    return {
        "image_size": sizes["image_size"],
        "preprocessing": {
            **{x: y for x, y in sizes.items() if x != "image_size"},
            "resize_method": _method(path, content.get("resample")),
            "antialias": True,
            "rounding": "float32" if exact else "nearest",
        },
    }


def usual(model_type: str) -> dict:
    """Return the fields of a `TrainedAs` by the default of a model_type."""
    name = OF_MODELS.get(model_type, "ViTImageProcessor")
    return read("it", {"image_processor_type": name})


def pixels(path, content: dict) -> dict:
    """Read mean and deviation of the pixels in [0, 1], of one processor."""
    name = _name(content)
    content = {**PROCESSORS.get(name, VIT), **_given(content)}
    factor = content.get("rescale_factor", 1 / 255)
    if type(factor) not in (int, float) or not factor > 0:
        refuse(
            path,
            f"has rescale_factor={factor!r}",
            "Expected a number above 0, such as 1/255.",
        )
    unit = 255 * (1.0 if content.get("do_rescale") is False else factor)
    if content.get("do_normalize") is False:
        content |= {"image_mean": [0.0] * 3, "image_std": [1.0] * 3}
    scaled = {
        key: [x / unit for x in _numbers(path, key, content[key])]
        for key in IMAGENET
    }
    # 0.485 in place of 0.48500000000000004.
    rounded = {x: [float(f"{z:.8g}") for z in y] for x, y in scaled.items()}
    return config_values.pixels(path, rounded, "image_")


def _numbers(path, key, value) -> list:
    values = value if isinstance(value, list) else [value] * 3
    if not all(type(x) in (int, float) for x in values):
        refuse(path, f"has {key}={value!r}"[:200], "Expected numbers.")
    return values


def _given(content) -> dict:
    return {key: value for key, value in content.items() if value is not None}


def _name(content) -> str:
    """Return the name of a processor, in the form without "Fast"."""
    kind = content.get("image_processor_type") or content.get(
        "feature_extractor_type", "ViTImageProcessor"
    )
    name = str(kind)[:80].replace("FeatureExtractor", "ImageProcessor")
    return name.removesuffix("Fast").removesuffix("Pil")


def _method(path, number) -> str:
    if type(number) is not int or number not in METHODS:
        refuse(
            path,
            f"has resample={number!r}"[:200],
            f"Expected one of {METHODS}, Pillow's numbers.",
        )
    return METHODS[number]


def _sizes(path, name, content) -> dict | None:
    """Return the crop, its size and that before it; None for unknown ones."""
    crop = None
    if content.get("do_center_crop"):
        crop = _pair(path, "crop_size", content.get("crop_size"))
    if content.get("do_resize") is False:
        # What is of another size is cropped or filled up.
        return crop and {"evaluation": "central_crop", "image_size": crop}
    size = content.get("size")
    if type(size) is int:
        size = (
            {"shortest_edge": size}
            if name in SHORTER
            else {"height": size, "width": size}
        )
    if not isinstance(size, dict):
        refuse(path, f"has size={size!r}"[:200], "Expected sides in pixels.")
    size = _given(size)
    if set(size) == {"shortest_edge"} and crop:
        side = _side(path, "shortest_edge", size["shortest_edge"])
        return {
            "evaluation": "shorter_side_crop",
            "resize_size": side,
            "image_size": crop,
        }
    if set(size) == {"longest_edge"} and content.get("do_pad") and not crop:
        return _padded(path, size, content)
    if set(size) != {"height", "width"}:
        return None
    both = _pair(path, "size", size)
    if crop in (None, both):
        return {"evaluation": "squash", "image_size": both}
    return {
        "evaluation": "both_sides_crop",
        "resize_size": both,
        "image_size": crop,
    }


def _padded(path, size, content) -> dict:
    """Return the preparation of SAM, filled with the mean below and right."""
    side = _side(path, "longest_edge", size["longest_edge"])
    return {
        "evaluation": "longer_side_pad",
        "resize_size": side,
        "image_size": _pair(path, "pad_size", content.get("pad_size")),
        "padding_colour": tuple(
            round(255 * x)
            for x in _numbers(path, "image_mean", content["image_mean"])
        ),
    }


def _pair(path, key, value) -> tuple[int, int]:
    if type(value) is int:
        value = {"height": value, "width": value}
    if not isinstance(value, dict) or not {"height", "width"} <= value.keys():
        refuse(
            path,
            f"has {key}={value!r}"[:200],
            "Expected a height and a width in pixels.",
        )
    height, width = (_side(path, key, value[x]) for x in ("height", "width"))
    return height, width


def _side(path, key, value) -> int:
    if type(value) is not int or not 0 < value <= 16_384:
        refuse(path, f"has {key}={value!r}"[:200], "Expected 1 to 16384.")
    return value


def written(target) -> dict:
    """Return the `preprocessor_config.json` of a model; {} where none can be.

    What its processors do not do as the model's record says it is written as
    what comes nearest: a crop is at most one pixel beside, and methods average
    over all pixels. Filling up to the size of a model has no processor.
    """
    known = target.trained_as
    rule = known.preprocessing
    height, width = known.image_size or image_size(target.config)
    sides = {"height": height, "width": width}
    crop = rule.get("evaluation", "squash")
    if crop == "contain_pad":
        return {}
    before = rule.get("resize_size") or (height, width)
    smaller = min(before) if isinstance(before, (list, tuple)) else before
    both = before if isinstance(before, (list, tuple)) else (before, before)
    mean, deviation = shared.pixels(target.config)
    common = {
        "do_resize": crop != "central_crop",
        "resample": NUMBERS[shared.method_of(rule)],
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": mean,
        "image_std": deviation,
    }
    if crop == "longer_side_pad":
        return {
            **common,
            "image_processor_type": "SamImageProcessor",
            "size": {"longest_edge": smaller},
            "do_pad": True,
            "pad_size": sides,
        }
    if crop == "squash":
        exact = rule.get("rounding") == "float32" and rule.get("antialias")
        return {
            **common,
            "image_processor_type": "DINOv3ViTImageProcessorFast"
            if exact
            else "ViTImageProcessor",
            "size": sides,
        }
    whole = crop in ("resize_central_crop", "both_sides_crop", "stretch_crop")
    return {
        **common,
        # That of ViT squashes only in transformers 4.
        "image_processor_type": "CLIPImageProcessor",
        "size": dict(zip(("height", "width"), both, strict=True))
        if whole
        else {"shortest_edge": smaller},
        "do_center_crop": True,
        "crop_size": sides,
        "do_convert_rgb": target.config["channels"] == 3,
    }
