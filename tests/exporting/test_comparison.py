"""`keras-vit benchmark --formats`: the speed of a model in its formats."""

import contextlib
import json

import keras
import pytest
from export_cells import randomised, vit

from keras_vit.cli import main
from keras_vit.exporting import comparison
from keras_vit.prediction import as_classifier

KERAS = f"Keras, {keras.backend.backend()}"
# Side -> seconds of its calls, the first three before the rounds.
CALLS = {
    KERAS: [9.0, 8.0, 8.0, 1.0, 3.0, 2.0],
    "onnx, float32": [7.0, 8.0, 8.0, 0.5, 9.0, 0.5],
}


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Which side was asked for how many images, instead of processes."""
    asked = []
    calls = {(x, b): iter(CALLS[x]) for x in CALLS for b in (1, 4)}

    def sides(classifier, formats, folder, left_out, say):
        for name in ("broken", *CALLS):
            yield comparison.Side(name, "exported", tmp_path)

    def ask(worker, batch):
        if worker == "broken":
            raise ValueError("it does not start")
        asked.append((worker, batch))
        return next(calls[worker, batch])

    monkeypatch.setattr(comparison, "_sides", sides)
    monkeypatch.setattr(
        comparison, "_worker", lambda x, _: contextlib.nullcontext(x.name)
    )
    monkeypatch.setattr(comparison, "_ask", ask)
    return asked


def compared(formats=("onnx",)):
    return comparison.compare(
        as_classifier(vit()), formats, batches=(1, 4), repeats=3
    )


def test_sides_take_turns_and_the_median_is_that_of_the_rounds(asked):
    found = compared()
    turn = [(side, batch) for side in CALLS for batch in (1, 4)]
    assert asked[-12:] == 3 * turn
    rows = {(x["side"], x["batch"]): x for x in found["rows"]}
    assert [*rows] == [(side, b) for b in (1, 4) for side in reversed(CALLS)]
    fastest = rows["onnx, float32", 4]
    assert fastest["first_call_seconds"] == 7
    assert fastest["median_seconds"] == fastest["fastest_seconds"] == 0.5
    assert fastest["images_per_second"] == 8
    assert fastest["times_keras"] == 4
    assert rows[KERAS, 1]["times_keras"] == 1
    assert found["left_out"] == {"broken": "it does not start"}


def test_missing_runtimes_are_named_with_their_command(asked, monkeypatch):
    monkeypatch.setattr(
        comparison.importlib.util, "find_spec", lambda name: name != "openvino"
    )
    found = compared(["all"])
    command = "torch onnx onnxscript openvino"
    assert found["missing"] == {command: ["openvino"]}
    with pytest.raises(ValueError, match="Did you mean 'onnx'"):
        compared(["onxn"])


def test_a_side_that_cannot_start_says_why(tmp_path):
    side = comparison.Side("onnx", "exported", tmp_path / "gone.onnx")
    with comparison._worker(side, (16, 16, 3)) as worker:
        with pytest.raises(ValueError, match=r"gone\.onnx' is no exported"):
            comparison._ask(worker, 1)


def test_the_command_writes_a_table_numbers_and_a_picture(
    asked, tmp_path, capsys
):
    vit().save(tmp_path / "tiny.keras")
    command = ["benchmark", str(tmp_path / "tiny.keras"), "--formats", "onnx"]
    command += ["--batch", "1", "4", "--repeats", "3"]
    output = tmp_path / "speed.json"
    assert main([*command, "--output", str(output)]) == 0
    printed = capsys.readouterr()
    cells = ["onnx, float32", "4", "7.00", "500.0", "500.0", "8.0", "4.00"]
    rows = [line.split("|")[1:-1] for line in printed.out.splitlines()]
    assert cells in [[cell.strip() for cell in row] for row in rows]
    assert "Left out: broken: it does not start" in printed.out
    assert "round 3 of 3" in printed.err
    assert len(json.loads(output.read_text())["rows"]) == 4
    assert (tmp_path / "speed.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "x.json"], "with --formats"),
        (["--formats", "onnx", "--output", "x.csv"], r"a file *.json"),
        (["--formats", "onnx", "--output", "no/x.json"], "no folder 'no'"),
        (["--formats", "onnx", "--batch", "0"], "--batch"),
    ],
)
def test_bad_arguments_are_refused_before_work_begins(
    arguments, message, capsys, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    assert main(["benchmark", "ViT_B16", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_fastest_bar_is_marked():
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    rows = [
        {"side": "a", "images_per_second": 1234.5},
        {"side": "b", "images_per_second": 2.345},
    ]
    comparison._draw_bars(axes, rows)
    fills = [bar.get_facecolor() for bar in axes.patches]
    assert fills[0] != fills[1]
    assert [x.get_text() for x in axes.texts] == ["1,234, the fastest", "2.35"]


@pytest.mark.slow
def test_a_file_is_timed_beside_keras_and_timm(tmp_path):
    found = comparison.compare(
        as_classifier(randomised(vit())), ["onnx"], batches=(1,), repeats=1
    )
    sides = {row["side"] for row in found["rows"]}
    assert {KERAS, "onnx, float32", "onnx, int8"} <= sides
    timm = {"timm, eager", "timm, compiled"}
    assert sides & timm or {*found["left_out"]} & {"timm", *timm}
