"""A server: its addresses and responses, its port, its signals and its end."""

import asyncio
import contextlib
import functools
import gc
import ipaddress
import json
import logging
import os
import pathlib
import re
import signal
import socket
import sys
import time
import warnings
from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple, cast

import keras

from keras_vit.io.checks import (
    EXTRAS,
    check_installed,
    check_kind,
    check_own_size,
)
from keras_vit.prediction import as_classifier
from keras_vit.prediction.embeddings_file import ImageSearch, load_search
from keras_vit.prediction.encoder import is_projected
from keras_vit.prediction.exported_model import ExportedModel
from keras_vit.prediction.picture_page import picture_page, shipped_text
from keras_vit.runtime.interrupts import INTERRUPTED, TERMINATED
from keras_vit.serving.service import (
    NAMED,
    READY,
    STOPPING,
    UNCLASSIFIED,
    NoClasses,
    Refusal,
    Service,
    ServingLimits,
)
from keras_vit.version import __version__

__all__ = [
    "KEEP_ALIVE",
    "check_hosts",
    "for_hosts",
    "guarded_protocol",
    "most_connections",
    "serve",
    "web_application",
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
    if isinstance(model, (str, os.PathLike, keras.Model)):
        return as_classifier(model, image_size=image_size)
    check_own_size(model.geometry.image_size, image_size)
    return model


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


# --- Addresses ---

TOP = 5
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
RETRY = {"Retry-After": "1"}
OTHER_HOST = (
    "This server is not called so. It takes localhost, addresses in digits and "
    "the names of --allowed_host."
)
# Of the page itself; its policy stands in it, as in the other pages.
PAGE_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
ATTENTION = """\
<section data-attention hidden aria-labelledby="attention-title">
<h2 id="attention-title">What the model looks at</h2>
<p class="controls"><label>Show <select data-view></select></label></p>
<figure class="shown">
<img data-map alt="">
<figcaption data-caption aria-live="polite"></figcaption>
</figure>
</section>
"""


class Answer(NamedTuple):
    """What a request is answered with; dictionaries become JSON."""

    content: Any
    status: int = 200
    headers: dict[str, str] | None = None
    type: str | None = None


def web_application(
    service: Service, allowed_hosts: Collection[str] = ()
) -> Callable[..., Awaitable[None]]:
    """Return the ASGI application of a service, for any server.

    Args:
        service: a `Service`; it runs as long as the application does.
        allowed_hosts: names that a request may have in `Host`, besides
            `localhost` and addresses in digits; "*" for all.

    Returns:
        A function of scope, receive and send.

    Example:
        >>> classifier = load_classifier("runs/flowers")
        >>> app = web_application(Service(classifier, "flowers"))
    """
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.routing import Route

    @contextlib.asynccontextmanager
    async def lifespan(app):
        async with service.running():
            yield

    routes = [
        Route(path, _endpoint(answer, service), methods=[method])
        for path, (method, answer) in routes_of(service).items()
    ]
    application = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={
            HTTPException: functools.partial(_other, service),
            Exception: _broken,
        },
    )
    refused = _response(_refused(Refusal(421, OTHER_HOST)))
    return _measured(for_hosts(application, allowed_hosts, refused), service)


def _endpoint(answer, service):
    from starlette.requests import ClientDisconnect

    async def endpoint(request):
        try:
            found = await answer(service, request)
        except Refusal as refusal:
            found = _refused(refusal)
        except ClientDisconnect:  # Nobody reads the answer.
            found = Answer({}, 400)
        except asyncio.CancelledError:
            if service.state != STOPPING:
                raise
            service.unanswered += 1
            found = _refused(Refusal(503, "The server stopped.", retry=True))
        return _response(found)

    return endpoint


def _response(answer):
    from starlette.responses import JSONResponse, Response

    headers = {"X-Content-Type-Options": "nosniff", **(answer.headers or {})}
    if answer.type is None:
        return JSONResponse(answer.content, answer.status, headers)
    return Response(answer.content, answer.status, headers, answer.type)


def _refused(refusal):
    headers = RETRY if refusal.retry else None
    return Answer(refusal.content(), refusal.status, headers)


async def _other(service, request, error):
    """No such address, or not with this method."""
    paths = ", ".join(routes_of(service))
    message = f"{error.detail}: {request.method} {request.scope['path']}. "
    refusal = Refusal(error.status_code, f"{message}There are {paths}.")
    return _response(Answer(refusal.content(), refusal.status, error.headers))


