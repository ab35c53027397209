"""The command, and the document that shows what it prints."""

import json
import re
import shlex
from pathlib import Path

import pytest
from safetensors import safe_open

from keras_vit.cli import main

DOCUMENT = Path(__file__).parents[2] / "docs" / "scaling.md"
SHOWN = re.findall(
    r"^```\n\$ keras-vit (plan .*)\n((?:.*\n)*?)```$",
    DOCUMENT.read_text(),
    flags=re.MULTILINE,
)


def run(capsys, *arguments):
    assert main(["plan", *arguments]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


@pytest.mark.parametrize(("command", "output"), SHOWN)
def test_document_shows_what_the_command_prints(capsys, command, output):
    assert run(capsys, *shlex.split(command)[1:]) == output


def test_document_shows_commands():
    assert len(SHOWN) >= 4
    assert any("--paper" in command for command, _ in SHOWN)


def test_json_has_what_the_table_has(capsys):
    found = json.loads(
        run(
            capsys,
            *("--model", "ViT_B16", "--devices", "h200x8", "--batch", "4096"),
            *("--format", "json"),
        )
    )
    assert found["counts"]["parameters"] == 86_567_656
    assert found["settings"]["attention"] == "flash"
    assert found["devices"]["count"] == 8
    layouts = [(x["layout"], x["rematerialize"]) for x in found["rows"]]
    assert len(layouts) == len(set(layouts)) == 6
    for row in found["rows"]:
        assert row["peak_bytes"] > row["memory"]["activations"]


@pytest.mark.parametrize(
    ("model", "parameters"),
    # Table 1 of the paper; keras_vit/weights/README.md.
    [("ViT_L16/imagenet", "304.3 million"), ("fractals", "0.4 million")],
)
def test_a_model_is_given_as_to_other_commands(capsys, model, parameters):
    options = "--devices", "v5e-1", "--model_axis", "1", "--batch", "8"
    out = run(capsys, model, *options)
    assert f"{parameters} parameters" in out


def test_both_towers_of_a_pair(capsys):
    """Of an image tower with a map head; the text tower by transformers."""
    siglip = str(Path(__file__).parents[1] / "reference" / "text" / "siglip")
    options = ("--texts", "--devices", "v5e-1", "--batch", "8")
    out = run(capsys, siglip, *options)
    assert "Its text tower, not trained: " in out
    assert "per text of 16 tokens" in out
    found = json.loads(run(capsys, siglip, *options, "--format", "json"))
    with safe_open(f"{siglip}/model.safetensors", "numpy") as file:
        texts = [x for x in file.keys() if x.startswith("text_model.")]
        sizes = [file.get_tensor(x).size for x in texts]
    assert found["texts"]["counts"]["parameters"] == sum(sizes)
    assert found["texts"]["memory"]["weights"] == 4 * sum(sizes)


def test_heads_that_do_not_divide_leave_model_parallel_out(capsys):
    assert "model_parallel" not in run(capsys, "ViT_Ti16")
    assert "model_parallel" in run(capsys, "ViT_S16")


def test_days_of_a_data_set(capsys):
    out = run(
        capsys,
        *("--model", "ViT_B16", "--devices", "v5e-8"),
        *("--examples", "1281167", "--epochs", "300"),
    )
    assert "300 epochs of 1,281,167 images" in out
    # A thousandth of the images takes a thousandth of the time, and not 0.0.
    less = ("--examples", "1281.167", "--epochs", "300")
    short = run(capsys, "--model", "ViT_B16", "--devices", "v5e-8", *less)
    days, shorter = (
        float(re.search(r"images: ([\d.,]+) device-days", x)[1])  # type: ignore
        for x in (out, short)
    )
    assert shorter == pytest.approx(days / 1000, rel=0.06)


def test_nothing_that_fits_is_said(capsys):
    out = run(capsys, "--model", "ViT_G14", "--devices", "t4x1", "--batch", "8")
    assert "does not fit" in out
    assert "Nothing fits" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "ViT_H15"], "Did you mean 'ViT_H14'"),
        (["--model", "ViT_R50_B16"], "Unknown model"),
        (["--model", "ViT_B16", "--devices", "h20x8"], "mean 'h200'"),
        (["--model", "ViT_B16", "--batch", "100"], "multiple of 8"),
        (["--model", "ViT_B16", "--image_size", "225"], "224x224"),
        (["--model", "ViT_B16", "--efficiency", "40"], "share of the peak"),
        (["--model", "ViT_B16", "--model_axis", "8"], "12 heads"),
        (["--model", "ViT_B16", "--model_axis", "0"], "at least 1"),
        (["--model", "ViT_B16", "--examples", "0"], "above 0"),
        (["--model", "ViT_B16", "--examples", "9", "--epochs", "-1"], "epochs"),
        (["--paper", "--efficiency", "0"], "share of the peak"),
        (["--paper", "--texts"], "--texts does nothing with --paper"),
        (["--paper", "--batch", "8"], "--batch does nothing with --paper"),
        (["--paper", "--options", "a=1"], "--options does nothing with"),
        (["ViT_B16", "--epochs", "3"], "--epochs does nothing with no --exam"),
        (
            ["ViT_B16", "--method", "mae", "--classes", "5"],
            "--classes does nothing with --method mae",
        ),
        (["fractals", "--texts"], "no known format"),
    ],
)
def test_wrong_input_is_one_line(capsys, arguments, message):
    assert main(["plan", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("keras-vit: error: ")
    assert error.count("\n") == 1
    assert message in error


@pytest.mark.parametrize(
    "arguments", [[], ["--model", "ViT_B16", "--paper"], ["--batch", "many"]]
)
def test_wrong_arguments_exit_with_2(arguments):
    with pytest.raises(SystemExit, match="2"):
        main(["plan", *arguments])
