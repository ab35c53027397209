import subprocess
import sys
import zlib

import numpy as np
import pytest
from named_data import fractals as module
from named_data.fractals import (
    FractalConfig,
    Systems,
    fractal_images,
    fractals,
    random_words,
)

from keras_vit.runtime.shipped_recipes import RECIPES

HALVES = [(0, 0), (0.5, 0), (0, 0.5), (0.5, 0.5)]


SQUARE = [[0.5, 0, 0, 0.5, e, f] for e, f in HALVES]


SMALL = FractalConfig(num_classes=5, images_per_class=4, image_size=16)


@pytest.fixture(scope="module")
def small():
    return fractals(SMALL)


def bytes_of(seed, *shape):
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def scalar_images(systems, draws, brushes, flips, size):
    """The chaos game and the brush, a number at a time."""
    images = []
    for maps, choices, draw, brush, flip in zip(
        systems.maps, systems.choices, draws, brushes, flips, strict=True
    ):
        xs, ys = [], []
        for walker in range(draw.shape[1]):
            x = y = np.float32(0)
            for step in range(len(draw)):
                a, b, c, d, e, f = maps[choices[draw[step, walker]]]
                x, y = a * x + b * y + e, c * x + d * y + f
                if step >= 20:
                    xs.append(x)
                    ys.append(y)
        image = scalar_drawing(xs, ys, brush, size)
        image = image[:, ::-1] if flip in (1, 3) else image
        images.append(image[::-1] if flip in (2, 3) else image)
    return np.stack(images)


def scalar_drawing(xs, ys, brush, size):
    fine = np.zeros((4 * size, 4 * size))
    room = np.float32(4 * size - 3)
    left, top = min(xs), min(ys)
    for x, y in zip(xs, ys, strict=True):
        i = int((y - top) / (max(ys) - top) * room + np.float32(1.5))
        j = int((x - left) / (max(xs) - left) * room + np.float32(1.5))
        for bit in range(9):
            row, column = i + 1 - bit // 3, j + 1 - bit % 3
            if brush >> bit & 1:
                fine[row, column] = 1
    whites = fine.reshape(size, 4, size, 4).sum(axis=(1, 3))
    return np.floor(whites * 255 / 16).astype("uint8")


def test_words_are_those_of_philox():
    # Random123, kat_vectors: philox4x64 10, counter and key of zeros. NumPy
    # counts up before the first block.
    words = np.random.Philox(counter=[2**64 - 1] * 4, key=[0, 0]).random_raw(4)
    known = (
        "16554d9eca36314c db20fe9d672d0fdc d7e772cee186176b 7e68b68aec7ba23b"
    )
    assert [f"{int(word):016x}" for word in words] == known.split()


def test_each_argument_has_words_of_its_own():
    given = {"seed": 1, "number": 1, "purpose": 1, "item": 1, "size": 4}
    drawn = [random_words(**given)]
    drawn += [
        random_words(**{**given, name: 2}) for name in given if name != "size"
    ]
    assert len(np.unique(np.stack(drawn))) == 5 * 4


def test_images_are_what_single_numbers_come_to():
    systems = Systems.random(3, [5, 6, 7, 8], attempt=0)
    draws = bytes_of(0, 4, 24, 8)
    brushes, flips = np.array([1, 100, 511, 16]), np.arange(4)
    x, y = module.chaos_game(systems, draws)
    np.testing.assert_array_equal(
        module.draw(x, y, brushes, flips, 16),
        scalar_images(systems, draws, brushes, flips, 16),
    )


def test_attractor_of_three_halves_is_that_of_sierpinski():
    # No binary digit is 1 in both coordinates of any of its points.
    systems = Systems.from_maps([SQUARE[:3]])
    x, y = module.chaos_game(systems, bytes_of(1, 1, 60, 50))
    digits = [(part * 2**10).astype(int) for part in (x, y)]
    assert (digits[0] & digits[1] == 0).all()
    assert len(np.unique(digits[0])) > 500


def test_maps_are_chosen_by_the_area_they_leave():
    maps = [[0.8, 0, 0, 0.8, 0, 0], [0.4, 0, 0, 0.4, 1, 1]]
    (choices,) = Systems.from_maps([maps]).choices
    assert np.bincount(choices).tolist() == [205, 51]  # 4 to 1 of 256


