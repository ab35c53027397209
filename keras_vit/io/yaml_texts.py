"""YAML of others, of a size, a depth and without references to itself."""

import contextlib
from typing import Any

__all__ = ["MAX_YAML_BYTES", "check_yaml", "read_yaml"]

MAX_YAML_BYTES = 2**18  # The largest config of the recipes has 5 KB.
MAX_YAML_DEPTH = 50


def read_yaml(text: str | bytes) -> Any:
    """Return the plain values of a text.

    Names that stand for parts (`&name`, `*name`) are refused: a few of them,
    each of which names the one before twice, are billions of values.

    Raises:
        ValueError: when it is no YAML, or larger or deeper than configs are.

    Example:
        >>> read_yaml("seed: 0")
        {'seed': 0}
    """
    import yaml

    check_yaml(text)
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, OverflowError, TypeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"It is no YAML: {reason}") from error


def check_yaml(text: str | bytes) -> None:
    """Refuse a text that takes long to read: too large, too deep, references.

    Raises:
        ValueError: for such a text. One that is no YAML passes.
    """
    import yaml

    if len(text) > MAX_YAML_BYTES:
        raise ValueError(
            f"A YAML text has at most {MAX_YAML_BYTES:,} characters. "
            f"Received: {len(text):,}."
        )
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with contextlib.suppress(yaml.YAMLError):
        _check_events(yaml.parse(text, Loader=loader))


def _check_events(events) -> None:
    import yaml

    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_YAML_DEPTH:
            raise ValueError(
                f"A YAML text has at most {MAX_YAML_DEPTH} levels."
            )
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(
                f"A YAML text names no parts of itself. Received: "
                f"*{event.anchor[:100]}. Write the part out."
            )
