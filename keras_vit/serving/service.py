"""From encoded images to classes and attention, within limits and counted.

Images of many requests are computed together, in one thread. Nothing of an
image is decoded before its header says how large it is, and only formats are
opened whose decoders are meant for files of strangers.

Axes: B images of a batch, H and W height and width, C channels, K classes, L
layers, R and C rows and columns of the grid of patches.
"""

import asyncio
import base64
import concurrent.futures
import contextlib
import dataclasses
import functools
import io
import json
import os
import queue
import threading
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_vit.analysis.attention_weights import attention_overview
from keras_vit.analysis.report.pictures import photograph
from keras_vit.data.image_reader import from_pillow
from keras_vit.explanation import check_attention, overlays
from keras_vit.io.checks import (
    check_at_least,
    check_at_most,
    check_positive,
    check_types,
    check_unread,
)
from keras_vit.prediction import most_probable
from keras_vit.prediction.embeddings_file import ImageSearch

__all__ = [
    "Batcher",
    "ModelError",
    "NoClasses",
    "Received",
    "Refusal",
    "ServedSearch",
    "Service",
    "ServingLimits",
    "batch_sizes",
    "read_image",
    "received_images",
    "received_texts",
]

# Upper bounds of the times of a request and of a batch, in seconds.
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
READERS = 4  # threads; each needs some 10 bytes per pixel of its image
NAMED = 25_000  # classes of an answer: all of ImageNet-21k's of one image
WARMING_UP, READY, STOPPING = "warming up", "ready", "stopping"
WAIT = "Try again in a second."
UNCLASSIFIED = "The model has no classes: give it --labels."
# Of the fields of `ServingLimits`. More pixels Pillow does not open.
LARGEST = {
    "batch": 4096,
    "wait_ms": 600_000,
    "queue": 1_000_000,
    "timeout": 86_400,
    "body_mb": 16_384,
    "bodies_mb": 1_048_576,
    "megapixels": 178,
}
WORDLESS = "The model reads no words. Search by an image, as image/*."
# Pillow's names. It has others, of which some start programs (EPS).
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
RAW = "application/octet-stream"
MAX_FIELDS = 16  # of a form, or of JSON, besides its images
TEXTS = 2**16  # bytes of words, of which a context holds a fraction
PIECE = 2**16  # bytes of a form that are parsed before others have a turn


class Refusal(Exception):
    """An answer other than 200.

    Args:
        status: int, of HTTP.
        message: what is wrong, and how to mend it.
        images: for each image that is wrong its number, its name and what is
            wrong with it.
        retry: bool, whether the same request may be answered a little later.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        images: tuple[dict, ...] = (),
        retry: bool = False,
    ):
        super().__init__(message)
        self.status, self.images, self.retry = status, images, retry

    def content(self) -> dict:
        """Return the body of the answer, for JSON."""
        error: dict[str, Any] = {"status": self.status, "message": str(self)}
        if self.images:
            error["images"] = list(self.images)
        return {"error": error}


class Received(NamedTuple):
    """An encoded image, and the name of its file where one is given."""

    content: bytes
    name: str | None


def received_images(headers: Any, body: bytes, most: int) -> list[Received]:
    """Return the images of a request, still encoded.

    They are counted before they are decoded.

    Args:
        headers: those of the request, a mapping with names in lower case.
        body: what follows them: an image alone (`image/*`), a form with
            files (`multipart/form-data`), or the JSON object {"images":
            [base64, ...]}.
        most: int, how many are taken.

    Raises:
        Refusal: 400 when there is none or the body is damaged, 413 for too
            many, 415 for another type.
    """
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise Refusal(
            415, f"Send the body as it is. Content-Encoding: {encoding!r}."
        )
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        found = _finished(_of_form(headers, body, most))
    elif kind == "application/json":
        found = _of_json(body, most)
    elif kind.startswith("image/") or kind == RAW:
        found = [Received(body, None)] if body else []
    else:
        raise Refusal(
            415,
            "Content-Type must be image/*, application/octet-stream, "
            f"multipart/form-data or application/json. Received: {kind!r}.",
        )
    if not found:
        raise Refusal(400, "There is no image in the request.")
    return found


def _check_count(count, most):
    if count > most:
        raise Refusal(
            413,
            f"A request has {most} images at most. Received: {count}. "
            "Send them in several requests.",
        )


async def _of_form(headers, body, most):
    from starlette.formparsers import MultiPartException, MultiPartParser

    parser = MultiPartParser(
        headers, _pieces(body), max_files=most + 1, max_fields=MAX_FIELDS
    )
    # Nothing is written to disk: the body is in memory, and it is limited.
    parser.spool_max_size = len(body) + 1
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise Refusal(400, f"The form is damaged: {error.message}") from error
    try:
        files = [x for _, x in form.multi_items() if not isinstance(x, str)]
        _check_count(len(files), most)
        return [Received(await x.read(), x.filename) for x in files]
    finally:
        await form.close()


async def _pieces(body) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(body), PIECE):
        yield body[start : start + PIECE]


def _finished(work: Coroutine) -> Any:
    """Run a coroutine that waits for nothing, without an event loop."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("It waits.")


