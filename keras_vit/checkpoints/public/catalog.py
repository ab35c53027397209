"""The public weights of the family: where they are and what they are.

A name is `[method_]data[_data][_resolution][_timm]`: the data of pre-training
and, where there was any, of fine-tuning. Without a method the file is the one
of the model's own paper. `_timm` marks timm's choice where it differs from the
one that the original repository recommends. Names of repositories on
huggingface.co are names as well.

| name | files |
|---|---|
| `imagenet` | the recommended file of 1,000 classes |
| `imagenet21k`, `imagenet21k_imagenet2012`, `imagenet2012` | ViT, Mixer, BiT |
| `augreg_...` | "How to train your ViT?" (arXiv:2106.10270) |
| `sam_...`, `gsam_...` | arXiv:2106.01548, arXiv:2203.08065 |
| `big_vision_...` | "Better plain ViT baselines" (arXiv:2205.01580) |
| `dinov2`, `dinov3`, `clip_openai`, `siglip2`, `deit3`, ... | timm's of them |

Case does not matter, and `+` and `-` are `_`: `imagenet21k+imagenet2012` works
as in vit-keras. timm's names without `timm/` mean the original file of the
same weights. Every file of AugReg can be named by its file name.

What is not known is None. Exact sizes and SHA-256 are those of copies in Git
LFS (two hosts agree on two of them); sizes in MiB are those that the
publishers print. Not verified against the buckets: the file names of GSAM's
ViTs (`address_verified` is False); whether the heads of the hybrids and of
ViT-B/8 in `imagenet21k` are zero (the authors say it of all original
ImageNet-21k files); which files timm's `mixer_*.goog_in21k_ft_in1k` are. That
timm's `orig_*` and `goog_*` are the Google files of the same model, data and
size follows from there being one of each. Licences are those of the
repositories that publish the files.

`catalog.csv` has a row for each file: the fields of `Entry`, those of its
`Preprocessing` among them, nothing for None, 0 and 1 for False and True,
spaces between several. Its sources are the README and the notebook of
google-research/vision_transformer, the tables of the papers, timm's
results/results-imagenet.csv, and timm's configs of its own weights, which
`python tools/make_timm_table.py` writes again.
"""

import csv
import dataclasses
import difflib
import functools
import os
import pathlib
import re
from collections.abc import Mapping

from keras_vit.checkpoints.public import catalog
from keras_vit.io.checks import check_kind
from keras_vit.trained_as import TrainedAs

__all__ = [
    "ENTRIES",
    "FILES",
    "HUB",
    "SHIPPED",
    "TABLE",
    "WITHOUT_WEIGHTS",
    "Entry",
    "Origin",
    "Preprocessing",
    "entries",
    "entry_of",
    "find",
    "is_recommended",
    "list_weights",
    "origin_of",
    "origin_of_run",
    "pair_repository",
    "pair_source",
    "repositories",
]

