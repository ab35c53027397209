"""Checks of numbers that a user gives."""

__all__ = ["check_not_negative", "check_positive"]


def check_positive(config, *names: str) -> None:
    """Raises a ValueError unless the named fields are above 0."""
    for name in names:
        value = getattr(config, name)
        if not value > 0:
            raise ValueError(
                f"{name} must be above 0. Received: {name}={value!r}."
            )


def check_not_negative(config, *names: str) -> None:
    """Raises a ValueError unless the named fields are 0 or above."""
    for name in names:
        value = getattr(config, name)
        if not value >= 0:
            raise ValueError(
                f"{name} must not be negative. Received: {name}={value!r}."
            )