def _of_json(body, most):
    # Neither base64 nor an object {"images": [...]} has other commas.
    commas = body.count(b",")
    if commas > most + MAX_FIELDS:
        _check_count(commas + 1, most)
    try:
        content = json.loads(body)
        encoded = content["images"]
        if isinstance(encoded, str) or not all(
            isinstance(x, str) for x in encoded
        ):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Refusal(
            400,
            'JSON must be an object {"images": [base64, ...]} of strings.',
        ) from error
    _check_count(len(encoded), most)
    wrong, found = [], []
    for number, text in enumerate(encoded):
        try:
            found.append(Received(base64.b64decode(text, validate=True), None))
        except ValueError as error:
            wrong.append((number, None, f"is not base64: {error}"))
    if wrong:
        raise refused_images(400, wrong)
    return found


def received_texts(body: bytes, most: int) -> list[str]:
    """Return the texts of a request.

    Args:
        body: the JSON object {"texts": [text, ...]}.
        most: int, how many are taken.

    Raises:
        Refusal: 400 when there is none or the body is damaged, 413 for too
            many, and a body of more than `TEXTS` bytes.
    """
    if len(body) > TEXTS:
        raise Refusal(
            413,
            f"Words have {TEXTS} bytes at most. Received: {len(body)}. Send an "
            "image as image/*.",
        )
    try:
        texts = json.loads(body)["texts"]
        if not isinstance(texts, list):
            raise TypeError
        for text in texts:
            str.encode(text)  # Half a surrogate is no letter.
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Refusal(
            400, 'JSON must be an object {"texts": [text, ...]} of texts.'
        ) from error
    if not texts or len(texts) > most or not all(x.strip() for x in texts):
        raise Refusal(
            413 if len(texts) > most else 400,
            f"A request has 1 to {most} texts, none of them empty. Received: "
            f"{len(texts)}.",
        )
    return texts


def refused_images(status: int, wrong: list[tuple]) -> Refusal:
    """Return the refusal of a request for some of its images."""
    images = tuple(
        {"image": number, "name": name, "message": message}
        for number, name, message in wrong
    )
    details = "; ".join(
        f"image {number}{'' if name is None else f' ({name})'} {message}"
        for number, name, message in wrong
    )
    return Refusal(status, f"Nothing was classified: {details}", images=images)


