"""What timm's config.json says of a Mixer and of a ResNet."""

from keras_vit.checkpoints.dialects.timm_names_table import (
    BITS,
    MIXER_RATIOS,
    MIXERS,
    RESNETS,
    TIMM_ACTIVATIONS,
)

__all__ = [
    "bit_arguments",
    "bit_features",
    "bit_problems",
    "mixer_arguments",
    "mixer_problems",
    "ratio_of",
]

BIT_STYLE = (
    *("unit", "stem", "root_padding", "downsampling", "normalization"),
    "standardization",
)
RESNET_KEY = ("unit", "stem", "normalization")


def mixer_problems(config, defaults) -> list:
    """Why timm has no such Mixer; each follows "it "."""
    return [*_mixer_sizes(config), *_mixer_layers(config)]


def _mixer_sizes(config) -> list:
    problems = []
    if _mixer_key(config) not in MIXERS:
        problems.append(
            f"has no Mixer of mixing={config['mixing']!r}, gated_mlp="
            f"{config['gated_mlp']}, patch_size="
            f"{config['patch_size']}, num_layers={config['num_layers']} and "
            f"hidden_dim={config['hidden_dim']}"
        )
    fixed = MIXER_RATIOS.get((config["mixing"], config["gated_mlp"]))
    if fixed and _mixer_ratios(config) != fixed:
        problems.append(
            "has other MLPs in such Mixers than of tokens_mlp_dim="
            f"{config['tokens_mlp_dim']} and channels_mlp_dim="
            f"{config['channels_mlp_dim']}"
        )
    return problems


def _mixer_layers(config) -> list:
    problems = []
    activations = ("silu", "swish") if config["gated_mlp"] else ("gelu",)
    if config["activation"] not in activations:
        problems.append(
            f"has activation={activations[0]!r} in its Mixers, the model "
            f"{config['activation']!r}"
        )
    is_linear = config["mixing"] == "linear"
    has_affine = config["normalization"] == "affine"
    has_scale = config["layer_scale_init"] is not None
    if {has_affine, has_scale} != {is_linear}:
        problems.append(
            "has normalization='affine' and layer_scale_init with "
            "mixing='linear' and nowhere else"
        )
    if config["layer_norm_epsilon"] != 1e-6 and not has_affine:
        problems.append("has layer_norm_epsilon=1e-06 in its Mixers")
    return problems


def _mixer_key(config) -> tuple:
    height, width = config["patch_size"]
    size = height if height == width else None
    return (
        *(config["mixing"], size, config["num_layers"], config["hidden_dim"]),
        config["gated_mlp"],
    )


def bit_problems(config, defaults) -> list:
    """Why timm has no such ResNet; each follows "it "."""
    plain = config["standardization"] is None
    key, known = _bit_key(config), RESNETS if plain else BITS
    expected = {name: defaults[name] for name in BIT_STYLE}
    if plain:
        expected = {
            "standardization": None,
            "root_padding": "lowest",
            "downsampling": "convolution"
            if config["stem"] == "single"
            else "average",
        }
    problems = [
        f"has {name}={value!r} with standardization="
        f"{config['standardization']!r}, the model {config[name]!r}"
        for name, value in expected.items()
        if config[name] != value
    ]
    if key not in known or plain and config["width"] != 64:
        problems.append(
            f"has no ResNet of units={config['units']}, width="
            f"{config['width']}, unit={config['unit']!r}, stem="
            f"{config['stem']!r}, normalization={config['normalization']!r} "
            f"and standardization={config['standardization']!r}"
        )
    if config["activation"] not in TIMM_ACTIVATIONS:
        problems.append(
            f"has no act_layer for activation={config['activation']!r}"
        )
    if not plain and config["standardization_epsilon"] != 1e-8:
        problems.append(
            "has standardization_epsilon=1e-08 in its BiTs, the model "
            f"{config['standardization_epsilon']}"
        )
    return problems


def mixer_arguments(config) -> tuple:
    """Architecture, name of the classifier, arguments."""
    arguments: dict = {
        "img_size": list(config["image_size"]),
        "in_chans": config["channels"],
    }
    if not MIXER_RATIOS[config["mixing"], config["gated_mlp"]]:
        arguments["mlp_ratio"] = list(_mixer_ratios(config))
    return MIXERS[_mixer_key(config)], "head", arguments


def _mixer_ratios(config) -> tuple:
    """timm's mlp_ratio; of a gated MLP it counts gates and values."""
    parts = 2 if config["gated_mlp"] else 1
    return tuple(
        ratio_of(parts * config[name], config["hidden_dim"])
        for name in ("tokens_mlp_dim", "channels_mlp_dim")
    )


def bit_arguments(config) -> tuple:
    """Architecture, name of the classifier, arguments."""
    arguments = {"in_chans": config["channels"]}
    if config["activation"] != "relu":
        arguments["act_layer"] = TIMM_ACTIVATIONS[config["activation"]]
    architecture = {**BITS, **RESNETS}[_bit_key(config)]
    return architecture, "head.fc", arguments


def ratio_of(size, hidden_dim) -> float:
    """The ratio that timm multiplies the width by and then cuts off."""
    ratio = size / hidden_dim
    return (
        ratio if int(hidden_dim * ratio) == size else (size + 0.5) / hidden_dim
    )


def bit_features(config) -> int:
    """Channels of what its head reads."""
    last = config["width"] * 2 ** (len(config["units"]) - 1)
    return last if config["unit"] == "basic" else 4 * last


def _bit_key(config) -> tuple:
    units = tuple(config["units"])
    if config["standardization"] is None:
        return (units, *(config[name] for name in RESNET_KEY))
    return units, config["width"]
