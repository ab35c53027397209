"""Images that are others once more: encoded anew, cropped, mirrored, brighter.

Small pictures of all images are compared in three steps. Each image gets the
few others whose picture of 8x8 points is most similar, as it is and mirrored.
Each such pair is aligned: the window of one picture, and the brightness and
contrast, with which it comes nearest to the other. What is left of the
difference decides, compared with what is left of other neighbours in the same
folder: two photographs that differ by a tenth are one, two digits are not.

Axes: N images, P pairs, S the side of a small picture, C channels.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["SIDE", "Pair", "groups_of", "near_duplicates"]

SIDE = 32  # S
COARSE = 8  # points a side that candidates are found by
NEIGHBOURS = 5  # candidates of an image, as many mirrored
SIMILAR = 0.8  # cosine of the coarse pictures of a candidate, at least
LEAST_DEVIATION = 2.0  # levels; flatter images are all alike
BLOCK = 1024  # images that are compared with all others at a time
PAIRS = 512  # that are aligned at a time
# Points that are averaged in each step of Gauss and Newton: large shifts first.
BLURS = (5, 3, 1, 1, 1)
LARGEST_CROP = 0.045  # of each side, relative to the picture's
SLACK = 0.005  # how far a window may be outside, in halves of a side
GAINS = (0.5, 2.0)  # of contrast
DARKEST, BRIGHTEST = 5, 250  # levels beyond which a picture may be cut off
# Structure that is compared, each by itself: what means over 3x3 points have
# and those over 9x9 have not; and what the latter have beside a plane, since
# what goes from bright to dark is alike in all skies and all walls.
BANDS = ((3, 9), (9, None))
NOISE = (0.6, 0.1)  # squared levels that JPEG adds to each
# How much may be left of a pair that is one image: the last number where the
# images of a folder have nothing in common, the first where they are much
# alike, as digits are; see `_bound`. Measured: docs/decisions/audit.md.
BOUNDS = (0.058, 0.165)
LUMA = np.array([0.299, 0.587, 0.114], "float32")  # of ITU-R BT.601

Track = Callable[[Iterable, int, str], Iterable]


class Pair(NamedTuple):
    """Two images that are one.

    Args:
        first: int, the number of an image.
        second: int, that of the other, above the first.
        difference: float from 0, what is left of the difference, relative to
            the contrast.
        mirrored: whether one is the mirror image of the other.
    """

    first: int
    second: int
    difference: float
    mirrored: bool


def near_duplicates(pictures: np.ndarray, track: Track) -> list[Pair]:
    """Find the pairs of pictures that show one image.

    Args:
        pictures: uint8 array of shape (N, S, S, 3), each with both sides
            squeezed to S.
        track: see `keras_vit.auditing.audit`.

    Returns:
        The pairs, those with the smallest difference first.

    Example:
        >>> near_duplicates(np.stack([cat, cat[:, ::-1], dog]), track)
        [Pair(first=0, second=1, difference=0.0, mirrored=True)]
    """
    # One by one: of all at a time the differences would take gigabytes.
    deviations = np.array([picture.std() for picture in pictures])
    rows = np.flatnonzero(deviations >= LEAST_DEVIATION)
    if len(rows) < 2:
        return []
    pairs = _candidates(pictures[rows], track)  # (P, 3)
    found = np.concatenate(
        [np.zeros(0), *_measured(pictures[rows], pairs, track)]
    )
    kept = np.flatnonzero(found <= _bound(pairs, found, len(rows)))
    best: dict[tuple[int, int], Pair] = {}
    for i in kept[np.argsort(found[kept], kind="stable")]:
        first, second = rows[pairs[i, :2]].tolist()
        pair = Pair(first, second, float(found[i]), bool(pairs[i, 2]))
        best.setdefault((first, second), pair)
    return list(best.values())


def groups_of(pairs: Sequence[tuple[int, int]], count: int) -> list[list[int]]:
    """Join pairs of so many images to groups.

    Example:
        >>> groups_of([(0, 1), (1, 4)], 5)
        [[0, 1, 4]]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = np.array(pairs, int).reshape(-1, 2)
    links = coo_array((np.ones(len(ends)), tuple(ends.T)), (count, count))
    _, group = connected_components(links, directed=False)
    members: dict[int, list[int]] = {}
    for image in np.unique(ends).tolist():
        members.setdefault(int(group[image]), []).append(image)
    return list(members.values())


