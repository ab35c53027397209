"""Downloads from a server of our own: nothing leaves the machine."""

import errno
import gzip
import hashlib
import io
import resource
import threading
import types
import urllib.request
from http.client import HTTPMessage
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from file_server import Server, npz

from keras_vit.checkpoints.public import fetch, network
from keras_vit.checkpoints.public.fetch import Download, is_whole


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
    monkeypatch.setattr(fetch.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(fetch, "CHUNK", 1 << 16)
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


DATE = "Fri, 01 Jan 2016 00:00:00 GMT"  # Older than each part.


@pytest.mark.parametrize("between", ["attempts", "processes"])
@pytest.mark.parametrize(
    ("one", "other", "length"),
    [
        ({"ETag": '"1"'}, {"ETag": '"2"'}, 0),
        ({"ETag": '"1"', "Last-Modified": DATE}, {"ETag": '"2"'}, 0),
        ({"Last-Modified": DATE}, {"Last-Modified": f"Sat{DATE[3:]}"}, 0),
        ({}, {}, 7),
        ({"ETag": '"1"'}, {}, -7),
    ],
    ids=["ETag", "ETag alone", "date back", "longer", "shorter"],
)
def test_a_file_that_changes_meanwhile_is_fetched_anew(
    server, home, between, one, other, length
):
    """Of an interrupted download nothing is glued to another version."""
    old = server.content
    new = npz((3 << 20) + length)
    new = new[:1000] + bytes(1000) + new[2000:]  # The same end.
    server.versions = [(old, one), *[(new, other)] * 3]
    server.faults = ["cut"]
    if between == "processes":
        server.faults = ["cut", "404"]
        with pytest.raises(OSError, match="answers 404"):
            Download(server.url, "one.npz").fetch()
        assert files(home) == ["one.npz.part", "one.npz.version.part"]
    path = Download(server.url, "one.npz").fetch()
    assert Path(path).read_bytes() == new
    assert files(home) == ["one.npz"]
    assert server.ranges[-2:] == [f"bytes={len(old) // 2}-", None]


def test_a_range_that_ends_early_goes_on(server, monkeypatch):
    """As servers send that bound the size of an answer."""
    (home := fetch._keras_home() / "models").mkdir(parents=True)
    (home / "one.npz.part").write_bytes(server.content[:1000])
    size = len(server.content)
    found = f"bytes 1000-{size // 2}/{size}"
    part = server.content[: size // 2 + 1]
    server.versions = [
        (part, {"Content-Range": found}),
        (server.content, {}),
    ]
    path = Download(server.url, "one.npz").fetch()
    assert Path(path).read_bytes() == server.content
    assert server.ranges == ["bytes=1000-", f"bytes={len(part)}-"]


def test_answer_with_another_range_is_refused(server, home):
    (home / "models").mkdir(parents=True)
    (home / "models" / "one.npz.part").write_bytes(server.content[:1000])
    server.faults = ["wrong range"]
    path = Download(server.url, "one.npz").fetch()
    assert server.ranges == ["bytes=1000-", None]
    assert Path(path).read_bytes() == server.content


def test_part_without_a_range_is_fetched_as_a_whole(server, home):
    (home / "models").mkdir(parents=True)
    (home / "models" / "one.npz.part").write_bytes(server.content[:1000])
    server.faults = ["no range"]
    path = Download(server.url, "one.npz").fetch()
    assert server.ranges == ["bytes=1000-", None]
    assert Path(path).read_bytes() == server.content


def test_file_of_unknown_length_arrives(server):
    server.faults = ["without length"]
    path = Download(server.url, "one.npz").fetch()
    assert Path(path).read_bytes() == server.content


@pytest.mark.parametrize("gives_ranges", [True, False])
def test_cut_download_of_unknown_length_goes_on(server, gives_ranges):
    server.gives_ranges = gives_ranges
    server.faults = ["cut without length"] * 2
    path = Download(server.url, "one.npz").fetch()
    assert Path(path).read_bytes() == server.content
    assert len(server.ranges) == 3


def test_download_of_unknown_length_that_is_always_cut_is_not_kept(
    server, home
):
    server.gives_ranges = False
    server.faults = ["cut without length"] * 20
    with pytest.raises(OSError, match="bytes came, and no end"):
        Download(server.url, "one.npz").fetch()
    assert files(home) == ["one.npz.part", "one.npz.version.part"]


def test_file_that_was_cut_before_it_came_to_the_server_is_not_kept(
    server, home
):
    server.content = server.content[:-100]
    with pytest.raises(ValueError, match="its end is missing"):
        Download(server.url, "one.npz").fetch()
    assert files(home) == []


def hdf5(path: Path) -> bytes:
    with h5py.File(path, "w") as file:
        file["weights"] = np.zeros(1000)
    return path.read_bytes()


def safetensors() -> bytes:
    header = b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}'
    return len(header).to_bytes(8, "little") + header + bytes(36)


@pytest.mark.parametrize("kind", ["npz", "keras", "h5", "safetensors"])
def test_every_kind_of_file_says_where_it_ends(tmp_path, kind):
    whole = {
        "h5": lambda: hdf5(tmp_path / "a.h5"),
        "safetensors": safetensors,
    }.get(kind, npz)()
    path = tmp_path / f"part.{kind}"
    path.write_bytes(whole)
    assert is_whole(path)
    for size in (len(whole) - 1, len(whole) // 2, 10, 0):
        path.write_bytes(whole[:size])
        assert not is_whole(path)


@pytest.mark.parametrize("length", ["many", "-5", "1e3", "0x10"])
def test_odd_length_is_no_length(server, length):
    server.headers = {"Content-Length": length, "Connection": "close"}
    path = Download(server.url, "one.npz").fetch()
    assert Path(path).read_bytes() == server.content


@pytest.mark.parametrize(
    "date", ["yesterday", "Fri, 99 Foo 2100", "Mon, 01 Jan 99999 00:00:00 GMT"]
)
def test_odd_date_is_no_date(server, home, date):
    server.headers = {"Last-Modified": date}
    server.faults = ["cut"]
    path = Download(server.url, "one.npz").fetch()
    assert Path(path).read_bytes() == server.content


def test_odd_hash_is_no_hash(server):
    for odd in ("md5=what, md5=, crc32c=AAAAAA==", "md5=no-base64"):
        server.headers = {"x-goog-hash": odd}
        path = Download(server.url, f"{len(odd)}.npz").fetch()
        assert Path(path).read_bytes() == server.content


def test_attempts_that_bring_bytes_are_no_failures(server):
    server.faults = ["cut"] * (fetch.ATTEMPTS + 2)
    path = Download(server.url, "one.npz").fetch()
    assert len(server.ranges) == fetch.ATTEMPTS + 3
    assert Path(path).read_bytes() == server.content


def test_redirect_out_of_the_web_is_not_followed(server, home):
    server.faults = ["to ftp://127.0.0.1:9/a"]
    with pytest.raises(ValueError, match="redirects to"):
        Download(server.url, "one.npz").fetch()
    assert files(home) == []


@pytest.mark.parametrize("scheme", ["http", "ftp", "file"])
def test_redirect_from_https_to_less_is_not_followed(scheme):
    request = urllib.request.Request("https://me:secret@host/a?token=secret")
    with pytest.raises(ValueError, match="only addresses") as caught:
        network._Redirects().redirect_request(
            request, io.BytesIO(), 302, "", HTTPMessage(), f"{scheme}://other/a"
        )
    assert "secret" not in str(caught.value)


def test_redirect_is_followed_where_it_may_be(server):
    server.faults = [f"to {server.url}"]
    path = Download(server.url, "one.npz").fetch()
    assert Path(path).read_bytes() == server.content


def test_address_of_any_letters_is_asked_for(server):
    url = server.url.replace("ViT-B_16", "caf\u00e9 1")
    assert Download(url, "one.npz").fetch()


def test_what_opens_a_file_is_not_printed(server, capfd):
    keras.config.enable_interactive_logging()
    server.faults = ["404"]
    url = f"{server.url}?token=secret"
    with pytest.raises(OSError, match="answers 404") as caught:
        Download(url, "one.npz").fetch()
    printed = "".join(capfd.readouterr())
    assert server.url in printed
    assert "secret" not in f"{printed}{caught.value}"


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


def test_server_that_always_cuts_is_left_in_the_end(server, home, monkeypatch):
    waits = []
    monkeypatch.setattr(fetch.time, "sleep", waits.append)
    server.gives_ranges = False
    server.faults = ["cut"] * 20
    with pytest.raises(OSError, match=r"did not arrive.*bytes came"):
        Download(server.url, "one.npz").fetch()
    assert len(server.ranges) == fetch.ATTEMPTS
    # Each second longer than the one before, and none behind the last.
    assert waits == [2**i for i in range(fetch.ATTEMPTS - 1)]
    assert files(home) == ["one.npz.part", "one.npz.version.part"]


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


def test_what_is_packed_by_gzip_is_called_that(server, home):
    server.content = gzip.compress(server.content)
    with pytest.raises(ValueError, match="packed by gzip: unpack it"):
        Download(server.url, "one.npz").fetch()
    assert files(home) == []


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
    monkeypatch.setattr(fetch.shutil, "disk_usage", lambda path: usage)
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
    assert files(home) == ["one.npz.part", "one.npz.version.part"]
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
