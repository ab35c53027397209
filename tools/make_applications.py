"""Writes the arguments of the applications, signatures.py.

    python tools/make_applications.py

The arguments of the applications, with their docstring, for each family of
models: those that all share, and the options of the config of the model that
have `application=True` in keras_vit/models/options.py, with the text of the
config's docstring. `--check` writes nothing and fails where the file differs.
"""

import argparse
import dataclasses
import inspect
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from keras_vit.models import BiTConfig, MixerConfig, ViTConfig  # noqa: E402
from keras_vit.models.options import TRAINING, options_of  # noqa: E402

PATH = ROOT / "keras_vit" / "applications" / "signatures.py"
CONFIGS = {"vit": ViTConfig, "mixer": MixerConfig, "bit": BiTConfig}
SHARED = """\
    include_top=True,
    weights="imagenet",
    input_tensor=None,
    input_shape=None,
    pooling=None,
    classes=None,
    classifier_activation="softmax",
    include_preprocessing=False,
    name=None,
    *,
"""
HEAD = '''"""The arguments of the applications.

Made by tools/make_applications.py from the options of the models.
Each function returns what it was given, by name. `{variant}`, `{default_name}`
and `{reference}` in a docstring are filled in for each application.
"""

__all__ = ["bit", "mixer", "vit"]
'''

TEMPLATE = """Instantiates the {variant} architecture.

Reference:
- {reference}

Images are channels last and scaled to [-1, 1]: pass them through
`keras_vit.preprocess_input` first, or give `include_preprocessing=True`. Some
weights, such as `"dinov2"`, were trained on pixels of another mean and
deviation: for these give `include_preprocessing=True`.

Args:
    include_top: whether to include the classification layer. Defaults to
        `True`.
    weights: `"imagenet"` for the recommended public file of 1000 classes,
        another name that `keras-vit weights list --model {variant}` shows,
        a path or address of weights in any known format (Google's `.npz`,
        safetensors of Hugging Face or timm, Keras's own files), or `None`
        for random initialisation. Defaults to `"imagenet"`.
    input_tensor: optional Keras tensor (output of `keras.Input()` or of a
        layer) to use as image input for the model.
    input_shape: optional tuple (height, width, channels).
        {size_note}
        Defaults to that of the weights, or `(224, 224, 3)`.
    pooling: what is made of the {features} before the classification
        layer, or what is returned without it. `None`: {default_pooling} with
        `include_top`, {unpooled} without.
        `"avg"` or `"mean"`, `"max"`: the mean or maximum{pooling_note}.
    classes: optional number of classes, 0 for features; another number
        than that of the weights gives a new classification layer. Defaults
        to that of the weights, or 1000.
    classifier_activation: activation of the classification layer; `None`
        returns the logits. Defaults to `"softmax"`.
    include_preprocessing: whether the model itself scales images from
        [0, 255], as its weights were trained. Defaults to `False`.
    name: name of the model. Defaults to `"{default_name}"`.
{options}
    dtype: dtype policy of all layers, such as `"mixed_bfloat16"`. The
        classification layer stays in float32 under mixed policies. Defaults
        to `keras.config.dtype_policy()`.

Returns:
    A `keras.Model` from (batch, height, width, channels) to (batch, classes),
    or to features.

Raises:
    ValueError: for arguments that do not fit together, with what would.

Example:

>>> model = keras_vit.{variant}(weights=None, classes=10)
>>> images = keras_vit.preprocess_input(np.zeros((1, 224, 224, 3), "uint8"))
>>> model.predict(images).shape
(1, 10)
"""

PATCHES = (
    "The patches must divide height and width, which may differ; any such\n"
    "        size works."
)


TEXTS = {
    "vit": {
        "size_note": PATCHES,
        "features": "encoded tokens",
        "default_pooling": "the class token",
        "unpooled": "all tokens, (batch, tokens, dim),",
        "pooling_note": ' of the patch\n        tokens. `"token"`: the '
        'class token. `"map"`: multi-head attention pooling.\n'
        '        `"none"`: all tokens',
    },
    "mixer": {
        "size_note": PATCHES
        + "\n        The weights of one size do not fit another.",
        "features": "tokens",
        "default_pooling": "the mean",
        "unpooled": "all tokens, (batch, tokens, dim),",
        "pooling_note": ' of the tokens. `"none"`: all tokens',
    },
    "bit": {
        "size_note": "Any size works, `(None, None, 3)` included.",
        "features": "feature map",
        "default_pooling": "the mean",
        "unpooled": "the map, (batch, rows, columns, channels),",
        "pooling_note": ' of the feature map. `"none"`: the map',
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    text = module()
    if options.check and PATH.read_text(encoding="utf-8") != text:
        raise SystemExit(f"{PATH} is old: python tools/make_applications.py")
    if not options.check:
        PATH.write_text(text, encoding="utf-8")


def module() -> str:
    """Return the text of signatures.py."""
    return "\n\n".join([HEAD, *map(function, CONFIGS)])


def function(family: str) -> str:
    """Return the function with the arguments of a family."""
    fields = [
        field
        for field in dataclasses.fields(CONFIGS[family])
        if options_of(CONFIGS[family])[field.name].application
    ]
    own = "".join(
        f"    {x.name}={x.default if of_training(family, x) else None},\n"
        for x in fields
    )
    text = TEMPLATE.format(
        variant="{variant}",
        default_name="{default_name}",
        reference="{reference}",
        options="\n".join(
            line for x in fields for line in described(family, x)
        ),
        **TEXTS[family],
    )
    indented = textwrap.indent(text, "    ").lstrip()
    return (
        f"def {family}(\n{SHARED}{own}    dtype=None,\n):\n"
        f'    """{indented}    """\n    return locals()\n'
    )


def of_training(family: str, field: dataclasses.Field) -> bool:
    """Return whether no weights have a value for the option."""
    row = options_of(CONFIGS[family])[field.name]
    return row.shown == TRAINING and not row.idle


def described(family: str, field: dataclasses.Field) -> list[str]:
    """Return the lines of an option, from the docstring of the config."""
    known = inspect.getdoc(CONFIGS[family]) or ""
    entry = re.search(rf"^    {field.name}: (.*(\n     .*)*)", known, re.M)
    if entry is None:
        raise SystemExit(
            f"{CONFIGS[family].__name__} lacks a text of {field.name}"
        )
    default = field.default
    shown = f'`"{default}"`' if isinstance(default, str) else f"`{default}`"
    if not of_training(family, field):
        shown = f"what the weights have, or {shown}"
    return textwrap.wrap(
        f"{field.name}: {' '.join(entry[1].split())} Defaults to {shown}.",
        75,
        initial_indent=4 * " ",
        subsequent_indent=8 * " ",
    )


if __name__ == "__main__":
    main()
