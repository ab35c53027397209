"""Ctrl-C and SIGTERM: programs tidy up, say so in one line, and end."""

import signal
import sys
import threading

__all__ = [
    "INTERRUPTED",
    "TERMINATED",
    "Terminated",
    "ended",
    "interrupt_behind",
    "tidy_up_on_sigterm",
]

# What a shell has for a program that SIGINT or SIGTERM ended.
INTERRUPTED, TERMINATED = 130, 143


class Terminated(KeyboardInterrupt):
    """SIGTERM: a scheduler, or a machine that shuts down."""


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


def ended(interrupt: KeyboardInterrupt, told: str) -> int:
    """Says in one line that the program was ended; gives its exit code.

    Args:
        interrupt: the exception.
        told: what a user has to know then.
    """
    terminated = isinstance(interrupt, Terminated)
    what = "Terminated" if terminated else "\nInterrupted"
    print(f"{what}; {told}", file=sys.stderr)
    return TERMINATED if terminated else INTERRUPTED


def interrupt_behind(error: BaseException) -> BaseException:
    """The interrupt after which tidying up failed; otherwise the error."""
    cause = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__context__
    return cause or error
