"""The command and addresses of https, whose server is on this machine."""

import pathlib
import shutil
import ssl
import subprocess
import threading

import pytest
from file_server import Server

from keras_vit.checkpoints.public import fetch
from keras_vit.cli import main

GOOGLE = pathlib.Path(__file__).parents[1] / "reference/vit_tiny_google.npz"
OPENSSL = (
    *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
    *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
)


class SecureServer(Server):
    """The same behind a certificate."""

    @property
    def url(self) -> str:
        return super().url.replace("http://", "https://")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    if not shutil.which("openssl"):
        pytest.skip("There is no openssl to make a certificate with.")
    folder = tmp_path_factory.mktemp("certificate")
    key, found = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        [*OPENSSL, "-keyout", key, "-out", found],
        check=True,
        capture_output=True,
        timeout=60,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(found, key)
    return found, context


@pytest.fixture
def start():
    """Starts servers; they end with the test."""
    servers = []

    def started(made, context=None):
        if context:
            made.socket = context.wrap_socket(made.socket, server_side=True)
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        servers.append((made, thread))
        return made

    yield started
    for made, thread in servers:
        made.shutdown()
        thread.join(10)
        made.server_close()


@pytest.fixture
def home(tmp_path, monkeypatch, certificate):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    monkeypatch.setattr(fetch.time, "sleep", lambda seconds: None)
    return tmp_path / "keras" / "models"


@pytest.fixture
def server(start, certificate, home):
    return start(SecureServer(GOOGLE.read_bytes()), certificate[1])


def info(url, capsys) -> tuple[int, str, list[str]]:
    """Exit code, output and the lines of the error of `weights info`."""
    code = main(["weights", "info", url])
    printed = capsys.readouterr()
    return code, printed.out, printed.err.splitlines()


def files(home):
    return sorted(x.name for x in home.glob("*") if x.is_file())


@pytest.mark.parametrize("faults", [[], ["cut", "cut"], ["503"]])
def test_a_file_arrives_over_https(faults, server, home, capsys):
    server.faults = faults
    code, out, errors = info(server.url, capsys)
    assert (code, errors) == (0, [])
    assert "num_layers" in out
    (name,) = files(home)
    assert (home / name).read_bytes() == server.content


def test_a_download_that_is_always_cut_ends_in_one_line(server, home, capsys):
    server.gives_ranges = False
    server.faults = ["cut"] * 20
    code, _, errors = info(server.url, capsys)
    assert code == 2
    (line,) = errors
    assert "did not arrive" in line
    assert [x for x in files(home) if not x.endswith(".part")] == []


def test_plain_http_behind_a_redirect_is_not_asked(server, start, home, capsys):
    plain = start(Server(server.content))
    server.faults = [f"to {plain.url}?token=secret"]
    code, _, errors = info(server.url, capsys)
    assert code == 2
    (line,) = errors
    assert "redirects to http://" in line and "secret" not in line
    assert plain.ranges == []
    assert files(home) == []


def test_https_behind_a_redirect_is_followed(server, home, capsys):
    server.faults = [f"to {server.url}"]
    assert info(server.url, capsys)[0] == 0


def test_a_certificate_that_nobody_trusts_is_refused(
    server, home, capsys, monkeypatch
):
    monkeypatch.delenv("SSL_CERT_FILE")
    code, _, errors = info(server.url, capsys)
    assert code == 2
    (line,) = errors
    assert "certificate" in line.lower()
    assert server.ranges == []
