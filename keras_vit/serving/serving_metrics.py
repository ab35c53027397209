"""Numbers of a server in the text format of Prometheus.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["Histogram", "ServingMetrics"]

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Histogram:
    """How many values were at most as large as each bound.

    Args:
        bounds: upper bounds, in ascending order; infinity is added.
    """

    def __init__(self, bounds: Sequence[float]):
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        within = (i for i, bound in enumerate(self.bounds) if value <= bound)
        self.counts[next(within, len(self.bounds))] += 1
        self.sum += value

    def lines(self, name: str) -> Iterator[str]:
        total = 0
        for bound, count in zip(
            (*self.bounds, "+Inf"), self.counts, strict=True
        ):
            total += count
            yield f"{_sample(f'{name}_bucket', {'le': str(bound)})} {total}"
        yield f"{name}_sum {self.sum!r}"
        yield f"{name}_count {total}"


class ServingMetrics:
    """What `GET /metrics` answers; used from the event loop alone.

    Args:
        batch_sizes: the sizes of batches, bounds of their histogram.
        gauges: name to (help, function that returns its value now).
    """

    def __init__(
        self,
        batch_sizes: Sequence[int],
        gauges: Mapping[str, tuple[str, Callable[[], float]]],
    ):
        self.requests: collections.Counter = collections.Counter()
        self.images = 0
        self.latency = Histogram(SECONDS)
        self.batch_size = Histogram(batch_sizes)
        self.batch_seconds = Histogram(SECONDS)
        self.gauges = gauges

    def note_request(self, path: str, status: int) -> None:
        """Counts a request that was answered."""
        self.requests[path, status] += 1

    def note_batch(self, images: int, seconds: float) -> None:
        """Counts a batch that was computed."""
        self.images += images
        self.batch_size.observe(images)
        self.batch_seconds.observe(seconds)

    def text(self) -> str:
        """All of them in Prometheus's format."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self):
        name = "keras_vit_requests_total"
        yield from _head(name, "counter", "Requests by path and status.")
        for (path, status), count in sorted(self.requests.items()):
            labels = {"path": path, "status": str(status)}
            yield f"{_sample(name, labels)} {count}"
        name = "keras_vit_images_total"
        yield from _head(name, "counter", "Images that went through the model.")
        yield f"{name} {self.images}"
        for name, told, histogram in (
            (
                "request_seconds",
                "Time of a request for classes or attention.",
                self.latency,
            ),
            ("batch_images", "Images of a batch.", self.batch_size),
            ("batch_seconds", "Time of a batch.", self.batch_seconds),
        ):
            yield from _head(f"keras_vit_{name}", "histogram", told)
            yield from histogram.lines(f"keras_vit_{name}")
        for name, (told, value) in self.gauges.items():
            yield from _head(f"keras_vit_{name}", "gauge", told)
            yield f"keras_vit_{name} {value()}"


def _head(name, kind, told):
    return f"# HELP {name} {told}", f"# TYPE {name} {kind}"


def _sample(name, labels):
    cells = (f'{key}="{x.translate(ESCAPES)}"' for key, x in labels.items())
    return f"{name}{{{','.join(cells)}}}"
