"""A server process: its port, its signals and its end."""

import asyncio
import contextlib
import gc
import logging
import os
import pathlib
import signal
import socket
import sys
import warnings
from collections.abc import Collection
from typing import Any, cast

import keras

from keras_vit.io.checks import (
    EXTRAS,
    check_installed,
    check_kind,
    check_own_size,
)
from keras_vit.prediction import as_classifier, load_classifier
from keras_vit.prediction.embeddings_file import ImageSearch, load_search
from keras_vit.prediction.encoder import is_projected
from keras_vit.prediction.exported_model import ExportedModel
from keras_vit.runtime.interrupts import INTERRUPTED, TERMINATED
from keras_vit.serving.service import READY, NoClasses, Service, ServingLimits
from keras_vit.serving.web_application import check_hosts, web_application

__all__ = [
    "KEEP_ALIVE",
    "guarded_protocol",
    "most_connections",
    "serve",
]

SIGNALS = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}
GRACE = 5  # seconds to send answers, after the last may have been computed
# Seconds that a thread computes in Python before the one that answers gets a
# turn. With Python's 0.005 200 clients got 83 and 87 images per second, with
# this one 112 and 106.
SWITCH = 0.0005
# Connections that wait to be accepted, and how many are accepted before the
# event loop has done anything else: each needs a file.
WAITING, ACCEPTED = 1024, 16


def serve(
    model: str | os.PathLike | keras.Model | Any,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: ServingLimits | None = None,
    image_size: int | None = None,
    name: str | None = None,
    allowed_hosts: Collection[str] = (),
    embeddings: str | os.PathLike | None = None,
) -> int:
    """Serves a model over HTTP, until Ctrl-C or SIGTERM.

    Prints a line once the model is warmed up. On a signal what was taken is
    answered and everything else refused.

    Args:
        model: see `keras_vit.predict`, or an object with the interface of a
            `keras_vit.prediction.Classifier`.
        host: the address to listen on; "0.0.0.0" for all of this machine.
        port: int; 0 for a free one.
        limits: a `ServingLimits`.
        image_size: pixels, where it is not that of the weights; a model in
            memory has its own.
        name: str, what answers call the model; by default as it was given.
        allowed_hosts: names by which clients may call the server, besides
            `host`, `localhost`, the name of this machine and addresses in
            digits; "*" for all.
        embeddings: a file that `keras-vit embed` wrote with the weights of
            the model, which `/search` then finds images in.

    Returns:
        0 when everything that was taken has been answered; after a second
        signal, or where time ran out, what a shell has for that signal, 130 or
        143.

    Raises:
        ValueError: when there is no such model, it does not classify, a
            package is missing, or the port is taken.
        OSError: when weights cannot be fetched.
    """
    check_installed("Serving", *EXTRAS["serve"])
    import prometheus_client

    check_hosts(allowed_hosts)
    check_kind(str, host=host)
    check_kind(int, port=port)
    check_kind(ServingLimits | None, limits=limits)
    with contextlib.closing(_bound(host, port)) as listener:
        search = None
        if embeddings is not None:
            search = load_search(embeddings, _source(model))
        classifier = _classifier(model, image_size, search)
        # When a series began, which no other program of this process counts.
        prometheus_client.disable_created_metrics()
        service = Service(classifier, name or _name(model), limits, search)
        names = (host, socket.gethostname(), *allowed_hosts)
        return _run(service, web_application(service, names), listener)


def _bound(host, port):
    """Bind a socket to its port; it does not listen yet."""
    if not 0 <= port < 2**16:
        raise ValueError(f"port must be in [0, 65535]. Received: port={port}.")
    try:
        # asyncio sends small parts at once where the protocol says TCP.
        *kind, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with contextlib.ExitStack() as undoing:
            listener = undoing.enter_context(socket.socket(*kind))
            if os.name == "posix":  # Elsewhere two servers would share it.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            undoing.pop_all()
    except OSError as error:
        raise ValueError(
            f"Cannot listen on {host}, port {port}: {error.strerror}. Choose "
            "another with --host and --port."
        ) from error
    return listener


