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
