"""Where both halves of an image-text model are, by the name of its image tower.

`pairs.csv` has a row for each such tower of the catalogue: its name with its
tag, and the repository of both halves. Sources: the `hf_hub_id` of timm 1.0.31
and the pretrained table of open_clip 3.3.0. By name alone, as neither lists
them: TinyCLIP, TIPSv2, and SigLIP 2 of any size (NaFlex), which transformers
names. What each kind of them computes is held by tests/text/test_every_pair.py.
"""

import csv
import functools
import os
import pathlib

from keras_vit.checkpoints.public import catalog

__all__ = ["pair_repository", "pair_source", "repositories"]

TABLE = pathlib.Path(__file__).with_name("pairs.csv")


@functools.cache
def repositories() -> dict[str, str]:
    """Return the repository of each image tower, by its name with its tag."""
    with TABLE.open(encoding="utf-8", newline="") as file:
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
    if isinstance(source, os.PathLike) or os.path.exists(source):
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
