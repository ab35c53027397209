"""A server on this machine that serves one file, with faults on demand."""

import io
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np


def npz(num_bytes: int = 3 << 20) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, num_bytes, "uint8")
    np.savez(buffer, pixels=pixels)
    return buffer.getvalue()


class Server(ThreadingHTTPServer):
    """Serves one file and does, request by request, what `faults` say."""

    daemon_threads = True

    def __init__(self, content: bytes):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = content
        self.faults: list[str] = []
        # Content and headers of the next requests, where they change.
        self.versions: list[tuple[bytes, dict[str, str]]] = []
        self.gives_ranges = True
        self.headers: dict[str, str] = {}
        self.ranges: list[str | None] = []

    def handle_error(self, request, client_address):
        """A client that refuses what it gets closes the connection."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/a/ViT-B_16.npz"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        asked = self.headers["Range"]
        self.server.ranges.append(asked)
        fault = self.server.faults.pop(0) if self.server.faults else ""
        if self.server.versions:
            self.server.content, headers = self.server.versions.pop(0)
            self.server.headers = headers
        if fault.isdigit():
            return self.send_error(int(fault))
        if fault.startswith("to "):
            return self._answer(302, b"", {"Location": fault[3:]})
        content, start = self.server.content, 0
        if asked and self.server.gives_ranges:
            start = int(re.findall(r"bytes=(\d+)-", asked)[0])
            if start >= len(content):
                return self._answer(
                    416, b"", {"Content-Range": f"bytes */{len(content)}"}
                )
        if fault == "wrong range":
            start += 1
        body = content[start:]
        status = 206 if asked and self.server.gives_ranges else 200
        found = f"bytes {start}-{len(content) - 1}/{len(content)}"
        ranged = status == 206 and fault != "no range"
        headers = {"Content-Range": found} if ranged else {}
        if "without length" in fault:
            headers["Content-Length"] = ""
        kept = len(body) // 2 if fault.startswith("cut") else len(body)
        return self._answer(status, body, headers, kept)

    def _answer(self, status, body, headers, kept=None):
        self.send_response(status)
        length = {"Content-Length": str(len(body))}
        for name, value in {**length, **headers, **self.server.headers}.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[:kept])

    def log_message(self, *_):
        pass