def _source(model):
    """Return the weights of a model that were named, None of an object."""
    return model if isinstance(model, (str, os.PathLike)) else None


def _classifier(model, image_size, search):
    if search is not None and _source(model) and not _has_classes(search):
        own = search.encoder.geometry.image_size
        check_own_size(own, image_size, advice="The embeddings are of these.")
        return NoClasses(search.encoder)
    if isinstance(model, (str, os.PathLike)):
        return load_classifier(model, image_size)
    found = as_classifier(model) if isinstance(model, keras.Model) else model
    check_own_size(found.geometry.image_size, image_size)
    return found


def _has_classes(search: ImageSearch) -> bool:
    """Return whether the model of a search classifies."""
    model = search.encoder.model
    if isinstance(model, ExportedModel):
        return False
    return bool(model.config.num_classes) and not is_projected(model)


def _name(model):
    if not isinstance(model, (str, os.PathLike)):
        return str(getattr(model, "name", "model"))
    # Of a path its end: where files lie is nobody's business.
    exists = os.path.exists(model)
    return pathlib.Path(model).resolve().name if exists else str(model)


def _run(service, application, listener):
    server = _server(service, application)
    host, port = listener.getsockname()[:2]
    host = f"[{host}]" if ":" in host else host
    address = f"http://{host}:{port}"

    def on_change():
        if service.failure is not None:
            server.should_exit = True
        elif service.state == READY:
            # The objects of the libraries stay: to search all of them for
            # garbage holds every answer up for a third of a second.
            gc.collect()
            gc.freeze()
            print(
                f"Serving {service.name} at {address}",
                flush=True,
            )

    service.on_change = on_change
    # A damaged form is refused, and nothing to be warned of.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    # Large images are refused, with the limit of the server.
    warnings.filterwarnings("ignore", "Image size .* decompression bomb")
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    try:
        server.run(sockets=[listener])
    finally:
        sys.setswitchinterval(before)
    if service.failure is not None:
        raise ValueError(f"The model cannot be served: {service.failure}")
    if not service.unanswered:
        return 0
    print(f"{service.unanswered} requests were not answered.", file=sys.stderr)
    return server.code


def _server(service, application):
    import uvicorn

    whole = int(service.limits.timeout) + GRACE

    class Server(uvicorn.Server):
        """Stops on a signal, and at once on a second."""

        code = 0

        async def startup(self, sockets=None):
            self.loop = asyncio.get_running_loop()
            await super().startup(sockets)
            for listener in sockets or ():
                listener.listen(WAITING)

        @contextlib.contextmanager
        def capture_signals(self):
            # uvicorn's own would raise the signal again at the end, so that
            # the exit code would not say that everything was answered.
            before = {x: signal.signal(x, self.handle_exit) for x in SIGNALS}
            try:
                yield
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)

        def handle_exit(self, sig, frame):
            self.code = SIGNALS[signal.Signals(sig)]
            if self.should_exit:
                self.loop.call_soon_threadsafe(self.cut_off)
            self.should_exit = True
            service.stop()

        def cut_off(self):
            # Each still answers that the server stopped.
            for task in self.server_state.tasks:
                task.cancel()

    return Server(
        uvicorn.Config(
            application,
            loop="asyncio",
            http=guarded_protocol(
                most_connections(), service.limits.timeout, whole
            ),
            backlog=ACCEPTED,
            ws="none",
            lifespan="on",
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=whole,
        )
    )


MOST = 1000
HEAD = 10  # seconds from the first byte, or the connection, to a whole head
# Seconds for the rest of a body that has its answer, and for a client to read
# its last answer.
REST = 5
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

    uvicorn closes a connection that is silent after an answer, and no other.
    Here a connection is closed as well that is silent from the first, that
    sends a part of a request and no more, or that does not read its answer;
    and the one that has kept the server waiting for longest where there are
    too many.

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
            if self.transport.is_closing():
                return "rest"  # asyncio waits until the client has read all.
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
