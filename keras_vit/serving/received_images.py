"""Images in the body of a request, read within limits.

Nothing of an image is decoded before its header says how large it is, and only
formats are opened whose decoders are meant for files of strangers.

Axes: H and W height and width, C channels.
"""

import base64
import io
import json
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, NamedTuple

import numpy as np

from keras_vit.data.image_reader import from_pillow

__all__ = [
    "Received",
    "Refusal",
    "read_image",
    "received_images",
    "received_texts",
]

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
