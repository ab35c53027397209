"""Writes files in a thread while the training goes on."""

import threading
import time
from collections.abc import Callable

__all__ = ["BackgroundWriter"]


class BackgroundWriter:
    """Does one piece of work at a time in a thread.

    An error is raised where it is waited for: before the next piece, and at
    the end of the block, unless that ends in another error.

    Attributes:
        seconds: what the longest piece took.

    Example:
        >>> with BackgroundWriter() as writer:
        ...     writer.start(lambda: write(copy))
        ...     train()
    """

    def __init__(self):
        self.seconds = 0.0
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        try:
            self.wait()
        except Exception:
            # After an interrupt, a checkpoint that is not there is news.
            if error is None or isinstance(error, KeyboardInterrupt):
                raise

    def start(self, work: Callable[[], None]) -> None:
        """Begins a piece of work when the one before has ended."""
        self.wait()
        # A second signal ends the program without it.
        self._thread = threading.Thread(
            target=self._do, args=(work,), daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Waits for the work; raises what it raised."""
        if self._thread is not None:
            self._thread.join()
        self._thread, error, self._error = None, self._error, None
        if error is not None:
            raise error

    def _do(self, work):
        begin = time.monotonic()
        try:
            work()
        except BaseException as error:
            self._error = error
        self.seconds = max(self.seconds, time.monotonic() - begin)
