"""What our safetensors files say of themselves beside the tensors."""

import json

__all__ = ["our_metadata", "told_by_metadata"]

# What the tensors of a file do not tell.
FIELDS = {
    "num_heads": int,
    "image_size": list,
    "activation": str,
    "layer_norm_epsilon": float,
    "standardization_epsilon": float,
}


def our_metadata(config: dict) -> dict:
    """Metadata of a safetensors file: what its tensors do not tell.

    Args:
        config: dict of the model's config.

    Returns:
        dict of one JSON string under "keras_vit".
    """
    told = {x: config[x] for x in FIELDS if x in config}
    return {"keras_vit": json.dumps(told)}


def told_by_metadata(metadata: dict) -> dict:
    """Reads what `our_metadata` wrote; what is not of its kind is ignored.

    Args:
        metadata: dict of strings.

    Returns:
        dict of fields of a config.
    """
    try:
        told = json.loads(metadata.get("keras_vit", "{}"))
    except (ValueError, TypeError, RecursionError):
        return {}
    if not isinstance(told, dict):
        return {}
    told = {
        name: value
        for name, value in told.items()
        if type(value) is FIELDS.get(name)
    }
    size = told.pop("image_size", [])
    if len(size) == 2 and all(type(x) is int and x > 0 for x in size):
        told["image_size"] = tuple(size)
    return told
