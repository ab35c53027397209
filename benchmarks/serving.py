"""Many clients at once against `keras-vit serve`, and whether all is right.

    KERAS_BACKEND=jax python benchmarks/serving.py fractals --write

Each client sends images alone, in forms and as JSON, and now and then bytes
that are no image. The answers are known: `keras_vit.predict` gave them before.
What counts as wrong is said in `problems`: a request without an answer, an
answer of another image, bytes that are taken for an image.
"""

import argparse
import base64
import collections
import contextlib
import http.client
import io
import json
import os
import pathlib
import platform
import random
import secrets
import signal
import subprocess
import sys
import threading
import time
import urllib.parse

import keras
import numpy as np
import psutil
from PIL import Image

import keras_vit

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = pathlib.Path(__file__).parent / "results"
PICTURES, WIDTH, HEIGHT = 32, 500, 375
TOLERANCE = 1e-4  # of probabilities, between batches of several sizes
APART = 20 * TOLERANCE  # of two pictures, in their most different class
# What a client sends next: how often of 20, and how many images.
KINDS = {"alone": (13, 1), "form": (4, 3), "json": (2, 2), "broken": (1, 1)}


def main() -> int:
    options = parsed()
    contents = [picture(seed) for seed in range(PICTURES)]
    expected = answers(options.model, contents)
    with serving(options) as (process, port, seconds_to_ready):
        memory = Memory(process)
        load = Load(port, contents, expected, options)
        load.run(memory)
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
    result = {
        "command": " ".join(
            [
                f"KERAS_BACKEND={keras.backend.backend()}",
                *(f"{x}={os.environ[x]}" for x in THREADS if x in os.environ),
                "python",
                *sys.argv,
            ]
        ),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "seconds_to_ready": round(seconds_to_ready, 1),
        **load.result(),
        "memory_mib": memory.found,
        "exit_code": code,
    }
    print(json.dumps(result, indent=2))
    if options.write:
        name = pathlib.Path(options.model).name
        path = RESULTS / f"serving_{name}_{keras.backend.backend()}.json"
        path.write_text(json.dumps(result, indent=2) + "\n")
    return int(bool(load.problems) or code != 0)


THREADS = ("OMP_NUM_THREADS",)


def parsed():
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", help="see keras-vit serve")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument(
        "--serve", default="", help="options of keras-vit serve"
    )
    parser.add_argument("--write", action="store_true", help="keep the result")
    return parser.parse_args()


def picture(seed: int) -> bytes:
    """A JPEG of large soft spots, as large as a photograph on a page."""
    spots = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), "uint8")
    large = Image.fromarray(spots).resize(
        (WIDTH, HEIGHT), Image.Resampling.BICUBIC
    )
    buffer = io.BytesIO()
    large.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def answers(model: str, contents: list[bytes]) -> list[dict[str, float]]:
    """The probabilities that `predict` gives, which tell the pictures apart."""
    images = [Image.open(io.BytesIO(content)) for content in contents]
    found = [dict(x.classes) for x in keras_vit.predict(model, images, 5)]
    for i, one in enumerate(found):
        for other in found[:i]:
            if same(one, other, APART):
                raise SystemExit("The model does not tell the pictures apart.")
    return found


def same(one: dict, other: dict, tolerance: float) -> bool:
    """Whether probabilities of the most probable classes are the same."""
    return all(
        abs(one.get(name, 0) - other.get(name, 0)) <= tolerance
        for name in {*one, *other}
    )


