"""Clients that mean harm: on real sockets, and what others get meanwhile."""

import asyncio
import contextlib
import http.client
import json
import multiprocessing
import signal
import socket
import time
import warnings

import psutil
import pytest
import served
import uvicorn
from uvicorn.server import ServerState

from keras_vit.serving.server import (
    check_hosts,
    for_hosts,
    guarded_protocol,
    most_connections,
)

FILE = served.encoded(served.picture(0))
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from keras_vit.cli import main
sys.exit(main(["serve", sys.argv[1], "--port", "0", "--timeout", "60"]))
"""
# It stays in the server, and is less than what it waits for.
ANSWER = bytes(2**15)
PREDICT = (
    b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"
)


@contextlib.contextmanager
def started(*arguments, **options):
    server = served.Server(*arguments, **options)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.communicate()


@pytest.fixture(scope="module")
def small(run_folder):
    """A server of little patience and little room."""
    options = {"timeout": 1, "body_mb": 1, "bodies_mb": 2, "queue": 16}
    words = [x for name, value in options.items() for x in (f"--{name}", value)]
    with started(run_folder, *words) as server:
        yield server


def connected(server):
    client = socket.create_connection(("127.0.0.1", server.port))
    client.settimeout(served.SECONDS)
    return client


def received(client) -> bytes:
    """All until the server closes the connection."""
    content = b""
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(2**16):
            content += piece
    return content


def answers(server, content, count) -> list[int]:
    """The statuses of the answers to what is sent; `count`, and others."""
    with connected(server) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(content)
        received = b""
        with contextlib.suppress(ConnectionError, TimeoutError):
            while piece := client.recv(2**16):
                received += piece
                if len(statuses(received)) >= count:
                    client.settimeout(0.1)
    return statuses(received)


def statuses(content) -> list[int]:
    """The statuses of answers, one after the other."""
    parts = content.split(b"HTTP/1.1 ")[1:]
    return [int(part[:3]) for part in parts]


SILENT = {
    "silent": b"",
    "half a line": b"GET /hea",
    "half a head": b"GET /health HTTP/1.1\r\nHost: localhost\r\n",
    "half a second head": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET",
}


@pytest.mark.parametrize("kind", SILENT)
def test_who_sends_no_whole_head_is_cut_off(small, kind):
    with connected(small) as client:
        client.sendall(SILENT[kind])
        begin = time.monotonic()
        received(client)
        assert 0.5 < time.monotonic() - begin < 20


SLOW = {
    "head": b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ",
    "body": PREDICT + b"Content-Length: 100000\r\n\r\n",
    "body of another address": b"POST /x HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Length: 100000\r\n\r\n",
}


@pytest.mark.parametrize("kind", SLOW)
def test_a_byte_now_and_then_gets_no_more_time(small, kind):
    with connected(small) as client:
        client.sendall(SLOW[kind])
        begin = time.monotonic()
        with pytest.raises(ConnectionError):
            while time.monotonic() - begin < 30:
                client.sendall(b"x")
                time.sleep(0.1)
    values = small.values()
    assert values["keras_vit_body_bytes"] == 0
    assert values["keras_vit_taken_images"] == 0


def test_who_does_not_read_the_answer_is_cut_off(small):
    asked = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.socket() as client:
        # Before it connects: a window that shrinks later lets the kernel drop
        # the packet that closes the connection, and ask again in a minute.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(0.5)
        client.connect(("127.0.0.1", small.port))
        begin = time.monotonic()
        with pytest.raises(ConnectionError):
            while time.monotonic() - begin < 60:
                with contextlib.suppress(TimeoutError):
                    client.sendall(asked * 100)
    assert small.ask("GET", "/health")[0] == 200


LAST = {
    "malformed": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "last": b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
}


@pytest.mark.parametrize("kind", LAST)
def test_who_does_not_read_the_last_answer_is_cut_off(monkeypatch, kind):
    """The server has closed by then, and waits until all is sent."""
    monkeypatch.setattr("keras_vit.serving.server.REST", 0.2)
    protocol = guarded_protocol(10, head=1, whole=20)
    lost = asyncio.run(connection_lost(protocol, LAST[kind]))
    assert lost


async def connection_lost(protocol, last) -> bool:
    """Whether a server leaves a client that sends two requests at once."""
    loop, closed = asyncio.get_running_loop(), asyncio.Event()

    class Observed(protocol):
        def connection_lost(self, exc):
            super().connection_lost(exc)
            closed.set()

    async def application(scope, receive, send):
        length = b"%d" % len(ANSWER)
        headers = [(b"content-length", length)]
        start = {"type": "http.response.start", "status": 200}
        await send({**start, "headers": headers})
        await send({"type": "http.response.body", "body": ANSWER})

    config = uvicorn.Config(application, timeout_keep_alive=60)
    config.load()
    here, there = socket.socketpair()
    with there:
        here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        await loop.connect_accepted_socket(
            lambda: Observed(config, ServerState(), {}), here
        )
        there.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + last)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(closed.wait(), 20)
        return closed.is_set()


def test_bodies_of_all_clients_are_bounded(small):
    part = bytes(2**20 - 2**17)  # Of 1 MiB; two are in the bound of 2 MiB.
    head = PREDICT + b"Content-Length: %d\r\n\r\n" % 2**20
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(small)) for _ in range(6)]
        for client in clients:
            client.sendall(head + part)
        largest = 0.0
        begin = time.monotonic()
        while time.monotonic() - begin < 0.7:
            values = small.values()
            largest = max(largest, values["keras_vit_body_bytes"])
            # They hold bytes, and no places of those that are here.
            assert values["keras_vit_taken_images"] == 0
        assert 2**20 < largest <= 2**21
        for client in clients:
            client.sendall(bytes(2**17))
        answers = [client.recv(2**16) for client in clients]
    found = [status for answer in answers for status in statuses(answer)]
    assert found.count(503) >= 3, found
    assert all(b"retry-after" in x for x in answers if b" 503 " in x)
    assert small.values()["keras_vit_body_bytes"] == 0
    assert small.post(FILE)[0] == 200


def test_400_silent_connections_leave_the_server_answering(run_folder):
    with started(run_folder, program=LIMITED) as server:
        with contextlib.ExitStack() as stack:
            for _ in range(400):
                stack.enter_context(connected(server))
            for _ in range(5):
                assert server.ask("GET", "/health")[0] == 200
                assert server.post(FILE)[0] == 200
            process = psutil.Process(server.process.pid)
            assert process.num_fds() < 256
        assert server.end(signal.SIGTERM) == (0, "")


def test_bodies_that_do_not_come_leave_the_server_answering(run_folder):
    with started(run_folder, program=LIMITED) as server:
        with contextlib.ExitStack() as stack:
            for _ in range(400):
                client = stack.enter_context(connected(server))
                client.sendall(PREDICT + b"Content-Length: 9\r\n\r\nx")
            assert server.ask("GET", "/health")[0] == 200
            assert server.post(FILE)[0] == 200
        assert server.end(signal.SIGTERM) == (0, "")


def test_connections_are_half_of_the_files(monkeypatch):
    import resource

    for allowed, most in ((256, 128), (10**6, 1000), (1, 1), (-1, 1000)):
        monkeypatch.setattr(resource, "getrlimit", lambda x, n=allowed: (n, n))
        assert most_connections() == most


def probe(port, seconds):
    """Puts the time of each answer of /health and /metrics in a queue."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while True:
        for path in ("/health", "/metrics"):
            begin = time.monotonic()
            client.request("GET", path)
            assert client.getresponse().read()
            seconds.put(time.monotonic() - begin)
        time.sleep(0.005)


