"""Connections of clients: how many there are, and how long each may take.

uvicorn closes a connection that is silent after an answer, and no other. Here
a connection is closed as well that is silent from the first, that sends a part
of a request and no more, or that does not read its answer; and the one that
has kept the server waiting for longest where there are too many.
"""

import contextlib
from typing import Any, cast

__all__ = ["KEEP_ALIVE", "guarded_protocol", "most_connections"]

MOST = 1000
HEAD = 10  # seconds from the first byte, or the connection, to a whole head
REST = 5  # seconds for the rest of a body that has its answer
KEEP_ALIVE = 75  # seconds; longer than the 60 of most load balancers


def most_connections() -> int:
    """Return how many connections are open at a time.

    Half of the files that this process may open: the other half is for all
    else, and for those that are accepted before others are closed.
    """
    with contextlib.suppress(ImportError):  # Windows has no such limit.
        import resource

        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if allowed != resource.RLIM_INFINITY:
            return max(1, min(MOST, allowed // 2))
    return MOST


def guarded_protocol(most: int, head: float, whole: float) -> type:
    """Return uvicorn's protocol with bounds of time and number.

    Args:
        most: int, connections at a time.
        head: float, seconds for the head of a request, `HEAD` at most.
        whole: float, seconds for a request and its answer.
    """
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    seconds = {
        "head": min(head, HEAD),
        "request": whole,
        "rest": REST,
        "idle": KEEP_ALIVE + REST,  # uvicorn's own closing comes first.
    }

    class Guarded(H11Protocol):
        """Closes what takes longer than its phase, and the oldest of many."""

        phase, since = "", 0.0
        timer: Any = None

        def connection_made(self, transport):
            super().connection_made(transport)
            self.enter()
            if len(self.connections) > most:
                self.make_room()

        def connection_lost(self, exc):
            self.timer.cancel()
            super().connection_lost(exc)

        def data_received(self, data):
            super().data_received(data)
            self.enter()

        def send_400_response(self, msg):
            # The request may have its answer already, or begin to have it.
            if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
                super().send_400_response(msg)
            self.transport.close()
            if self.cycle is not None:
                self.cycle.disconnected = True
                self.cycle.message_event.set()

        def on_response_complete(self):
            self.phase = ""  # The next request may have begun already.
            super().on_response_complete()
            self.enter()

        def enter(self):
            """Give a new phase its time; another byte gets no more."""
            phase = self.found_phase()
            if phase == self.phase:
                return
            if self.timer is not None:
                self.timer.cancel()
            self.phase, self.since = phase, self.loop.time()
            self.timer = self.loop.call_later(
                seconds[phase], self.transport.abort
            )

        def found_phase(self):
            if self.cycle is not None and not self.cycle.response_complete:
                return "request"
            if self.conn.their_state is h11.SEND_BODY:
                return "rest"
            begun = self.cycle is None or self.conn.trailing_data[0]
            return "head" if begun else "idle"

        @property
        def keeps_waiting(self):
            """Whether the client is the one to send something."""
            return self.phase != "request" or self.cycle.more_body

        def make_room(self):
            others = cast("set[Any]", self.connections)
            waiting = (x for x in others if x.keeps_waiting)
            oldest = min(waiting, key=lambda x: x.since)
            self.connections.discard(oldest)
            oldest.transport.abort()

    return Guarded
