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
"""

import csv
import difflib
import pathlib
import re

from keras_vit.checkpoints.public import catalog_table as table
from keras_vit.checkpoints.public.catalog_entry import (
    HUB,
    Entry,
    Preprocessing,
)

__all__ = [
    "ENTRIES",
    "SHIPPED",
    "Entry",
    "Preprocessing",
    "entries",
    "find",
    "is_recommended",
    "list_weights",
]

# Weights that come with the package, in its folder `weights`.
SHIPPED = {"fractals": "fractals.npz"}


def _model_of(timm_name: str) -> str:
    """The application: "vit_base_patch16_224.orig_in21k" is ViT_B16."""
    architecture = timm_name.split(".")[0]
    return table.TIMM_MODELS[re.sub(r"_(224|384)$", "", architecture)]


def _data_of(timm_name: str) -> str | None:
    """Data of the classes; timm ships the original 21k files without head."""
    if timm_name.endswith("orig_in21k"):
        return None
    return "imagenet21k" if timm_name.endswith("_in21k") else "imagenet2012"


def _image_size_of(timm_name: str) -> int:
    """Pixels that timm evaluates at: BiT fine-tuned at more than it says."""
    if re.match(r"resnetv2.*goog_in21k_ft_in1k$", timm_name):
        return 480 if "152x4" in timm_name else 448
    return 384 if "_384" in timm_name else 224


def _preprocessing_of(timm_name: str) -> Preprocessing:
    """transforms_imagenet_eval of timm: PIL, shorter side, central crop."""
    small_crop = 0.9 if timm_name.startswith("vit_") else 0.875
    crop = small_crop if _image_size_of(timm_name) == 224 else 1.0
    bilinear = re.match(r"resnetv2.*goog_in21k", timm_name)
    interpolation = "bilinear" if bilinear else "bicubic"
    return Preprocessing("shorter_side", interpolation, True, crop)


STORAGE = "https://storage.googleapis.com"

# Data of the classes: the fields of Entry.
CLASSES = {
    "imagenet21k": {"classes": 21843, "labels": "imagenet21k"},
    "imagenet2012": {"classes": 1000, "labels": "imagenet"},
    None: {"classes": 0, "labels": None},
}

# vit_jax/input_pipeline.py: tf.image.resize, the aspect ratio is not kept.
SQUASH = Preprocessing("squash", "bilinear")
# image_processing_vit.py of transformers: the same through PIL.
SQUASH_PIL = Preprocessing("squash", "bilinear", antialias=True)
# big_vision's resize_small(256)|central_crop(224).
BIG_VISION = Preprocessing("shorter_side", "area", crop_fraction=0.875)

AUGREG_FILE = re.compile(
    r"(?:.*augreg/)?(?P<file>"
    rf"(?P<model>{'|'.join(table.AUGREG_MODELS)})"
    r"-(?P<data>i1k-300ep|i21k-300ep|i21k-30ep)-lr_0\.001"
    r"-aug_(?:none|light0|light1|medium1|medium2|strong1|strong2)"
    r"-wd_0\.(?:03|1)-do_0\.[01]-sd_0\.[01]"
    rf"(?:--(?P<task>{'|'.join(table.TASKS)})"
    r"-steps_(?:20k|10k|2k|0k)-lr_0\.(?:03|01|003|001)"
    r"-res_(?P<image_size>224|384))?"
    r")(?:\.npz)?"
)


def _augreg_fields(file_name):
    match = AUGREG_FILE.fullmatch(file_name)
    if match is None:
        return {}
    upstream = "imagenet2012" if "i1k" in match["data"] else "imagenet21k"
    task = match["task"] or upstream
    return {
        "model": table.AUGREG_MODELS[match["model"]],
        "url": _storage(f"vit_models/augreg/{match['file']}.npz"),
        "image_size": int(match["image_size"] or 224),
        **(CLASSES.get(task) or {"classes": table.TASKS[task], "labels": None}),
    }


def _augreg():
    rows = table.TIMM_AUGREG.items()
    timm_name_of = {file: name for name, (_, file, _) in rows}
    for file, mebibytes, fine_tuning, top1, source in table.AUGREG.values():
        tuned = _measured(top1, source)
        for name, path, fields in (
            (table.AUGREG_21K, file, {"mebibytes": mebibytes, **_measured()}),
            (table.AUGREG_FINE_TUNED, file + fine_tuning, tuned),
        ):
            timm_name = timm_name_of.pop(path, None)
            yield Entry(
                name=name,
                aliases=(timm_name,) if timm_name else (),
                **_augreg_fields(path),
                **fields,
            )
    for path, timm_name in timm_name_of.items():
        name, _, top1 = table.TIMM_AUGREG[timm_name]
        yield Entry(
            name=name,
            aliases=(timm_name,),
            **_augreg_fields(path),
            **_measured_by_timm(timm_name, top1),
        )


def _originals():
    for model, (file, mebibytes) in table.ORIGINAL_21K.items():
        path = f"vit_models/imagenet21k/{file}.npz"
        yield _file(
            model, "imagenet21k", path, mebibytes=mebibytes, head_is_zero=True
        )
    for model, file, size, mebibytes, top1, source in table.ORIGINAL_FINE_TUNED:
        suffix = "_224" if size == 224 else ""
        yield _file(
            model,
            f"imagenet21k_imagenet2012{suffix}",
            f"vit_models/imagenet21k+imagenet2012/{file}.npz",
            image_size=size,
            mebibytes=mebibytes,
            **(_measured(top1, source) if top1 else {}),
        )


def _others():
    for model, name, path, mebibytes, verified in table.OTHERS:
        sizes = {"mebibytes": mebibytes, "address_verified": verified}
        yield _file(model, name, path, **sizes)
    for size in table.BIT_SIZES:
        for name, file in (
            ("imagenet2012", f"BiT-S-{size}"),
            ("imagenet21k", f"BiT-M-{size}"),
            ("imagenet21k_imagenet2012", f"BiT-M-{size}-ILSVRC2012"),
        ):
            # Nobody says at which size the BiT-S are best evaluated.
            size_known = {} if "21k" in name else {"image_size": None}
            path = f"bit_models/{file}.npz"
            yield _file(f"BiT_{size}", name, path, **size_known)
    for epochs, top1 in table.PLAIN_BASELINES.items():
        yield _file(
            "ViT_S16",
            f"big_vision_imagenet2012_{epochs}ep",
            f"big_vision/vit_s16_i1k_{epochs}ep.npz",
            **_measured(top1, "arXiv:2205.01580", BIG_VISION),
        )


def _file(model, name, path, **fields):
    """An Entry of a Google file: what timm measured of it unless `fields` say
    more, and what is pinned."""
    data = re.findall("imagenet21k|imagenet2012", name)[-1]
    num_bytes, sha256 = table.PINNED.get(path, (None, None))
    timm_name = TIMM_NAMES.get((model, name))
    measured = {"image_size": 224, **_measured()}
    if timm_name:
        measured = {
            "image_size": _image_size_of(timm_name),
            "aliases": (timm_name,),
            **_measured_by_timm(timm_name, table.TIMM[timm_name][1]),
        }
    return Entry(
        model=model,
        name=name,
        url=_storage(path),
        num_bytes=num_bytes,
        sha256=sha256,
        **CLASSES[data],
        **{**measured, **fields},
    )


def _repositories():
    augreg = table.TIMM_AUGREG.items()
    rows = {name: (ours, top1) for name, (ours, _, top1) in augreg}
    for name, (original, top1) in {**rows, **table.TIMM}.items():
        source = table.TIMM_RESULTS if top1 else None
        yield Entry(
            model=_model_of(name),
            name=f"timm/{name}",
            url=f"{HUB}/timm/{name}",
            **CLASSES[_data_of(name)],
            image_size=_image_size_of(name),
            **_measured(top1, source, _preprocessing_of(name)),
            same_weights_as=original,
        )
    for name, (model, image_size, data, original) in table.HUGGING_FACE.items():
        yield Entry(
            model=model,
            name=name,
            url=f"{HUB}/{name}",
            **CLASSES[data],
            image_size=image_size,
            preprocessing=SQUASH_PIL,
            same_weights_as=original,
        )


# What timm says of the weights of `table.MODERN`.
WEIGHTS = pathlib.Path(__file__).with_name("timm_weights.csv")


def _modern():
    with WEIGHTS.open(newline="", encoding="utf-8") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    for name, models in table.MODERN.items():
        for model, timm_name in models.items():
            row = rows[timm_name]
            yield Entry(
                model=model,
                name=name,
                url=f"{HUB}/{row['repository']}",
                classes=int(row["classes"]),
                labels="imagenet" if row["classes"] == "1000" else None,
                image_size=int(row["image_size"]),
                preprocessing=_preprocessing_of_row(row),
                licence=LICENCES.get(row["licence"], row["licence"]),
                architecture=timm_name.partition(".")[0],
                aliases=(f"timm/{timm_name}",),
            )


# SPDX, where there is one. The others restrict what the weights may be used
# for: read them before you do.
LICENCES = {
    "apache-2.0": "Apache-2.0",
    "mit": "MIT",
    "cc-by-nc-4.0": "CC-BY-NC-4.0",
}


def _preprocessing_of_row(row) -> Preprocessing:
    mean, std = (tuple(map(float, row[x].split())) for x in ("mean", "std"))
    plain = set(mean + std) == {0.5}
    return Preprocessing(
        "shorter_side",
        row["interpolation"],
        True,
        float(row["crop_fraction"]),
        mean=None if plain else mean,
        std=None if plain else std,
    )


def _storage(path):
    return f"{STORAGE}/{path.replace('+', '%2B')}"


def _measured(top1=None, top1_source=None, preprocessing=SQUASH):
    return {
        "top1": top1,
        "top1_source": top1_source,
        "preprocessing": preprocessing,
    }


def _measured_by_timm(timm_name, top1):
    if top1 is None:
        return _measured()
    rule = _preprocessing_of(timm_name)
    return _measured(top1, f"{table.TIMM_RESULTS}: {timm_name}", rule)


# Model and name of an original file: timm's name of the same weights.
TIMM_NAMES = {
    (_model_of(timm_name), name): timm_name
    for timm_name, (name, _) in table.TIMM.items()
    if name
}

ENTRIES = {
    entry.key: entry
    for family in (_augreg, _originals, _others, _repositories, _modern)
    for entry in family()
}

IMAGENET = "imagenet"  # names the recommended weights of 1,000 classes
MODELS = tuple(sorted({entry.model for entry in ENTRIES.values()}))

AUGREG_FORM = (
    "{model}-{i1k|i21k}-{30|300}ep-lr_0.001"
    "-aug_{none|light0|light1|medium1|medium2|strong1|strong2}"
    "-wd_{0.03|0.1}-do_{0.0|0.1}-sd_{0.0|0.1}, and if fine-tuned "
    "--{task}-steps_{20k|10k|2k|0k}-lr_{0.001|0.003|0.01|0.03}-res_{224|384}"
)


def entries(model: str | None = None) -> list[Entry]:
    """The public files of a model such as "ViT_B16", or of all by model.

    Raises:
        ValueError: there is no such model.

    Example:
        >>> [entry.name for entry in entries("ViT_R26_B32")]
        ['imagenet21k']
    """
    if model is None:
        return sorted(ENTRIES.values(), key=lambda entry: entry.model)
    known = [*MODELS, *table.WITHOUT_WEIGHTS]
    if model not in known:
        raise ValueError(
            f"There is no model {model!r}.{_nearest(model, known)} "
            f"Expected one of {', '.join(sorted(known))}."
        )
    return [entry for entry in ENTRIES.values() if entry.model == model]


def find(model: str | None, weights: str) -> Entry:
    """The entry that `weights=` names.

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
    known = (model,) if model else (*MODELS, *table.WITHOUT_WEIGHTS)
    if weights.partition("/")[0] in known:
        model, _, weights = weights.partition("/")
    candidates = entries(model)
    found = [entry for entry in candidates if _is_called(entry, weights)]
    if len(found) == 1:
        return found[0]
    if found:
        keys = [f"{entry.model}/{weights}" for entry in found]
        raise ValueError(
            f"{weights!r} are weights of several models. Say which: "
            f"{', '.join(keys)}."
        )
    return _find_augreg(model, weights) or _fail(model, weights, candidates)


