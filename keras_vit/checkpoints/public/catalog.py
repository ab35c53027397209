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

import difflib
import re

from keras_vit.checkpoints.public.catalog_table import (
    RECOMMENDED,
    WITHOUT_WEIGHTS,
)
from keras_vit.checkpoints.public.published import ENTRIES, Entry, augreg_entry

__all__ = ["entries", "find"]

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
    known = [*MODELS, *WITHOUT_WEIGHTS]
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
    known = (model,) if model else (*MODELS, *WITHOUT_WEIGHTS)
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
    return wanted == "imagenet" and entry == _recommended(entry.model)


def _recommended(model):
    keys = [f"{model}/{name}" for name in RECOMMENDED]
    return next((ENTRIES[key] for key in keys if key in ENTRIES), None)


def _normal(name):
    return re.sub(r"[+-]", "_", name).lower()


def _find_augreg(model, weights):
    entry = augreg_entry(weights)
    if entry and model not in (None, entry.model):
        raise ValueError(
            f"{weights!r} is a file of {entry.model}, not of {model}. "
            f"Build keras_vit.{entry.model}."
        )
    return entry


def _fail(model, weights, candidates):
    """Raises the error that says what there is instead."""
    if model in WITHOUT_WEIGHTS:
        raise ValueError(
            f"No public weights of {model} are known. Received: "
            f"weights={weights!r}. Pass weights=None for random "
            "initialisation, or a path or address of a file that you have."
        )
    text = f"There are no weights {weights!r}{f' of {model}' if model else ''}."
    if _normal(weights) != "imagenet":
        text += _nearest(weights, _names(candidates, model))
    if re.match(r"(?:Ti|S|B|L|R\w*)_\d+-i", weights):
        text += f" File names of AugReg have the form {AUGREG_FORM}."
    if model is None:
        raise ValueError(f"{text} `keras-vit weights list` lists all names.")
    available = ", ".join(
        f"{entry.name!r} ({entry.classes or 'no'} classes)"
        for entry in candidates
    )
    raise ValueError(f"{text} There are: {available}.")


def _names(candidates, model):
    if model is None:
        return [entry.key for entry in candidates]
    return [
        name for entry in candidates for name in (entry.name, *entry.aliases)
    ]


def _nearest(name, names):
    nearest = difflib.get_close_matches(name, names)
    return f" Did you mean {' or '.join(nearest)}?" if nearest else ""
