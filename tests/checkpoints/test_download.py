"""Downloads from a server of our own: nothing leaves the machine."""

import errno
import hashlib
import resource
import threading
import types
from pathlib import Path

import keras
import pytest
from file_server import Server, npz

from keras_vit.checkpoints.public import download
from keras_vit.checkpoints.public.download import Download


@pytest.fixture
def server():
    with Server(npz()) as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.01,))
        thread.start()
        yield served
        served.shutdown()
        thread.join(10)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(download.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(download, "CHUNK", 1 << 16)
    return tmp_path / "keras"


def files(home: Path) -> list[str]:
    folder = home / "models"
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def test_file_arrives_where_get_file_finds_it(server, home):
    path = Download(server.url, "one.npz").fetch()
    assert Path(path).read_bytes() == server.content
    assert files(home) == ["one.npz"]
    found = keras.utils.get_file(
        "one.npz", "http://127.0.0.1:9/", cache_dir=home, cache_subdir="models"
    )
    assert found == path


def test_second_fetch_asks_no_server(server):
    for _ in range(2):
        Download(server.url, "one.npz").fetch()
    assert len(server.ranges) == 1


def test_cut_download_goes_on_where_it_stopped(server):
    server.faults = ["cut", "cut"]
    path = Download(server.url, "one.npz").fetch()
    size = len(server.content)
    half = size // 2
    three_quarters = half + (size - half) // 2
    assert server.ranges == [
        None,
        f"bytes={half}-",
        f"bytes={three_quarters}-",
    ]
    assert Path(path).read_bytes() == server.content


def test_part_of_an_earlier_process_is_used(server, home):
    (home / "models").mkdir(parents=True)
    (home / "models" / "one.npz.part").write_bytes(server.content[:1000])
    path = Download(server.url, "one.npz").fetch()
    assert server.ranges == ["bytes=1000-"]
    assert Path(path).read_bytes() == server.content


def test_complete_part_is_only_verified(server, home):
    (home / "models").mkdir(parents=True)
    (home / "models" / "one.npz.part").write_bytes(server.content)
    path = Download(server.url, "one.npz").fetch()
    assert Path(path).read_bytes() == server.content
    assert server.ranges == [f"bytes={len(server.content)}-"]


def test_part_that_is_longer_than_the_file_is_thrown_away(server, home):
    (home / "models").mkdir(parents=True)
    (home / "models" / "one.npz.part").write_bytes(server.content + b"more")
    path = Download(server.url, "one.npz").fetch()
    assert Path(path).read_bytes() == server.content


def test_part_of_an_older_version_is_thrown_away(server, home):
    (home / "models").mkdir(parents=True)
    (home / "models" / "one.npz.part").write_bytes(b"PK\x03\x04" * 100)
    server.headers = {"Last-Modified": "Fri, 01 Jan 2100 00:00:00 GMT"}
    path = Download(server.url, "one.npz").fetch()
    assert server.ranges == ["bytes=400-", None]
    assert Path(path).read_bytes() == server.content


def test_answer_with_another_range_is_refused(server, home):
    (home / "models").mkdir(parents=True)
    (home / "models" / "one.npz.part").write_bytes(server.content[:1000])
    server.faults = ["wrong range"]
    path = Download(server.url, "one.npz").fetch()
    assert server.ranges == ["bytes=1000-", None]
    assert Path(path).read_bytes() == server.content


def test_server_without_ranges_sends_all_again(server):
    server.gives_ranges = False
    server.faults = ["cut"]
    path = Download(server.url, "one.npz").fetch()
    assert Path(path).read_bytes() == server.content
    assert len(server.ranges) == 2


@pytest.mark.parametrize("status", ["429", "500", "503"])
def test_busy_server_is_asked_again(server, status):
    server.faults = [status, status]
    path = Download(server.url, "one.npz").fetch()
    assert Path(path).read_bytes() == server.content


@pytest.mark.parametrize("status", ["403", "404"])
def test_missing_file_is_not_asked_for_again(server, home, status):
    server.faults = [status]
    with pytest.raises(OSError, match=f"answers {status}.*put it at .*one.npz"):
        Download(server.url, "one.npz").fetch()
    assert len(server.ranges) == 1
    assert files(home) == []


def test_server_that_always_cuts_is_left_in_the_end(server, home):
    server.gives_ranges = False
    server.faults = ["cut"] * 20
    with pytest.raises(OSError, match=r"did not arrive.*bytes came"):
        Download(server.url, "one.npz").fetch()
    assert len(server.ranges) == download.ATTEMPTS
    assert files(home) == ["one.npz.part"]


def test_unreachable_server_says_what_to_fetch_and_where_to_put_it(home):
    url = "http://127.0.0.1:9/ViT-B_16.npz"
    wanted = Download(url, "one.npz", num_bytes=1234, sha256="ab" * 32)
    with pytest.raises(OSError, match="did not arrive") as caught:
        wanted.fetch()
    message = str(caught.value)
    for part in (url, "1,234 bytes", "ab" * 32, str(home / "models/one.npz")):
        assert part in message
    assert files(home) == []


def test_web_page_is_refused_and_keeps_nothing(server, home):
    server.content = b"<!DOCTYPE html><html>Sign in</html>"
    with pytest.raises(ValueError, match=r"web page.*put it at"):
        Download(server.url, "one.npz").fetch()
    assert files(home) == []


def test_web_page_does_not_cost_the_part(server, home):
    (home / "models").mkdir(parents=True)
    part = home / "models" / "one.npz.part"
    part.write_bytes(server.content[:1000])
    beginning, server.content = server.content[:1000], b"<html>Sign in</html>"
    server.gives_ranges = False
    with pytest.raises(ValueError, match="web page"):
        Download(server.url, "one.npz").fetch()
    assert part.read_bytes() == beginning


@pytest.mark.parametrize("name", ["a.npz", "a.h5", "a.safetensors", "a.keras"])
def test_empty_file_is_refused(server, home, name):
    server.content = b""
    with pytest.raises(ValueError, match="no file of weights"):
        Download(server.url, name).fetch()
    assert files(home) == []


def test_size_is_compared_before_the_bytes_come(server, home):
    wanted = Download(server.url, "one.npz", num_bytes=len(server.content) + 1)
    with pytest.raises(ValueError, match="not the published file"):
        wanted.fetch()
    assert files(home) == []


def test_pinned_hash_decides(server, home):
    digest = hashlib.sha256(server.content).hexdigest()
    assert Download(server.url, "one.npz", sha256=digest).fetch()
    with pytest.raises(ValueError, match=f"sha256 of .* is {digest}"):
        Download(server.url, "two.npz", sha256="0" * 64).fetch()
    assert files(home) == ["one.npz"]


def test_hash_of_googles_storage_decides(server, home):
    # MD5 of the empty string, in Base64 as the server sends it.
    empty = "1B2M2Y8AsgTpgAmY7PhCfg=="
    server.headers = {"x-goog-hash": f"crc32c=AAAAAA==, md5={empty}"}
    with pytest.raises(ValueError, match="d41d8cd98f00b204e9800998ecf8427e"):
        Download(server.url, "one.npz").fetch()
    assert files(home) == []


def test_cached_file_of_another_size_is_refused(server, home):
    Download(server.url, "one.npz").fetch()
    wanted = Download(server.url, "one.npz", num_bytes=7)
    with pytest.raises(ValueError, match="7 are expected. Delete it"):
        wanted.fetch()


def test_full_disk_is_seen_beforehand(server, home, monkeypatch):
    usage = types.SimpleNamespace(free=1000)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OSError, match=r"1,000 bytes left.*KERAS_HOME"):
        Download(server.url, "one.npz").fetch()
    assert files(home) == []


def test_full_disk_leaves_the_part_alone_and_it_is_used_later(server, home):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(OSError, match=f"Errno {errno.EFBIG}"):
            Download(server.url, "one.npz").fetch()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert files(home) == ["one.npz.part"]
    path = Download(server.url, "one.npz").fetch()
    assert server.ranges == [None, f"bytes={1 << 20}-"]
    assert Path(path).read_bytes() == server.content


@pytest.mark.parametrize("repeat", range(5))
def test_processes_that_come_at_once_download_once(server, repeat):
    wanted = Download(server.url, "one.npz")
    paths: list[str] = []
    threads = [
        threading.Thread(target=lambda: paths.append(wanted.fetch()))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(server.ranges) == 1
    assert paths == [str(wanted.path)] * 4