def _is_called(entry, weights):
    wanted = _normal(weights)
    if wanted in {_normal(name) for name in (entry.name, *entry.aliases)}:
        return True
    return wanted == IMAGENET and is_recommended(entry)


def is_recommended(entry: Entry) -> bool:
    """Whether weights="imagenet" is this file."""
    keys = [f"{entry.model}/{name}" for name in table.RECOMMENDED]
    return entry.key == next((key for key in keys if key in ENTRIES), None)


def list_weights(model: str | None = None) -> list[str]:
    """Lists the names of public weights.

    Args:
        model: str, such as "ViT_B16"; None for all models.

    Returns:
        What `weights=` of the model takes; without a model, what
        `keras_vit.load_checkpoint` and `keras_vit.predict` take, with the
        weights that come with the package.

    Raises:
        ValueError: when there is no such model.

    Example:
        >>> keras_vit.list_weights("ViT_R26_B32")
        ['imagenet21k']
        >>> "ViT_B16/imagenet" in keras_vit.list_weights()
        True
    """
    names = []
    for entry in entries(model):
        names.append(entry.name if model else entry.key)
        if is_recommended(entry):
            names.append(IMAGENET if model else f"{entry.model}/{IMAGENET}")
    return sorted(names if model else [*names, *SHIPPED])


def _normal(name):
    return re.sub(r"[+-]", "_", name).lower()


def _find_augreg(model, file_name):
    """The entry of a file of AugReg; None if the name is of another form."""
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
    return known[0] if known else Entry(name=name, **fields, **_measured())


def _fail(model, weights, candidates):
    """Raises the error that says what there is instead."""
    if model in table.WITHOUT_WEIGHTS:
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
        is_key = model is None and "/" in weights
        text += _nearest(weights, list_weights() if is_key else names)
    if re.match(r"(?:Ti|S|B|L|R\w*)_\d+-i", weights):
        text += f" File names of AugReg have the form {AUGREG_FORM}."
    if model is None:
        raise ValueError(
            f"{text} Put the model before a name, as in ViT_B16/{IMAGENET}; "
            "`keras-vit weights list` lists all."
        )
    available = ", ".join(
        f"{entry.name!r} ({entry.classes or 'no'} classes)"
        for entry in candidates
    )
    raise ValueError(f"{text} There are: {available}.")


def _nearest(name, names):
    nearest = difflib.get_close_matches(name, names)
    return f" Did you mean {' or '.join(nearest)}?" if nearest else ""