def read_image(content: bytes, classifier: Any, max_pixels: int) -> np.ndarray:
    """Decodes an image, and resizes and crops it for a classifier.

    Args:
        content: an encoded image.
        classifier: a `keras_vit.prediction.Classifier`, or what reads as one.
        max_pixels: int, pixels of the image as it is stored.

    Returns:
        Array (H, W, C) in [0, 255].

    Raises:
        Refusal: 400 when it cannot be decoded, 413 when it is too large.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            _check_size(*image.size, max_pixels)
            pixels = from_pillow(image, classifier.geometry.channels)
    except Refusal:
        raise
    except Image.DecompressionBombError as error:
        message = f"has far more than the {max_pixels} pixels that are allowed."
        raise Refusal(413, message) from error
    except Image.UnidentifiedImageError as error:
        names = ", ".join(FORMATS)
        raise Refusal(
            400, f"is no image that is read here: {names}."
        ) from error
    except Exception as error:  # Decoders raise anything for broken files.
        raise Refusal(400, f"cannot be decoded: {error}") from error
    return classifier.read(pixels)


def _check_size(width, height, max_pixels):
    if width * height > max_pixels:
        raise Refusal(
            413,
            f"has {width}x{height} pixels. {max_pixels} are allowed; scale it "
            "down.",
        )


@dataclasses.dataclass(frozen=True)
class ServingLimits:
    """What a server takes, and for how long.

    Args:
        batch: int, images per step of the model.
        wait_ms: float, how long an image waits for others, in milliseconds;
            those that come while a batch is computed are the next one.
        queue: int, images in work at a time; more are refused with 503.
        timeout: float, seconds after which a request is answered with 504.
        body_mb: float, MiB of a request; 413 above.
        bodies_mb: float, MiB of all requests in work; 503 above.
        megapixels: float, of an image as it is stored; 413 above.

    Raises:
        ValueError: for values out of range.

    Example:
        >>> ServingLimits(batch=32, wait_ms=10)
    """

    batch: int = 8
    wait_ms: float = 0.0
    queue: int = 256
    timeout: float = 30.0
    body_mb: float = 16.0
    bodies_mb: float = 256.0
    megapixels: float = 50.0

    def __post_init__(self):
        check_at_least(self, 1, "batch", "queue")
        check_at_least(self, 0, "wait_ms")
        check_positive(self, "timeout", "body_mb", "bodies_mb", "megapixels")
        for name, largest in LARGEST.items():
            check_at_most(self, largest, name)
        check_types(self)
        if self.batch == 1:
            check_unread(self, "batch=1", "wait_ms")
        if self.queue < self.batch:
            raise ValueError(
                "queue must be at least batch, or no batch is ever full. "
                f"Received: queue={self.queue}, batch={self.batch}."
            )
        if self.bodies_mb < self.body_mb:
            raise ValueError(
                "bodies_mb must be at least body_mb, or the largest request "
                f"is never taken. Received: bodies_mb={self.bodies_mb}, "
                f"body_mb={self.body_mb}."
            )

    @property
    def body(self) -> int:
        """Bytes of a request."""
        return int(self.body_mb * 2**20)

    @property
    def bodies(self) -> int:
        """Bytes of all requests."""
        return int(self.bodies_mb * 2**20)

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
        search: an `ImageSearch` of the same model, or None.

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
        search: ImageSearch | None = None,
    ):
        self.classifier, self.name = classifier, name
        self.limits = limits or ServingLimits()
        if getattr(classifier, "resizes", False):  # Each has its own size.
            self.limits = dataclasses.replace(self.limits, batch=1)
        self.search = search and ServedSearch(search, self.limits.batch)
        self.state = WARMING_UP
        self.taken = self.unanswered = 0
        self.body_bytes = 0  # of all requests in work
        self.failure: BaseException | None = None
        self.on_change: Callable[[], None] = lambda: None
        self.unexplained = _unexplained(classifier)
        self.batcher = Batcher(
            self._probabilities,
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
                "body_bytes": (
                    "Bytes of the requests in work.",
                    lambda: self.body_bytes,
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
        # One body is taken apart at a time: parsers keep other threads waiting.
        self._parser = concurrent.futures.ThreadPoolExecutor(
            1, thread_name_prefix="parser"
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
            for threads in (self._readers, self._parser):
                threads.shutdown(wait=False, cancel_futures=True)

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
        if self.search is not None:
            self.search.warm_up()
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

    def check_ready(self) -> None:
        """Raises a Refusal of 503 unless a request can be taken."""
        if self.state != READY:
            raise Refusal(
                503, f"The server is {self.state}. {WAIT}", retry=True
            )
        self._check_places(1)

    def _check_places(self, images):
        if self.taken + images > self.limits.queue:
            raise Refusal(
                503,
                f"The server has {self.taken} of {self.limits.queue} images "
                f"to answer. {WAIT}",
                retry=True,
            )

    @contextlib.contextmanager
    def taking(self, images: int) -> Iterator[None]:
        """Holds places in the queue.

        Raises:
            Refusal: 503, when there are too few.
        """
        self._check_places(images)
        self.taken += images
        try:
            yield
        finally:
            self.taken -= images

    @contextlib.contextmanager
    def holding(self) -> Iterator["Body"]:
        """Holds the bytes of a request, as they arrive."""
        body = Body(self)
        try:
            yield body
        finally:
            body.clear()

    async def received(
        self, headers: Mapping[str, str], body: "Body", most: int
    ) -> list[Received]:
        """Take a body apart; see `received_images`."""
        return await self._parsed(received_images, headers, body.whole(), most)

    async def texts(self, body: "Body", most: int) -> list[str]:
        """Take a body of words apart; see `received_texts`."""
        return await self._parsed(received_texts, body.whole(), most)

    async def _parsed(self, parse, *arguments):
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._parser, parse, *arguments)

    async def read(
        self, received: Sequence[Received], reader: Any = None
    ) -> list[np.ndarray]:
        """Decodes images (H, W, C), resized and cropped.

        Args:
            received: encoded images.
            reader: what resizes them, by default the classifier.

        Raises:
            Refusal: 400 or 413, with what is wrong with which.
        """
        loop = asyncio.get_running_loop()
        found = await asyncio.gather(
            *(
                loop.run_in_executor(
                    self._readers,
                    self._pixels,
                    one.content,
                    reader or self.classifier,
                )
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

    def _pixels(self, content, reader):
        """Return the pixels, or the refusal."""
        limit = self.limits.pixels
        try:
            return read_image(content, reader, limit), None
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
        found = []
        for row in rows:
            found.append(self._named(row, top))
            await asyncio.sleep(0)  # Others have their turn between images.
        return found

    def _named(self, row, top):
        names = self.classifier.class_names
        if self.classifier.problem == "regression":
            return [
                {"class": name, "number": float(value)}
                for name, value in zip(names, row, strict=True)
            ]
        (chosen,) = most_probable(row[np.newaxis], top)
        return [
            {"class": names[i], "probability": float(row[i])} for i in chosen
        ]

    def _probabilities(self, images):
        """Compute a batch, and check what the model returns."""
        found = np.asarray(self.classifier.probabilities(images))
        expected = (len(images), len(self.classifier.class_names))
        if found.shape != expected:
            raise ValueError(
                f"The model returned the shape {found.shape} in the place of "
                f"{expected}, images and classes."
            )
        if not np.isfinite(found).all():
            raise ValueError(
                "The model returns NaN or infinity. Check its weights."
            )
        return found

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


class Body:
    """The bytes of a request, within the bounds of it and of all requests.

    Those of a request that is refused are counted and not kept.
    """

    def __init__(self, service: Service):
        self._service, self._chunks = service, []
        self._size = self._held = 0
        self.refusal: Refusal | None = None

    def add(self, chunk: bytes) -> None:
        """Keep a further part, unless there is a `refusal`."""
        self._size += len(chunk)
        self.check(self._size)
        if self.refusal is None:
            self._chunks.append(chunk)
            self._held += len(chunk)
            self._service.body_bytes += len(chunk)

    def check(self, size: int) -> None:
        """Refuse a request of so many bytes, where they are too many."""
        limits, held = self._service.limits, self._service.body_bytes
        if size > limits.body:
            self._refuse(
                413,
                f"A request has {limits.body_mb:g} MiB at most. Send fewer or "
                "smaller images.",
            )
        elif held + size - self._held > limits.bodies:
            self._refuse(
                503,
                f"The requests in work have {limits.bodies_mb:g} MiB at most. "
                f"{WAIT}",
                retry=True,
            )

    def _refuse(self, *arguments, **options):
        self.refusal = self.refusal or Refusal(*arguments, **options)
        self.clear()

    def whole(self) -> bytes:
        """Return all of it, once; it stays counted until `clear`."""
        whole = b"".join(self._chunks)
        self._chunks.clear()
        return whole

    def clear(self) -> None:
        """Let go of what is kept."""
        self._chunks.clear()
        self._service.body_bytes -= self._held
        self._held = 0


def _picture(pixels):
    return photograph(pixels, side=max(pixels.shape[:2]))


def _unexplained(classifier) -> str | None:
    """Return why there is no attention to show; None where there is."""
    model = getattr(classifier, "model", None)
    if isinstance(classifier, NoClasses):
        return UNCLASSIFIED
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


class NoClasses:
    """A classifier without classes, of a model that searches alone.

    Args:
        encoder: the `Encoder`, whose model and geometry these are.
    """

    class_names, problem = (), "classification"

    def __init__(self, encoder: Any):
        self.geometry, self.read = encoder.geometry, encoder.read

    def probabilities(self, images):
        """Return no number for each image."""
        return np.zeros((len(images), 0), "float32")


# --- Batches ---

LAST_BATCH = 10  # seconds in which a batch ends after the server did


class ModelError(RuntimeError):
    """The model failed; its cause is what it raised."""


class Waiting(NamedTuple):
    """An image that waits, since when, and where its answer goes."""

    image: np.ndarray
    since: float  # seconds of the event loop
    answer: asyncio.Future


def batch_sizes(largest: int) -> tuple[int, ...]:
    """Return the sizes that batches are padded to: powers of 2, `largest`.

    Each size is another program to compile, so there are few of them.

    Example:
        >>> batch_sizes(12)
        (1, 2, 4, 8, 12)
    """
    powers = (2**i for i in range(largest.bit_length()))
    return (*(x for x in powers if x < largest), largest)


class Batcher:
    """Collects images up to a batch or a time, and computes them in one thread.

    Keras's models are not made for several threads; all that uses the model
    runs in the one of `alone`.

    Args:
        compute: from an array (B, ...) to the answers, an array (B, K).
        largest: int, B at most.
        wait: float, seconds that the first image waits for others.
        observe: called with the images, before filling up, and the seconds of
            each batch.

    Example:
        >>> batcher = Batcher(classifier.probabilities, 8, 0.005)
        >>> collecting = asyncio.create_task(batcher.run())
        >>> row = await batcher.submit(image)  # (K,)
    """

    def __init__(
        self,
        compute: Callable[[np.ndarray], np.ndarray],
        largest: int,
        wait: float,
        observe: Callable[[int, float], None] = lambda images, seconds: None,
    ):
        self.sizes = batch_sizes(largest)
        self._compute, self._wait, self._observe = compute, wait, observe
        self._queue: asyncio.Queue[Waiting] = asyncio.Queue()
        self._gathered = 0  # of the next batch, out of the queue
        self._thread = _ThreadOfTheModel()

    @property
    def waiting(self) -> int:
        """How many images wait for a batch."""
        return self._queue.qsize() + self._gathered

    async def submit(self, image: np.ndarray) -> np.ndarray:
        """Return the row (K,) of an image; a cancelled call leaves the queue.

        Raises:
            ModelError: when `compute` fails for this image.
        """
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._queue.put_nowait(Waiting(image, loop.time(), answer))
        return await answer

    async def alone(self, function: Callable, *arguments: Any) -> Any:
        """Call a function between two batches and return its result.

        Raises:
            ModelError: when the function fails.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._thread, _computed, function, *arguments
        )

    async def run(self) -> None:
        """Answers, until it is cancelled."""
        while True:
            batch = await self._collected()
            if batch:
                await self._answer(batch)

    def close(self) -> None:
        """Drops what waits for the thread, and ends it after its batch."""
        self._thread.shutdown(cancel_futures=True)

    def warm_up(self, image: np.ndarray) -> None:
        """Computes a batch of each size, which compiles its program."""
        for size in self.sizes:
            self._compute(np.stack([image] * size))

    async def _collected(self) -> list[Waiting]:
        batch: list[Waiting] = []
        until = None
        while len(batch) < self.sizes[-1]:
            try:
                async with asyncio.timeout_at(until):
                    item = await self._queue.get()
            except TimeoutError:
                break
            if not item.answer.done():
                batch.append(item)
                until = batch[0].since + self._wait
            self._gathered = len(batch)
        self._gathered = 0
        return [item for item in batch if not item.answer.done()]

    async def _answer(self, batch):
        start = time.perf_counter()
        images = [item.image for item in batch]
        rows = await self.alone(self._rows, images)
        self._observe(len(batch), time.perf_counter() - start)
        for item, row in zip(batch, rows, strict=True):
            if item.answer.done():
                continue
            if isinstance(row, ModelError):
                item.answer.set_exception(row)
            else:
                item.answer.set_result(row)

    def _rows(self, images: Sequence[np.ndarray]) -> list:
        """Compute an answer or an error for each image."""
        size = next(size for size in self.sizes if size >= len(images))
        filled = [*images, *[images[0]] * (size - len(images))]
        try:
            rows = _computed(lambda: self._compute(np.stack(filled)))
            return list(rows[: len(images)])
        except ModelError as error:
            if len(images) == 1:
                return [error]
        # One image is the cause: the others get their answers.
        return [row for image in images for row in self._rows([image])]


