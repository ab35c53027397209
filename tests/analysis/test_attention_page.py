"""The maps in the page are those of the model, to the rounding of a byte."""

import io

import numpy as np
import pytest
from analysis_cases import images_of, tiny_model
from html_page import Page, decoded
from PIL import Image

from keras_vit.analysis import attention_maps, attention_rollout, report
from keras_vit.analysis.attention_weights import attention_overview
from keras_vit.explanation import check_folder

NAMES = ["cat", "<dog>", "owl"]


def arrays_of(model, images, **more):
    return report.attention_arrays(
        model,
        attention_overview(model, images),
        (images + 1) * 127.5,
        titles=["a.jpg", "b <2>.jpg"],
        classes=[[1, 0, 2], [2, 1, 0]],
        probabilities=[[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]],
        **more,
    )


def page_of(arrays):
    contents = report.FilesInMemory(
        {
            "attention.npz": arrays,
            "class_names.json": NAMES,
            "model.json": {"weights": "tiny"},
        }
    )
    return Page(
        report.render_page("tiny", report.EXPLANATION, contents, kind="test")
    )


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def images(model):
    return images_of(model)


@pytest.fixture(scope="module")
def arrays(model, images):
    return arrays_of(model, images)


def pixels_of(image):
    kind, content = decoded(image)
    assert kind == "data:image/png"
    return np.asarray(Image.open(io.BytesIO(content)))


def in_bytes(grid):
    return np.rint(255 * grid / grid.max())


def test_picture_of_the_maps_is_the_attention(arrays, model, images):
    maps = attention_maps(model, images)  # (L, B, H, T, T)
    found = [
        image for image in page_of(arrays).all("img") if "data-maps" in image
    ]
    for number, image in enumerate(found):
        pixels = pixels_of(image)
        assert pixels.shape == (2 * 2, 3 * 3)  # layers, and mean and heads
        for i in range(2):
            heads = maps[i, number, :, 0, 1:].reshape(2, 2, 3)
            row = [heads.mean(axis=0), *heads]
            wanted = np.concatenate([*map(in_bytes, row)], axis=1)
            shown = pixels[2 * i : 2 * i + 2].astype(float)
            assert np.abs(shown - wanted).max() <= 1  # rounded the other way
    assert len(found) == 2


def test_picture_of_the_rollout_is_the_rollout(arrays, model, images):
    rollout = attention_rollout(model, images)
    page = page_of(arrays)
    found = [image for image in page.all("img") if "data-rollout" in image]
    for image, grid in zip(found, rollout, strict=True):
        shown = pixels_of(image).astype(float)
        assert np.abs(shown - in_bytes(grid)).max() <= 1
        row, column = np.unravel_index(grid.argmax(), grid.shape)
        assert f"strongest in row {row}, column {column} of 2x3" in image["alt"]
        assert "height: 100.0000%" in image["style"]


def test_guesses_have_bars(arrays):
    page = page_of(arrays)
    bars = page.all("li", **{"class": "bar"})
    texts = [" ".join(bar["text"].split()) for bar in bars]
    assert texts[:3] == [
        "<dog> 70.0 %",
        "cat 20.0 %",
        "owl 10.0 %",
    ]
    assert bars[0]["style"] == "--share: 70.0%"


def test_truth_is_told_where_it_is_known(model, images):
    titles = page_of(arrays_of(model, images, labels=[1, 0])).all("h3")
    assert [" ".join(x["text"].split()) for x in titles[:2]] == [
        "a.jpg: <dog>",
        "b <2>.jpg: cat",
    ]


def test_distances_are_in_words_and_numbers(arrays):
    page = page_of(arrays)
    distances = arrays["distances"]
    (row, *_) = [x["text"] for x in page.all("tr", part="inside")][1:]
    assert row.split() == ["0", *(f"{x:.1f}" for x in distances[0])]
    texts = [x["aria-label"] for x in page.all("svg", part="inside")]
    assert f"First layer: {distances[0].min():.1f} to" in texts[0]
    table = arrays["similarity"].astype("float64").reshape(6, 6)
    # Of 2x3 patches: 0 1 2 above 3 4 5.
    beside = [(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)]
    near = np.mean([table[pair] for pair in beside])
    assert f"neighbours {near:.2f};" in texts[1]


def test_large_grids_are_thinned_in_the_figure_of_positions():
    model = tiny_model(image_size=(4 * 20, 4))
    arrays = arrays_of(model, images_of(model))
    assert arrays["similarity"].shape == (10, 1, 20, 1)
    assert "of one patch in 2 rows and" in page_of(arrays).part("inside")


def test_a_model_without_positions_has_no_figure_of_them():
    options = {"position_embedding": "none", "rope": "axial"}
    model = tiny_model(**options)
    arrays = arrays_of(model, images_of(model))
    part = page_of(arrays).part("inside")
    assert "Position similarity" not in part
    assert "rotary or relative positions" in part


def test_controls_wait_for_the_script(arrays):
    page = page_of(arrays)
    (controls,) = [x for x in page.elements if "data-controls" in x]
    assert "hidden" in controls
    for slider, last in zip(
        page.all("input", type="range"), ("1", "2"), strict=True
    ):
        assert (slider["min"], slider["max"]) == ("0", last)


@pytest.mark.parametrize(
    ("name", "layers", "heads", "side", "limit"),
    [("ViT_B16", 12, 12, 14, 0.5e6), ("ViT_H14", 32, 16, 16, 0.9e6)],
)
def test_page_stays_small(name, layers, heads, side, limit):
    # Of 224x224 pixels. Noise packs worst.
    random = np.random.default_rng(0)
    grid = (side, side)
    maps = random.integers(0, 256, (layers, 1, 1 + heads, *grid), "uint8")
    arrays = {
        "pictures": random.integers(0, 256, (1, 224, 224, 3), "uint8"),
        "maps": maps,
        "rollout": random.integers(0, 256, (1, *grid), "uint8"),
        "distances": random.random((layers, heads)),
        "similarity": random.random((*grid, *grid)).astype("float16"),
        "similarity_step": np.array(1),
        "window": np.array([0, 0, 224, 224]),
        "titles": np.array(["noise"]),
        "classes": np.array([[0]]),
        "probabilities": np.array([[1.0]]),
        "num_classes": np.array(3),
    }
    contents = report.FilesInMemory(
        {"attention.npz": arrays, "class_names.json": NAMES}
    )
    page = report.render_page(
        name, report.EXPLANATION, contents, kind="explained"
    )
    (image,) = [x for x in Page(page).all("img") if "data-maps" in x]
    print(f"{name}: maps {len(image['src'])}, page {len(page)} bytes")
    assert len(page) < limit


@pytest.mark.parametrize("folder", ["", " ", "a\0b", None, 5])
def test_folders_without_a_name_are_refused(folder):
    with pytest.raises(ValueError, match="must have a name. Received: folder="):
        check_folder(folder)
