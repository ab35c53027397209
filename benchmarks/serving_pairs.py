"""`keras-vit serve` beside a plain server of the same classifier.

    KERAS_BACKEND=jax python benchmarks/serving_pairs.py fractals --write

The plain server is what one writes first: uvicorn, Starlette and a function
that decodes an image and classifies it, in a pool of threads with a lock
around the model. Both run at a time, and each client sends its next image
when it has the answer. The rounds alternate which of the two is first, so that
what else the machine does is in both. Then `keras-vit serve` answers further
requests, whose answers and whose memory are compared from first to last.
"""

# A folder of tests is called like the module beside this one.
# pyright: reportAttributeAccessIssue=false
import argparse
import contextlib
import io
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse

import keras
import numpy as np
import serving
from PIL import Image

CLIENTS = (1, 8, 32)
RESULTS = pathlib.Path(__file__).parent / "results"
IMAGE = {"Content-Type": "image/jpeg"}


def main() -> int:
    options = parsed()
    if options.plain:
        return serve_plainly(options.model)
    contents = [serving.picture(seed) for seed in range(serving.PICTURES)]
    expected = serving.answers(options.model, contents)
    with contextlib.ExitStack() as stack:
        servers = {
            "ours": stack.enter_context(started(options, [])),
            "plain": stack.enter_context(started(options, ["--plain"])),
        }
        measured = compared(servers, contents, expected, options)
        process, port = servers["ours"]
        lasting = endured(process, port, contents, expected, options)
    backend = keras.backend.backend()
    words = [
        *(f"{x}={os.environ[x]}" for x in serving.THREADS if x in os.environ),
        *("python", *sys.argv),
    ]
    result = {
        "command": f"KERAS_BACKEND={backend} {' '.join(words)}",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "load_average": round(os.getloadavg()[0], 1),
        "clients": measured,
        "lasting": lasting,
    }
    print(json.dumps(result, indent=2))
    if options.write:
        name = f"serving_pairs_{pathlib.Path(options.model).name}_{backend}"
        (RESULTS / f"{name}.json").write_text(
            json.dumps(result, indent=2) + "\n"
        )
    return int(lasting["wrong"] > 0)


def parsed():
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", help="see keras-vit serve")
    parser.add_argument("--seconds", type=float, default=8, help="of a side")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--serve", default="", help="options of serve")
    parser.add_argument("--write", action="store_true", help="keep the result")
    parser.add_argument("--plain", action="store_true", help="be the other")
    return parser.parse_args()


def serve_plainly(model: str) -> int:
    """Serve on a free port until the process is ended."""
    import socket

    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    from keras_vit.prediction import load_classifier, most_probable

    classifier, lock = load_classifier(model), threading.Lock()

    def classes(content):
        pixels = classifier.read(Image.open(io.BytesIO(content)))
        with lock:
            row = classifier.probabilities(pixels[np.newaxis])
        return [
            {
                "class": classifier.class_names[i],
                "probability": float(row[0, i]),
            }
            for i in most_probable(row, 5)[0]
        ]

    async def predict(request):
        found = await run_in_threadpool(classes, await request.body())
        return JSONResponse({"predictions": [{"classes": found}]})

    classes(serving.picture(0))  # Compiles the program.
    # With the protocol asyncio sends small parts at once.
    listener = socket.socket(
        socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )
    listener.bind(("127.0.0.1", 0))
    print(
        f"Serving at http://127.0.0.1:{listener.getsockname()[1]}", flush=True
    )
    application = Starlette(
        routes=[Route("/predict", predict, methods=["POST"])]
    )
    config = uvicorn.Config(
        application, loop="asyncio", http="h11", log_level="error"
    )
    uvicorn.Server(config).run(sockets=[listener])
    return 0


@contextlib.contextmanager
def started(options, plainly):
    """A server process that is ready, and its port."""
    command = ["-m", "keras_vit.cli", "serve", options.model, "--port", "0"]
    command += options.serve.split()
    if plainly:
        command = [__file__, options.model, *plainly]
    process = subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": str(serving.ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        told = process.stdout.readline() if process.stdout else ""
        if " at http://" not in told:
            raise SystemExit("A server did not start.")
        yield process, urllib.parse.urlsplit(told.split(" at ")[1].strip()).port
    finally:
        process.kill()
        process.wait()


def compared(servers, contents, expected, options) -> dict:
    """Images per second and latencies of both, by the number of clients."""
    found = {count: {name: [] for name in servers} for count in CLIENTS}
    for turn in range(options.rounds + 1):
        for count in CLIENTS:
            for name in sorted(servers, reverse=turn % 2 == 1):
                load = Load(servers[name][1], contents, expected)
                load.run(count, seconds=options.seconds)
                if load.problems:
                    raise SystemExit(f"{name}: {load.problems[0]}")
                if turn:  # The first round warms up.
                    found[count][name].append(load)
    return {str(count): sides(loads) for count, loads in found.items()}


def sides(loads: dict) -> dict:
    """The figures of one number of clients."""
    rates = {name: [x.rate for x in found] for name, found in loads.items()}
    ratios = [
        ours / plain
        for ours, plain in zip(rates["ours"], rates["plain"], strict=True)
    ]
    result = {
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(x, 3) for x in ratios],
    }
    for name, found in loads.items():
        latencies = [x for load in found for x in load.latencies]
        median, last = 1000 * np.percentile(latencies, (50, 99))
        result[name] = {
            "images_per_second": round(statistics.median(rates[name]), 1),
            "milliseconds_50_99": [round(median, 1), round(last, 1)],
            "requests": len(latencies),
        }
    return result


def endured(process, port, contents, expected, options) -> dict:
    """Memory and answers of many requests, from 32 clients."""
    memory = serving.Memory(process)
    load = Load(port, contents, expected)
    for part in ("a third", "two thirds", "end"):
        load.run(CLIENTS[-1], requests=options.requests // 3 + 1)
        memory.note(part)
    grown = memory.found["end"] - memory.found["ready"]
    return {
        "requests": len(load.latencies),
        "wrong": len(load.problems),
        "problems": load.problems[:5],
        "memory_mib": memory.found,
        "grown_mib": round(grown, 1),
    }


class Load:
    """Clients that each send an image when they have the last answer."""

    def __init__(self, port, contents, expected):
        self.port, self.contents, self.expected = port, contents, expected
        self.latencies: list[float] = []
        self.problems: list[str] = []
        self.rate = 0.0

    def run(
        self, clients: int, *, seconds: float = 600, requests: float = np.inf
    ) -> None:
        begin = time.perf_counter()
        self._end, self._left = begin + seconds, requests
        threads = [
            threading.Thread(target=self._client, args=(i,))
            for i in range(clients)
        ]
        before = len(self.latencies)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spent = time.perf_counter() - begin
        self.rate = (len(self.latencies) - before) / spent

    def _client(self, number):
        connection = serving.http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=60
        )
        while time.perf_counter() < self._end and self._left > 0:
            self._left -= 1
            number = (number + 1) % len(self.contents)
            begin = time.perf_counter()
            try:
                status, content, _ = serving.asked(
                    connection, self.contents[number], IMAGE
                )
            except (OSError, serving.http.client.HTTPException) as error:
                self.problems.append(repr(error))
                break
            self.latencies.append(time.perf_counter() - begin)
            if status != 200 or not serving.same(
                serving.classes_of(content["predictions"][0]),
                self.expected[number],
                serving.TOLERANCE,
            ):
                self.problems.append(f"{status} {content}")
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
