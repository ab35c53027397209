"""Loads every Vision Transformer of timm, `python tools/make_coverage.py`.

Each architecture that the installed timm has is built narrow and of two
blocks with random weights, written as a file of its name, loaded here, and
compared on one image: the output, and of `include_top=False` the tokens that
`forward_features` gives. Writes docs/coverage.md: what loads with timm's
output, what is refused and why, and what is wrong, which is to be nothing.
"""

import argparse
import collections
import gc
import pathlib
import re
import sys
import tempfile
import warnings
from typing import NamedTuple

import keras
import numpy as np
import torch
from safetensors.torch import save_file

import keras_vit

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "support"))

from timm_models import SIZES, randomised  # noqa: E402
from timm_stub import import_timm  # noqa: E402

PATH = ROOT / "docs" / "coverage.md"
MODULES = (
    "vision_transformer",
    "deit",
    "vision_transformer_hybrid",
    "resnetv2",
    "mlp_mixer",
    "eva",
    "naflexvit",
    "beit",
    "cait",
    "vision_transformer_relpos",
    "vision_transformer_sam",
)
OPTIONS = {"mlp_mixer": {}, "resnetv2": {}}  # These have their own sizes.
# Whose stem has the width that the name says, and whose blocks have fewer heads
# of keys and values from the second on.
OWN = {
    "vit_base_mci_224": {"depth": 2},
    **dict.fromkeys(
        [
            f"vit_{x}_patch16_sapiens2"
            for x in ("base", "large", "huge", "giant", "5b")
        ],
        {**SIZES, "num_kv_heads": (2, 1)},
    ),
}
TOLERANCE = 5e-5  # of the largest output, at least of 1
# Behind a ResNet: timm's maps of resnetv2_101x1_bit in float32 are 1.7e-4 from
# those in float64, its tokens of vit_large_r50_s32_384 6.5e-5.
TOLERANCES = {"resnetv2": 1e-3, "vision_transformer_hybrid": 1e-3}
VERDICTS = ("timm's output", "refused", "wrong", "not built")
TEXT = """\
# What loads of timm

By `python tools/make_coverage.py` (timm {timm}, Keras {keras}, {backend}): each
architecture is built by timm, 128 wide and of two blocks (those of resnetv2 as
they are, the two blocks of mlp_mixer as wide as they are), with random weights
and no weight zero or one. It is written as a file of the architecture's name,
loaded by `keras_vit.load_checkpoint` and compared on one image of the size that
timm gives, as it is and with `include_top=False` (timm's `forward_features`).
"timm's output" is within 5e-5 of the largest output in float32, in both. What
comes from a ResNet without pooling, maps of resnetv2 and tokens of hybrids, is
within 1e-3: timm's own is up to 1.7e-4 from that in float64.
Tags are the pretrained weights that timm lists; the weights themselves were not
downloaded.

{table}

## Refused

{refused}
"""


class Found(NamedTuple):
    """What became of an architecture."""

    name: str
    module: str
    verdict: str
    reason: str


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes docs/coverage.md.")
    parser.add_argument("--names", default="", help="regular expression")
    parser.add_argument("--out", type=pathlib.Path, default=PATH)
    options = parser.parse_args()
    timm = import_timm()
    tags = collections.Counter(
        tag.partition(".")[0] for tag in timm.list_pretrained()
    )
    found = []
    for module in MODULES:
        for name in timm.list_models(module=module):
            if re.search(options.names, name) and tags[name]:
                found.append(examined(timm, module, name))
                print(*found[-1], flush=True)
                keras.utils.clear_session()
    text = TEXT.format(
        timm=timm.__version__,
        keras=keras.__version__,
        backend=keras.backend.backend(),
        table=table(found, tags),
        refused=refusals(found, tags),
    )
    options.out.write_text(text, encoding="utf-8")


