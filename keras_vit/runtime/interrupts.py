"""Ctrl-C and SIGTERM: programs tidy up, say so in one line, and end."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

__all__ = [
    "INTERRUPTED",
    "TERMINATED",
    "Postponed",
    "Terminated",
    "TimeIsUp",
    "ended",
    "handlers_kept",
    "interrupt_behind",
    "postponed",
    "tidy_up_on_sigterm",
]

# What a shell has for a program that SIGINT or SIGTERM ended.
INTERRUPTED, TERMINATED = 130, 143


class Terminated(KeyboardInterrupt):
    """SIGTERM: a scheduler, or a machine that shuts down."""


class TimeIsUp(Terminated):
    """The hours that a run may take are over."""


SIGNALS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}
NAMES = {
    KeyboardInterrupt: "Interrupted",
    Terminated: "Terminated",
    TimeIsUp: "The time is up",
}


def tidy_up_on_sigterm() -> None:
    """Lets SIGTERM end the program as Ctrl-C does, and not at once.

    Partial files are removed and locks are released then.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _raise)


def _raise(number, frame):
    # Once: while the program tidies up, a second one ends it at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise Terminated


@contextlib.contextmanager
def handlers_kept() -> Iterator[None]:
    """Puts the handlers of signals back that a library replaces.

    JAX takes SIGTERM for a service of its own where it has several processes.
    """
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if (handler := signal.getsignal(number)) is not None:
                    signal.signal(number, handler)


class Postponed:
    """Whether a signal came in the block of `postponed`.

    Attributes:
        waits: whether the first signal is to wait; otherwise it ends the
            program at once.
        found: what the signal is to raise; None where none came.
    """

    def __init__(self):
        self.waits = False
        self.found: type[KeyboardInterrupt] | None = None

    def receive(self, number, frame):
        at_once = not self.waits or self.found is not None
        # Also where it is raised: Python drops what is raised in a finalizer.
        self.found = found = SIGNALS[number]
        if at_once:
            if number == signal.SIGTERM:
                _raise(number, frame)
            raise found
        # Not by `print`, which the signal may have interrupted.
        told = (
            f"\n{NAMES[found]}: it ends after this step and a checkpoint. "
            "A second signal ends it at once.\n"
        )
        with contextlib.suppress(OSError):
            os.write(2, told.encode())


@contextlib.contextmanager
def postponed() -> Iterator[Postponed]:
    """Lets the first SIGTERM or Ctrl-C wait until the block asks for it.

    A second signal ends the block at once, and one that the block did not ask
    for is raised at its end. Signals that are ignored stay so; outside of the
    main thread, nothing changes.

    Example:
        >>> with postponed() as signals:
        ...     for step in range(steps):
        ...         signals.waits = True
        ...         train(step)
        ...         if signals.found:
        ...             save()
        ...             raise signals.found
    """
    state = Postponed()
    if threading.current_thread() is not threading.main_thread():
        yield state
        return
    # None is the handler of another language, which Python cannot restore.
    before = {
        number: handler
        for number in SIGNALS
        if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)
    }
    for number in before:
        signal.signal(number, state.receive)
    try:
        yield state
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) == state.receive:
                signal.signal(number, handler)
    if state.found is not None:
        raise state.found


def ended(interrupt: KeyboardInterrupt, told: str) -> int:
    """Says in one line that the program was ended; gives its exit code.

    Args:
        interrupt: the exception.
        told: what a user has to know then.
    """
    terminated = isinstance(interrupt, Terminated)
    what = NAMES.get(type(interrupt), NAMES[KeyboardInterrupt])
    line = "" if terminated else "\n"
    print(f"{line}{what}; {told}", file=sys.stderr)
    return TERMINATED if terminated else INTERRUPTED


def interrupt_behind(error: BaseException) -> BaseException:
    """The interrupt after which tidying up failed; otherwise the error."""
    cause = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__context__
    return cause or error