# Resizing of an entry -> in a `PreprocessingConfig`.
RESIZES = {"squash": "squash", "shorter_side": "resize_small_central_crop"}
HUB = "https://huggingface.co"
# Weights that come with the package, in its folder `weights`.
SHIPPED = {"fractals": "fractals.npz"}
# How their images were prepared, by recipes/configs/fractals_small.yaml.
SHIPPED_AS = TrainedAs(
    preprocessing={
        "evaluation": "squash",
        "resize_method": "bilinear",
        "rounding": "float32",
    },
    source="fractals",
)
# What weights="imagenet" is: AugReg where it has the model, then the paper's
# own, then SAM, then GSAM, then DeiT III.
RECOMMENDED = (
    "augreg_imagenet21k_imagenet2012",
    "imagenet21k_imagenet2012",
    "imagenet2012",
    "sam_imagenet2012",
    "gsam_imagenet2012",
    "deit3",
)
# Applications of which nothing is public in these collections.
WITHOUT_WEIGHTS = (
    "Mixer_H14",
    "Mixer_L32",
    "ViT_G14",
    "ViT_g14",
)


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """How the published accuracy of a file was measured.

    Attributes:
        resize: str, "squash" to image_size x image_size whatever the aspect
            ratio was, or "shorter_side" to image_size / crop_fraction and then
            the central crop.
        interpolation: str, "bilinear", "bicubic" or "area".
        antialias: bool, whether a smaller image is low-pass filtered.
        crop_fraction: float, of the resized image.
        value_range: (float, float), what [0, 255] becomes.
        mean: None, or the mean of each channel, 1 for white, that is
            subtracted instead.
        std: None, or the deviation of each channel that divides then.
        rounding: str, "float32", or "uint8" where the original resizes into
            whole numbers, rounded down.

    Example:
        >>> Preprocessing("squash", "bilinear").describe(384)
        'resize to 384x384 (bilinear), [0, 255] to [-1, 1]'
    """

    resize: str
    interpolation: str
    antialias: bool = False
    crop_fraction: float = 1.0
    value_range: tuple[float, float] = (-1.0, 1.0)
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    rounding: str = "float32"

    def trained_as(self, image_size: int | None, source: str) -> TrainedAs:
        """Return the record of a model that is evaluated so."""
        fields = {
            "evaluation": RESIZES[self.resize],
            "resize_method": self.interpolation,
            "antialias": self.antialias,
            "rounding": self.rounding,
        }
        if self.resize == "squash" or not image_size:
            return TrainedAs(preprocessing=fields, source=source)
        fields["resize_size"] = int(image_size / self.crop_fraction)
        sides = (image_size, image_size)
        return TrainedAs(preprocessing=fields, image_size=sides, source=source)

    def describe(self, image_size: int | None) -> str:
        """Return one line for a person; image_size is None where any does."""
        how = self.interpolation + (", antialiased" if self.antialias else "")
        low, high = self.value_range
        scaling = f"[0, 255] to [{low:g}, {high:g}]"
        if self.mean and self.std:
            mean, std = (
                ", ".join(f"{x:.3f}" for x in values)
                for values in (self.mean, self.std)
            )
            scaling = f"mean ({mean}), deviation ({std})"
        if image_size is None:
            return f"any size ({how}), {scaling}"
        if self.resize == "squash":
            return f"resize to {image_size}x{image_size} ({how}), {scaling}"
        shorter = int(image_size / self.crop_fraction)
        crop = f"central {image_size}x{image_size}"
        return f"shorter side to {shorter} ({how}), {crop}, {scaling}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One public file, or one repository with a config and its tensors.

    Attributes:
        model: str, the application, such as "ViT_B16".
        name: str, what `weights=` takes.
        url: str, https address of the file, or of the repository's page.
        classes: int, of the classification layer in the file, 0 for none.
        labels: str, order of the classes: "imagenet", "imagenet21k", or None.
        image_size: int, pixels, or None where there is no one size (BiT).
        preprocessing: Preprocessing of the published accuracy.
        top1: float, published accuracy on ImageNet in per cent, or None.
        top1_source: str, who published it.
        licence: str, SPDX.
        num_bytes: int, exact size, or None.
        mebibytes: float, size as printed by the publisher, or None.
        sha256: str, 64 hexadecimal digits, or None.
        head_is_zero: bool, the classification layer was set to zero before
            publication, so that its logits tell nothing.
        same_weights_as: str, name of the original file of these weights.
        architecture: str, its publisher's name of the model, or None.
        address_verified: bool, False where the address follows a documented
            rule but nobody was seen to load it.
        aliases: tuple of str, other names.

    Example:
        >>> catalog.find("ViT_B16", "imagenet").top1
        85.49
    """

    model: str
    name: str
    url: str
    classes: int
    labels: str | None
    image_size: int | None
    preprocessing: Preprocessing
    top1: float | None = None
    top1_source: str | None = None
    licence: str = "Apache-2.0"
    num_bytes: int | None = None
    mebibytes: float | None = None
    sha256: str | None = None
    head_is_zero: bool = False
    same_weights_as: str | None = None
    architecture: str | None = None
    address_verified: bool = True
    aliases: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return the name with the model, such as "ViT_B16/imagenet21k"."""
        return self.name if "/" in self.name else f"{self.model}/{self.name}"

    @property
    def is_repository(self) -> bool:
        """Return whether `url` is a repository on huggingface.co."""
        return self.url.startswith(HUB)

    @property
    def file_name(self) -> str:
        """Return the name in the cache, which no other file has."""
        return f"{self.model}_{self.name.replace('/', '_')}.npz"

    @property
    def trained_as(self) -> TrainedAs:
        """Return how images were prepared for the published accuracy."""
        return self.preprocessing.trained_as(self.image_size, self.key)

    @property
    def bare_name(self) -> str:
        """Return the name of a library's weights in the library."""
        return self.name.partition("/")[2]

    @property
    def approximate_mebibytes(self) -> float | None:
        """Return the size in MiB, from `num_bytes` where it is known."""
        if self.num_bytes is None:
            return self.mebibytes
        return self.num_bytes / 2**20


