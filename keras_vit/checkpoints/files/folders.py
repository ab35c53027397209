"""Folders of weights of Hugging Face, timm and keras-hub."""

import dataclasses
from pathlib import Path

from keras_vit.checkpoints.dialects.hugging_face_config import (
    check_pooler,
    fields_of_config,
)
from keras_vit.checkpoints.dialects.keras_hub import (
    is_keras_hub,
    open_keras_hub,
)
from keras_vit.checkpoints.files.config_fields import (
    ACTIVATIONS,
    POOLINGS,
    converted,
    pixels,
    read_json,
)
from keras_vit.checkpoints.files.safetensors import open_safetensors
from keras_vit.checkpoints.files.tensors import (
    DAMAGED,
    TensorFile,
    check_name,
    refuse,
)

__all__ = ["POOLINGS", "open_file", "open_folder"]

MAX_FILES = 1000
WEIGHT_FILES = ("model.safetensors", "pytorch_model.safetensors")
CONFIG = "config.json"
# Keys of a config.json that name the model, for messages.
SAYS = ("architecture", "model_type", "architectures")
# What config.json calls our fields, by who wrote it.
TIMM = {
    "num_heads": "num_heads",
    "img_size": "image_size",
    "act_layer": "activation",
    "global_pool": "pooling",
    "pool_include_prefix": "pool_prefix_tokens",
    "final_norm": "final_norm",
    "use_post_transformer_norm": "final_norm",
    "attn_pool_num_heads": "pool_num_heads",
    "rope_temperature": "rope_temperature",
    "rope_grid_offset": "rope_offset",
    "ref_feat_shape": "rope_reference_grid",
    "rope_type": "rope",
    "rope_grid_indexing": "rope_axes",
    "rope_rotate_half": "rope_pairs",
    "use_post_norm": "norm_placement",
    "window_size": "window_size",
    "global_attn_indexes": "global_attention_blocks",
}
# The values of attn_layer that show in the tensors.
SHOWN_ATTENTION = ("", "attn", "diff")
# Arguments of timm's models that show in the tensors, or that change nothing
# in the output of a trained model.
TIMM_SHOWN = {
    *("embed_dim", "depth", "mlp_ratio", "patch_size", "in_chans"),
    *("num_classes", "class_token", "no_embed_class", "reg_tokens"),
    *("qkv_bias", "init_values", "pre_norm", "fc_norm"),
    *("proj_bias", "qk_norm", "scale_attn_norm", "scale_mlp_norm"),
    "num_blocks",  # of a Mixer
    *("rel_pos_type", "rel_pos_dim", "shared_rel_pos"),
    # Of Eva and Beit.
    *(
        "num_reg_tokens",
        "use_abs_pos_emb",
        "use_rel_pos_bias",
        "qkv_fused",
        "swiglu_mlp",
    ),
    *("scale_mlp", "scale_attn_inner", "use_pre_transformer_norm"),
    *("use_fc_norm", "attn_pool_mlp_ratio", "attn_type", "num_kv_heads"),
    *("attn_only_layer_scale", "swiglu_align_to", "use_rot_pos_emb"),
    # Of VisionTransformerSAM.
    *("use_rel_pos", "use_abs_pos", "neck_chans"),
    # Of Cait.
    *("depth_token_only", "mlp_ratio_token_only"),
    *("drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate"),
    *("attn_drop_rate", "drop_path_rate", "weight_init", "fix_init"),
    *("dynamic_img_size", "strict_img_size"),
}


def open_folder(path) -> TensorFile:
    """Opens a folder with `config.json` and safetensors, or of keras-hub.

    Raises:
        ValueError: for a folder without weights, an index that names files
            outside of it, or a config that is none.
        OSError: when a file cannot be opened.
    """
    path = Path(path)
    if is_keras_hub(path):
        return open_keras_hub(path)
    fields, content = _config_of(path)
    tensors, metadata = {}, _said(content)
    for name in _weight_files(path):
        part = open_safetensors(path / name)
        twice = set(tensors) & set(part.tensors)
        if twice:
            refuse(path / name, "is in two files", DAMAGED, min(twice))
        tensors |= part.tensors
        metadata |= part.metadata
        fields = _agreed(path, fields, part.config)
    check_pooler(path / CONFIG, content, tensors)
    notes = _size_notes(path, fields)
    return TensorFile(
        str(path), tensors, fields, metadata, "safetensors", notes
    )


def open_file(path) -> TensorFile:
    """Opens a `.safetensors` file, with the config.json that is beside it.

    Only under a name that it has in such a folder: another may be of another
    model than its neighbour.

    Raises:
        ValueError: when the header does not describe the file, or the config
            does not describe a model.
        OSError: when it cannot be opened.
    """
    path, file = Path(path), open_safetensors(path)
    if path.name not in WEIGHT_FILES or is_keras_hub(path.parent):
        return file
    fields, content = _config_of(path.parent)
    fields = _agreed(path.parent, fields, file.config)
    check_pooler(path.parent / CONFIG, content, file.tensors)
    return dataclasses.replace(
        file,
        config=fields,
        metadata={**_said(content), **file.metadata},
        notes=_size_notes(path.parent, fields),
    )


