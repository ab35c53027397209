"""How a server begins, is overloaded, and ends."""

import concurrent.futures
import http.client
import importlib.util
import signal
import socket
import subprocess
import sys
import time

import pytest
import served

import keras_vit
from keras_vit.cli import main
from keras_vit.prediction import networks

FILES = [served.encoded(served.picture(seed)) for seed in range(12)]


@pytest.fixture
def start(run_folder):
    """Starts servers that end with the test."""
    started = []

    def start(*options):
        started.append(served.Server(run_folder, *options))
        return started[-1]

    yield start
    for server in started:
        server.process.kill()
        server.process.communicate()


def wait_for(reached):
    end = time.monotonic() + served.SECONDS
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_was_accepted_is_answered_after_a_signal(
    start, run_folder, number
):
    pictures = [served.picture(seed) for seed in range(12)]
    expected = keras_vit.predict(run_folder, pictures)
    # So long a wait that all are accepted, and none has an answer.
    server = start("--batch", 64, "--wait_ms", 2500)
    with concurrent.futures.ThreadPoolExecutor(len(FILES)) as clients:
        answers = [clients.submit(server.post, content) for content in FILES]
        name = "keras_vit_queue_images"
        wait_for(lambda: server.values()[name] == len(FILES))
        assert not any(answer.done() for answer in answers)
        code, error = server.end(number)
        for answer, wanted in zip(answers, expected, strict=True):
            status, _, content = answer.result()
            assert status == 200
            found = served.shares(content["predictions"][0]["classes"])
            wanted = served.shares(wanted.classes)
            assert found == pytest.approx(wanted, abs=1e-5)
    assert (code, error) == (0, "")


def test_new_requests_are_refused_after_a_signal(start):
    server = start("--batch", 64, "--wait_ms", 1500)
    with concurrent.futures.ThreadPoolExecutor(1) as client:
        answer = client.submit(server.post, FILES[0])
        name = "keras_vit_queue_images"
        wait_for(lambda: server.values()[name] == 1)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        try:
            status = server.post(FILES[1])[0]
        except (ConnectionError, http.client.HTTPException):
            status = 503
        assert status == 503
        assert answer.result()[0] == 200


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
def test_a_second_signal_ends_it_at_once_and_says_so(start, number, code):
    server = start("--batch", 64, "--wait_ms", 60_000)
    with concurrent.futures.ThreadPoolExecutor(1) as client:
        answer = client.submit(server.post, FILES[0])
        name = "keras_vit_queue_images"
        wait_for(lambda: server.values()[name] == 1)
        server.process.send_signal(number)
        time.sleep(1)
        begin = time.monotonic()
        found, error = server.end(number)
        assert time.monotonic() - begin < 20
        assert answer.exception() is not None or answer.result()[0] >= 500
    assert found == code
    assert error.splitlines()[-1].endswith("requests were not answered.")
    assert "Traceback" not in error


HANGING = """
import sys
import time
from keras_vit.prediction import load_classifier
from keras_vit.serving import ServingLimits, serve, service

classifier = load_classifier(sys.argv[1])
compute = classifier.model.predict_on_batch

def predict_on_batch(inputs):
    if (inputs == 255).all():
        time.sleep(10**6)
    return compute(inputs)

classifier.model.predict_on_batch = predict_on_batch
service.LAST_BATCH = 1
sys.exit(serve(classifier, port=0, limits=ServingLimits(timeout=1)))
"""


def test_a_model_that_hangs_does_not_keep_the_server(run_folder):
    server = served.Server(run_folder, program=HANGING)
    try:
        white = served.encoded(served.picture(0) | 255)
        assert server.post(white)[0] == 504
        assert server.post(FILES[0])[0] == 504  # It waits behind the other.
        assert server.ask("GET", "/health")[0] == 200
        code, error = server.end(signal.SIGTERM)
    finally:
        server.process.kill()
        server.process.communicate()
    assert (code, error) == (0, "")


def test_a_full_queue_answers_503_and_when_to_try_again(start):
    server = start("--batch", 2, "--queue", 3, "--wait_ms", 60_000)
    with concurrent.futures.ThreadPoolExecutor(1) as client:
        answer = client.submit(server.post, FILES[0])
        wait_for(lambda: server.values()["keras_vit_taken_images"] == 1)
        body = served.as_json(FILES[:3])
        status, headers, content = server.post(body, "application/json")
        assert (status, headers["Retry-After"]) == (503, "1")
        message = content["error"]["message"]
        assert message.startswith("The server has 1 of 3 images to answer.")
        # What was refused holds no place: the next fills the batch.
        assert server.post(FILES[1])[0] == 200
        assert answer.result()[0] == 200


