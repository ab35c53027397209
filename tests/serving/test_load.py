"""200 clients for a minute: nothing is lost, mixed up or kept in memory."""

import json
import os
import subprocess
import sys

import pytest
import served


@pytest.mark.slow
def test_no_answer_is_lost_or_of_another_image_and_memory_is_flat(run_folder):
    script = served.ROOT / "benchmarks" / "serving.py"
    found = subprocess.run(
        [sys.executable, str(script), str(run_folder)],
        env={**os.environ, "PYTHONPATH": str(served.ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert found.stdout, found.stderr
    result = json.loads(found.stdout)
    assert result["problems"] == []
    assert found.returncode == result["exit_code"] == 0
    assert result["clients"] == 200
    assert result["requests"] > 1000
    # Every request has an answer: classes, or that an image is broken.
    assert set(result["statuses"]) <= {"200", "400", "503"}
    assert result["statuses"]["400"] > 10
    memory = result["memory_mib"]
    assert memory["end"] < 1.1 * memory["a third"]
    assert memory["end"] < 1.5 * memory["ready"]


def test_the_document_has_what_was_measured():
    path = served.ROOT / "benchmarks" / "results" / "serving_fractals_jax.json"
    result = json.loads(path.read_text())
    document = (served.ROOT / "docs" / "serving.md").read_text()
    assert result["command"] in document
    assert f"| requests | {result['requests']} |" in document
    assert result["wrong"] == 0
    for figure in result["statuses"].values():
        assert f"| {figure} |" in document
    assert f"| {result['images_per_second']} |" in document
    for row in (result["milliseconds_50_95_99"], result["memory_mib"].values()):
        assert f"| {', '.join(map(str, row))} |" in document


def test_the_document_has_what_was_measured_beside_a_plain_server():
    name = "serving_pairs_fractals_jax.json"
    result = json.loads((served.ROOT / "benchmarks/results" / name).read_text())
    document = (served.ROOT / "docs" / "serving.md").read_text()
    assert result["command"] in document
    for count, row in result["clients"].items():
        ours, plain = row["ours"], row["plain"]
        cells = [count, row["ratio"]]
        cells += [x["images_per_second"] for x in (ours, plain)]
        cells += [
            " and ".join(map(str, x["milliseconds_50_99"]))
            for x in (ours, plain)
        ]
        assert f"| {' | '.join(map(str, cells))} |" in document
    lasting = result["lasting"]
    assert f"{lasting['requests']} requests from 32 clients" in document
    assert f"by\n{lasting['grown_mib']} MiB" in document
    assert lasting["wrong"] == 0
    assert f"load average {result['load_average']}" in document