def test_filling_rate_of_a_square_is_that_of_random_points():
    systems = Systems.from_maps([SQUARE])
    (rate,) = module.filling_rate(systems, 0, np.array([0]))
    # Two points a pixel leave a share of exp(-2) empty.
    assert rate == pytest.approx(1 - np.exp(-2), abs=0.02)


def test_classes_fill_a_fifth_of_their_pictures():
    numbers = np.arange(30)
    rates = module.filling_rate(
        module.class_systems(0, numbers.tolist()), 0, numbers
    )
    assert rates.min() >= 0.2
    first = Systems.random(0, numbers.tolist(), attempt=0)
    rates = module.filling_rate(first, 0, numbers)
    assert rates.min() < 0.1  # So it is not by chance.


def test_no_change_of_a_letter_makes_points_run_away():
    maps = module.class_systems(0, range(30)).maps
    for letter in range(4):
        changed = maps.copy()
        changed[:, :, letter] *= 1.2
        linear = changed[:, :, :4].reshape(30, 7, 2, 2)
        assert np.linalg.norm(linear, ord=2, axis=(-2, -1)).max() < 1


def test_classes_have_two_to_seven_maps_within_the_square():
    maps = Systems.random(0, list(range(60)), attempt=0).maps
    counts = (maps != 0).any(axis=-1).sum(axis=1)
    assert set(counts) == {2, 3, 4, 5, 6, 7}
    assert np.abs(maps[:, :, 4:]).max() <= 1


def test_an_image_is_a_function_of_seed_class_and_number(small):
    chosen = fractal_images([4, 1], [2, 3], image_size=16)
    np.testing.assert_array_equal(chosen, small.contents[[4 * 4 + 2, 4 + 3]])
    more = FractalConfig(num_classes=7, images_per_class=70, image_size=16)
    images = fractals(more).contents.reshape(7, 70, 16, 16, 1)
    np.testing.assert_array_equal(
        images[:5, :4].reshape(20, 16, 16, 1), small.contents
    )
    other = fractal_images([4, 1], [2, 3], image_size=16, seed=1)
    assert not np.array_equal(chosen, other)


def test_another_process_makes_the_same_images(small):
    program = (
        f"import sys; sys.path.append({str(RECIPES)!r}); import zlib; "
        "from named_data.fractals import FractalConfig, fractals; "
        "images = fractals(FractalConfig(5, 4, 16)).contents; "
        "print(zlib.crc32(images.tobytes()))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert int(printed) == zlib.crc32(small.contents.tobytes())


def test_no_two_images_are_the_same(small):
    assert len(np.unique(small.contents.reshape(20, -1), axis=0)) == 20


def test_points_of_each_image_walk_on_their_own(monkeypatch):
    systems = module.class_systems(0, [0, 0])
    monkeypatch.setattr(module, "LARGEST_CHANGE", 0)
    monkeypatch.setattr(module, "draw", lambda x, *_: x)
    first, second = module.images_of(systems, 0, [0, 0], [0, 1], 16)
    assert not np.array_equal(first, second)


def test_one_letter_of_all_maps_changes(monkeypatch):
    seen = []

    def walk(systems, draws):
        seen.append(systems.maps)
        return np.zeros((2, len(draws), 4), np.float32)

    systems = module.class_systems(0, [3] * 8)
    monkeypatch.setattr(module, "chaos_game", walk)
    module.images_of(systems, 0, [3] * 8, range(8), 16)
    used = systems.maps[0].any(axis=-1)
    factors = seen[0][:, used] / systems.maps[:, used]  # (8, maps, 6)
    assert np.ptp(factors, axis=1).max() < 1e-6
    changed = np.abs(factors[:, 0] - 1) > 1e-6
    assert changed.sum(axis=1).tolist() == [1] * 8
    assert len(set(changed.argmax(axis=1))) > 2
    assert 0.8 <= factors.min() < 0.95 and 1.05 < factors.max() <= 1.2


def test_classes_can_be_told_apart():
    config = FractalConfig(num_classes=10, images_per_class=40, image_size=16)
    examples = fractals(config)
    pixels = examples.contents.reshape(10, 40, -1).astype(float)
    known, asked = pixels[:, :30].reshape(300, -1), pixels[:, 30:]
    distances = ((asked[:, :, None] - known) ** 2).sum(axis=-1)
    right = distances.argmin(axis=-1) // 30 == np.arange(10)[:, None]
    assert right.mean() > 0.7  # By chance 0.1.
