"""The entries of the catalogue, made from its rows."""

import re

from keras_vit.checkpoints.public import timm_names
from keras_vit.checkpoints.public.catalog_table import (
    AUGREG,
    AUGREG_21K,
    AUGREG_FINE_TUNED,
    AUGREG_MODELS,
    BIT_SIZES,
    HUGGING_FACE,
    ORIGINAL_21K,
    ORIGINAL_FINE_TUNED,
    OTHERS,
    PINNED,
    PLAIN_BASELINES,
    TASKS,
    TIMM,
    TIMM_AUGREG,
    TIMM_RESULTS,
)
from keras_vit.checkpoints.public.entry import HUB, Entry, Preprocessing

__all__ = ["ENTRIES", "augreg_entry"]

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
    rf"(?P<model>{'|'.join(AUGREG_MODELS)})"
    r"-(?P<data>i1k-300ep|i21k-300ep|i21k-30ep)-lr_0\.001"
    r"-aug_(?:none|light0|light1|medium1|medium2|strong1|strong2)"
    r"-wd_0\.(?:03|1)-do_0\.[01]-sd_0\.[01]"
    rf"(?:--(?P<task>{'|'.join(TASKS)})"
    r"-steps_(?:20k|10k|2k|0k)-lr_0\.(?:03|01|003|001)"
    r"-res_(?P<image_size>224|384))?"
    r")(?:\.npz)?"
)


def augreg_entry(file_name: str) -> Entry | None:
    """The entry of a file of AugReg, or None if the name is of another form.

    Args:
        file_name: str, with or without `.npz` and what stands before it.

    Returns:
        Entry, of the catalogue if it has the file.

    Example:
        >>> name = "Ti_16-i1k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0"
        >>> augreg_entry(name).classes
        1000
    """
    fields = _augreg_fields(file_name)
    if not fields:
        return None
    known = [entry for entry in ENTRIES.values() if entry.url == fields["url"]]
    name = fields["url"].rpartition("/")[2].removesuffix(".npz")
    return (
        known[0] if known else Entry(name=name, preprocessing=SQUASH, **fields)
    )


def _augreg_fields(file_name):
    match = AUGREG_FILE.fullmatch(file_name)
    if match is None:
        return {}
    upstream = "imagenet2012" if "i1k" in match["data"] else "imagenet21k"
    task = match["task"] or upstream
    return {
        "model": AUGREG_MODELS[match["model"]],
        "url": _storage(f"vit_models/augreg/{match['file']}.npz"),
        "image_size": int(match["image_size"] or 224),
        **(CLASSES.get(task) or {"classes": TASKS[task], "labels": None}),
    }


def _augreg():
    timm_name_of = {file: name for name, (_, file, _) in TIMM_AUGREG.items()}
    for file, mebibytes, fine_tuning, top1, source in AUGREG.values():
        tuned = _measured(top1, source)
        for name, path, fields in (
            (AUGREG_21K, file, {"mebibytes": mebibytes, **_measured()}),
            (AUGREG_FINE_TUNED, file + fine_tuning, tuned),
        ):
            timm_name = timm_name_of.pop(path, None)
            yield Entry(
                name=name,
                aliases=(timm_name,) if timm_name else (),
                **_augreg_fields(path),
                **fields,
            )
    for path, timm_name in timm_name_of.items():
        name, _, top1 = TIMM_AUGREG[timm_name]
        yield Entry(
            name=name,
            aliases=(timm_name,),
            **_augreg_fields(path),
            **_measured_by_timm(timm_name, top1),
        )


def _originals():
    for model, (file, mebibytes) in ORIGINAL_21K.items():
        path = f"vit_models/imagenet21k/{file}.npz"
        yield _file(
            model, "imagenet21k", path, mebibytes=mebibytes, head_is_zero=True
        )
    for model, file, image_size, mebibytes, top1, source in ORIGINAL_FINE_TUNED:
        suffix = "_224" if image_size == 224 else ""
        yield _file(
            model,
            f"imagenet21k_imagenet2012{suffix}",
            f"vit_models/imagenet21k+imagenet2012/{file}.npz",
            image_size=image_size,
            mebibytes=mebibytes,
            **(_measured(top1, source) if top1 else {}),
        )


def _others():
    for model, name, path, mebibytes, verified in OTHERS:
        yield _file(
            model,
            name,
            path,
            mebibytes=mebibytes,
            address_verified=verified,
        )
    for size in BIT_SIZES:
        for name, file in (
            ("imagenet2012", f"BiT-S-{size}"),
            ("imagenet21k", f"BiT-M-{size}"),
            ("imagenet21k_imagenet2012", f"BiT-M-{size}-ILSVRC2012"),
        ):
            # Nobody says at which size the BiT-S are best evaluated.
            size_known = {} if "21k" in name else {"image_size": None}
            path = f"bit_models/{file}.npz"
            yield _file(f"BiT_{size}", name, path, **size_known)
    for epochs, top1 in PLAIN_BASELINES.items():
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
    num_bytes, sha256 = PINNED.get(path, (None, None))
    timm_name = TIMM_NAMES.get((model, name))
    measured = {"image_size": 224, **_measured()}
    if timm_name:
        measured = {
            "image_size": timm_names.image_size_of(timm_name),
            "aliases": (timm_name,),
            **_measured_by_timm(timm_name, TIMM[timm_name][1]),
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
    rows = {name: (ours, top1) for name, (ours, _, top1) in TIMM_AUGREG.items()}
    for name, (original, top1) in {**rows, **TIMM}.items():
        yield Entry(
            model=timm_names.model_of(name),
            name=f"timm/{name}",
            url=f"{HUB}/timm/{name}",
            **CLASSES[timm_names.data_of(name)],
            image_size=timm_names.image_size_of(name),
            **_measured(
                top1,
                TIMM_RESULTS if top1 else None,
                timm_names.preprocessing_of(name),
            ),
            same_weights_as=original,
        )
    for name, (model, image_size, data, original) in HUGGING_FACE.items():
        yield Entry(
            model=model,
            name=name,
            url=f"{HUB}/{name}",
            **CLASSES[data],
            image_size=image_size,
            preprocessing=SQUASH_PIL,
            same_weights_as=original,
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
    rule = timm_names.preprocessing_of(timm_name)
    return _measured(top1, f"{TIMM_RESULTS}: {timm_name}", rule)


# Model and name of an original file: timm's name of the same weights.
TIMM_NAMES = {
    (timm_names.model_of(timm_name), name): timm_name
    for timm_name, (name, _) in TIMM.items()
    if name
}

ENTRIES = {
    entry.key: entry
    for family in (_augreg, _originals, _others, _repositories)
    for entry in family()
}
