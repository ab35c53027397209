"""A server process with a tiny model, and a client for it."""

import base64
import contextlib
import http.client
import io
import json
import os
import pathlib
import secrets
import subprocess
import sys
import urllib.parse

import numpy as np
import yaml
from PIL import Image

from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.trained_as import TrainedAs
from keras_vit.training.run.files import save_model

ROOT = pathlib.Path(__file__).parents[2]
NAMES = ("cat", "dog", "owl", "<b>yak</b>")
# What it writes to standard error as it is imported.
TENSORFLOW_TELLS = (
    "WARNING: All log messages before absl",
    "I0000 ",
    "To enable the following instructions",
)
SECONDS = 240  # A loaded machine imports and compiles slowly.


def save_run(folder, names=NAMES) -> pathlib.Path:
    """A run folder whose classes tell random images apart."""
    folder.mkdir()
    model = VisionTransformer(
        ViTConfig(
            image_size=(8, 8),
            patch_size=(4, 4),
            hidden_dim=8,
            num_layers=2,
            mlp_dim=16,
            num_heads=2,
            num_classes=len(names),
            include_preprocessing=True,
        )
    )
    head = model.get_layer("predictions")
    generator = np.random.default_rng(1)
    head.set_weights([generator.normal(size=x.shape) for x in head.weights])
    images = {"evaluation": "squash", "rounding": "float32"}
    model.trained_as = TrainedAs(preprocessing=images)
    save_model(model, names, folder / "model.keras")
    config = {"preprocessing": images, "training": {"loss": "softmax"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


def picture(seed, shape=(12, 10, 3)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, "uint8")


def encoded(pixels, kind="PNG", **options) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


class Server:
    """`keras-vit serve`, or a program that serves, once it is ready."""

    def __init__(self, model, *options, program=None):
        arguments = ("serve", str(model), "--port", "0", *map(str, options))
        command = ("-m", "keras_vit.cli", *arguments)
        if program is not None:
            command = ("-c", program, str(model))
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [sys.executable, *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        self.told = self.process.stdout.readline()
        assert " at http://" in self.told, self.process.communicate()
        self.url = self.told.split(" at ")[1].strip()
        self.port = urllib.parse.urlsplit(self.url).port

    def end(self, number) -> tuple[int, str]:
        """Exit code and standard error, but TensorFlow's, after a signal."""
        self.process.send_signal(number)
        _, error = self.process.communicate(timeout=SECONDS)
        own = (
            line
            for line in error.splitlines(keepends=True)
            if not line.startswith(TENSORFLOW_TELLS)
        )
        return self.process.returncode, "".join(own)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=SECONDS
        )

    def ask(self, method, path, body=None, headers=None):
        """Status, headers and content, of JSON what it says."""
        with contextlib.closing(self.connect()) as connection:
            return asked(connection, method, path, body, headers)

    def post(self, body, kind="image/png", path="/predict"):
        return self.ask("POST", path, body, {"Content-Type": kind})

    def values(self) -> dict[str, float]:
        """Samples of the metrics by name and labels."""
        lines = self.ask("GET", "/metrics")[2].splitlines()
        samples = (x.rpartition(" ") for x in lines if not x.startswith("#"))
        return {name: float(value) for name, _, value in samples}


def asked(connection, method, path, body=None, headers=None):
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    content = answer.read()
    kind = answer.headers.get_content_type()
    if kind == "application/json":
        return answer.status, answer.headers, json.loads(content)
    return answer.status, answer.headers, content.decode()


def form(files, fields=()) -> tuple[bytes, str]:
    """A multipart body of (name of file, content), and its content type."""
    boundary = secrets.token_hex(16)
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="images"; '
        f'filename="{name}"\r\nContent-Type: image/png\r\n\r\n'.encode()
        + content
        + b"\r\n"
        for name, content in files
    ]
    parts += [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"'
        f"\r\n\r\n{value}\r\n".encode()
        for name, value in fields
    ]
    body = b"".join(parts) + f"--{boundary}--\r\n".encode()
    return body, f"multipart/form-data; boundary={boundary}"


def as_json(contents) -> bytes:
    images = [base64.b64encode(content).decode() for content in contents]
    return json.dumps({"images": images}).encode()


def shares(classes) -> dict[str, float]:
    """Probability by name of class, of an answer or of `predict`."""
    pairs = (
        (x["class"], x["probability"]) if isinstance(x, dict) else x
        for x in classes
    )
    return dict(pairs)
