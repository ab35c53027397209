"""Commands on a run that learned numbers: evaluate, predict, export, serve."""

import asyncio
import csv
import json

import evaluate
import finetune
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit.cli import main
from keras_vit.prediction import load_classifier, predict
from keras_vit.serving.service import Service

SMALL = (
    *("--model.image_size", "8", "--model.patch_size", "4"),
    *("--model.hidden_dim", "8", "--model.num_layers", "1"),
    *("--model.mlp_dim", "8", "--model.num_heads", "1"),
    *("--training.epochs", "3", "--training.batch_size", "8"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("regression")
    rows: list[tuple] = [("image", "age")]
    for number in range(40):
        Image.new("L", (8, 8), 3 * number).save(root / f"{number}.png")
        rows.append((f"{number}.png", 20 + 1.5 * number))
    with (root / "ages.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    data = ("--data.csv", str(root / "ages.csv"), "--data.label_key", "age")
    assert not finetune.main([*data, *SMALL, "--run_dir", str(root / "run")])
    return root


def numbers(folder, source, images):
    return [x.classes[0][1] for x in predict(source, images)]


def test_the_report_and_the_line_have_the_errors(folder, capsys):
    result = json.loads((folder / "run" / "result.json").read_text())
    assert f"mean absolute error {result['mae']:.4g}" in finetune.summary(
        result
    )
    page = (folder / "run" / "report.html").read_text()
    assert "Mean absolute error" in page


def test_evaluate_takes_the_column_of_the_run(folder, capsys):
    out = folder / "evaluated"
    words = [str(folder / "run"), str(folder / "ages.csv")]
    assert not evaluate.main([*words, "--run_dir", str(out)])
    result = json.loads((out / "result.json").read_text())
    assert result["num_examples"] == 40
    found = numbers(
        folder, folder / "run", [str(folder / f"{i}.png") for i in range(40)]
    )
    expected = np.abs(np.array(found) - (20 + 1.5 * np.arange(40))).mean()
    # TensorFlow reads one level of 255 otherwise than Pillow in some pixels.
    assert result["mae"] == pytest.approx(expected, rel=1e-3)
    assert "mean absolute error" in capsys.readouterr().out
    with (out / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["true age"]) for row in rows][:2] == [20.0, 21.5]
    assert (out / "report.html").is_file()


def test_labels_of_classes_are_refused_before_anything_is_written(
    folder, capsys
):
    out = folder / "refused"
    words = (str(folder / "run"), str(folder / "ages.csv"))
    words = (*words, "--real_labels", str(folder / "real.json"))
    with pytest.raises(SystemExit):
        evaluate.main([*words, "--run_dir", str(out)])
    assert "ReaL labels are classes" in capsys.readouterr().err
    assert not out.exists()


def test_the_command_prints_numbers(folder, capsys):
    image = str(folder / "7.png")
    (expected,) = numbers(folder, folder / "run", [image])
    for form in ("table", "csv", "json"):
        main(["predict", str(folder / "run"), image, "--format", form])
        text = capsys.readouterr().out
        assert f"{expected:.4g}"[:4] in text and "%" not in text
        assert "number" in text and "probability" not in text
    main(["predict", str(folder / "run"), image, "--format", "json"])
    (found,) = json.loads(capsys.readouterr().out)
    (answer,) = found["numbers"]
    assert answer == {"name": "age", "number": pytest.approx(expected)}


def test_the_server_answers_with_numbers(folder):
    image = folder / "7.png"
    (expected,) = numbers(folder, folder / "run", [str(image)])
    service = Service(load_classifier(folder / "run"), "ages")

    async def answer():
        async with service.running():
            pixels = classifier_read(service, image)
            return await service.classify([pixels], top=5)

    assert asyncio.run(answer()) == [
        [{"class": "age", "number": pytest.approx(expected, rel=1e-5)}]
    ]


def classifier_read(service, image):
    with Image.open(image) as opened:
        return service.classifier.read(opened)


def test_an_exported_file_answers_in_units(folder):
    pytest.importorskip("onnxscript")
    image = str(folder / "7.png")
    (expected,) = numbers(folder, folder / "run", [image])
    out = folder / "model.onnx"
    keras_vit.export(folder / "run", out)
    found = predict(out, image)[0].classes
    assert found == (("age", pytest.approx(expected, rel=1e-4)),)


def test_a_shared_folder_is_that_of_transformers(folder):
    transformers = pytest.importorskip("transformers")
    keras_vit.push_to_hub(
        folder / "run",
        "me/ages",
        format="hugging_face",
        license="mit",
        dry_run=folder / "shared",
    )
    card = (folder / "shared" / "README.md").read_text()
    assert "predicts age" in card and "mean absolute error" in card
    image = str(folder / "7.png")
    (expected,) = numbers(folder, folder / "run", [image])
    found = numbers(folder, folder / "shared", [image])
    assert found == [pytest.approx(expected, rel=1e-4)]
    model = transformers.AutoModelForImageClassification.from_pretrained(
        folder / "shared"
    )
    assert model.config.problem_type == "regression"