FORM = b'--x\r\nContent-Disposition: form-data; name="a"; filename="b"\r\n\r\n'
HEAVY = {
    "bad base64": (b'{"images":[' + b'"!",' * 2_500_000 + b'"!"]}', 413),
    "empty texts": (b'{"images":[' + b'"",' * 5_000_000 + b'""]}', 413),
    "numbers": (b'{"images":[' + b"0," * 5_000_000 + b"0]}", 413),
    "one text": (b'{"images":["' + b"A" * 15_000_000 + b'"]}', 400),
    "escapes": (b'{"images":["' + rb"\u0041" * 2_500_000 + b'"]}', 400),
    "digits": (b'{"images":[' + b"1" * 15_000_000 + b"]}", 400),
    "nested": (b'{"a":' * 3_000_000, 400),
    "lists": (b"[" * 15_000_000, 400),
    "UTF-16": (('{"images":["' + "A" * 7_000_000).encode("utf-16"), 400),
    "bad images": (json.dumps({"images": ["QUJD" * 9999] * 256}).encode(), 400),
    "parts": (FORM * 200_000, 400),
    "half a boundary": (FORM + b"\r\n--" * 3_500_000 + b"\r\n--x--\r\n", 400),
}


@pytest.fixture(scope="module")
def probed(run_folder):
    """A server with the usual limits, and the times of its answers."""
    with started(run_folder) as server:
        context = multiprocessing.get_context("fork")
        seconds = context.Queue()
        process = context.Process(target=probe, args=(server.port, seconds))
        with warnings.catch_warnings():
            # JAX 0.7 warns of each fork; this process uses nothing of it.
            warnings.simplefilter("ignore", RuntimeWarning)
            process.start()
        yield server, seconds
        assert process.is_alive()
        process.kill()
        process.join()
        assert server.end(signal.SIGTERM) == (0, "")


