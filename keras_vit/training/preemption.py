"""When a run ends before its last step, to go on later.

A signal or the clock ends it, and all its processes after the same step.
"""

import time

import numpy as np

from keras_vit.runtime.interrupts import Postponed, Terminated, TimeIsUp
from keras_vit.training.distribution.processes import place, stacked

__all__ = ["Preemption", "deadline_of"]

# What ends a run, the strongest first.
KINDS = (Terminated, KeyboardInterrupt, TimeIsUp)
# The processes ask each other so often: half of the shortest notice that
# clouds and schedulers give, 30 seconds, is left for the checkpoint.
SECONDS = 5.0
RESERVE = 5.0  # seconds before the end of the time, and a checkpoint more


def deadline_of(hours: float | None) -> float | None:
    """The moment, by `time.monotonic`, that is so many hours from now."""
    return None if hours is None else time.monotonic() + 3600 * hours


class Preemption:
    """Tells after which call of the compiled step a run is to end.

    All processes ask after each call. Where there are several, they agree in
    some of these moments, about every `SECONDS`; the first process says when
    the next one is.

    Args:
        signals: what `postponed` yields.
        deadline: of `deadline_of`.

    Attributes:
        kind: the exception to end with; None while the run goes on.
    """

    def __init__(self, signals: Postponed, deadline: float | None = None):
        self.signals, self.deadline = signals, deadline
        self.kind: type[KeyboardInterrupt] | None = None
        self._calls, self._wait = 0, 1
        self._met = time.monotonic()

    def hold(self, something: bool) -> None:
        """Says whether a signal may wait; for it not to end all at once."""
        self.signals.waits = something or place()[1] > 1

    def ends(self, reserve: float = 0.0, *, now: bool = False) -> bool:
        """Whether the run is to end here.

        Args:
            reserve: seconds that the last checkpoint takes.
            now: whether the processes are to agree in any case.
        """
        own = self._own(reserve)
        if place()[1] == 1:
            self.kind = own
            return own is not None
        self._calls += 1
        if self._calls < self._wait and not now:
            return False
        numbers = [*(own is kind for kind in KINDS), self._next()]
        found = stacked(np.array(numbers, "int32")).sum(axis=0)
        self._calls, self._wait = 0, int(found[-1])
        self._met = time.monotonic()
        counts = zip(KINDS, found[:-1], strict=True)
        self.kind = next((kind for kind, count in counts if count), None)
        return self.kind is not None

    def _own(self, reserve):
        if self.signals.found is not None or self.deadline is None:
            return self.signals.found
        left = self.deadline - time.monotonic() - reserve
        return TimeIsUp if left < RESERVE else None

    def _next(self) -> int:
        """Calls until the processes agree again: the first one says it."""
        if place()[0]:
            return 0
        seconds = (time.monotonic() - self._met) / max(self._calls, 1)
        # The first call compiles: what it took says little.
        return max(min(2 * self._wait, int(SECONDS / max(seconds, 1e-6))), 1)