def _config_of(path) -> tuple[dict, dict]:
    """(our fields, what it holds in its own words) of a config.json."""
    config = path / CONFIG
    if not config.is_file():
        return {}, {}
    content = read_json(config)
    if isinstance(content.get("architecture"), str):
        return _timm_fields(config, content), content
    found = _processor(path)
    scaling = pixels(*found, "image_") if found else {}
    return fields_of_config(config, content) | scaling, content


def _said(content) -> dict:
    """What a config.json calls its model, for messages."""
    says = {x: str(content[x])[:100] for x in SAYS if content.get(x)}
    return {CONFIG: says} if says else {}


def _processor(path) -> tuple[Path, dict] | None:
    """The file of a folder of Hugging Face for its images, and what it says.

    It has a file of its own, or since transformers 5 a part of the file of
    the processor of images and texts.
    """
    for name, part in {
        "processor_config.json": "image_processor",
        "preprocessor_config.json": None,
    }.items():
        if (path / name).is_file():
            content = read_json(path / name)
            content = content.get(part) if part else content
            if isinstance(content, dict):
                return path / name, content
    return None


def _size_notes(path, fields) -> tuple[str, ...]:
    """What to say where images are prepared in another size than the config's.

    The config's is that of the positions. DINOv2 is published so.
    """
    found, size = _processor(path), fields.get("image_size")
    if found is None or size is None or "architecture" in fields:
        return ()
    prepared = _prepared_size(found[1])
    if prepared in (None, tuple(size)):
        return ()
    return (
        f"image_size={tuple(size)} is that of {CONFIG}; {found[0].name} "
        f"prepares images of {prepared}",
    )


def _prepared_size(content) -> tuple | None:
    """(height, width) of the images of a processor, where it tells both."""
    cropped = content.get("do_center_crop") and "crop_size" in content
    size = content.get("crop_size" if cropped else "size")
    if isinstance(size, dict):
        sides = size.get("height"), size.get("width")
    else:
        sides = size, size
    return sides if all(type(x) is int for x in sides) else None


def _agreed(path, fields, record) -> dict:
    """The fields of a config.json with those of the record in the weights.

    The record tells more. Where both tell, they have to agree, so that a
    config.json that somebody edited is not ignored.
    """
    for name in ("num_heads", "activation", "layer_norm_epsilon"):
        told = record.get(name, fields.get(name))
        told = ACTIVATIONS.get(told, told) if name == "activation" else told
        if name in fields and fields[name] != told:
            refuse(
                path,
                f"has {name}={fields[name]}, but the weights beside it were "
                f"written with {name}={told}",
                "Restore it, or write the weights anew.",
            )
    return fields | record


def _weight_files(path) -> list:
    """Names of the safetensors in a folder, those of an index if any."""
    indices = sorted(path.glob("*.safetensors.index.json"))
    if indices:
        return _indexed_files(indices[0])
    found = sorted(x.name for x in path.glob("*.safetensors"))
    for name in WEIGHT_FILES:
        if name in found:
            return [name]
    if len(found) != 1:
        have = ", ".join(sorted(x.name for x in path.iterdir())[:10])
        refuse(
            path,
            f"holds {len(found)} .safetensors files and no index (it holds "
            f"{have or 'nothing'})",
            "Expected model.safetensors, or several with an index. Weights "
            "in .bin or .pth files are pickles and are not opened; convert "
            "them with safetensors.torch.save_file.",
        )
    return found


def _indexed_files(index) -> list:
    files = read_json(index).get("weight_map")
    if not isinstance(files, dict):
        refuse(index, "has no weight_map", DAMAGED)
    names = sorted({str(name) for name in files.values()})
    for name in names[:MAX_FILES]:
        check_name(index, name)
        if "/" in name or "\\" in name or len(names) > MAX_FILES:
            refuse(index, f"names the file {name[:200]!r}", DAMAGED)
        if not (index.parent / name).is_file():
            refuse(index, f"names {name!r}, which is not there", DAMAGED)
    return names


def _timm_fields(path, config) -> dict:
    """What a config.json of timm says, in our names and types.

    An argument of the model that is neither honoured nor visible in the
    tensors is refused.
    """
    arguments = config.get("model_args") or {}
    pretrained = config.get("pretrained_cfg") or {}
    if not isinstance(arguments, dict) or not isinstance(pretrained, dict):
        refuse(path, "has model_args that are no dictionary", DAMAGED)
    unknown = sorted(set(arguments) - set(TIMM) - TIMM_SHOWN)
    if arguments.get("attn_layer") in SHOWN_ATTENTION:
        unknown = [x for x in unknown if x != "attn_layer"]
    if arguments.get("use_rot_pos_emb") is None and "rope_type" in arguments:
        unknown += ["rope_type alone"]
    if unknown:
        refuse(
            path,
            f"builds {config['architecture']!r} with {', '.join(unknown)}, "
            "which the models here do not have",
            "Choose another file.",
        )
    told = {**arguments}
    told.setdefault("global_pool", config.get("global_pool"))
    size = pretrained.get("input_size")
    if isinstance(size, list) and len(size) == 3:
        told.setdefault("img_size", size[1:])
    fields = converted(path, told, TIMM)
    if "distilled" in config["architecture"]:
        # Of two tokens, the class token is what timm's word says.
        fields.pop("pooling", None)
    if arguments.get("use_rot_pos_emb") is False:
        fields["rope"] = None
    fields |= pixels(path, pretrained)
    return {**fields, "architecture": config["architecture"]}
