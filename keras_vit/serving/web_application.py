"""The server's addresses, their responses and their description."""

import asyncio
import contextlib
import functools
import ipaddress
import json
import re
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple

from keras_vit.prediction.picture_page import picture_page, shipped_text
from keras_vit.serving.received_images import Refusal
from keras_vit.serving.service import (
    NAMED,
    READY,
    STOPPING,
    UNCLASSIFIED,
    Service,
    ServingLimits,
)
from keras_vit.version import __version__

__all__ = [
    "check_hosts",
    "for_hosts",
    "web_application",
]

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