@contextlib.contextmanager
def serving(options):
    """A server process that is ready, its port, and how long that took."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "keras_vit.cli", "serve", options.model),
            *("--port", "0", *options.serve.split()),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        told = process.stdout.readline() if process.stdout else ""
        if " at http://" not in told:
            raise SystemExit("The server did not start.")
        port = urllib.parse.urlsplit(told.split(" at ")[1].strip()).port
        yield process, port, time.perf_counter() - start
    finally:
        process.kill()
        process.wait()


class Memory:
    """Resident memory of a process, in MiB, by the moment."""

    def __init__(self, process):
        self._process = psutil.Process(process.pid)
        self.found = {}
        self.note("ready")

    def note(self, moment: str) -> None:
        resident = self._process.memory_info().rss / 2**20
        self.found[moment] = round(resident, 1)


class Load:
    """Clients that send requests, one after the other each, until the end."""

    def __init__(self, port, contents, expected, options):
        self.port, self.contents, self.expected = port, contents, expected
        self.clients, self.seconds = options.clients, options.seconds
        self.problems: list[str] = []
        self.latencies: list[float] = []
        self.statuses: collections.Counter = collections.Counter()
        self.images = 0
        self._lock = threading.Lock()

    def run(self, memory: Memory) -> None:
        self._end = time.monotonic() + self.seconds
        threads = [
            threading.Thread(target=self._client, args=(seed,))
            for seed in range(self.clients)
        ]
        for thread in threads:
            thread.start()
        for third in ("a third", "two thirds"):
            time.sleep(self.seconds / 3)
            memory.note(third)
        for thread in threads:
            thread.join()
        memory.note("end")

    def result(self) -> dict:
        milliseconds = 1000 * np.percentile(self.latencies, (50, 95, 99))
        return {
            "clients": self.clients,
            "seconds": self.seconds,
            "requests": len(self.latencies),
            "statuses": dict(sorted(self.statuses.items())),
            "images_per_second": round(self.images / self.seconds, 1),
            "milliseconds_50_95_99": [round(x) for x in milliseconds],
            "wrong": len(self.problems),
            "problems": self.problems[:5],
        }

    def _client(self, seed):
        chance = random.Random(seed)
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=60
        )
        while time.monotonic() < self._end:
            kind = chance.choices(
                list(KINDS), [often for often, _ in KINDS.values()]
            )[0]
            sent = chance.choices(range(PICTURES), k=KINDS[kind][1])
            try:
                problem = self._request(connection, kind, sent)
            except (OSError, http.client.HTTPException, ValueError) as error:
                problem = f"{kind}: {type(error).__name__}: {error}"
                connection.close()
            if problem:
                with self._lock:
                    self.problems.append(problem)
        connection.close()

    def _request(self, connection, kind, sent):
        """What is wrong with the answer to a request; None if nothing."""
        body, headers = encoded(kind, [self.contents[i] for i in sent])
        start = time.perf_counter()
        status, content, retry = asked(connection, body, headers)
        while status == 503 and retry:
            with self._lock:
                self.statuses[503] += 1
            time.sleep(float(retry))
            start = time.perf_counter()
            status, content, retry = asked(connection, body, headers)
        with self._lock:
            self.latencies.append(time.perf_counter() - start)
            self.statuses[status] += 1
            self.images += len(sent) if status == 200 else 0
        if kind == "broken":
            return None if status == 400 else f"broken: {status}"
        if status != 200:
            return f"{kind}: {status} {content}"
        found = content["predictions"]
        right = len(found) == len(sent) and all(
            same(classes_of(one), self.expected[i], TOLERANCE)
            for one, i in zip(found, sent, strict=True)
        )
        return None if right else f"{kind}: an answer of another image"


def asked(connection, body, headers):
    """Status, content and Retry-After of the answer."""
    connection.request("POST", "/predict", body, headers)
    answer = connection.getresponse()
    content = json.loads(answer.read())
    return answer.status, content, answer.headers["Retry-After"]


def classes_of(prediction: dict) -> dict[str, float]:
    return {x["class"]: x["probability"] for x in prediction["classes"]}


def encoded(kind: str, images: list[bytes]) -> tuple[bytes, dict[str, str]]:
    """A body and its headers."""
    if kind == "broken":
        return images[0][: len(images[0]) // 2], {"Content-Type": "image/jpeg"}
    if kind == "alone":
        return images[0], {"Content-Type": "image/jpeg"}
    if kind == "json":
        texts = [base64.b64encode(image).decode() for image in images]
        body = json.dumps({"images": texts}).encode()
        return body, {"Content-Type": "application/json"}
    boundary = secrets.token_hex(8)
    body = b"".join(
        f"--{boundary}\r\nContent-Disposition: form-data; "
        f'name="images"; filename="{i}.jpg"\r\n\r\n'.encode()
        + image
        + b"\r\n"
        for i, image in enumerate(images)
    )
    kind = f"multipart/form-data; boundary={boundary}"
    return body + f"--{boundary}--\r\n".encode(), {"Content-Type": kind}


if __name__ == "__main__":
    sys.exit(main())