def examined(timm, module: str, name: str) -> Found:
    """Builds, writes, loads and compares one architecture."""
    try:
        model = built(timm, module, name)
    except (TypeError, ValueError, AssertionError, RuntimeError) as error:
        return Found(name, module, "not built", str(error).split("\n")[0])
    size = model.default_cfg["input_size"][1:]
    images = np.random.default_rng(1).uniform(-1, 1, (1, *size, 3))
    images = images.astype("float32")
    with torch.no_grad():
        pixels = torch.tensor(np.moveaxis(images, -1, 1))
        wanted = model(pixels).numpy()
        tokens = model.forward_features(pixels)
    if isinstance(tokens, dict):  # of a NaFlex model
        tokens = tokens["patches"]
    if tokens.ndim == 4:  # (batch, channels, rows, columns)
        tokens = tokens.movedim(1, -1)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / f"{name}.safetensors"
        tensors = {k: x.contiguous() for k, x in model.state_dict().items()}
        save_file(tensors, path)
        del model, tensors  # The largest of resnetv2 takes 4 GB.
        narrow = options_of(module, name) == SIZES
        try:
            verdict = compared(outputs(path, images, narrow=narrow), wanted)
            gc.collect()
            if verdict[0] == "timm's output":
                answer = outputs(path, images, narrow=narrow, include_top=False)
                verdict = compared(
                    answer,
                    tokens.numpy(),
                    "tokens, ",
                    TOLERANCES.get(module, TOLERANCE),
                )
        except ValueError as error:
            text = str(error).replace(folder, "")
            reason = text.partition("': ")[2] or text
            return Found(name, module, "refused", reason)
    return Found(name, module, *verdict)


def options_of(module, name):
    return OWN.get(name, OPTIONS.get(module, SIZES))


def built(timm, module, name):
    """A model of timm with random weights."""
    model = timm.create_model(
        name, pretrained=False, **options_of(module, name)
    )
    if module == "mlp_mixer":
        model.blocks = model.blocks[: SIZES["depth"]]
    return randomised(model)


def outputs(path, images, *, narrow, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        heads = SIZES["num_heads"] if narrow else None
        ours = keras_vit.load_checkpoint(path, num_heads=heads, **options)
    height, width = ours.config.image_size
    # timm's patches leave out what they do not divide.
    with torch.no_grad():  # or all tensors of the largest are kept
        return keras.ops.convert_to_numpy(ours(images[:, :height, :width]))


def compared(answer, wanted, what="", tolerance=TOLERANCE) -> tuple[str, str]:
    if answer.size != wanted.size:
        shapes = f"shape {answer.shape} in place of {wanted.shape}"
        return "wrong", what + shapes
    wanted = wanted.reshape(answer.shape)  # rows and columns, or tokens
    error = np.abs(answer - wanted).max() / max(1, np.abs(wanted).max())
    verdict = "timm's output" if error <= tolerance else "wrong"
    return verdict, f"{what}{error:.1e}"


def table(found, tags) -> str:
    """Tags per module of timm and verdict."""
    from keras_vit.io.tables import markdown_table

    counts = collections.Counter()
    for x in found:
        for module in (x.module, "together"):
            counts[module, x.verdict] += tags[x.name]
    rows = [
        (module, *(counts[module, x] for x in VERDICTS))
        for module in (*MODULES, "together")
    ]
    header = ["tags of timm's module", *VERDICTS]
    return "\n".join(markdown_table(header, rows, VERDICTS))


def refusals(found, tags) -> str:
    """The tags that are refused, by what the message says first."""
    groups = collections.defaultdict(list)
    for x in found:
        if x.verdict in ("refused", "wrong", "not built"):
            groups[reason_of(x)].append(x.name)
    lines = sorted(
        (-sum(tags[x] for x in names), reason, names)
        for reason, names in groups.items()
    )
    if not lines:
        return "None."
    return "\n".join(
        f"- {-number}: {reason} ({', '.join(names[:3])}"
        f"{', ...' if len(names) > 3 else ''})"
        for number, reason, names in lines
    )


def reason_of(found: Found) -> str:
    """The reason without the names of tensors."""
    if found.verdict != "refused":
        return f"{found.verdict}: {found.reason}"
    kind = re.search(r"', (\w.*?) in timm", found.reason)
    if kind:
        return f"{kind[1]} by its name"
    text = re.sub(r"blocks\.\d+\.", "blocks.N.", found.reason)
    for pattern in (
        r"is of (no known format)",
        r"holds ([^(]+) \(",
        r"(Unused: [\w.]+)",
        r"(Missing in the file: [\w/]+)",
    ):
        if match := re.search(pattern, text):
            return match[1].strip()
    return text[:60]


if __name__ == "__main__":
    main()
