"""What callbacks remember from one epoch to the next, as plain values."""

import keras

__all__ = ["collect", "restore"]

# Ours has its own; these are Keras's. Other callbacks start anew.
EARLY_STOPPING = ("wait", "best", "best_epoch", "stopped_epoch")
REDUCE_ON_PLATEAU = ("wait", "best", "cooldown_counter")
STATES = {
    "EarlyStopping": EARLY_STOPPING,
    "ReduceLROnPlateau": REDUCE_ON_PLATEAU,
    "KeepBest": ("best", "waited"),
}


def collect(callbacks) -> list[dict]:
    """Takes what the callbacks remember.

    Args:
        callbacks: sequence of Keras callbacks.

    Returns:
        A dictionary of plain values each, empty for those that are not known
        to remember anything.

    Example:
        >>> collect([keras.callbacks.EarlyStopping()])[0]["wait"]
        0
    """
    return [
        {"class": type(callback).__name__, **_state(callback)}
        for callback in callbacks
    ]


def _state(callback):
    names = STATES.get(type(callback).__name__, ())
    return {name: _plain(getattr(callback, name, None)) for name in names}


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
        ValueError: when there are other callbacks now.

    Example:
        >>> restore([stopping], [{"class": "EarlyStopping", "wait": 2}])
    """
    now = [type(callback).__name__ for callback in callbacks]
    then = [state["class"] for state in states]
    if now != then:
        raise ValueError(
            f"The run was begun with the callbacks {then}. Received: {now}. "
            "Continue with the same, or start again in another --run_dir."
        )
    for callback, state in zip(callbacks, states, strict=True):
        for name, value in state.items():
            if name != "class":
                setattr(callback, name, value)