def _candidates(pictures, track) -> np.ndarray:
    """Return pairs of numbers and whether the first is mirrored, int (P, 3)."""
    straight = _coarse(pictures)  # (N, D)
    queries = (straight, _coarse(pictures[:, :, ::-1]))
    found = []
    starts = range(0, len(pictures), BLOCK)
    for start in track(starts, len(starts), "Neighbours"):
        rows = np.arange(start, min(start + BLOCK, len(pictures)))
        for mirrored, query in enumerate(queries):
            cosines = query[rows] @ straight.T  # (rows, N)
            cosines[np.arange(len(rows)), rows] = -1.0
            count = min(NEIGHBOURS, len(pictures) - 1)
            others = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
            near = np.take_along_axis(cosines, others, axis=1) > SIMILAR
            row, place = np.nonzero(near)
            ends = np.stack([rows[row], others[row, place]], axis=1)
            turned = np.full((len(ends), 1), mirrored)
            found.append(np.hstack([np.sort(ends, axis=1), turned]))
    return np.unique(np.concatenate(found), axis=0)


def _coarse(pictures) -> np.ndarray:
    """Return rows of length 1 and mean 0, whose products are cosines."""
    step = SIDE // COARSE
    blocks = pictures.reshape(-1, COARSE, step, COARSE, step, 3)
    points = blocks.mean((2, 4), dtype="float32").reshape(len(pictures), -1)
    points -= points.mean(axis=1, keepdims=True)
    return points / np.linalg.norm(points, axis=1, keepdims=True).clip(1e-6)


def _measured(pictures, pairs, track) -> Iterator[np.ndarray]:
    """Yield what is left of the differences of pairs, (P,) in parts."""
    starts = range(0, len(pairs), PAIRS)
    for start in track(starts, len(starts), "Comparing"):
        firsts, seconds, mirrored = pairs[start : start + PAIRS].T
        first = pictures[firsts].astype("float32")
        second = pictures[seconds].astype("float32")
        turned = mirrored[:, None, None, None] == 1
        first = np.where(turned, first[:, :, ::-1], first)
        # Either may be a crop of the other.
        yield np.minimum(_left(first, second), _left(second, first))


def _bound(pairs, found, count: int) -> float:
    """Return how much may be left of a pair that is one image.

    The more alike other images are, the less: the cube of what is left of the
    fifth candidate of an image, in the median, decides between the bounds.
    Nearer candidates may be the same image; where half of the images have
    fewer, they have nothing in common.
    """
    ends = np.concatenate([pairs[:, 0], pairs[:, 1]])
    left = np.concatenate([found, found])
    order = np.lexsort((left, ends))
    ends, left = ends[order], left[order]
    starts = np.searchsorted(ends, np.arange(count))
    fifths = starts + NEIGHBOURS - 1
    stops = np.searchsorted(ends, np.arange(count), side="right")
    typical = np.full(count, np.inf)
    typical[fifths < stops] = left[fifths[fifths < stops]]
    return float(np.clip(BOUNDS[1] * np.median(typical) ** 3, *BOUNDS))


