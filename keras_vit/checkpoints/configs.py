"""What is written beside tensors, so that others can build the model."""

from keras_vit.checkpoints.target import Target

__all__ = ["hugging_face_config"]

ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}


def hugging_face_config(target: Target, features: set) -> dict:
    """The `config.json` of transformers for a model.

    Args:
        target: the model.
        features: set of str, the variants of the table.

    Returns:
        dict.
    """
    config = target.config
    family = bit_config if target.family == "bit" else vit_config
    labels = {str(i): f"LABEL_{i}" for i in range(config["num_classes"])}
    return {
        **family(config, features),
        "id2label": labels,
        "label2id": {label: int(i) for i, label in labels.items()},
        "num_channels": config["channels"],
        "torch_dtype": "float32",
    }


def vit_config(config, features) -> dict:
    name = "DeiT" if config["distillation_token"] else "ViT"
    hybrid = config["resnet_units"] is not None
    name = "ViTHybrid" if hybrid else name
    head = "ForImageClassification" if config["num_classes"] else "Model"
    if "averaged_heads" in features:
        head += "WithTeacher"
    told = {
        "architectures": [name + head],
        "model_type": "vit-hybrid" if hybrid else name.lower(),
        "hidden_size": config["hidden_dim"],
        "num_hidden_layers": config["num_layers"],
        "num_attention_heads": config["num_heads"],
        "intermediate_size": config["mlp_dim"],
        "image_size": one_or_two(config["image_size"]),
        "patch_size": one_or_two(config["patch_size"]),
        "layer_norm_eps": config["layer_norm_epsilon"],
        "hidden_act": ACTIVATIONS.get(
            config["activation"], config["activation"]
        ),
        "hidden_dropout_prob": config["dropout_rate"],
        "attention_probs_dropout_prob": config["attention_dropout_rate"],
        "qkv_bias": True,
        "pooler_act": "tanh",
        "pooler_output_size": config["representation_dim"]
        or config["hidden_dim"],
    }
    if hybrid:
        told["backbone_config"] = resnet_config(
            config["resnet_width"],
            config["resnet_units"],
            layer_type="bottleneck",
            global_padding="same",
            embedding_dynamic_padding=True,
        )
    return told


def bit_config(config, features) -> dict:
    return {
        "architectures": ["BitForImageClassification"],
        **resnet_config(
            config["width"],
            config["units"],
            layer_type="preactivation",
            global_padding=None,
            embedding_dynamic_padding=False,
        ),
    }


def resnet_config(width, units, **options) -> dict:
    """Fields of transformers' BitConfig."""
    sizes = [4 * width * 2**stage for stage in range(len(units))]
    return {
        "model_type": "bit",
        "embedding_size": width,
        "hidden_sizes": sizes,
        "depths": list(units),
        "num_groups": 32,
        "hidden_act": "relu",
        **options,
    }


def one_or_two(size):
    return size[0] if size[0] == size[1] else list(size)