TABLE = pathlib.Path(__file__).with_name("catalog.csv")
# All that a library lists, without a model, by what its names begin with:
# `tools/make_timm_table.py` writes them. An alias is the name without a tag, of
# the tag that the library takes for it.
LIBRARY_TABLES = {
    path.name.removesuffix("_weights.csv"): path
    for path in sorted(TABLE.parent.glob("*_weights.csv"))
}
PICKLES = (".pth", ".pt", ".bin", ".tar")


def _entry(row: dict) -> Entry:
    """Read a row of the table."""
    plain = {x: y or None for x, y in row.items()}
    mean, std = (
        tuple(map(float, row[x].split())) or None for x in ("mean", "std")
    )
    numbers = {
        name: kind(row[name]) if row[name] else None
        for name, kind in {
            "image_size": int,
            "num_bytes": int,
            "top1": float,
            "mebibytes": float,
        }.items()
    }
    texts = (
        *("model", "name", "url", "labels", "top1_source", "licence"),
        *("sha256", "same_weights_as", "architecture"),
    )
    return Entry(
        **{name: plain[name] for name in texts},  # pyright: ignore
        **numbers,
        classes=int(row["classes"] or 0),
        preprocessing=Preprocessing(
            row["resize"],
            row["interpolation"],
            row["antialias"] == "1",
            float(row["crop_fraction"] or 1),
            rounding=row["rounding"] or "float32",
            mean=mean,
            std=std,
        ),
        head_is_zero=row["head_is_zero"] == "1",
        address_verified=row["address_verified"] == "1",
        aliases=tuple(row["aliases"].split()),
    )


def _read_entries(table) -> dict[str, Entry]:
    with table.open(newline="", encoding="utf-8") as file:
        found = [_entry(row) for row in csv.DictReader(file)]
    return {entry.key: entry for entry in found}


ENTRIES = _read_entries(TABLE)


@functools.cache
def library_entries() -> dict[str, Entry]:
    """Return the weights that libraries list, by names such as "timm/vit_...".

    They are of no application; sizes are those of all numbers in float32.

    Example:
        >>> len(library_entries())
        519
    """
    tables = map(_read_entries, LIBRARY_TABLES.values())
    return {key: entry for table in tables for key, entry in table.items()}


# Files that are no repositories, by the names that they are downloaded with.
# Several of one name are prepared alike.
FILES = {
    entry.url.rpartition("/")[2]: entry
    for entry in ENTRIES.values()
    if not entry.is_repository
}

SHOWN = 12  # names in a message
IMAGENET = "imagenet"  # names the recommended weights of 1,000 classes
MODELS = tuple(sorted({entry.model for entry in ENTRIES.values()}))
# Any file of AugReg has a name: the models by how it begins.
AUGREG_MODELS = {
    "Ti_16": "ViT_Ti16",
    "S_32": "ViT_S32",
    "S_16": "ViT_S16",
    "B_32": "ViT_B32",
    "B_16": "ViT_B16",
    "B_8": "ViT_B8",
    "L_16": "ViT_L16",
    "R_Ti_16": "ViT_R_Ti16",
    "R26_S_32": "ViT_R26_S32",
    "R50_L_32": "ViT_R50_L32",
}
# What AugReg fine-tunes on, and how many classes that has.
TASKS = {
    "imagenet2012": 1000,
    "cifar100": 100,
    "oxford_iiit_pet": 37,
    "kitti": 4,
    "resisc45": 45,
}
AUGREG_FILE = re.compile(
    r"(?:.*augreg/)?(?P<file>"
    rf"(?P<model>{'|'.join(AUGREG_MODELS)})"
    r"-(?P<data>i1k-300ep|i21k-300ep|i21k-30ep)-lr_0\.001"
    r"-aug_(?:none|light0|light1|medium1|medium2|strong1|strong2)"
    r"-wd_0\.(?:03|1)-do_0\.[01]-sd_0\.[01]"
    rf"(?:--(?P<task>{'|'.join(TASKS)})"
    r"-steps_(?:20k|10k|2k|0k)-lr_0\.(?:03|01|003|001)"
    r"-res_(?P<image_size>224|384))?"
    r")(?:\.npz)?"
)
AUGREG_FORM = (
    "{model}-{i1k|i21k}-{30|300}ep-lr_0.001"
    "-aug_{none|light0|light1|medium1|medium2|strong1|strong2}"
    "-wd_{0.03|0.1}-do_{0.0|0.1}-sd_{0.0|0.1}, and if fine-tuned "
    "--{task}-steps_{20k|10k|2k|0k}-lr_{0.001|0.003|0.01|0.03}-res_{224|384}"
)
AUGREG_ADDRESS = "https://storage.googleapis.com/vit_models/augreg"


