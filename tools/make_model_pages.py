"""Writes the tables of docs/models: `python tools/make_model_pages.py`.

A page has the text that people write, and between comments its sizes, from
`keras_vit.sizes`, its public weights, from the catalogue, and the arguments of
its models, from their docstrings.
Parameters and multiply-adds are counted on the models themselves, which are
built without memory for their weights.
"""

import dataclasses
import inspect
import pathlib
import re
import sys

import keras

import keras_vit
from keras_vit.analysis.compute import multiply_adds
from keras_vit.checkpoints.public import catalog
from keras_vit.checkpoints.public.catalog import repositories
from keras_vit.cli.weights_commands import as_markdown
from keras_vit.io.tables import markdown_table
from keras_vit.sizes import BIT, MIXER, VIT

FOLDER = pathlib.Path(__file__).parents[1] / "docs" / "models"


@dataclasses.dataclass(frozen=True)
class Family:
    """What a page is about.

    Attributes:
        models: names of the models of `keras_vit` whose sizes it shows.
        columns: keys of their rows in `keras_vit.sizes`.
        methods: first words of the names of its weights; None for all weights
            of these models that no other page has.
    """

    models: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    methods: tuple[str, ...] | None = None


MODELS = (*VIT, *MIXER, *BIT)  # in this order on the pages
SHAPE = ("patch_size", "hidden_dim", "num_layers", "mlp_dim", "num_heads")
HYBRIDS = tuple(name for name in VIT if "resnet_units" in VIT[name])
FAMILIES = {
    "vit": Family(tuple(name for name in VIT if name not in HYBRIDS), SHAPE),
    "hybrid": Family(HYBRIDS, ("resnet_units", *SHAPE)),
    "mixer": Family(tuple(MIXER), tuple(MIXER["Mixer_B16"])),
    "bit": Family(tuple(BIT), tuple(BIT["BiT_R50x1"])),
    "deit": Family(methods=("deit", "deit3")),
    "dino": Family(methods=("dino", "dinov2", "dinov3")),
    "mae": Family(methods=("mae",)),
    "clip": Family(methods=("clip", "metaclip", "perception")),
    "siglip": Family(methods=("siglip", "siglip2")),
    "beit": Family(methods=("beit", "beitv2", "beit3")),
}
# Pages of image towers with texts, and what the names of theirs have.
PAIRS = {"clip": r"clip|_mci_|_pe_core_|tipsv2", "siglip": r"siglip(?!_gap)"}
# Words of the tables of keras_vit.sizes, as the papers have them.
TITLES = {
    "patch_size": "patch",
    "hidden_dim": "hidden size",
    "num_layers": "layers",
    "mlp_dim": "MLP size",
    "num_heads": "heads",
    "resnet_units": "units of the ResNet",
    "tokens_mlp_dim": "token MLP",
    "channels_mlp_dim": "channel MLP",
    "units": "units",
    "width": "width",
}
# "    name: text that may have lines further in".
ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)
COUNTED = ("parameters (M)", "multiply-adds at 224 (10^9)")


def main() -> int:
    for page, family in FAMILIES.items():
        path = FOLDER / f"{page}.md"
        text = path.read_text(encoding="utf-8")
        text = with_table(text, "weights", weights(page))
        if page in PAIRS:
            text = with_table(text, "pairs", pairs(page))
        if family.models:
            text = with_table(text, "sizes", sizes(page))
            text = with_table(text, "arguments", arguments(page))
        path.write_text(text, encoding="utf-8")
    return 0


def sizes(page: str) -> str:
    """The table of the models of a page."""
    family = FAMILIES[page]
    keys = [TITLES[key] for key in family.columns]
    rows = [(f"`{x}`", *shape(x, family), *counts(x)) for x in family.models]
    header = ("model", *keys, *COUNTED)
    lines = markdown_table(header, rows, numbers=header[1:])
    return "\n".join(lines) + "\n"


def shape(model: str, family: Family) -> list[str]:
    """The numbers of a model that its paper gives."""
    row = {**VIT, **MIXER, **BIT}[model]
    return [_shown(row[key]) for key in family.columns]


def _shown(value) -> str:
    """A patch size as one number, units of each stage with commas."""
    if not isinstance(value, tuple):
        return str(value)
    if len(value) == 2 and value[0] == value[1]:
        return str(value[0])
    return ", ".join(map(str, value)) or "the root alone"


def counts(model: str) -> tuple[str, str]:
    """Parameters in millions, multiply-adds of an image in billions."""
    with keras.StatelessScope(initialize_variables=False):
        built = getattr(keras_vit, model)(weights=None)
    billions = sum(multiply_adds(built).values()) / 1e9
    millions = built.count_params() / 1e6
    # Or the next model that is built would make these weights too.
    keras.utils.clear_session()
    return f"{millions:.1f}", f"{billions:.1f}"


def arguments(page: str) -> str:
    """The arguments of the models of a page, from the first one's docstring."""
    documented = inspect.getdoc(getattr(keras_vit, FAMILIES[page].models[0]))
    section = (documented or "").partition("Args:\n")[2].partition("\n\n")[0]
    lines = [
        f"- `{name}`: {' '.join(text.split())}\n"
        for name, text in ARGUMENT.findall(section)
    ]
    return "".join(lines)


def weights(page: str) -> str:
    """The tables of the public weights of a page, one for each model."""
    entries = [x for x in catalog.entries() if page_of(x) == page]
    entries.sort(key=lambda entry: MODELS.index(entry.model))
    return as_markdown(entries).rstrip("\n") + "\n"


def pairs(page: str) -> str:
    """The table of the towers of a page that `load_image_text` takes."""
    rows = [
        (f"`{name}`", f"`{repository}`")
        for name, repository in sorted(repositories().items())
        if re.search(PAIRS[page], name)
    ]
    return "\n".join(markdown_table(("name", "repository"), rows)) + "\n"


def page_of(entry: catalog.Entry) -> str:
    """The page that lists these weights."""
    method = re.match(r"[a-z]+\d?", entry.name)
    for page, family in FAMILIES.items():
        if method and method[0] in (family.methods or ()):
            return page
    return next(x for x in FAMILIES if entry.model in FAMILIES[x].models)


def with_table(text: str, part: str, table: str) -> str:
    """A page with another text between the comments of a part.

    Raises:
        ValueError: when the page has no such place.
    """
    begin, end = f"<!-- {part} -->\n", f"\n<!-- end of {part} -->"
    head, found, rest = text.partition(begin)
    _, ended, tail = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"The page has no {begin.strip()!r} with its end.")
    return f"{head}{begin}\n{table}{end}{tail}"


if __name__ == "__main__":
    sys.exit(main())
