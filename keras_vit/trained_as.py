"""What a model was trained on: how images are prepared, what scores mean.

`TrainedAs` is filled by whatever loads a model and read by whatever uses one.
How pixels are scaled is in the config of the model, `pixel_mean` and
`pixel_std`, as the model may do it itself.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["ACTIVATIONS", "PROBLEMS", "TrainedAs"]

# Kind of problem -> what makes answers of the scores of its models.
PROBLEMS = {
    "classification": "softmax",
    "multilabel": "sigmoid",
    "regression": "linear",
}
ACTIVATIONS = tuple(PROBLEMS.values())
TEXTS = ("source", "obstacle")
LISTS = ("class_names", "assumed")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainedAs:
    """What a model was trained on, which travels with it.

    Args:
        preprocessing: mapping, the fields of a
            `keras_vit.data.PreprocessingConfig` that prepare an image for
            evaluation; empty where nothing is known.
        image_size: (height, width) in pixels that images are prepared in,
            where it is not that of the model's config.
        problem: str, "classification" of one class per image, "multilabel" or
            "regression".
        activation: str, what makes answers of the scores, "softmax",
            "sigmoid" or "linear"; that of the problem if None.
        class_names: tuple of str, a name for each output, or None.
        source: str, where this was read, or None.
        assumed: tuple of str, what no source says and is taken as usual.
        obstacle: str, why images cannot be prepared as the source does it, or
            None.

    Raises:
        ValueError: for a value that is none of these.

    Example:
        >>> TrainedAs(problem="multilabel").answers_by
        'sigmoid'
    """

    preprocessing: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    image_size: tuple[int, int] | None = None
    problem: str = "classification"
    activation: str | None = None
    class_names: tuple[str, ...] | None = None
    source: str | None = None
    assumed: tuple[str, ...] = ()
    obstacle: str | None = None

    def __post_init__(self):
        wrong = [
            name
            for name, expected in {
                "preprocessing": isinstance(self.preprocessing, Mapping),
                "image_size": _is_size(self.image_size),
                "problem": self.problem in PROBLEMS,
                "activation": self.activation in (None, *ACTIVATIONS),
                **{x: _is_texts(getattr(self, x)) for x in LISTS},
                **{x: isinstance(getattr(self, x), str | None) for x in TEXTS},
            }.items()
            if not expected
        ]
        if wrong:
            values = {name: getattr(self, name) for name in wrong}
            raise ValueError(
                "What a model was trained on has a problem of "
                f"{', '.join(PROBLEMS)}, an activation of "
                f"{', '.join(ACTIVATIONS)}, names that are texts and an "
                f"image_size (height, width). Received: {str(values)[:300]}."
            )

    @property
    def answers_by(self) -> str:
        """What makes answers of the scores: the name of an activation."""
        return self.activation or PROBLEMS[self.problem]

    @property
    def told_size(self) -> tuple[int, int] | None:
        """The image size, where a source says it."""
        return None if self.assumed else self.image_size

    def but(self, **changes: Any) -> "TrainedAs":
        """Return the same with other values for some."""
        return dataclasses.replace(self, **changes)

    def for_outputs(self, count: int) -> "TrainedAs":
        """Return the same for a model of so many outputs.

        Without the names, the problem and the activation where the names are
        of another number.
        """
        if self.class_names is None or len(self.class_names) == count:
            return self
        return self.but(
            class_names=None, problem="classification", activation=None
        )

    def to_fields(self) -> dict[str, Any]:
        """Return plain values for JSON, without those that are defaults."""
        found = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name)
        }
        if self.problem == "classification":
            found.pop("problem")
        return json.loads(json.dumps(found, default=dict))

    @classmethod
    def from_fields(cls, fields: Any, place: str) -> "TrainedAs":
        """Read what `to_fields` returned.

        Args:
            fields: the values.
            place: where they stand, for the message.

        Raises:
            ValueError: when they are something else.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        try:
            if not set(fields) <= known:
                raise ValueError(f"{sorted(set(fields) - known)} is unknown.")
            values: dict[str, Any] = _with_tuples(fields)
            return cls(**values)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"What {place} says a model was trained on is damaged: {error}"
            ) from error

    def __str__(self) -> str:
        sides = self.image_size and "x".join(map(str, self.image_size))
        rules = [
            f"{x}={y}" for x, y in self.preprocessing.items() if y is not None
        ]
        names = self.class_names and f"{len(self.class_names)} class names"
        parts = [sides, *rules, self.problem, self.answers_by, names]
        shown = ", ".join(filter(None, parts))
        return "; ".join(filter(None, [shown, self.obstacle]))


def _with_tuples(fields) -> dict:
    """Return fields of JSON, which has lists in place of tuples."""
    found = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in fields.items()
    }
    if isinstance(inner := found.get("preprocessing"), dict):
        found["preprocessing"] = _with_tuples(inner)
    return found


def _is_size(value) -> bool:
    if value is None:
        return True
    whole = isinstance(value, tuple) and all(type(x) is int for x in value)
    return whole and len(value) == 2 and min(value) > 0


def _is_texts(value) -> bool:
    """Return whether it is None or texts that UTF-8 can hold."""
    if value is None:
        return True
    if not isinstance(value, tuple):
        return False
    texts = all(isinstance(x, str) for x in value)
    return texts and not any(
        "\ud800" <= y <= "\udfff" for x in value for y in x
    )
