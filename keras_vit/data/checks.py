"""Checks of the fields of the records in config.py."""

__all__ = ["check_at_least", "check_choice", "check_fraction", "check_limits"]


def check_choice(config, name: str, choices) -> None:
    """Refuses a value that is none of the choices.

    Args:
        config: the record.
        name: its field.
        choices: sequence of the values allowed.

    Raises:
        ValueError: with the value and the choices.
    """
    value = getattr(config, name)
    if value not in choices:
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, choices))}. "
            f"Received: {name}={value!r}."
        )


def check_at_least(config, bound: int, *names: str) -> None:
    """Refuses numbers below a bound; None is let through.

    Args:
        config: the record.
        bound: the smallest value allowed.
        *names: its fields.

    Raises:
        ValueError: with the value and the bound.
    """
    for name in names:
        value = getattr(config, name)
        if value is not None and not value >= bound:
            raise ValueError(
                f"{name} must be at least {bound}. Received: {name}={value!r}."
            )


def check_fraction(config, *names: str) -> None:
    """Refuses what is not in [0, 1].

    Args:
        config: the record.
        *names: its fields.

    Raises:
        ValueError: with the value.
    """
    for name in names:
        value = getattr(config, name)
        if not 0 <= value <= 1:
            raise ValueError(
                f"{name} must be between 0 and 1. Received: {name}={value!r}."
            )


def check_limits(config, limit: float, *names: str) -> None:
    """Refuses what is not in [0, limit).

    Args:
        config: the record.
        limit: the bound that must not be reached.
        *names: its fields.

    Raises:
        ValueError: with the value.
    """
    for name in names:
        value = getattr(config, name)
        if not 0 <= value < limit:
            raise ValueError(
                f"{name} must be at least 0 and below {limit}. Received: "
                f"{name}={value!r}."
            )
