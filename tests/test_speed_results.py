"""That docs/speed.md reports what benchmarks/ measured."""

import json
import pathlib
import runpy

import pytest

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENT = (ROOT / "docs" / "speed.md").read_text()
PREDICTED = (ROOT / "docs" / "compiled.md").read_text()
COMPILED = runpy.run_path(str(ROOT / "benchmarks" / "compiled_table.py"))
TABLES = runpy.run_path(str(ROOT / "benchmarks" / "speed_table.py"))


@pytest.mark.parametrize(
    "path", sorted(RESULTS.glob("speed_*.json")), ids=lambda path: path.stem
)
def test_the_document_has_each_case_and_its_ratios(path):
    result = json.loads(path.read_text())
    assert result["command"] in DOCUMENT.replace(" \\\n    ", " ")
    for case in result["cases"]:
        assert TABLES["table"](case) in DOCUMENT
        assert TABLES["ratios"](case) in DOCUMENT
    assert path.with_suffix(".png").exists()


def test_the_first_table_has_what_was_measured():
    """Each row: of ours and a peer in one case, images a second and ratio."""
    path = RESULTS / "speed_overview_amxbf16.json"
    measured = [
        (pair, case["sides"], ratio)
        for case in json.loads(path.read_text())["cases"]
        for pair, ratio in case["ratios"].items()
    ]
    numbers = set()
    for pair, sides, ratio in measured:
        speeds = [sides[x]["images_per_second"] for x in pair.split(" / ")]
        numbers.add((pair, *(f"{x:.2f}" for x in (*speeds, ratio))))
    first = DOCUMENT[: DOCUMENT.index("![")]
    rows = [x.split("|")[2:-1] for x in first.splitlines() if x[:1] == "|"]
    shown = [[x.strip() for x in row] for row in rows[2:]]
    assert len(shown) > 20
    assert {(f"keras_vit {x} / {y}", *z) for x, y, *z in shown} <= numbers


@pytest.mark.parametrize(
    "path", sorted(RESULTS.glob("compiled_*.json")), ids=lambda path: path.stem
)
def test_the_document_has_what_was_compiled(path):
    result = json.loads(path.read_text())
    assert result["command"] in PREDICTED.replace(" \\\n    ", " ")
    assert COMPILED["table"](result) in PREDICTED
    assert path.with_suffix(".png").exists()


def test_a_row_has_the_median_and_the_spread():
    side = {
        "images_per_second": 4.375,
        "fastest_and_slowest": [5.0, 2.5],
        "utilisation": 0.747,
        "peak_mib": 1944,
        "seconds_to_first_step": 10.7,
    }
    case = {
        "task": "inference",
        "model": "ViT_B16",
        "image_size": 224,
        "batch": 8,
        "precision": "float32",
        "sides": {"keras_vit jax": side},
        "ratios": {"keras_vit jax / timm": 1.126},
    }
    last = "| keras_vit jax | 4.38 (2.50 to 5.00) | 75% | 1,944 | 11 s |"
    assert TABLES["table"](case).splitlines()[-1] == last
    assert TABLES["ratios"](case) == "- keras_vit jax / timm: 1.13"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("agreement_*.json")))
def test_the_document_has_the_agreement(path):
    result = json.loads(path.read_text())
    assert result["command"] in DOCUMENT
    assert f"{result['agreement']:.2%} of {result['images']:,}" in DOCUMENT
