"""SECURITY.md says what the code does."""

import importlib
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
LIMITS = re.findall(r"^\| `([\w.]+)\.(\w+)` \| ([\d,]+) \|", TEXT, re.MULTILINE)


def test_limits_are_listed():
    assert len(LIMITS) == TEXT.split("## Limits")[1].count("| `")


@pytest.mark.parametrize(("module", "name", "value"), LIMITS)
def test_a_limit_is_that_of_the_code(module, name, value):
    found = getattr(importlib.import_module(f"keras_vit.{module}"), name)
    assert f"{found:,}" == value
