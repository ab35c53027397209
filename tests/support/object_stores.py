"""Emulators of object stores on this machine, and what can go wrong there.

A proxy stands before each, which counts requests and can fail them.
"""

import contextlib
import http.client
import http.server
import logging
import os
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from unittest import mock

BUCKET = "bucket"
SCHEMES = ("s3", "gs")
# What clients and servers settle for each hop.
OF_A_HOP = {"connection", "keep-alive", "transfer-encoding", "host", "date"}
DENIED = {
    "s3": b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message>"
    b"</Error>",
    "gs": b'{"error": {"code": 403, "message": "no storage.objects access"}}',
}


class Emulator:
    """An emulator behind a proxy.

    Attributes:
        scheme: "s3" or "gs".
        requests: how many came so far.
        writes: how many of them put or removed something.
        fault: function from the number of a request, its method and path to
            None, a status to answer in its place, or "cut", which closes the
            connection.
    """

    def __init__(self, scheme: str, port: int):
        self.scheme, self.port = scheme, port
        self.requests = self.writes = 0
        self.fault: Callable = lambda number, method, path: None
        self.server = _Server(("127.0.0.1", 0), _handler(self))
        thread = threading.Thread(
            target=self.server.serve_forever, args=(0.05,), daemon=True
        )
        thread.start()

    @property
    def environment(self) -> dict[str, str]:
        """What tells clients where it is."""
        address = f"http://127.0.0.1:{self.server.server_address[1]}"
        return {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": address,
            "STORAGE_EMULATOR_HOST": address,
        }

    def address(self, name: str) -> str:
        return f"{self.scheme}://{BUCKET}/{name}"

    @contextlib.contextmanager
    def failing(self, fault: Callable) -> Iterator[None]:
        before, self.fault = self.fault, fault
        try:
            yield
        finally:
            self.fault = before


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # Clients are killed in the midst of their requests.


def _handler(emulator):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size)
            emulator.requests += 1
            emulator.writes += self.command not in ("GET", "HEAD")
            path = urllib.parse.unquote(self.path)
            fault = emulator.fault(emulator.requests, self.command, path)
            if fault == "cut":
                self.close_connection = True
                self.connection.close()
            elif fault is not None:
                content = DENIED[emulator.scheme] if fault == 403 else b""
                self.reply(fault, {}, content)
            else:
                self.reply(*_forwarded(emulator.port, self, body))

        def reply(self, status, headers, content):
            self.send_response_only(status)
            length = headers.pop("Content-Length", str(len(content)))
            for name, value in headers.items():
                if name.lower() not in OF_A_HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

        def log_message(self, format, *args):
            pass

    return Handler


def _forwarded(port, request, body):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    headers = {
        name: value
        for name, value in request.headers.items()
        if name.lower() not in OF_A_HOP
    }
    # Emulators name themselves by it in the addresses that they give.
    headers["Host"] = request.headers["Host"]
    connection.request(request.command, request.path, body, headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, dict(answer.headers), content


@contextlib.contextmanager
def emulated(scheme: str) -> Iterator[Emulator]:
    """An emulator with an empty bucket, which this process's clients find."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with STARTED[scheme]() as port:
        emulator = Emulator(scheme, port)
        with mock.patch.dict(os.environ, emulator.environment):
            try:
                yield emulator
            finally:
                emulator.server.shutdown()
                emulator.server.server_close()


@contextlib.contextmanager
def _s3():
    from moto.moto_server.threaded_moto_server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("PUT", f"/{BUCKET}")
    if (status := connection.getresponse().status) != 200:
        raise RuntimeError(f"No bucket: {status}")
    connection.close()
    try:
        yield port
    finally:
        server.stop()


@contextlib.contextmanager
def _gs():
    from gcp_storage_emulator import server as emulator
    from gcp_storage_emulator.handlers import objects

    plain = objects._multipart_upload
    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)

    def conditional(request, response, storage):
        """The emulator knows no conditions: that of an object's absence."""
        if request.query.get("ifGenerationMatch") == ["0"]:
            name = request.data["meta"]["name"]
            with contextlib.suppress(objects.NotFound):
                storage.get_file_obj(request.params["bucket_name"], name)
                response.status = http.HTTPStatus.PRECONDITION_FAILED
                return
        plain(request, response, storage)

    server = emulator.create_server(
        "127.0.0.1", 0, in_memory=True, default_bucket=BUCKET
    )
    with mock.patch.object(objects, "_multipart_upload", conditional):
        server.start()
        try:
            yield server._api._httpd.server_address[1]
        finally:
            server.stop()


STARTED = {"s3": _s3, "gs": _gs}
