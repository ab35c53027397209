"""What becomes of a run one of whose processes is gone."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import NoReturn

from keras_vit.training.distribution.processes import place

__all__ = ["LostProcessError", "explaining_loss", "leave"]

# What backends say when they no longer hear of another process.
LOST = (
    r"gloo|nccl|unavailable|aborted|deadline.exceeded|connection|socket closed"
    r"|coordination.?service|heartbeat|unhealthy|cancelled"
)

EXIT_CODE = 1


class LostProcessError(ConnectionError):
    """Another process of the run has ended, or cannot be reached.

    Example:
        >>> raise LostProcessError("Give the same command to all again.")
    """


@contextlib.contextmanager
def explaining_loss(run_dir) -> Iterator[None]:
    """Says what to do where another process of the run is gone.

    Args:
        run_dir: the run folder.

    Raises:
        LostProcessError: instead of what the backend raises.

    Example:
        >>> with explaining_loss("runs/digits"):
        ...     model.fit(batches)
    """
    try:
        yield
    except Exception as error:
        about = f"{type(error).__name__} {error}"
        # Python's own errors are of this process: a download, for instance.
        own = isinstance(error, (ValueError, FloatingPointError, OSError))
        if place()[1] == 1 or own or not re.search(LOST, about, re.IGNORECASE):
            raise
        raise LostProcessError(
            "Another process of the run has ended or cannot be reached; its "
            "own output says why. The last checkpoint is whole. End the "
            "processes that are left, and give the same command to all again "
            f"to continue in {str(run_dir)!r}. ({_first_line(error)})"
        ) from error


def _first_line(error):
    lines = [line for line in str(error).splitlines() if line.strip()]
    known = [line for line in lines if re.search(LOST, line, re.IGNORECASE)]
    return (known or lines or [type(error).__name__])[0].strip()


def leave(message: str) -> NoReturn:
    """Ends this process, which others no longer hear, at once.

    JAX would wait for them before it ends, and then say the same at length.

    Args:
        message: the reason.

    Example:
        >>> leave("Another process of the run has ended.")
    """
    print(f"error: {message}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_CODE)
