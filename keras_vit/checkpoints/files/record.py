"""What a file of ours says of its model beside the tensors.

A JSON object of fields of the config that no tensor tells, where the readers
of others do not look: in the metadata of a safetensors file, and in the
comment of the zip archive that an `.npz` file is.
"""

import json

__all__ = ["FIELDS", "KEY", "read_record", "unrecorded", "write_record"]

KEY = "keras_vit"  # in the metadata of safetensors
PIXELS = ("pixel_mean", "pixel_std")


def _is_size(value) -> bool:
    if value == [None, None]:
        return True
    return len(value) == 2 and all(type(x) is int and x > 0 for x in value)


def _are_numbers(value) -> bool:
    return all(type(x) is float for x in value)


def _are_blocks(value) -> bool:
    return all(type(x) is int and x >= 0 for x in value)


# The types of each field, and what a list must be.
FIELDS = {
    "num_heads": (int,),
    "image_size": (list, _is_size),
    "activation": (str,),
    "pooling": (str,),
    "norm_after_pooling": (bool,),
    "rope": (str, type(None)),
    "rope_temperature": (float,),
    "rope_offset": (float,),
    "rope_axes": (str,),
    "rope_reference_grid": (list, type(None), _is_size),
    "rope_pairs": (str,),
    "norm_placement": (str,),
    "window_size": (int,),
    "global_attention_blocks": (list, _are_blocks),
    "pool_prefix_tokens": (bool,),
    "pool_num_heads": (int,),
    "layer_norm_epsilon": (float,),
    "layer_scale_init": (float, type(None)),
    "standardization": (str, type(None)),
    "standardization_epsilon": (float,),
    "root_padding": (str,),
    "downsampling": (str,),
    "group_norm_epsilon": (float,),
    "resnet_standardization": (str,),
    "resnet_standardization_epsilon": (float,),
    "resnet_group_norm_epsilon": (float,),
    "classifier_activation": (str, type(None)),
    "include_preprocessing": (bool,),
    "pixel_mean": (list, type(None), _are_numbers),
    "pixel_std": (list, type(None), _are_numbers),
}


def write_record(config: dict) -> str:
    """The fields of a model's config that no tensor tells, as JSON."""
    return json.dumps({x: _plain(x, config[x]) for x in FIELDS if x in config})


def unrecorded(config: dict) -> list:
    """Fields with a value that a record has no words for.

    Such as a function in place of the name of an activation.
    """
    return [
        name
        for name in FIELDS
        if name in config and not _fits(name, _plain(name, config[name]))
    ]


def read_record(text) -> dict:
    """Reads what `write_record` wrote; what is not of its kind is ignored."""
    try:
        stored = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return {}
    if not isinstance(stored, dict):
        return {}
    found = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in stored.items()
        if name in FIELDS and _fits(name, value)
    }
    kinds = {type(found.get(name, ...)) for name in PIXELS}
    if len(kinds) > 1:  # Both or none.
        found = {k: x for k, x in found.items() if k not in PIXELS}
    return found


def _fits(name, value) -> bool:
    *types, last = FIELDS[name]
    is_check = not isinstance(last, type)
    types = types if is_check else [*types, last]
    if type(value) not in types:
        return False
    return not (is_check and isinstance(value, list)) or last(value)


def _plain(name, value):
    if FIELDS[name] == (float,) and type(value) is int:
        return float(value)
    return list(value) if isinstance(value, tuple) else value