class _ThreadOfTheModel(concurrent.futures.Executor):
    """A thread that the end of the program does not wait for.

    Python joins those of a ThreadPoolExecutor, though a model may hang.
    """

    def __init__(self):
        self._tasks: queue.SimpleQueue = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._work, name="model", daemon=True
        )
        self._thread.start()

    def submit(self, fn, /, *args, **kwargs):
        future = concurrent.futures.Future()
        self._tasks.put((future, functools.partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait=True, *, cancel_futures=False):
        while cancel_futures and not self._tasks.empty():
            self._tasks.get()[0].cancel()
        self._tasks.put(None)
        if wait:  # A runtime that computes as its program ends may crash.
            self._thread.join(LAST_BATCH)

    def _work(self):
        while (task := self._tasks.get()) is not None:
            future, function = task
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)


def _computed(function, *arguments):
    """Call a function, whatever it raises: a model may end its thread."""
    try:
        return function(*arguments)
    except BaseException as error:
        raise ModelError(f"{type(error).__name__}: {error}") from error


class ServedSearch:
    """A search for many requests at a time.

    Args:
        search: an `ImageSearch`.
        batch: int, queries of a request at most.
    """

    def __init__(self, search: ImageSearch, batch: int):
        self.search, self.batch = search, batch
        self.sizes = batch_sizes(batch)
        self.names = _without_folder(search.embeddings.files)
        self.has_words = True

    @property
    def read(self) -> Any:
        """How an image is read; see `Encoder.read`."""
        return self.search.encoder.read

    @property
    def geometry(self) -> Any:
        """How images are resized; see `Encoder`."""
        return self.search.encoder.geometry

    def warm_up(self) -> None:
        """Call each program once, and look at all embeddings.

        Raises:
            ValueError: for embeddings that are not finite.
        """
        geometry = self.geometry
        grey = np.full((*geometry.image_size, geometry.channels), 128, "uint8")
        image = self.read(grey)
        try:
            self.search.load_texts()
        except ValueError:
            self.has_words = False
        for size in self.sizes:
            found = self._images([image] * size)
            if self.has_words:
                self._words(["a"] * size)
        self.search.nearest(found, 1)

    async def of_words(
        self, texts: Sequence[str], top: int, batcher: Batcher
    ) -> list[list[dict]]:
        """Return the images nearest to each text, see `of_images`.

        Raises:
            Refusal: 501 for a model without texts, 400 for a text that it does
                not read.
        """
        if not self.has_words:
            raise Refusal(501, WORDLESS)
        texts = list(texts)
        if message := await batcher.alone(self._unread, texts):
            raise Refusal(400, message)
        return await self._hits(
            await batcher.alone(self._words, texts), top, batcher
        )

    async def of_images(
        self, images: Sequence[np.ndarray], top: int, batcher: Batcher
    ) -> list[list[dict]]:
        """Return the images nearest to each image that was read.

        Returns:
            For each a list of {"name": str, "cosine": float}, the most similar
            first.
        """
        found = await batcher.alone(self._images, images)
        return await self._hits(found, top, batcher)

    async def _hits(self, vectors, top, batcher):
        numbers, cosines = await batcher.alone(
            self.search.nearest, vectors, top
        )
        found = []
        for row, values in zip(numbers, cosines, strict=True):
            found.append(
                [
                    {"name": self.names[i], "cosine": round(float(x), 6)}
                    for i, x in zip(row, values, strict=True)
                ]
            )
            await asyncio.sleep(0)  # Others have their turn between queries.
        return found

    def _unread(self, texts) -> str | None:
        """Return why a text is not read, None where all are."""
        try:
            self.search.load_texts().ids(texts)
        except ValueError as error:
            return str(error)
        return None

    def _words(self, texts):
        """Compute vectors; each size of a batch is another program."""
        return self.search.words(_filled(texts, self.sizes))[: len(texts)]

    def _images(self, images):
        encoder = self.search.encoder
        if encoder.resizes:  # Each has its own size.
            found = [encoder.vectors(x[np.newaxis]) for x in images]
            return np.concatenate(found)
        filled = np.stack(_filled(images, self.sizes))
        return encoder.vectors(filled)[: len(images)]


def _filled(rows, sizes):
    size = next(x for x in sizes if x >= len(rows))
    return [*rows, *[rows[-1]] * (size - len(rows))]


def _without_folder(files) -> tuple[str, ...]:
    """Return names from the folder of all on: where it lies is private."""
    folders = {os.path.dirname(x) for x in files}
    try:
        common = os.path.commonpath(folders)
    except ValueError:  # Of several drives, or from here and from the root.
        return tuple(os.path.basename(x) for x in files)
    return tuple(os.path.relpath(x, common) if common else x for x in files)