def _augreg_fields(file_name):
    match = AUGREG_FILE.fullmatch(file_name)
    if match is None:
        return {}
    upstream = "imagenet2012" if "i1k" in match["data"] else "imagenet21k"
    task = match["task"] or upstream
    labels = {"imagenet21k": "imagenet21k", "imagenet2012": "imagenet"}
    return {
        "model": AUGREG_MODELS[match["model"]],
        "url": f"{AUGREG_ADDRESS}/{match['file']}.npz",
        "image_size": int(match["image_size"] or 224),
        "classes": 21843 if task == "imagenet21k" else TASKS[task],
        "labels": labels.get(task),
    }


def entries(model: str | None = None) -> list[Entry]:
    """List the public files of a model such as "ViT_B16", or of all by model.

    Raises:
        ValueError: there is no such model.

    Example:
        >>> [entry.name for entry in entries("ViT_R26_B32")]
        ['imagenet21k']
    """
    if model is None:
        return sorted(ENTRIES.values(), key=lambda entry: entry.model)
    known = [*MODELS, *WITHOUT_WEIGHTS]
    if model not in known:
        raise ValueError(
            f"There is no model {model!r}.{_nearest(model, known)} "
            f"Expected one of {', '.join(sorted(known))}."
        )
    return [entry for entry in ENTRIES.values() if entry.model == model]


def find(model: str | None, weights: str) -> Entry:
    """Return the entry that `weights=` names.

    Args:
        model: str, name of an application such as "ViT_B16"; None where
            `weights` says it: "ViT_B16/imagenet21k", the name of a repository,
            or the file name of an AugReg checkpoint.
        weights: str, a name of the catalogue.

    Raises:
        ValueError: there is none, or more than one, with what there is.

    Example:
        >>> find("ViT_B16", "imagenet21k+imagenet2012").image_size
        384
        >>> find(None, "google/vit-base-patch16-224").model
        'ViT_B16'
    """
    known = (model,) if model else (*MODELS, *WITHOUT_WEIGHTS)
    if weights.partition("/")[0] in known:
        model, _, weights = weights.partition("/")
    candidates = entries(model)
    if candidates and not weights:
        raise ValueError(
            f"{model} is a model without weights. Give the name of weights "
            f"as well, such as {model}/{_first_choice(candidates)}; "
            f"`keras-vit weights list --model {model}` lists all."
        )
    found = [entry for entry in candidates if _is_called(entry, weights)]
    if len(found) == 1:
        return found[0]
    if found:
        keys = [f"{entry.model}/{weights}" for entry in found]
        raise ValueError(
            f"{weights!r} are weights of several models. Say which: "
            f"{', '.join(keys)}."
        )
    return (
        _find_augreg(model, weights)
        or (None if model else _find_of_library(weights))
        or _fail(model, weights, candidates)
    )


def _find_of_library(weights) -> Entry | None:
    """Return a library's weights of a name, with a tag or without."""
    for entry in library_entries().values():
        library, _, name = entry.name.partition("/")
        if weights.removeprefix(f"{library}/") in (name, *entry.aliases):
            same = [x for x in ENTRIES.values() if entry.name in x.aliases]
            return same[0] if len(same) == 1 else entry
    return None


def _first_choice(candidates) -> str:
    """Return "imagenet" where there are such weights, or the first name."""
    usual = any(map(is_recommended, candidates))
    return IMAGENET if usual else candidates[0].name


