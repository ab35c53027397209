"""Every wrong entry of a table is found out by the golden numbers.

Each row of each table is dropped, its names are put in another order, it
trades names with each row of a like shape, and its transform is replaced by
each other that keeps the shape. The checks are those of the other tests: the
format's strictness, the outputs of the original code, and the arrays that no
output shows. Nothing may survive.
"""

import dataclasses
import itertools
import re

import keras
import numpy as np
import pytest
from reference_cases import CASES, expected, load, options_of, path_of

from keras_vit.checkpoints import formats_table, recognition
from keras_vit.checkpoints.configure import configure
from keras_vit.checkpoints.naming import row_of
from keras_vit.checkpoints.opening import open_tensors
from keras_vit.checkpoints.recognition import recognise
from keras_vit.checkpoints.transforms import TRANSFORMS

# For each format the cases that together hold all of its rows.
GOLDEN = {
    ("google", "vit"): ["vit_tiny_google", "hybrid_tiny_google"],
    ("big_vision", "vit"): [
        "vit_tiny_bigvision_tok",
        "vit_tiny_bigvision_map",
        "vit_tiny_bigvision_gap_sincos",
    ],
    ("mixer", "mixer"): ["mixer_tiny_google"],
    ("bit", "bit"): ["bit_tiny_google"],
    ("timm", "vit"): ["timm_vit_tiny", "timm_vit_tiny_gap", "timm_hybrid_tiny"],
    ("timm", "mixer"): ["timm_mixer_tiny"],
    ("timm", "bit"): ["timm_resnetv2_bit_tiny"],
    ("hugging_face", "vit"): ["hf_vit_tiny", "hf_vit_tiny_in21k"],
}
# Key biases, Mixer's second token bias, and two biases that are added up.
UNSEEN = re.compile(
    r".*/(qkv|key_value)/bias|.*/token_mixing/dense_1/bias"
    r"|stage.*_(norm3|shortcut_norm)/beta"
)


@dataclasses.dataclass
class Case:
    """A golden case, its model built once."""

    name: str

    def __post_init__(self):
        self.model = load(self.name)
        self.variables = {x.path: x for x in self.model.weights}
        self.right = {
            path: keras.ops.convert_to_numpy(x).copy()
            for path, x in self.variables.items()
        }
        self.key = "logits" if self.model.config.num_classes else "pre_logits"

    def weights(self):
        """The weights as the tables now map them."""
        source = recognise(open_tensors(path_of(self.name)))
        options = options_of(self.name)
        shape = options.get("input_shape")
        facts = configure(
            source, options.get("num_heads"), shape and shape[:2]
        ).facts
        if set(source.rows) != set(self.variables):
            raise ValueError("missing or unused")
        found = {path: source.read(path, facts) for path in source.rows}
        for path, value in found.items():
            if value.shape != self.right[path].shape:
                raise ValueError("shape")
        return found

    def verdict(self) -> str:
        """ "found out", "the same" for equal arrays, or "survived"."""
        try:
            found = self.weights()
        except (ValueError, TypeError, KeyError):
            # The last two: a transform of another number of tensors, names
            # with another placeholder.
            return "found out"
        changed = {
            path: value
            for path, value in found.items()
            if not np.array_equal(value, self.right[path])
        }
        if not changed:
            return "the same"
        unseen = any(UNSEEN.fullmatch(path) for path in changed)
        # test_reference compares those with the file.
        wrong = unseen or self.outputs_differ(changed)
        return "found out" if wrong else "survived"

    def outputs_differ(self, changed) -> bool:
        for path, value in changed.items():
            self.variables[path].assign(value)
        images = expected(self.name)["image"]
        outputs = keras.ops.convert_to_numpy(self.model(images))
        for path in changed:
            self.variables[path].assign(self.right[path])
        wanted = expected(self.name)[self.key]
        return not np.allclose(outputs, wanted, rtol=0, atol=5e-5)


def mutants(table, rows):
    """Pairs of a description and a table with one mistake.

    Args:
        table: the table.
        rows: dict from the patterns of the table that a case uses to the
            shape of the weight and those of the file's tensors.
    """
    for pattern in rows:
        theirs, transform = table[pattern]
        yield (
            f"drop {pattern}",
            {k: v for k, v in table.items() if k != pattern},
        )
        if not isinstance(theirs, str):
            for order in itertools.permutations(theirs):
                if order != theirs:
                    mutant = {**table, pattern: (order, transform)}
                    yield f"order {pattern} {order}", mutant
        for other in TRANSFORMS:
            if other != transform:
                mutant = {**table, pattern: (theirs, other)}
                yield f"transform {pattern} {other}", mutant
    for one, two in itertools.combinations(rows, 2):
        if rows[one] == rows[two] and table[one][1] == table[two][1]:
            mutant = {**table, one: table[two], two: table[one]}
            yield f"trade {one} {two}", mutant


def used_rows(table, case):
    source = recognise(open_tensors(path_of(case.name)))
    used = {}
    for path in case.variables:
        for pattern in table:
            if row_of(path, {pattern: table[pattern]}) is not None:
                shapes = tuple(
                    source.file.tensors[x].shape
                    for x in source.rows[path].names
                )
                used.setdefault(pattern, (case.right[path].shape, shapes))
    return used


def run(monkeypatch, format, name, only=None):
    """(number of mutants, those that nothing found out).

    A mutant that loads the very same arrays is no mistake and not counted.
    """
    case = Case(name)
    features = recognise(open_tensors(path_of(name))).features
    table = format.rows(features)
    verdicts = {}
    for what, mutant in mutants(table, used_rows(table, case)):
        if only and not re.match(only, what):
            continue
        # The variants are in the mutant already.
        changed = dataclasses.replace(
            format, table=mutant, variants=dict.fromkeys(format.variants, {})
        )
        formats = tuple(
            changed if x is format else x for x in formats_table.FORMATS
        )
        monkeypatch.setattr(recognition, "FORMATS", formats)
        verdicts[what] = case.verdict()
    monkeypatch.setattr(recognition, "FORMATS", formats_table.FORMATS)
    wrong = [x for x, verdict in verdicts.items() if verdict != "the same"]
    return len(wrong), [x for x in wrong if verdicts[x] == "survived"]


PAIRS = [(key, name) for key, names in GOLDEN.items() for name in names]


def format_of(key):
    return next(x for x in formats_table.FORMATS if (x.name, x.family) == key)


@pytest.mark.parametrize(("key", "name"), PAIRS, ids=lambda x: str(x))
def test_dropped_and_reordered_rows_are_found_out(key, name, monkeypatch):
    number, survivors = run(monkeypatch, format_of(key), name, "drop|order")
    assert number >= 13 and survivors == []


@pytest.mark.slow
@pytest.mark.parametrize(("key", "name"), PAIRS, ids=lambda x: str(x))
def test_every_mutant_is_found_out(key, name, monkeypatch):
    number, survivors = run(monkeypatch, format_of(key), name)
    print(f"{name}: {number - len(survivors)} of {number} mutants found out")
    assert number > 100 and survivors == []


def test_cases_are_golden():
    assert {name for _, name in PAIRS} <= set(CASES)
