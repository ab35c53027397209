"""What callbacks remember from one epoch to the next, as plain values."""

import keras

__all__ = ["collect", "restore"]

# Of Keras and of keras_vit, subclasses too. Other callbacks begin anew.
STATES = {
    "EarlyStopping": ("wait", "best", "best_epoch", "stopped_epoch"),
    "ReduceLROnPlateau": ("wait", "best", "cooldown_counter"),
    "KeepBest": ("best", "waited"),
}


def collect(callbacks) -> list[dict]:
    """Takes what the callbacks remember.

    Args:
        callbacks: sequence of Keras callbacks.

    Returns:
        A dictionary of plain values for each that is known to remember
        anything.

    Example:
        >>> collect([keras.callbacks.EarlyStopping()])[0]["wait"]
        0
    """
    return [
        {
            "class": type(callback).__name__,
            **{name: _plain(getattr(callback, name, None)) for name in names},
        }
        for callback, names in _known(callbacks)
    ]


def _known(callbacks):
    """Pairs of a callback and the names of what it remembers."""
    for callback in callbacks:
        bases = [base.__name__ for base in type(callback).__mro__]
        names = [STATES[base] for base in bases if base in STATES]
        if names:
            yield callback, names[0]


def _plain(value):
    """JSON knows no number of NumPy or of a backend."""
    known = value is None or isinstance(value, (int, float))
    return value if known else float(keras.ops.convert_to_numpy(value))


def restore(callbacks, states: list[dict]) -> None:
    """Gives the callbacks what they remembered.

    Args:
        callbacks: sequence of Keras callbacks, as they were at `collect`.
        states: what `collect` returned.

    Raises:
        ValueError: when others remember something now.

    Example:
        >>> restore([stopping], [{"class": "EarlyStopping", "wait": 2}])
    """
    known = [callback for callback, _ in _known(callbacks)]
    now = [type(callback).__name__ for callback in known]
    then = [state["class"] for state in states]
    if now != then:
        raise ValueError(
            f"The run was begun with the callbacks {then}. Received: {now}. "
            "Continue with the same, or start again in another --run_dir."
        )
    for callback, state in zip(known, states, strict=True):
        for name, value in state.items():
            if name != "class":
                setattr(callback, name, value)
