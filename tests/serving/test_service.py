"""The application in this process, with a classifier of NumPy alone."""

import asyncio
import importlib
import json
import signal
import threading

import numpy as np
import pytest
import served

from keras_vit.data import PreprocessingConfig
from keras_vit.data.resizing import Geometry, evaluation_crop
from keras_vit.serving import Service, ServingLimits, web_application
from keras_vit.serving.service import ModelError

web = importlib.import_module("keras_vit.serving.server")
GEOMETRY = Geometry((4, 4), 3, PreprocessingConfig(evaluation="squash"))
BLACK = served.encoded(np.zeros((4, 4, 3), "uint8"))
WHITE = served.encoded(np.full((4, 4, 3), 255, "uint8"))
BROKEN = served.encoded(np.full((4, 4, 3), 7, "uint8"))


class Brightness:
    """What an exported model is: no Keras model behind it."""

    class_names, geometry = ("dark", "bright"), GEOMETRY
    problem = "classification"

    def __init__(self):
        self.ready = threading.Event()
        self.ready.set()

    def read(self, image):
        return evaluation_crop(image, self.geometry)

    def probabilities(self, images):
        self.ready.wait(60)
        if (images == 7).any():
            raise ValueError("The model returns NaN. Check its weights.")
        bright = images.mean(axis=(1, 2, 3)) / 255
        return np.stack([1 - bright, bright], axis=1).astype("float32")


class Dividing(Brightness):
    """A model that always fails."""

    def probabilities(self, images):
        raise ZeroDivisionError


class Odd(Brightness):
    """A model that returns for black images what it should not, or raises."""

    def __init__(self, found):
        super().__init__()
        self.found = found

    def probabilities(self, images):
        found = super().probabilities(images)
        if not (images == 0).all(axis=(1, 2, 3)).any():
            return found
        if isinstance(self.found, BaseException):
            raise self.found
        return self.found(found)


ODD = {
    "nothing": lambda found: None,
    "too few images": lambda found: found[:0],
    "too many classes": lambda found: np.concatenate([found] * 2, axis=1),
    "one number": lambda found: 0.5,
    "texts": lambda found: found.astype(str),
    "NaN": lambda found: found * np.nan,
    "infinity": lambda found: found + np.inf,
    "no memory": MemoryError(),
    "an end of iteration": StopIteration(),
    "an exit": SystemExit(3),
    "an interrupt": KeyboardInterrupt(),
    "no text": RecursionError(),
}


@pytest.mark.parametrize("kind", ODD)
def test_a_model_that_fails_leaves_the_server_and_the_others_alone(kind):
    async def work(service, ask):
        await until(lambda: service.state == "ready")
        for _ in range(3):
            black, white = await asyncio.gather(
                ask("POST", "/predict", BLACK),
                ask("POST", "/predict", WHITE),
                return_exceptions=True,
            )
            assert isinstance(black, ModelError)
            assert classes(white) == {"dark": 0, "bright": 1}
        assert (await ask("GET", "/health"))[0] == 200
        assert service.taken == service.body_bytes == 0

    run(work, Odd(ODD[kind]), batch=4, wait_ms=50)


def test_an_answer_has_a_bounded_number_of_classes(monkeypatch):
    monkeypatch.setattr(web, "NAMED", 3)
    images = served.as_json([BLACK, WHITE])

    async def work(service, ask):
        await until(lambda: service.state == "ready")
        status, _, content = await ask(
            "POST", "/predict", images, "application/json"
        )
        assert status == 413
        message = content["error"]["message"]
        assert message.startswith("An answer has 3 classes at most")
        assert (await ask("POST", "/predict", WHITE))[0] == 200

    run(work)


def run(work, classifier=None, **limits):
    """Runs `work(service, ask)` while a service runs."""
    service = Service(
        classifier or Brightness(), "brightness", ServingLimits(**limits)
    )
    application = web_application(service)

    async def ask(method, path, body=b"", kind="image/png", gone=False):
        """Status, headers and content of the answer."""
        sent = []
        messages = [{"type": "http.request", "body": body, "more_body": gone}]
        if gone:
            messages.append({"type": "http.disconnect"})

        async def receive():
            return messages.pop(0)

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [(b"content-type", kind.encode())],
        }
        await application(scope, receive, send)
        headers = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
        content = b"".join(x.get("body", b"") for x in sent[1:])
        return sent[0]["status"], headers, json.loads(content)

    async def main():
        async with service.running():
            return await work(service, ask)

    return asyncio.run(main())


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def classes(answer):
    assert answer[0] == 200, answer
    (found,) = answer[2]["predictions"]
    return served.shares(found["classes"])


def test_it_is_ready_once_the_model_is_warm():
    classifier, changes = Brightness(), []
    classifier.ready.clear()

    async def work(service, ask):
        service.on_change = lambda: changes.append(service.state)
        status, headers, content = await ask("GET", "/health")
        assert (status, content) == (503, {"status": "warming up"})
        assert headers["retry-after"] == "1"
        status, headers, content = await ask("POST", "/predict", WHITE)
        assert (status, headers["retry-after"]) == (503, "1")
        assert "warming up" in content["error"]["message"]
        classifier.ready.set()
        await until(lambda: changes == ["ready"])
        assert (await ask("GET", "/health"))[::2] == (200, {"status": "ready"})
        answer = classes(await ask("POST", "/predict", WHITE))
        assert answer == {"dark": 0, "bright": 1}
        service.stop()
        status, _, content = await ask("GET", "/health")
        assert (status, content) == (503, {"status": "stopping"})
        assert (await ask("POST", "/predict", WHITE))[0] == 503

    run(work, classifier)


