"""From encoded images to classes and attention, within limits and counted.

Axes: H and W height and width, C channels, K classes, L layers, R and C rows
and columns of the grid of patches.
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import os
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any

import keras
import numpy as np

from keras_vit.analysis.report.pictures import photograph
from keras_vit.analysis.rollout import attention_overview
from keras_vit.explanation.attention_page import check_attention, overlays
from keras_vit.io.checks import check_at_least, check_positive
from keras_vit.prediction import most_probable
from keras_vit.serving.batching import Batcher
from keras_vit.serving.received_images import (
    Received,
    Refusal,
    read_image,
    refused_images,
)

__all__ = ["Service", "ServingLimits"]

# Upper bounds of the times of a request and of a batch, in seconds.
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
READERS = 4  # threads; each needs some 10 bytes per pixel of its image
WARMING_UP, READY, STOPPING = "warming up", "ready", "stopping"
WAIT = "Try again in a second."


@dataclasses.dataclass(frozen=True)
class ServingLimits:
    """What a server takes, and for how long.

    Args:
        batch: int, images per step of the model.
        wait_ms: float, how long an image waits for others, in milliseconds.
        queue: int, images in work at a time; more are refused with 503.
        timeout: float, seconds after which a request is answered with 504.
        body_mb: float, MiB of a request; 413 above.
        megapixels: float, of an image as it is stored; 413 above.

    Raises:
        ValueError: for values out of range.

    Example:
        >>> ServingLimits(batch=32, wait_ms=10)
    """

    batch: int = 8
    wait_ms: float = 5.0
    queue: int = 256
    timeout: float = 30.0
    body_mb: float = 16.0
    megapixels: float = 50.0

    def __post_init__(self):
        check_at_least(self, 1, "batch", "queue")
        check_at_least(self, 0, "wait_ms")
        check_positive(self, "timeout", "body_mb", "megapixels")
        if self.queue < self.batch:
            raise ValueError(
                "queue must be at least batch, or no batch is ever full. "
                f"Received: queue={self.queue}, batch={self.batch}."
            )

    @property
    def body(self) -> int:
        """Bytes of a request."""
        return int(self.body_mb * 2**20)

    @property
    def pixels(self) -> int:
        """Pixels of an image."""
        return int(self.megapixels * 1_000_000)


class ServingMetrics:
    """Metrics of `GET /metrics`, in a registry of their own.

    Args:
        batch_sizes: the sizes of batches, bounds of their histogram.
        gauges: name to (help, function that returns its value now).
    """

    def __init__(
        self,
        batch_sizes: Sequence[int],
        gauges: Mapping[str, tuple[str, Callable[[], float]]],
    ):
        from prometheus_client import (
            CollectorRegistry,
            Counter,
            Gauge,
            Histogram,
        )

        self.registry = CollectorRegistry()
        own: Any = {"namespace": "keras_vit", "registry": self.registry}
        self.requests = Counter(
            "requests",
            "Requests by path and status.",
            ["path", "status"],
            **own,
        )
        self.images = Counter(
            "images", "Images that went through the model.", **own
        )
        self.request_seconds = Histogram(
            "request_seconds",
            "Time of a request for classes or attention.",
            buckets=SECONDS,
            **own,
        )
        self.batch_images = Histogram(
            "batch_images", "Images of a batch.", buckets=batch_sizes, **own
        )
        self.batch_seconds = Histogram(
            "batch_seconds", "Time of a batch.", buckets=SECONDS, **own
        )
        for name, (description, value) in gauges.items():
            Gauge(name, description, **own).set_function(value)

    def count_batch(self, images: int, seconds: float) -> None:
        """Count a batch that was computed."""
        self.images.inc(images)
        self.batch_images.observe(images)
        self.batch_seconds.observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)


class Service:
    """A classifier for many requests at a time.

    Args:
        classifier: a `keras_vit.prediction.Classifier`, or an object with its
            `read`, `probabilities`, `class_names`, `problem` and `geometry`.
            Without a `model` of attention it classifies and explains nothing.
        name: str, what the model is called.
        limits: a `ServingLimits`.

    Example:
        >>> service = Service(load_classifier("runs/flowers"), "flowers")
        >>> async with service.running():
        ...     await service.classify(images, top=5)
    """

    def __init__(
        self,
        classifier: Any,
        name: str,
        limits: ServingLimits | None = None,
    ):
        self.classifier, self.name = classifier, name
        self.limits = limits or ServingLimits()
        if getattr(classifier, "resizes", False):  # Each has its own size.
            self.limits = dataclasses.replace(self.limits, batch=1)
        self.state = WARMING_UP
        self.taken = self.unanswered = 0
        self.failure: BaseException | None = None
        self.on_change: Callable[[], None] = lambda: None
        self.unexplained = _unexplained(classifier)
        self.batcher = Batcher(
            classifier.probabilities,
            self.limits.batch,
            self.limits.wait_ms / 1000,
            lambda images, seconds: self.metrics.count_batch(images, seconds),
        )
        self.metrics = ServingMetrics(
            self.batcher.sizes,
            {
                "queue_images": (
                    "Images that wait for a batch.",
                    lambda: self.batcher.waiting,
                ),
                "taken_images": (
                    "Images in work, of which those that wait are a part.",
                    lambda: self.taken,
                ),
                "ready": (
                    "1 when it answers.",
                    lambda: int(self.state == READY),
                ),
            },
        )
        self._readers = concurrent.futures.ThreadPoolExecutor(
            min(READERS, os.cpu_count() or 1), thread_name_prefix="reader"
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Computes while the block runs; ready once the model is warmed up.

        What fails outside of a request is in `failure`; `on_change` is called
        then, and when it becomes ready.
        """
        tasks = [
            asyncio.create_task(self._noting_failure(work))
            for work in (self._warm_up, self.batcher.run)
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.batcher.close()
            self._readers.shutdown(wait=False, cancel_futures=True)

    async def _noting_failure(self, work):
        try:
            await work()
        except Exception as error:
            self.failure = error
            self.stop()
            self.on_change()

    async def _warm_up(self):
        await self.batcher.alone(self._first_calls)
        if self.state == WARMING_UP:
            self.state = READY
            self.on_change()

    def _first_calls(self):
        """Call each program once, which compiles it."""
        geometry = self.classifier.geometry
        grey = np.full((*geometry.image_size, geometry.channels), 128, "uint8")
        image = self.classifier.read(grey)
        self.batcher.warm_up(image)
        if self.unexplained is not None:
            return
        try:
            self._overview(image)
        except (
            Exception
        ) as error:  # Such as memory: it classifies all the same.
            self.unexplained = f"The attention cannot be computed: {error}"

    def stop(self) -> None:
        """Refuses what comes from now on; what was taken is answered."""
        self.state = STOPPING

    @contextlib.contextmanager
    def taking(self, images: int) -> Iterator[None]:
        """Holds places in the queue.

        Raises:
            Refusal: 503, when it is not ready or there are too few.
        """
        if self.state != READY:
            raise Refusal(
                503, f"The server is {self.state}. {WAIT}", retry=True
            )
        with self.taking_more(images):
            yield

    @contextlib.contextmanager
    def taking_more(self, images: int) -> Iterator[None]:
        """Hold further places for a request that holds some already."""
        if self.taken + images > self.limits.queue:
            raise Refusal(
                503,
                f"The server has {self.taken} of {self.limits.queue} images "
                f"to answer. {WAIT}",
                retry=True,
            )
        self.taken += images
        try:
            yield
        finally:
            self.taken -= images

    async def read(self, received: Sequence[Received]) -> list[np.ndarray]:
        """Decodes images (H, W, C), resized and cropped.

        Raises:
            Refusal: 400 or 413, with what is wrong with which.
        """
        loop = asyncio.get_running_loop()
        found = await asyncio.gather(
            *(
                loop.run_in_executor(self._readers, self._pixels, one.content)
                for one in received
            )
        )
        wrong = [
            (number, one.name, str(error))
            for number, (one, (_, error)) in enumerate(
                zip(received, found, strict=True)
            )
            if error
        ]
        if wrong:
            worst = max(error.status for _, error in found if error)
            raise refused_images(worst, wrong)
        return [pixels for pixels, _ in found if pixels is not None]

    def _pixels(self, content):
        """Return the pixels, or the refusal."""
        limit = self.limits.pixels
        try:
            return read_image(content, self.classifier, limit), None
        except Refusal as refusal:
            return None, refusal

    async def classify(
        self, images: Sequence[np.ndarray], top: int
    ) -> list[list[dict]]:
        """Return the most probable classes of each image that was read.

        Returns:
            For each image a list of {"class": name, "probability": float},
            most probable first; of a model that predicts numbers all of
            {"class": name, "number": float}.
        """
        rows = await asyncio.gather(*map(self.batcher.submit, images))
        names = self.classifier.class_names
        if self.classifier.problem == "regression":
            return [
                [
                    {"class": name, "number": float(value)}
                    for name, value in zip(names, row, strict=True)
                ]
                for row in rows
            ]
        best = most_probable(np.stack(rows), top)
        return [
            [{"class": names[i], "probability": float(row[i])} for i in chosen]
            for row, chosen in zip(rows, best, strict=True)
        ]

    async def explain(self, image: np.ndarray) -> dict:
        """Compute the attention in an image that was read.

        Returns:
            Dict of "grid", (R, C); "rollout", a map of R x C numbers, 1 the
            largest; and pictures as {"source": data URI, "small": bool}:
            "picture", what the model sees, "overlay", the attention rollout
            over it, and "layers", the attention of each layer over it.

        Raises:
            Refusal: 501 for a model without attention to show.
        """
        if self.unexplained is not None:
            raise Refusal(501, self.unexplained)
        overview = await self.batcher.alone(self._overview, image)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._readers, self._drawn, image, overview
        )

    def _overview(self, image):
        inputs = self.classifier.inputs(image[np.newaxis])
        return attention_overview(self.classifier.model, inputs)

    def _drawn(self, image, overview):
        layers = overview.grids[:, 0].mean(axis=1)  # (L, R, C)
        maps = np.concatenate([overview.rollout, layers])  # (1 + L, R, C)
        pictures = np.stack([image] * len(maps))
        drawn = overlays(self.classifier.model, pictures, maps)
        rollout, *of_layers = [_picture(x) for x in drawn]
        largest = max(overview.rollout.max(), np.finfo("float32").tiny)
        return {
            "grid": list(maps.shape[1:]),
            "rollout": (overview.rollout[0] / largest).round(6).tolist(),
            "picture": _picture(np.rint(image).astype("uint8")),
            "overlay": rollout,
            "layers": of_layers,
        }


def _picture(pixels):
    return photograph(pixels, side=max(pixels.shape[:2]))


def _unexplained(classifier) -> str | None:
    """Return why there is no attention to show; None where there is."""
    model = getattr(classifier, "model", None)
    if not isinstance(model, keras.Model):
        return (
            "An exported model shows no attention. Serve the weights that it "
            "was exported from."
        )
    try:
        check_attention(model)
    except ValueError as error:
        return str(error)
    return None
