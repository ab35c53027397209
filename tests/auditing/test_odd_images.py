"""Images that are unlike the others, among photographs that are not."""

import numpy as np
import planted
import pytest
from PIL import Image, ImageFilter

from keras_vit.auditing import ODD, odd_images, read_facts


@pytest.fixture(scope="module")
def photographs():
    pytest.importorskip("skimage")
    # Without those of the night sky, beside which dark ones are not odd.
    images = [x for x in planted.photographs() if np.asarray(x).mean() > 45]
    draw = np.random.default_rng(0)
    return [images[i] for i in draw.permutation(len(images))[:150]]


def found_in(folder, images, **odd):
    """Kinds of odd images by name, of images and of odd ones beside them."""
    for number, image in enumerate(images):
        image.save(folder / f"{number:03}.png")
    for name, image in odd.items():
        image.save(folder / f"{name}.png")
    files = sorted(folder.iterdir())
    facts = [x for x, _ in read_facts([str(x) for x in files])]
    return {(files[i].stem, kind) for kind, i, _ in odd_images(facts)}


def test_odd_images_are_found_and_no_others(tmp_path, photographs):
    image = max(photographs, key=lambda x: np.asarray(x).std())
    levels = np.asarray(image) / 255
    odd = {
        "constant": Image.new("RGB", (96, 96), (90, 90, 90)),
        "tiny": image.resize((12, 12)),
        "long": image.resize((960, 96)),
        "dim": Image.fromarray(np.uint8(12 * levels)),
        "glare": Image.fromarray(np.uint8(235 + 20 * levels)),
        "soft": image.filter(ImageFilter.GaussianBlur(4)),
        "alpha": image.convert("RGBA"),
    }
    found = found_in(tmp_path, photographs, **odd)
    assert found >= {
        ("constant", "one colour"),
        ("tiny", "tiny"),
        ("long", "elongated"),
        ("dim", "dark"),
        ("glare", "bright"),
        ("soft", "blurred"),
        ("alpha", "rare mode"),
    }
    others = {name for name, _ in found if name.isdigit()}
    # Grey photographs among coloured ones and a sky are no mistake of ours.
    assert len(others) <= 8


def test_limits_of_bright_and_rare_images():
    """Above 215 of 255, and at most one in twenty."""
    levels, rare, often = [216.0, *[100.0] * 39], 2, 3
    facts = {"brightness": np.array(levels), "contrast": np.full(40, 9.0)}
    bright, _ = ODD["bright"]
    assert bright(facts).tolist() == [True, *[False] * 39]
    facts["brightness"][0] = 215
    assert not bright(facts).any()
    mode, _ = ODD["rare mode"]
    for count, found in ((rare, rare), (often, 0)):
        modes = np.array(["L"] * count + ["RGB"] * (40 - count))
        assert mode({"mode": modes}).sum() == found


def test_unreadable_files_are_named_with_the_reason(tmp_path, photographs):
    whole = tmp_path / "whole.jpg"
    photographs[0].save(whole)
    content = whole.read_bytes()
    (tmp_path / "cut.jpg").write_bytes(content[: len(content) // 2])
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "text.jpg").write_text("no image")
    names = ["cut.jpg", "empty.jpg", "gone.jpg", "text.jpg", "whole.jpg"]
    facts = [x for x, _ in read_facts([str(tmp_path / x) for x in names])]
    found = {names[i]: words for kind, i, words in odd_images(facts)}
    assert found.keys() == {"cut.jpg", "empty.jpg", "gone.jpg", "text.jpg"}
    assert "truncated" in found["cut.jpg"]
    assert found["empty.jpg"] == "it is empty"
    assert found["text.jpg"] == "it is no image"


def test_several_frames_are_found(tmp_path, photographs):
    path = tmp_path / "two.gif"
    photographs[0].save(path, save_all=True, append_images=photographs[1:2])
    facts = [x for x, _ in read_facts([str(path)])]
    assert [kind for kind, _, _ in odd_images(facts)] == ["several frames"]


def test_digits_are_not_odd(tmp_path):
    """All of 8x8 pixels, none is tiny."""
    assert found_in(tmp_path, planted.digits()[0][:300]) == set()