def test_without_a_model_nothing_is_explained_and_it_says_why():
    async def work(service, ask):
        await until(lambda: service.state == "ready")
        assert (await ask("GET", "/model"))[2]["explains"] is False
        status, _, content = await ask("POST", "/explain", WHITE)
        assert status == 501
        message = content["error"]["message"]
        assert message.startswith("An exported model shows no attention.")

    run(work)


def test_a_model_whose_attention_fails_classifies_all_the_same():
    service = Service(Brightness(), "brightness")
    service.unexplained = None  # As of a Vision Transformer.

    async def work():
        async with service.running():
            await until(lambda: service.state != "warming up")

    asyncio.run(work())
    assert service.state == "ready"
    assert service.failure is None
    reason = service.unexplained
    assert reason and reason.startswith("The attention cannot be computed: ")


def test_an_image_that_the_model_fails_on_leaves_the_others_alone():
    async def work(service, ask):
        await until(lambda: service.state == "ready")
        asked = (
            ask("POST", "/predict", content)
            for content in (BLACK, BROKEN, WHITE)
        )
        black, broken, white = await asyncio.gather(
            *asked, return_exceptions=True
        )
        assert isinstance(broken, ModelError)  # The server's log has it.
        assert isinstance(broken.__cause__, ValueError)
        assert classes(black) == {"dark": 1, "bright": 0}
        assert classes(white) == {"dark": 0, "bright": 1}
        assert (
            service.metrics.registry.get_sample_value(
                "keras_vit_requests_total",
                {"path": "/predict", "status": "500"},
            )
            == 1
        )
        assert service.taken == 0

    run(work, batch=4, wait_ms=200)


def test_a_model_that_fails_from_the_first_stops_the_server():
    classifier, stopped = Dividing(), []

    async def work(service, ask):
        service.on_change = lambda: stopped.append(service.failure)
        await until(lambda: stopped)
        assert isinstance(stopped[0].__cause__, ZeroDivisionError)
        assert (await ask("GET", "/health"))[0] == 503

    run(work, classifier)


def test_a_client_that_leaves_holds_no_place():
    async def work(service, ask):
        await until(lambda: service.state == "ready")
        await ask("POST", "/predict", WHITE[:20], gone=True)
        assert service.taken == 0

    run(work)


def test_a_late_answer_gives_its_place_back_at_once():
    classifier = Brightness()

    async def work(service, ask):
        await until(lambda: service.state == "ready")
        classifier.ready.clear()
        status, *_ = await ask("POST", "/predict", WHITE)
        assert (status, service.taken) == (504, 0)
        classifier.ready.set()
        answer = classes(await ask("POST", "/predict", BLACK))
        assert answer == {"dark": 1, "bright": 0}

    run(work, classifier, timeout=0.5)


def test_a_name_of_the_path_does_not_grow_the_metrics():
    async def work(service, ask):
        for i in range(9):
            assert (await ask("GET", f"/{i}"))[0] == 404
        (family,) = service.metrics.requests.collect()
        counted = [x for x in family.samples if x.name.endswith("_total")]
        assert [(x.labels, x.value) for x in counted] == [
            ({"path": "other", "status": "404"}, 9)
        ]

    run(work)


RAISING = """
import sys
import numpy as np
from keras_vit.prediction import load_classifier
from keras_vit.serving import serve

classifier = load_classifier(sys.argv[1])
compute = classifier.model.predict_on_batch

def predict_on_batch(inputs):
    found = np.array(compute(inputs))
    for number in np.asarray(inputs)[:, 0, 0, 0].round():
        if number == 1:
            compute(inputs[:, :3])  # Of another size than it was built for.
        if number == 2:
            found[:] = np.nan
        if number == 3:
            found = found[:, :1]
    return found

classifier.model.predict_on_batch = predict_on_batch
compute(np.zeros((1, 8, 8, 3), "float32"))
sys.exit(serve(classifier, port=0))
"""


def test_a_model_that_raises_answers_500_and_the_server_goes_on(run_folder):
    def plain(number):
        return served.encoded(served.picture(0) * 0 + number)

    server = served.Server(run_folder, program=RAISING)
    try:
        other = served.encoded(served.picture(0))
        before = server.post(other)[2]
        for number in (1, 2, 3):
            status, _, content = server.post(plain(number))
            assert status == 500
            assert "The server failed; its log says why." in str(content)
            assert server.ask("GET", "/health")[0] == 200
            assert server.post(other)[2] == before
        assert server.values()["keras_vit_taken_images"] == 0
        code, error = server.end(signal.SIGTERM)
    finally:
        server.process.kill()
        server.process.communicate()
    assert code == 0
    assert error.count("Exception in ASGI application") == 3
    assert "The model returns NaN" in error
    assert "The model returned the shape" in error
