"""Some seconds of `make fuzz`, and what it found before."""

import cases_table
import fuzz
import pytest


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_what_is_drawn_gives_a_result_or_a_reason(name):
    failed = fuzz.fuzz(name, 5, derandomize=True, database=None)
    assert failed is None, failed


@pytest.mark.parametrize("finding", cases_table.FUZZED)
def test_what_was_found_gives_a_result_or_a_reason(finding):
    target, _ = fuzz.TARGETS[finding.target]
    target(finding.given)