def _is_called(entry, weights):
    wanted = _normal(weights)
    if wanted in {_normal(name) for name in (entry.name, *entry.aliases)}:
        return True
    return wanted == IMAGENET and is_recommended(entry)


def is_recommended(entry: Entry) -> bool:
    """Return whether weights="imagenet" is this file."""
    keys = [f"{entry.model}/{name}" for name in RECOMMENDED]
    return entry.key == next((key for key in keys if key in ENTRIES), None)


def list_weights(model: str | None = None) -> list[str]:
    """List the names of public weights.

    Args:
        model: str, such as "ViT_B16"; None for all models.

    Returns:
        What `weights=` of the model takes; without a model, what
        `keras_vit.load_checkpoint` and `keras_vit.predict` take, with the
        weights that come with the package and all that timm lists. timm's
        names are taken without `timm/` and, for its usual weights, without
        what follows the dot.

    Raises:
        ValueError: when there is no such model.

    Example:
        >>> keras_vit.list_weights("ViT_R26_B32")
        ['imagenet21k']
        >>> "ViT_B16/imagenet" in keras_vit.list_weights()
        True
    """
    check_kind(str | None, model=model)
    names = []
    for entry in entries(model):
        names.append(entry.name if model else entry.key)
        if is_recommended(entry):
            names.append(IMAGENET if model else f"{entry.model}/{IMAGENET}")
    return sorted(names if model else {*names, *SHIPPED, *library_entries()})


def _normal(name):
    return re.sub(r"[+-]", "_", name).lower()


def _find_augreg(model, file_name):
    """Return the entry of a file of AugReg; None for names of other forms."""
    fields = _augreg_fields(file_name)
    if not fields:
        return None
    if model not in (None, fields["model"]):
        raise ValueError(
            f"{file_name!r} is a file of {fields['model']}, not of {model}. "
            f"Build keras_vit.{fields['model']}."
        )
    known = [entry for entry in ENTRIES.values() if entry.url == fields["url"]]
    name = fields["url"].rpartition("/")[2].removesuffix(".npz")
    return (
        known[0]
        if known
        else Entry(
            name=name,
            **fields,
            preprocessing=Preprocessing("squash", "bilinear"),
        )
    )


def _fail(model, weights, candidates):
    """Raise the error that says what there is instead."""
    if model in WITHOUT_WEIGHTS:
        raise ValueError(
            f"No public weights of {model} are known. Received: "
            f"weights={weights!r}. Pass weights=None for random "
            "initialisation, or a path or address of a file that you have."
        )
    text = f"There are no weights {weights!r}{f' of {model}' if model else ''}."
    if _normal(weights) != IMAGENET:
        names = [
            name
            for entry in candidates
            for name in (entry.name, *entry.aliases)
        ]
        names = [IMAGENET, *dict.fromkeys(names)]
        if model is None:
            bare = [x for y in library_entries().values() for x in y.aliases]
            names = [*list_weights(), *names, *bare]
        text += _nearest(weights, names)
    if re.match(r"(?:Ti|S|B|L|R\w*)_\d+-i", weights):
        text += f" File names of AugReg have the form {AUGREG_FORM}."
    if model is None:
        raise ValueError(
            f"{text} Put the model before a name, as in ViT_B16/{IMAGENET}; "
            "`keras-vit weights list` lists all."
        )
    available = ", ".join(
        f"{entry.name!r} ({entry.classes or 'no'} classes)"
        for entry in candidates[:SHOWN]
    )
    if (more := len(candidates) - SHOWN) > 0:
        available += f" and {more} more, see `keras-vit weights list --model "
        available += f"{model}`"
    raise ValueError(f"{text} There are: {available}.")


def _nearest(name, names):
    nearest = difflib.get_close_matches(name, names)
    return f" Did you mean {' or '.join(nearest)}?" if nearest else ""


@dataclasses.dataclass(frozen=True)
class Origin:
    """The weights that a model was made from.

    Attributes:
        name: str, as a reader finds them; without paths of this machine.
        address: str, of their page or file, or None.
        repository: str, their name on huggingface.co, or None.
        licence: str, what their publisher says, or None if that is unknown.
    """

    name: str
    address: str | None = None
    repository: str | None = None
    licence: str | None = None


