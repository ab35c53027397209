"""Pictures as data URIs, which are part of the page.

Axes: H and W height and width, C channels, K classes.
"""

import base64
import html
import io
import re

import numpy as np

__all__ = ["grey", "heat_map", "photograph", "thumbnail", "vector_graphic"]

# Above this side an image is scaled down, and photographs are kept as JPEG.
LARGE = 160
SMALL = 64
# Colours of a figure -> those of the page, which are others in the dark.
THEMED = {
    "#000000": "var(--ink)",
    "#ffffff": "var(--page)",
    "#b0b0b0": "var(--grid)",
    "#0072b2": "var(--blue)",
    "#d55e00": "var(--orange)",
    "#009e73": "var(--green)",
}


def photograph(image: np.ndarray, *, side: int = LARGE) -> dict:
    """Return an image (H, W, C), neither side larger than `side` pixels.

    Returns:
        Dict of "source", a data URI, and "small", bool, whether to draw it
        with visible pixels.
    """
    small = max(image.shape[:2]) <= SMALL
    options = {"format": "png"} if small else {"format": "jpeg", "quality": 85}
    picture = _scaled_down(image, side)
    return {"source": _uri(picture, **options), "small": small}


def thumbnail(image: np.ndarray, side: int = LARGE) -> np.ndarray:
    """Return an image (H, W, C) of bytes, scaled down as by `photograph`."""
    found = np.asarray(_scaled_down(image, side))
    return found.reshape(*found.shape[:2], image.shape[-1])


def _scaled_down(image, side):
    from PIL import Image

    picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    return picture


def grey(values: np.ndarray) -> str:
    """Bytes (H, W) as a PNG, without loss."""
    from PIL import Image

    return _uri(Image.fromarray(values), format="png", optimize=True)


def heat_map(shares: np.ndarray) -> str:
    """Return a square per number of (K, K), from clear for 0 to blue for 1."""
    from PIL import Image

    # The square root makes rare mistakes visible.
    depth = np.rint(255 * np.sqrt(shares)).astype("uint8")
    pixels = np.full((*shares.shape, 4), (0, 114, 178, 0), "uint8")
    pixels[..., 3] = depth
    scale = max(1, 600 // len(shares))
    large = pixels.repeat(scale, axis=0).repeat(scale, axis=1)
    return _uri(Image.fromarray(large), format="png", optimize=True)


def vector_graphic(figure, name: str, text: str) -> str:
    """Return a matplotlib figure as an SVG element in the colours of the page.

    The same figure gives the same text. It stands in the page and not in an
    `img`, where not every browser tells it of the dark.

    Args:
        figure: the figure; its text becomes text of the page's font.
        name: what its ids begin with, another for each figure of a page.
        text: the figure in words.
    """
    import markupsafe
    import matplotlib

    buffer = io.BytesIO()
    nobody = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context():
        matplotlib.rcParams["svg.fonttype"] = "none"  # Text stays text.
        matplotlib.rcParams["svg.hashsalt"] = "keras_vit"
        figure.savefig(buffer, format="svg", metadata=nobody, facecolor="none")
    drawing = buffer.getvalue().decode()
    drawing = drawing[drawing.index("<svg") :]
    # Its style is that of the page.
    drawing = re.sub(r"<defs>\s*<style[^<]*</style>\s*</defs>", "", drawing)
    drawing = re.sub(r'(\bid="|"#|url\(#)', rf"\g<1>{name}-", drawing)
    drawing = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", drawing)
    for colour, variable in THEMED.items():
        drawing = drawing.replace(colour, variable)
    label = f'<svg role="img" aria-label="{html.escape(text)}" '
    return markupsafe.Markup(drawing.replace("<svg ", label, 1))


def _uri(picture, **options):
    buffer = io.BytesIO()
    picture.save(buffer, **options)
    content = base64.b64encode(buffer.getvalue()).decode()
    return f"data:image/{options['format']};base64,{content}"
