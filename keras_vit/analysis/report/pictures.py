"""Pictures as data URIs, which are part of the page.

Axes: H and W height and width, C channels, K classes.
"""

import base64
import io

import numpy as np

__all__ = ["grey", "heat_map", "photograph", "vector_graphic"]

# Above this side an image is scaled down, and photographs are kept as JPEG.
LARGE = 160
SMALL = 64


def photograph(image: np.ndarray, *, side: int = LARGE) -> dict:
    """An image (H, W, C), neither side larger than `side` pixels.

    Returns:
        Dict of "source", a data URI, and "small", bool, whether to draw it
        with visible pixels.
    """
    from PIL import Image

    picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    small = max(picture.size) <= SMALL
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    options = {"format": "png"} if small else {"format": "jpeg", "quality": 85}
    return {"source": _uri(picture, **options), "small": small}


def grey(values: np.ndarray) -> str:
    """Bytes (H, W) as a PNG, without loss."""
    from PIL import Image

    return _uri(Image.fromarray(values), format="png", optimize=True)


def heat_map(shares: np.ndarray) -> str:
    """A square per number of (K, K), from white for 0 to dark blue for 1."""
    from PIL import Image

    # The square root makes rare mistakes visible.
    depth = np.sqrt(shares)[..., np.newaxis]
    white, blue = np.array([255, 255, 255]), np.array([0, 58, 112])
    pixels = np.rint(white + depth * (blue - white)).astype("uint8")
    scale = max(1, 600 // len(shares))
    large = pixels.repeat(scale, axis=0).repeat(scale, axis=1)
    return _uri(Image.fromarray(large), format="png", optimize=True)


def vector_graphic(figure) -> str:
    """A matplotlib figure as SVG, always the same of the same figure."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context():
        matplotlib.rcParams["svg.fonttype"] = "none"  # Text stays text.
        matplotlib.rcParams["svg.hashsalt"] = "keras_vit"
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return _data("image/svg+xml", buffer.getvalue())


def _uri(picture, **options):
    buffer = io.BytesIO()
    picture.save(buffer, **options)
    return _data(f"image/{options['format']}", buffer.getvalue())


def _data(kind, content):
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
