"""Pictures inside a page: no file beside it and no network.

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
    """An input image, small ones pixel by pixel.

    Args:
        image: uint8 array of shape (H, W, C), C 1 or 3.
        side: int, pixels that neither side is to exceed.

    Returns:
        Dict of "source", a data URI, and "small", bool, whether it shall be
        drawn with visible pixels.

    Example:
        >>> photograph(np.zeros((16, 16, 1), "uint8"))["small"]
        True
    """
    from PIL import Image

    picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    small = max(picture.size) <= SMALL
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    options = {"format": "png"} if small else {"format": "jpeg", "quality": 85}
    return {"source": _uri(picture, **options), "small": small}


def grey(values: np.ndarray) -> str:
    """Bytes as they are, in a PNG that loses none.

    Args:
        values: uint8 array of shape (H, W).

    Returns:
        str, a data URI.

    Example:
        >>> grey(np.zeros((14, 14), "uint8"))[:22]
        'data:image/png;base64,'
    """
    from PIL import Image

    return _uri(Image.fromarray(values), format="png", optimize=True)


def heat_map(shares: np.ndarray) -> str:
    """A square for each number, from white for 0 to dark blue for 1.

    Args:
        shares: float array of shape (K, K), values in [0, 1].

    Returns:
        str, a data URI.

    Example:
        >>> heat_map(np.eye(100))[:22]
        'data:image/png;base64,'
    """
    from PIL import Image

    # The square root shows rare mistakes, which are what one looks for.
    depth = np.sqrt(shares)[..., np.newaxis]
    white, blue = np.array([255, 255, 255]), np.array([0, 58, 112])
    pixels = np.rint(white + depth * (blue - white)).astype("uint8")
    scale = max(1, 600 // len(shares))
    large = pixels.repeat(scale, axis=0).repeat(scale, axis=1)
    return _uri(Image.fromarray(large), format="png", optimize=True)


def vector_graphic(figure) -> str:
    """A matplotlib figure as SVG, whose text stays text.

    Args:
        figure: matplotlib Figure.

    Returns:
        str, a data URI; the same figure gives the same one.

    Example:
        >>> vector_graphic(figure)[:26]
        'data:image/svg+xml;base64,'
    """
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context():
        matplotlib.rcParams["svg.fonttype"] = "none"
        matplotlib.rcParams["svg.hashsalt"] = "keras_vit"
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return _data("image/svg+xml", buffer.getvalue())


def _uri(picture, **options):
    buffer = io.BytesIO()
    picture.save(buffer, **options)
    return _data(f"image/{options['format']}", buffer.getvalue())


def _data(kind, content):
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