def test_a_request_that_takes_too_long_is_answered_504(start):
    server = start("--batch", 64, "--wait_ms", 60_000, "--timeout", 0.5)
    status, headers, content = server.post(FILES[0])
    assert (status, headers["Retry-After"]) == (504, "1")
    assert "no answer within 0.5 seconds" in content["error"]["message"]
    assert server.values()["keras_vit_taken_images"] == 0


def test_a_body_that_does_not_come_is_answered_408(start):
    server = start("--timeout", 0.5)
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: image/png\r\nContent-Length: 100\r\n\r\nbegin"
        )
        client.settimeout(served.SECONDS)
        assert client.recv(100).startswith(b"HTTP/1.1 408 ")
    assert server.values()["keras_vit_taken_images"] == 0


def error_of(capsys, *arguments):
    assert main(["serve", *map(str, arguments)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("keras-vit: error: ")
    assert printed.err.count("\n") == 1
    return printed.err


@pytest.fixture
def unloaded(monkeypatch):
    def load(*arguments, **options):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(networks, "load_checkpoint", load)


def test_a_port_in_use_is_one_line_before_the_model(
    capsys, run_folder, unloaded
):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        error = error_of(capsys, run_folder, "--port", port)
    assert f"Cannot listen on 127.0.0.1, port {port}: " in error


def test_missing_packages_are_one_line_before_the_model(
    capsys, run_folder, unloaded, monkeypatch
):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == "starlette" else find(name),
    )
    error = error_of(capsys, run_folder)
    assert "Serving needs starlette, which is not installed. " in error
    assert '"keras-vision-transformer[serve]"' in error


WRONG = {
    "unknown model": (("ViT_B61/imagenet",), "ViT_B16"),
    "missing file": (("nowhere.npz",), "nowhere.npz"),
    "host": (("--host", "256.0.0.1"), "Cannot listen on 256.0.0.1, port 8000"),
    "port": (("--port", "70000"), "port must be in [0, 65535]"),
    "batch": (("--batch", "0"), "batch must be at least 1"),
    "queue": (("--queue", "4"), "queue must be at least batch"),
    "wait": (("--wait_ms", "-1"), "wait_ms must be at least 0"),
    "timeout": (("--timeout", "0"), "timeout must be above 0"),
    "not a number": (("--timeout", "nan"), "timeout must be above 0"),
    "body": (("--body_mb", "0"), "body_mb must be above 0"),
    "pixels": (("--megapixels", "-1"), "megapixels must be above 0"),
    "no end": (("--timeout", "inf"), "timeout must be at most 86400"),
    "all bytes": (("--body_mb", "inf"), "body_mb must be at most 16384"),
    "a large batch": (("--batch", "9" * 30), "batch must be at most 4096"),
    "a long queue": (("--queue", "9" * 30), "queue must be at most 1000000"),
    "a long wait": (("--wait_ms", "1e300"), "wait_ms must be at most 600000"),
    "all pixels": (("--megapixels", "inf"), "megapixels must be at most 178"),
    "bodies": (("--bodies_mb", "nan"), "bodies_mb must be above 0"),
    "all bodies": (("--bodies_mb", "1e9"), "bodies_mb must be at most 1048576"),
    "few bodies": (("--bodies_mb", "8"), "bodies_mb must be at least body_mb"),
    "no others": (("--batch", "1", "--wait_ms", "5"), "wait_ms does nothing"),
    "a name": (("--allowed_host", "http://a"), "allowed_host must be a name"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_input_is_one_line_before_the_model(
    capsys, run_folder, unloaded, kind
):
    options, told = WRONG[kind]
    if options[0].startswith("--"):
        options = (run_folder, *options)
    assert told in error_of(capsys, *options)


def test_help_needs_no_server():
    program = (
        "import sys; sys.modules['starlette'] = sys.modules['uvicorn'] = None;"
        "from keras_vit.cli import main; main(['serve', '--help'])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program],
        cwd=served.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--wait_ms" in shown.stdout