def _broken(request, error):
    """Respond to a defect, whose traceback the server prints."""
    refusal = Refusal(500, "The server failed; its log says why.")
    return _response(Answer(refusal.content(), refusal.status))


def _measured(application, service):
    """Wrap the application to count each request in the metrics."""
    known = routes_of(service)

    async def measured(scope, receive, send):
        if scope["type"] != "http":
            return await application(scope, receive, send)
        start, status = time.perf_counter(), None

        async def noting(message):
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await application(scope, receive, noting)
        finally:
            path = scope["path"] if scope["path"] in known else "other"
            seconds = time.perf_counter() - start
            service.metrics.requests.labels(path, str(status or 500)).inc()
            if path in known and known[path][0] == "POST":
                service.metrics.request_seconds.observe(seconds)

    return measured


async def _predict(service, request):
    if not service.classifier.class_names:
        raise Refusal(501, UNCLASSIFIED)
    async with _received(service, request, service.limits.queue) as received:
        images = await service.read(received)
        found = await service.classify(images, _top(service, request))
    predictions = [
        {"image": number, "name": one.name, "classes": classes}
        for number, (one, classes) in enumerate(
            zip(received, found, strict=True)
        )
    ]
    return Answer({"model": service.name, "predictions": predictions})


async def _explain(service, request):
    if service.unexplained is not None:
        raise Refusal(501, service.unexplained)
    async with _received(service, request, 1) as received:
        images = await service.read(received)
        (classes,) = await service.classify(images, _top(service, request))
        explained = await service.explain(images[0])
    return Answer({"model": service.name, "classes": classes, **explained})


async def _search(service, request):
    search = service.search
    kind = request.headers.get("content-type", "").partition(";")[0]
    words = kind.strip().lower() == "application/json"
    count = len(search.names)
    async with _received(
        service, request, search.batch, count=count, words=words
    ) as received:
        top = _top(service, request, count)
        if words:
            names = received
            found = await search.of_words(received, top, service.batcher)
        else:
            names = [x.name for x in received]
            images = await service.read(received, search)
            found = await search.of_images(images, top, service.batcher)
    results = [
        {"query": name, "images": images}
        for name, images in zip(names, found, strict=True)
    ]
    return Answer({"model": service.name, "results": results})


@contextlib.asynccontextmanager
async def _received(service, request, most, *, count=None, words=False):
    """Read the images or words of a request, within its time and places."""
    limits, whole = service.limits, False
    # It is checked before anything is read.
    top = _top(service, request, count)
    service.check_ready()
    try:
        with service.holding() as body:
            async with asyncio.timeout(limits.timeout):
                await _read(request, body)
                whole = True
                headers = request.headers
                if words:
                    received = await service.texts(body, most)
                else:
                    received = await service.received(headers, body, most)
                _check_named(len(received), top)
                with service.taking(len(received)):
                    yield received
    except TimeoutError as error:
        seconds = f"{limits.timeout:g} seconds"
        if whole:
            message = f"There was no answer within {seconds}. Try again later."
            raise Refusal(504, message, retry=True) from error
        message = f"The request was not here within {seconds}."
        raise Refusal(408, message) from error


async def _read(request, body):
    length = request.headers.get("content-length", "")
    if length.isdigit() and "expect" in request.headers:
        body.check(int(length))  # The client waits with the body for a yes.
    if body.refusal is None:
        # To its end even when it is refused: a client that is cut off while it
        # sends does not see the answer.
        async for chunk in request.stream():
            body.add(chunk)
    if body.refusal is not None:
        raise body.refusal


def _check_named(images, top):
    if images * top > NAMED:
        raise Refusal(
            413,
            f"An answer has {NAMED} classes at most, of all images, or hits. "
            f"Received: {images} with {top} each. Give a smaller top, or send "
            "them in several requests.",
        )


def _top(service, request, count=None):
    """Return how many classes, or images of so many, are asked for."""
    count = len(service.classifier.class_names) if count is None else count
    text = request.query_params.get("top", str(TOP))
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9])):
        raise Refusal(400, f"top must be a number above 0. Received: {text!r}.")
    return min(int(text[:9]), count)


async def _health(service, request):
    status = 200 if service.state == READY else 503
    headers = None if service.state == READY else RETRY
    return Answer({"status": service.state}, status, headers)


