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