def entry_of(weights: str, model: str | None = None) -> Entry | None:
    """Return the public weights that a name is of; None for a path."""
    if os.path.exists(weights):
        return None
    try:
        return find(model, weights)
    except ValueError:
        return None


def origin_of(weights: str, model: str | None = None) -> Origin:
    """Return where weights are from.

    Of a path only that it is one: it tells of the machine, not the model.

    Args:
        weights: what `keras_vit.load_checkpoint` takes.
        model: the application, such as "ViT_B16", where the name is of it.

    Example:
        >>> origin_of("ViT_B16/imagenet").licence
        'Apache-2.0'
    """
    if weights.lower() in SHIPPED:
        name = f"{weights.lower()}, which come with keras_vit"
        return Origin(name, licence="Apache-2.0")
    if entry := entry_of(weights, model):
        return Origin(
            entry.key, entry.url, _repository_of(entry), entry.licence
        )
    for start in ("hf://", f"{HUB}/"):
        if weights.startswith(start):
            name = weights.removeprefix(start).partition("@")[0].strip("/")
            return Origin(name, f"{HUB}/{name}", name)
    library, _, name = weights.partition("/")
    if name and library in LIBRARY_TABLES and not os.path.exists(weights):
        return Origin(weights, f"{HUB}/{weights}", weights)
    if "://" in weights:
        return Origin("a file that was downloaded")
    return Origin("a file of weights")


def origin_of_run(run: Mapping) -> Origin | None:
    """Return the weights that a run started from, by its config, or None."""
    options = run.get("model") or {}
    weights = options.get("weights")
    if not isinstance(weights, str):
        return None
    return origin_of(weights, options.get("name"))


def _repository_of(entry) -> str | None:
    """Return the repository of weights, also where they copy a file."""
    if entry.is_repository:
        return entry.url.removeprefix(f"{HUB}/")
    copies = [f"{x}/{name}" for x in LIBRARY_TABLES for name in entry.aliases]
    return next((name for name in copies if name in ENTRIES), None)


# Both halves of image-text models: a row for each image tower of the catalogue,
# its name with its tag, and the repository. Sources: the `hf_hub_id` of timm
# 1.0.31 and the pretrained table of open_clip 3.3.0. By name alone, as neither
# lists them: TinyCLIP, TIPSv2, and SigLIP 2 of any size (NaFlex), which
# transformers names. tests/text/test_every_pair.py holds what each computes.
PAIRS_TABLE = pathlib.Path(__file__).with_name("pairs.csv")


@functools.cache
def repositories() -> dict[str, str]:
    """Return the repository of each image tower, by its name with its tag."""
    with PAIRS_TABLE.open(encoding="utf-8", newline="") as file:
        return {x["name"]: x["repository"] for x in csv.DictReader(file)}


def pair_repository(tag: str) -> str | None:
    """Return the repository with both halves of an image tower.

    Args:
        tag: its name with its tag, without a publisher in front.

    Returns:
        The name of the repository, None of an image tower without texts, such
        as one that was fine-tuned on classes.

    Example:
        >>> pair_repository("vit_base_patch16_siglip_256.v2_webli")
        'timm/ViT-B-16-SigLIP2-256'
    """
    return repositories().get(tag)


def pair_source(source: str | os.PathLike) -> str | os.PathLike:
    """Return the source of both halves of what a name of the catalogue means.

    Args:
        source: a name of the catalogue, or any other source.

    Returns:
        The address of the repository, or `source` as it is.

    Raises:
        ValueError: for a tower without the head that the texts belong to, and
            one without texts, such as one that was fine-tuned on classes.
    """
    if not isinstance(source, str) or os.path.exists(source):
        return source
    try:
        entry = catalog.find(None, source)
    except ValueError:
        return source
    for name in (entry.name, *entry.aliases):
        tag = name.rpartition("/")[2]
        if (repository := pair_repository(tag)) is None:
            continue
        if "_gap_" in tag:
            raise ValueError(
                f"{tag!r} is an image tower without the head whose embeddings "
                f"texts are compared with. Load {tag.replace('_gap', '')!r}."
            )
        return f"hf://{repository}"
    raise ValueError(
        f"{source!r} has no tower of texts: its images were not learned with "
        "them, or it was trained further on classes, after which texts fit "
        "no more. Load it with load_checkpoint, or a name of CLIP or SigLIP."
    )