async def _model(service, request):
    geometry, limits = service.classifier.geometry, service.limits
    return Answer(
        {
            "model": service.name,
            "image_size": list(geometry.image_size),
            "channels": geometry.channels,
            "num_classes": len(service.classifier.class_names),
            "explains": service.unexplained is None,
            "searched": len(service.search.names) if service.search else 0,
            "images_per_request": limits.queue,
            "bytes_per_request": limits.body,
            "pixels_per_image": limits.pixels,
            "version": __version__,
        }
    )


async def _metrics(service, request):
    return Answer(service.metrics.text(), type=METRICS_TYPE)


async def _openapi(service, request):
    document = openapi_document(service.name, service.limits)
    for path in {*document["paths"]} - {*routes_of(service)}:
        del document["paths"][path]
    return Answer(document)


def openapi_document(name: str, limits: ServingLimits) -> dict[str, Any]:
    """Return the description of the addresses, as OpenAPI 3.1.

    `openapi.json` has all but the model and the limits of this server.
    https://spec.openapis.org/oas/v3.1.1.html
    """
    document = json.loads(shipped_text("serving/openapi.json"))
    document["info"]["title"] += f" with {name}"
    document["info"]["version"] = __version__
    for path, operations in document["paths"].items():
        if "post" in operations:
            most = limits.batch if path in SEARCHES else limits.queue
            operations["post"]["description"] = (
                f"Up to {most} images and {limits.body_mb:g} MiB per "
                f"request, {limits.megapixels:g} million pixels per image."
            )
    return document


async def _page(service, request):
    return Answer(page(), headers=PAGE_HEADERS, type="text/html")


@functools.cache
def page() -> str:
    """Return the HTML of the page that classifies a dropped picture."""
    return picture_page(
        shipped_text("serving/page.js"),
        sources="'self'",
        promise="JPEG, PNG, WebP, GIF, BMP or TIFF. It is sent to this server "
        "and nowhere else.",
        without_script=" <code>POST /predict</code> answers without.",
        more=ATTENTION,
    )


ROUTES = {
    "/": ("GET", _page),
    "/predict": ("POST", _predict),
    "/explain": ("POST", _explain),
    "/model": ("GET", _model),
    "/health": ("GET", _health),
    "/metrics": ("GET", _metrics),
    "/openapi.json": ("GET", _openapi),
}
SEARCHES = {"/search": ("POST", _search)}


def routes_of(service: Service) -> dict:
    """Return the addresses of a service, with their methods and functions."""
    return {**ROUTES, **(SEARCHES if service.search else {})}


# An address of version 6, or a name or address; and a port.
HOST = re.compile(r"(?:\[([\da-f:.]+)\]|([^\[\]:/\s]+))(?::\d*)?", re.I)


def check_hosts(names: Collection[str]) -> None:
    """Raises a ValueError unless all are names of hosts, or "*"."""
    for name in names:
        if name != "*" and (_host(name) or None) != name.lower():
            raise ValueError(
                "allowed_host must be a name without scheme and port, or *. "
                f"Received: {name!r}."
            )


def for_hosts(
    application: Callable[..., Awaitable[None]],
    names: Collection[str],
    refused: Callable[..., Awaitable[None]],
) -> Callable[..., Awaitable[None]]:
    """Return an ASGI application that `refused` answers for other hosts.

    A page of strangers may let its own name point to the address of a server
    in another network (DNS rebinding); a browser then lets that page read what
    the server answers. Such a request has the name of the page in `Host`.

    Args:
        application: what answers a request without `Host`, which browsers
            always send; to `localhost`; to an address in digits, which cannot
            be rebound; and to `names`.
        names: names of hosts, "*" for all.
        refused: what answers otherwise.
    """
    known = {"localhost", *(x.lower() for x in names)}

    async def addressed(scope: Any, receive: Any, send: Any) -> None:
        hosts = [v for k, v in scope.get("headers", ()) if k == b"host"]
        allowed = "*" in known or all(
            _is_known(_host(x.decode("latin-1")), known) for x in hosts
        )
        await (application if allowed else refused)(scope, receive, send)

    return addressed


def _host(text):
    """Return the host without its port; "" for what is none."""
    found = HOST.fullmatch(text)
    return (found[1] or found[2]).lower().rstrip(".") if found else ""


def _is_known(host, known):
    try:
        return host in known or bool(ipaddress.ip_address(host))
    except ValueError:
        return False