@pytest.mark.parametrize("kind", HEAVY)
def test_a_heavy_body_is_refused_and_holds_nobody_up(probed, kind):
    server, seconds = probed
    body, status = HEAVY[kind]
    content_type = "application/json"
    if body.startswith(b"--x"):
        content_type = "multipart/form-data; boundary=x"
    memory = psutil.Process(server.process.pid).memory_info
    before = memory().rss
    while not seconds.empty():
        seconds.get()
    for _ in range(3):
        found, _, content = server.post(body, content_type)
        assert found == status, content
        assert len(json.dumps(content)) < 200_000
    assert memory().rss - before < 200 * 2**20
    time.sleep(0.05)
    found = sorted(seconds.get() for _ in range(seconds.qsize()))
    # 15 to 70 ms on two cores; it was 5 and 10 s. Some are for other work.
    assert found[len(found) // 2] < 0.1
    assert found[-1] < 1


HOSTS = {
    "localhost": 200,
    "LocalHost:80": 200,
    "localhost.:80": 200,
    "127.0.0.1:9": 200,
    "[::1]:9": 200,
    "10.1.2.3": 200,
    "vit.example:8000": 200,
    "evil.example": 421,
    "localhost.evil.example": 421,
    "127.0.0.1.evil.example": 421,
    "evil.example@127.0.0.1": 421,
    "[evil.example]": 421,
    "[": 421,
    "": 421,
    "0x7f000001": 421,
}


@pytest.fixture(scope="module")
def named(run_folder):
    options = ("--allowed_host", "Vit.example", "--timeout", 5)
    with started(run_folder, *options) as server:
        yield server


@pytest.mark.parametrize("host", HOSTS)
def test_only_the_servers_own_names_are_answered(named, host):
    for path in ("/model", "/", "/metrics", "/nowhere"):
        status, _, content = named.ask("GET", path, None, {"Host": host})
        if HOSTS[host] == 421 or path != "/nowhere":
            assert status == HOSTS[host]
    status, _, content = named.ask(
        "POST", "/predict", FILE, {"Host": host, "Content-Type": "image/png"}
    )
    assert status == HOSTS[host]
    assert ("predictions" in content) == (status == 200)


@pytest.mark.parametrize("name", ["a:80", "http://a", "a b", "", "*.a/", "[a]"])
def test_what_is_no_name_of_a_host_is_refused(name):
    with pytest.raises(ValueError, match="allowed_host must be a name"):
        check_hosts([name])


@pytest.mark.parametrize(
    ("names", "host", "answered"),
    [
        (["*"], b"evil.example", True),
        (["A.b"], b"a.b", True),
        ([], b"a.b", False),
        ([], None, True),  # Browsers always send it.
    ],
)
def test_the_names_of_an_application(names, host, answered):
    called = []

    def noting(name):
        async def application(scope, receive, send):
            called.append(name)

        return application

    application = for_hosts(noting("answered"), names, noting("refused"))
    headers = [] if host is None else [(b"host", host)]

    async def call():
        scope = {"type": "http", "headers": headers}
        await application(scope, None, None)

    asyncio.run(call())
    assert called == ["answered" if answered else "refused"]


GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
PNG = PREDICT + b"Content-Length: %d\r\n\r\n" % len(FILE) + FILE
CHUNKED = PREDICT + b"Transfer-Encoding: chunked\r\n\r\n"
# What a client sends, and the statuses of the answers.
REQUESTS = {
    "pipelined": (GET + b"\r\n" + PNG + GET + b"\r\n", [200, 200, 200]),
    "HTTP/1.0": (b"GET /health HTTP/1.0\r\n\r\n", [200]),
    "HTTP/1.1 without Host": (b"GET /health HTTP/1.1\r\n\r\n", [400]),
    "two Hosts": (GET + b"Host: localhost\r\n\r\n", [400]),
    "two lengths": (
        PREDICT + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        [400],
    ),
    "a negative length": (PREDICT + b"Content-Length: -1\r\n\r\n", [400]),
    "no length": (PREDICT + b"\r\n", [400]),
    "a length of many digits": (
        PREDICT + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        [400],
    ),
    "chunks": (
        CHUNKED + b"%x\r\n" % len(FILE) + FILE + b"\r\n0\r\n\r\n",
        [200],
    ),
    "a huge chunk": (CHUNKED + b"F" * 16 + b"\r\nabc", [408]),
    "a chunk beyond measure": (CHUNKED + b"F" * 5000 + b"\r\nabc", [400]),
    "a broken chunk": (CHUNKED + b"zz\r\nabc\r\n", [400]),
    "another coding": (
        PREDICT + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        [400],
    ),
    "length and chunks": (
        PREDICT + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\n",
        [400],
    ),
    "compressed": (
        PREDICT + b"Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
        [415],
    ),
    "HEAD": (b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n", [200]),
    "OPTIONS": (b"OPTIONS /predict HTTP/1.1\r\nHost: a.b\r\n\r\n", [421]),
    "PUT": (b"PUT /predict HTTP/1.1\r\nHost: localhost\r\n\r\n", [405]),
    "CONNECT": (b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", [404]),
    "TRACE": (b"TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n", [405]),
    "another site": (
        b"GET http://evil.example/model HTTP/1.1\r\nHost: localhost\r\n\r\n",
        [404],
    ),
    "a folder above": (
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
        [404],
    ),
    "escaped bytes": (
        b"GET /%2e%2e/%00%ff%0d%0aX:%20y HTTP/1.1\r\nHost: localhost\r\n\r\n",
        [404],
    ),
    "a long address": (
        b"GET /" + b"a" * 10**6 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        [400],
    ),
    "long headers": (GET + b"X: " + b"a" * 10**6 + b"\r\n\r\n", [400]),
    "many headers": (GET + b"X: a\r\n" * 10**5 + b"\r\n", [400]),
    "a websocket": (
        GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        [200],
    ),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", [400]),
    "zeros": (bytes(1000), [400]),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [404, 400]),
    "NaN": (
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        b'application/json\r\nContent-Length: 16\r\n\r\n{"images":[NaN]}',
        [400],
    ),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_odd_requests_have_an_answer(named, kind):
    content, expected = REQUESTS[kind]
    assert answers(named, content, len(expected)) == expected
    assert named.ask("GET", "/health")[0] == 200


BROKEN = {
    "a broken chunk of a request that is in work": [
        CHUNKED + b"1\r\nx\r\n",
        b"zz\r\n",
    ],
    "a broken chunk after the answer": [
        b"POST /x HTTP/1.1\r\nHost: localhost\r\n"
        b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
        b"zz\r\n",
    ],
    "after an answer": [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\0\r\n\r\n",
    ],
    "of a request behind one in work": [
        PNG.replace(b"predict", b"explain") + CHUNKED,
        b"\0\r\n\r\n",
    ],
}


@pytest.mark.parametrize("pause", [0, 0.001, 0.02, 0.2])
@pytest.mark.parametrize("kind", BROKEN)
def test_a_request_that_breaks_later_is_closed(named, kind, pause):
    for _ in range(5):
        with connected(named) as client:
            with contextlib.suppress(ConnectionError):
                for piece in BROKEN[kind]:
                    client.sendall(piece)
                    time.sleep(pause)
                while client.recv(2**16):
                    pass
    assert named.values()["keras_vit_taken_images"] == 0


def test_nothing_of_all_this_is_printed(named):
    assert named.end(signal.SIGTERM) == (0, "")
