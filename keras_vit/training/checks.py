"""Checks of values that a user gives; None is a value not given."""

__all__ = ["check_multiple", "check_not_negative", "check_positive"]


def check_positive(config, *names: str) -> None:
    """Raises a ValueError unless the named fields are above 0, or None."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not value > 0:
            raise ValueError(
                f"{name} must be above 0. Received: {name}={value!r}."
            )


def check_not_negative(config, *names: str) -> None:
    """Raises a ValueError unless the named fields are 0 or above, or None."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not value >= 0:
            raise ValueError(
                f"{name} must not be negative. Received: {name}={value!r}."
            )


def check_multiple(config, name: str, divisor: str) -> None:
    """Raises a ValueError unless one field is a multiple of another.

    Args:
        config: the record.
        name: str, the field that must be the multiple; None passes.
        divisor: str, the field that must divide it; None passes.

    Raises:
        ValueError: with both fields.
    """
    value, unit = getattr(config, name), getattr(config, divisor)
    if value is not None and unit is not None and value % unit:
        raise ValueError(
            f"{name} must be a multiple of {divisor}. Received: "
            f"{name}={value}, {divisor}={unit}."
        )