def _left(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return what is left between second and the best window of first.

    Args:
        first: float32 array of shape (P, S, S, C).
        second: likewise.

    Returns:
        float array of shape (P,), squares relative to those of the contrast:
        0 for the same image, about 2 for images that have nothing in common.
    """
    seen = _aligned(first, second)
    left = np.zeros(len(first))
    for band, noise in zip(BANDS, NOISE, strict=True):
        seen_there, second_there = _band(seen, band), _band(second, band)
        contrast = np.minimum(_energy(seen_there), _energy(second_there))
        rest = _energy(seen_there - second_there) - noise
        left = np.maximum(left, rest / contrast.clip(1e-3))
    return left


def _band(pictures, band) -> np.ndarray:
    """Return the structure of pictures in one of `BANDS`."""
    fine, coarse = band
    smooth = _box(pictures, fine)
    return smooth - (_box(pictures, coarse) if coarse else _plane(smooth))


def _plane(pictures) -> np.ndarray:
    """Return the nearest plane of each channel, (P, S, S, C)."""
    place = _places()
    unit = place / np.square(place).sum() / SIDE
    across = np.einsum("pijc,j->pc", pictures, unit)[:, None, None]
    down = np.einsum("pijc,i->pc", pictures, unit)[:, None, None]
    mean = pictures.mean(axis=(1, 2), keepdims=True)
    place = place[:, None]
    return mean + across * place + down * place[:, None]


def _aligned(first, second) -> np.ndarray:
    """Return what first shows in its best window, brightness and contrast.

    Least squares by Gauss and Newton over gain and offset of the levels, and
    scale and shift of a window along both axes: the derivative of a picture
    by its shift is its gradient, by its scale the gradient times the place.
    Levels at which second is cut off count only where they are not reached.
    """
    count = len(first)
    grey, goal = first @ LUMA, second @ LUMA
    window = np.zeros((count, 4), "float32")  # scale and shift of x, of y
    gain = np.ones((count, 1), "float32")
    place, half = _places(), SIDE / 2  # half: points of a place
    for points in BLURS:
        blurred, target = (_box(x[..., None], points) for x in (grey, goal))
        target = target.reshape(count, -1)
        seen = _windowed(blurred, window)[..., 0]
        down, right = np.gradient(seen, axis=(1, 2))
        moves = [right * place, right, down * place[:, None], down]
        columns = [seen, np.ones_like(seen), *(half * x for x in moves)]
        design = np.stack(columns, axis=-1).reshape(count, -1, 6)
        counts = _counts(gain * design[..., 0], target)
        found = _least_squares(design, target, counts)
        gain = found[:, :1].clip(*GAINS)
        window = _inside(window + found[:, 2:] / gain)
    return _relit(_windowed(first, window), second, gain)


def _relit(seen, second, gain) -> np.ndarray:
    """Return pictures with the brightness and contrast of others."""
    offset = np.float32(0)
    levels, target = (x.reshape(len(x), -1) for x in (seen, second))
    for _ in range(2):
        counts = _counts(gain * levels + offset, target)
        design = np.stack([levels, np.ones_like(levels)], axis=-1)
        gain = _least_squares(design, target, counts)[:, :1].clip(*GAINS)
        total = counts.sum(axis=1, keepdims=True).clip(1)
        rest = (target - gain * levels) * counts
        offset = rest.sum(axis=1, keepdims=True) / total
    return (gain * levels + offset).clip(0, 255).reshape(seen.shape)


def _places() -> np.ndarray:
    """Return the places of points along a side, from -1 to 1, (S,)."""
    return ((np.arange(SIDE) + 0.5) / SIDE * 2 - 1).astype("float32")


def _counts(expected, target) -> np.ndarray:
    """Return which points tell something, float32 (P, S * S)."""
    above = (target >= BRIGHTEST) & (expected >= target)
    below = (target <= DARKEST) & (expected <= target)
    return (~(above | below)).astype("float32")


def _least_squares(design, target, counts) -> np.ndarray:
    """Solve design x = target over the points that count, (P, unknowns)."""
    weighted = (design * counts[..., None]).swapaxes(1, 2)
    normal = (weighted @ design).astype("float64")
    right = (weighted @ target[..., None]).astype("float64")
    diagonal = np.diagonal(normal, axis1=1, axis2=2)
    # Flat pictures tell nothing of a window, which then stays as it is.
    ridge = 1e-3 * diagonal + 1e-6 * diagonal.sum(1, keepdims=True)
    ridge[:, :2] = 1e-4
    normal = normal + ridge[..., None] * np.eye(design.shape[-1])
    return np.linalg.solve(normal, right)[..., 0].astype("float32")


def _inside(window) -> np.ndarray:
    """Return the nearest windows that are crops of the picture."""
    scale = window[:, ::2].clip(-LARGEST_CROP, 0)
    shift = window[:, 1::2].clip(scale - SLACK, SLACK - scale)
    return np.stack([scale, shift], axis=2).reshape(-1, 4)


def _windowed(pictures, window) -> np.ndarray:
    """Return windows of pictures (P, S, S, C), by linear interpolation."""
    for axis, columns in ((2, window[:, :2]), (1, window[:, 2:])):
        place = _places() * (1 + columns[:, :1]) + columns[:, 1:]  # (P, S)
        point = (place + 1) / 2 * SIDE - 0.5
        low = np.floor(point).clip(0, SIDE - 2).astype(int)
        share = (point - low).clip(0, 1).astype("float32")
        other = tuple({0, 1, 2, 3} - {0, axis})
        low, share = (np.expand_dims(x, other) for x in (low, share))
        lower = np.take_along_axis(pictures, low, axis=axis)
        upper = np.take_along_axis(pictures, low + 1, axis=axis)
        pictures = lower + (upper - lower) * share
    return pictures


def _box(pictures, points: int) -> np.ndarray:
    """Return pictures as means over squares of so many points."""
    from scipy.ndimage import uniform_filter

    return uniform_filter(pictures, (1, points, points, 1), mode="nearest")


def _energy(pictures) -> Any:
    """Return the mean square of each picture, (P,)."""
    return np.square(pictures).mean(axis=(1, 2, 3))
