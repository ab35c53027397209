import numpy as np
import pytest
from PIL import Image
from recipe_scripts import script

from keras_vit.evaluation import predict_probabilities
from keras_vit.training import model_file


def lines(capsys, *arguments):
    assert script("predict").main([*map(str, arguments)]) == 0
    return capsys.readouterr().out.splitlines()


def refusal(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        script("predict").main([*map(str, arguments)])
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()


@pytest.fixture
def example(finished_run):
    return finished_run.folder / "examples" / "3_0.png"


def test_answer_is_that_of_the_model_on_the_test_image(finished_run, example):
    model, names = model_file.load(finished_run.folder / "model.keras")
    with Image.open(example) as image:
        pixels = np.asarray(image)[None, ..., None]
    (expected,) = predict_probabilities(model, pixels)
    (answer,) = script("predict").predict(
        str(finished_run.folder), [str(example)], top_k=10
    )
    assert sorted(name for name, _ in answer) == list(names)
    shares = [share for _, share in answer]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)
    for name, share in answer:
        assert share == pytest.approx(expected[names.index(name)], abs=1e-5)


def test_each_image_has_its_line_with_the_most_probable_classes(
    finished_run, example, capsys
):
    other = example.with_name("7_1.png")
    found = lines(capsys, finished_run.folder, example, other, "--top_k", "2")
    assert len(found) == 2
    assert found[0].startswith(f"{example}: ")
    assert found[1].startswith(f"{other}: ")
    assert found[0].count("%") == 2


def test_colour_photo_of_any_size_is_taken(finished_run, tmp_path, capsys):
    pixels = np.random.default_rng(0).integers(0, 256, (90, 70, 3), "uint8")
    Image.fromarray(pixels).save(tmp_path / "photo.jpg")
    (line,) = lines(capsys, finished_run.folder, tmp_path / "photo.jpg")
    assert line.count("%") == 3


def test_missing_image_is_named(finished_run, example, capsys):
    (line,) = refusal(capsys, finished_run.folder, example, "nowhere.png")
    assert "nowhere.png" in line


def test_broken_image_is_named(finished_run, tmp_path, capsys):
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    (line,) = refusal(capsys, finished_run.folder, tmp_path / "broken.png")
    assert "broken.png" in line


def test_folder_without_a_model_is_named(tmp_path, example, capsys):
    (line,) = refusal(capsys, tmp_path, example)
    assert "model.keras" in line


def test_top_k_must_be_positive(finished_run, example, capsys):
    (line,) = refusal(capsys, finished_run.folder, example, "--top_k", "0")
    assert "top_k=0" in line
