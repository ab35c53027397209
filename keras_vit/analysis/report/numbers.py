"""Numbers of a run in words and units that a person reads at a glance."""

import json

__all__ = ["flatten", "headline", "remaining"]


def _share(value):
    return f"{100 * value:.2f}\N{NARROW NO-BREAK SPACE}%"


def _count(value):
    return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def _duration(value):
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"


def _rate(value):
    return f"{value:.4g} / s"


# Keys of result.json that stand on top: what they are called, and their unit.
HEADLINE = {
    "top1": ("Top-1 accuracy", _share),
    "test_accuracy": ("Test accuracy", _share),
    "top5": ("Top-5 accuracy", _share),
    "real_top1": ("Top-1 accuracy, ReaL labels", _share),
    "validation_accuracy": ("Validation accuracy", _share),
    "baseline_accuracy": ("Baseline accuracy", _share),
    "num_examples": ("Images", _count),
    "num_test_images": ("Test images", _count),
    "num_parameters": ("Parameters", _count),
    "seconds": ("Training time", _duration),
    "images_per_second": ("Training images", _rate),
}


def headline(result: dict) -> list[tuple[str, str]]:
    """The numbers that one looks for first.

    Args:
        result: contents of result.json.

    Returns:
        (name, value) in the order of `HEADLINE`, of the numbers that there
        are.

    Example:
        >>> headline({"top1": 0.9714, "num_examples": 50000})[0]
        ('Top-1 accuracy', '97.14\\u202f%')
    """
    return [
        (name, form(result[key]))
        for key, (name, form) in HEADLINE.items()
        if isinstance(result.get(key), int | float)
    ]


def remaining(result: dict) -> list[tuple[str, str]]:
    """Everything else that a result holds.

    Args:
        result: contents of result.json.

    Returns:
        (key, value), see `flatten`.

    Example:
        >>> remaining({"top1": 0.5, "split": "test"})
        [('split', 'test')]
    """
    return flatten({k: v for k, v in result.items() if k not in HEADLINE})


def flatten(values, prefix: str = "") -> list[tuple[str, str]]:
    """Nested dictionaries as lines.

    Args:
        values: dictionary of plain values and dictionaries.
        prefix: str, what all keys begin with.

    Returns:
        ("key.key", value as text).

    Example:
        >>> flatten({"versions": {"keras": "3.15.1"}, "devices": ["cpu:0"]})
        [('versions.keras', '3.15.1'), ('devices', 'cpu:0')]
    """
    lines = []
    for key, value in values.items():
        if isinstance(value, dict):
            lines += flatten(value, f"{prefix}{key}.")
        else:
            lines.append((f"{prefix}{key}", _plain(value)))
    return lines


def _plain(value):
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value)
