"""The application in this process, with a classifier of NumPy alone."""

import asyncio
import json
import threading

import numpy as np
import served

from keras_vit.data import PreprocessingConfig
from keras_vit.data.resizing import Geometry, evaluation_crop
from keras_vit.serving import Service, ServingLimits, web_application

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
        assert isinstance(broken, ValueError)  # The server's log has it.
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
        assert isinstance(stopped[0], ZeroDivisionError)
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
