"""Tables with one mistake each, and whether outputs find it out."""

import dataclasses
import itertools
import re

import keras
import numpy as np
from arrays import open_tensors
from layouts_table import hidden_part

from keras_vit.checkpoints import load_checkpoint
from keras_vit.checkpoints.dialects import LAYOUTS
from keras_vit.checkpoints.engine import recognition
from keras_vit.checkpoints.engine.configure import configure
from keras_vit.checkpoints.engine.layout import TRANSFORMS, row_of
from keras_vit.checkpoints.engine.recognition import recognise

__all__ = ["Case", "run"]


@dataclasses.dataclass
class Case:
    """A file whose outputs are known, its model built once.

    Args:
        path: the file or folder.
        options: arguments of `load_checkpoint`.
        images: what the model is called with.
        outputs: what it must give.
    """

    path: object
    options: dict
    images: np.ndarray
    outputs: np.ndarray

    def __post_init__(self):
        self.model = load_checkpoint(self.path, **self.options)
        self.variables = {x.path: x for x in self.model.weights}
        self.right = {
            path: keras.ops.convert_to_numpy(x).copy()
            for path, x in self.variables.items()
        }

    def source(self):
        """The file as the tables now read it, and what they tell of it."""
        source = recognise(open_tensors(self.path))
        shape = self.options.get("input_shape")
        return source, configure(
            source,
            self.options.get("num_heads"),
            shape and shape[:2],
            self.options.get("architecture"),
            self.options,
        )

    def weights(self):
        """The weights as the tables now map them."""
        source, configured = self.source()
        facts = configured.facts
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
        # Tests of their own compare the hidden parts with the file.
        hidden = any(
            not np.array_equal(self.hidden(path, x), self.hidden(path))
            for path, x in changed.items()
        )
        wrong = hidden or self.outputs_differ(changed)
        return "found out" if wrong else "survived"

    def hidden(self, path, value=None):
        """The part of a weight that no output shows, or None."""
        value = self.right[path] if value is None else value
        heads = getattr(self.model.config, "num_heads", 1)
        return hidden_part(path, value, heads)

    def outputs_differ(self, changed=()) -> bool:
        """Whether the outputs are wrong with other values of some weights."""
        for path in changed:
            self.variables[path].assign(changed[path])
        found = keras.ops.convert_to_numpy(self.model(self.images))
        for path in changed:
            self.variables[path].assign(self.right[path])
        return not np.allclose(found, self.outputs, rtol=0, atol=5e-5)


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
    source, _ = case.source()
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


def run(monkeypatch, case, only=None):
    """(number of mutants, those that nothing found out).

    A mutant that loads the very same arrays is no mistake and not counted.

    Args:
        monkeypatch: of pytest.
        case: a `Case`.
        only: regular expression of the mutants to try.
    """
    source, _ = case.source()
    layout, table = source.layout, source.layout.rows(source.features)
    verdicts = {}
    for what, mutant in mutants(table, used_rows(table, case)):
        if only and not re.match(only, what):
            continue
        # The variants are in the mutant already.
        changed = dataclasses.replace(
            layout, table=mutant, variants=dict.fromkeys(layout.variants, {})
        )
        layouts = tuple(changed if x is layout else x for x in LAYOUTS)
        monkeypatch.setattr(recognition, "LAYOUTS", layouts)
        verdicts[what] = case.verdict()
    monkeypatch.setattr(recognition, "LAYOUTS", LAYOUTS)
    wrong = [x for x, verdict in verdicts.items() if verdict != "the same"]
    return len(wrong), [x for x in wrong if verdicts[x] == "survived"]
