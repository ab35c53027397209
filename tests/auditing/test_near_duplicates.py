"""Near duplicates among digits and photographs."""

import numpy as np
import planted
import pytest

from keras_vit import auditing as near
from keras_vit.auditing import groups_of, near_duplicates, read_facts

COPIES = 48  # four of each kind of change


def no_track(items, total, what):
    return items


@pytest.fixture(scope="module", params=["digits", "photographs"])
def found(request, tmp_path_factory):
    """Pairs that were found and planted, the latter with kinds of change."""
    draw = np.random.default_rng(1)
    if request.param == "digits":
        images = planted.digits()[0]
    else:
        pytest.importorskip("skimage")
        images = planted.photographs()
    images = [images[i] for i in draw.permutation(len(images))[:400]]
    folder = tmp_path_factory.mktemp("planted")
    known = planted.write_duplicates(folder, images, COPIES, seed=1)
    names = sorted(
        x.relative_to(folder).as_posix() for x in folder.rglob("*.*g")
    )
    facts = read_facts([str(folder / x) for x in names])
    pictures = np.stack([picture for _, picture in facts])
    pairs = near_duplicates(pictures, no_track)
    named = {frozenset((names[x.first], names[x.second])): x for x in pairs}
    return named, known


def test_every_kind_of_copy_is_found(found):
    pairs, known = found
    assert {kind for pair, kind in known.items() if pair not in pairs} == set()


def test_at_most_one_image_of_hundred_is_taken_for_another(found):
    pairs, known = found
    wrong = {name for pair in pairs.keys() - known.keys() for name in pair}
    assert len(wrong) <= 4


def test_black_and_white_in_both_say_nothing():
    """Nor what would be beyond them; a light grey in place of white does."""
    target = np.array([[0, 0, 255, 255, 255, 100]], "float32")
    expected = np.array([[0, -9, 255, 300, 200, 100]], "float32")
    assert near._counts(expected, target).tolist() == [[0, 0, 0, 0, 1, 1]]


def test_mirror_images_are_called_so(found):
    pairs, known = found
    straight = [
        pairs[x].mirrored for x, kind in known.items() if kind == "cropped"
    ]
    mirrored = [
        pairs[x].mirrored for x, kind in known.items() if kind == "mirrored"
    ]
    # A digit may be its own mirror image, nearly.
    assert not any(straight)
    assert all(mirrored)


def test_colours_are_compared():
    """The same shape in red and in blue is no duplicate."""
    shape = np.zeros((32, 32, 1), "uint8")
    shape[8:20, 5:25] = 200
    shape[14:30, 10:14] = 120
    red = shape * np.array([1, 0, 0], "uint8")
    blue = shape * np.array([0, 0, 1], "uint8")
    pairs = near_duplicates(np.stack([red, blue, red]), no_track)
    assert [(x.first, x.second) for x in pairs] == [(0, 2)]


def test_images_of_one_colour_are_no_duplicates():
    flat = np.stack([np.full((32, 32, 3), x, "uint8") for x in (9, 9, 200)])
    assert near_duplicates(flat, no_track) == []


def test_one_image_has_no_duplicates():
    picture = np.random.default_rng(0).integers(0, 256, (1, 32, 32, 3), "uint8")
    assert near_duplicates(picture, no_track) == []


def test_a_window_beyond_the_edge_shows_the_last_point():
    brightness = np.arange(32, dtype="float32")[:, None]  # left to right
    ramp = np.broadcast_to(brightness, (1, 32, 32, 1))
    by_a_point = np.array([[0, 2 / 32, 0, 0]], "float32")
    expected = np.minimum(np.arange(32) + 1.0, 31)
    found = near._windowed(ramp, by_a_point)
    np.testing.assert_allclose(found[0, 5, :, 0], expected, atol=1e-4)


def test_pairs_join_to_groups():
    assert groups_of([(3, 5), (0, 1), (1, 4)], 7) == [[0, 1, 4], [3, 5]]
    assert groups_of([], 7) == []
