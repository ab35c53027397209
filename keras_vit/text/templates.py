"""Sentences that a class is named in, of which embeddings are averaged."""

import functools
import importlib.resources
from collections.abc import Iterable, Sequence

from keras_vit.io.checks import check_kind

__all__ = ["DEFAULT_TEMPLATE", "TEMPLATES", "imagenet_names", "templates_of"]

DEFAULT_TEMPLATE = "a photo of a {}."
# Those of CLIP for ImageNet (arXiv:2103.00020, section 3.1.4; OpenAI's list):
# each of these with "a" and with "the", and four more.
_OF_A_AND_THE = (
    *("{} {{}} in a video game.", "art of {} {{}}.", "graffiti of {} {{}}."),
    *("itap of {} {{}}.", "{} cartoon {{}}.", "{} embroidered {{}}."),
    *("{} origami {{}}.", "{} plastic {{}}.", "{} plushie {{}}."),
    *("{} toy {{}}.", "a photo of {} {{}}.", "a photo of {} hard to see {{}}."),
    *(
        f"a {kind} of {{}} {{{{}}}}."
        for kind in (
            *("bad photo", "black and white photo", "blurry photo"),
            *("bright photo", "close-up photo", "cropped photo", "dark photo"),
            *("good photo", "jpeg corrupted photo", "low resolution photo"),
            *("pixelated photo", "doodle", "drawing", "painting"),
            *("rendering", "rendition", "sculpture", "sketch", "tattoo"),
        )
    ),
    *(
        f"a photo of {{}} {kind} {{{{}}}}."
        for kind in ("clean", "cool", "dirty", "large", "nice", "small")
    ),
    "a photo of {} weird {{}}.",
)
TEMPLATES = {
    "openai": (
        *(x.format(y) for x in _OF_A_AND_THE for y in ("a", "the")),
        *("a photo of many {}.", "a photo of my {}.", "a photo of one {}."),
        "itap of my {}.",
    ),
    # The best seven of them, chosen one after the other.
    "openai_best": (
        *("itap of a {}.", "a bad photo of the {}.", "a origami {}."),
        *("a photo of the large {}.", "a {} in a video game."),
        *("art of the {}.", "a photo of the small {}."),
    ),
}


def templates_of(template: str | Sequence[str]) -> tuple[str, ...]:
    """Return the sentences of a template.

    Args:
        template: a name of `TEMPLATES`; a sentence with {} for the class, in
            any language; or several of these.

    Raises:
        ValueError: for none, or one without {}.

    Example:
        >>> len(templates_of("openai"))
        80
    """
    if isinstance(template, str):
        found = TEMPLATES.get(template, (template,))
    else:
        check_kind(Iterable, template=template)
        found = tuple(template)
    wrong = [x for x in found if not isinstance(x, str) or x.count("{}") != 1]
    if wrong or not found:
        raise ValueError(
            'A template is a sentence with one {} for the class, such as "'
            f'{DEFAULT_TEMPLATE}", several of them, or one of '
            f"{', '.join(TEMPLATES)}. Received: "
            f"{str(wrong[0] if wrong else template)[:100]!r}."
        )
    return found


@functools.cache
def imagenet_names() -> tuple[str, ...]:
    """Return CLIP's names of the 1,000 classes of ImageNet, in their order.

    They differ from WordNet's, some points of accuracy; "missile" and
    "sunglasses" are there twice. Source: see keras_vit/labels/README.md.

    Example:
        >>> imagenet_names()[:2]
        ('tench', 'goldfish')
    """
    folder = importlib.resources.files("keras_vit").joinpath("labels")
    text = folder.joinpath("imagenet_texts.txt").read_text(encoding="utf-8")
    return tuple(text.splitlines())
