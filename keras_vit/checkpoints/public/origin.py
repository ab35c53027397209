"""Where weights are from, told from their name."""

import dataclasses
import os
from collections.abc import Mapping

from keras_vit.checkpoints.public import catalog
from keras_vit.checkpoints.public.catalog_entry import HUB

__all__ = ["Origin", "entry_of", "origin_of", "origin_of_run"]


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


def entry_of(weights: str, model: str | None = None) -> catalog.Entry | None:
    """The public weights that a name is of; None for a path."""
    if os.path.exists(weights):
        return None
    try:
        return catalog.find(model, weights)
    except ValueError:
        return None


def origin_of(weights: str, model: str | None = None) -> Origin:
    """Where weights are from.

    Of a path only that it is one: it tells of the machine, not the model.

    Args:
        weights: what `keras_vit.load_checkpoint` takes.
        model: the application, such as "ViT_B16", where the name is of it.

    Example:
        >>> origin_of("ViT_B16/imagenet").licence
        'Apache-2.0'
    """
    if weights.lower() in catalog.SHIPPED:
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
    if weights.startswith("timm/") and not os.path.exists(weights):
        return Origin(weights, f"{HUB}/{weights}", weights)
    if "://" in weights:
        return Origin("a file that was downloaded")
    return Origin("a file of weights")


def origin_of_run(run: Mapping) -> Origin | None:
    """The weights that a run started from, from its config; None if none."""
    options = run.get("model") or {}
    weights = options.get("weights")
    if not isinstance(weights, str):
        return None
    return origin_of(weights, options.get("name"))


def _repository_of(entry) -> str | None:
    """The repository of these weights, also where they are a copy of a file."""
    if entry.is_repository:
        return entry.url.removeprefix(f"{HUB}/")
    copies = [f"timm/{name}" for name in entry.aliases]
    return next((name for name in copies if name in catalog.ENTRIES), None)
