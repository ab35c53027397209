"""One run folder, one process; what a killed process leaves stops nobody."""

import contextlib
import json
import os
import pathlib
import platform
import subprocess
import sys
import threading
import time

import pytest
import tiny_runs as tiny

from keras_vit.training import train
from keras_vit.training.run import files as run_folder
from keras_vit.training.run import files as run_lock
from keras_vit.training.run import resume

ROOT = pathlib.Path(__file__).parents[2]
HOLDER = """
import pathlib, sys
from keras_vit.training.run import files as run_lock
with run_lock.locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def holder(folder):
    """Another process that holds the lock of a folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(run_lock, "STALE_SECONDS", 0.4)
    monkeypatch.setattr(run_lock, "POLL_SECONDS", 0.02)


def write_lock(folder, **changed):
    """Writes the lock that this process would, but for some values."""
    lock = folder / run_lock.LOCK
    with contextlib.nullcontext() if lock.exists() else run_lock.locked(folder):
        text = lock.read_text()
    lock.write_text(json.dumps({**json.loads(text), **changed}))


def test_a_second_process_is_refused_with_who_holds_the_first(tmp_path):
    with holder(tmp_path) as process:
        before = tiny.files(tmp_path)
        with pytest.raises(ValueError) as refusal:
            train(tiny.recipe(tmp_path), dataset=tiny.DATASET)
        assert tiny.files(tmp_path) == before
    assert f"process {process.pid} on {platform.node()}" in str(refusal.value)
    assert "since 20" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_lock_of_a_killed_process_is_nobodys(tmp_path):
    with holder(tmp_path) as process:
        process.kill()
        process.wait()
        # Unlike that of a process which ended.
        assert (tmp_path / run_lock.LOCK).exists()
        begin = time.monotonic()
        with run_lock.locked(tmp_path):
            assert time.monotonic() - begin < run_lock.STALE_SECONDS / 4
    assert tiny.files(tmp_path) == set()


def test_a_number_that_another_process_has_by_now_is_no_sign_of_life(tmp_path):
    write_lock(tmp_path, process=os.getppid(), started="1")
    with run_lock.locked(tmp_path):
        pass


def test_a_lock_of_a_living_process_is_kept(tmp_path):
    parent = os.getppid()
    status = pathlib.Path(f"/proc/{parent}/stat").read_text()
    started = status.rpartition(")")[2].split()[19]
    write_lock(tmp_path, process=parent, started=started)
    with pytest.raises(ValueError, match=f"belongs to process {parent} on"):
        run_lock.locked(tmp_path).__enter__()


@pytest.mark.parametrize("machine", ["another", None])
def test_a_lock_of_another_machine_is_kept_while_it_is_renewed(
    tmp_path, quick, machine
):
    write_lock(tmp_path, host="far", machine=machine)
    timer = threading.Timer(0.1, os.utime, [tmp_path / run_lock.LOCK])
    timer.start()
    with pytest.raises(ValueError, match="on far, since"):
        run_lock.locked(tmp_path).__enter__()
    timer.join()


def test_a_lock_of_another_machine_is_stale_when_it_is_not(
    tmp_path, quick, capsys
):
    write_lock(tmp_path, host="far", machine="another")
    begin = time.monotonic()
    with run_lock.locked(tmp_path):
        assert time.monotonic() - begin >= run_lock.STALE_SECONDS
    assert "waiting up to 0.4 seconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1]", b"\xff\x00", b"[" * 100_000, b'{"process": "1"}'],
)
def test_a_damaged_lock_is_watched_too(tmp_path, quick, content):
    (tmp_path / run_lock.LOCK).write_bytes(content)
    with run_lock.locked(tmp_path):
        pass
    assert tiny.files(tmp_path) == set()


def test_a_lock_is_renewed_while_it_is_held(tmp_path, monkeypatch):
    monkeypatch.setattr(run_lock, "RENEWED_SECONDS", 0.02)
    with run_lock.locked(tmp_path):
        lock = tmp_path / run_lock.LOCK
        os.utime(lock, (0, 0))
        end = time.monotonic() + 10
        while lock.stat().st_mtime == 0 and time.monotonic() < end:
            time.sleep(0.01)
        assert lock.stat().st_mtime > 0


def test_of_two_that_find_a_stale_lock_the_second_leaves_that_of_the_first(
    tmp_path, monkeypatch
):
    write_lock(tmp_path, process=os.getppid(), started="1")
    lives = run_lock._lives

    def overtaken(path, who):
        monkeypatch.setattr(run_lock, "_lives", lives)
        parent = os.getppid()
        started = run_lock._started(parent)
        write_lock(tmp_path, process=parent, started=started, host="first")
        return False

    monkeypatch.setattr(run_lock, "_lives", overtaken)
    with pytest.raises(ValueError, match="on first, since"):
        run_lock.locked(tmp_path).__enter__()
    lock = json.loads((tmp_path / run_lock.LOCK).read_text())
    assert lock["host"] == "first"
    assert tiny.files(tmp_path) == {run_lock.LOCK}


def test_a_process_may_take_its_own_lock(tmp_path):
    with run_lock.locked(tmp_path / "run"):
        with run_lock.locked(tmp_path / "x" / ".." / "run"):
            pass
        assert (tmp_path / "run" / run_lock.LOCK).exists()
    assert not (tmp_path / "run" / run_lock.LOCK).exists()


def test_a_script_keeps_its_locks_to_the_end(tmp_path):
    with run_lock.kept():
        with run_lock.locked(tmp_path):
            pass
        assert (tmp_path / run_lock.LOCK).exists()
    assert not (tmp_path / run_lock.LOCK).exists()
    with run_lock.locked(tmp_path):
        pass
    assert not (tmp_path / run_lock.LOCK).exists()


def test_the_lock_is_gone_after_an_error(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(
            tiny.recipe(tmp_path),
            dataset=tiny.DATASET,
            callbacks=[tiny.Interrupt()],
        )
    assert run_lock.LOCK not in tiny.files(tmp_path)


def test_a_lock_that_another_took_is_left_to_it(tmp_path):
    with run_lock.locked(tmp_path):
        write_lock(tmp_path, host="other")
    assert run_lock.LOCK in tiny.files(tmp_path)


def test_a_run_that_ends_meanwhile_is_found(tmp_path, monkeypatch):
    """Between the look at a folder and its lock."""
    held = run_lock.locked

    def late(folder):
        run_folder.begin(folder, {}, {})
        run_folder.write_result(folder, {})
        return held(folder)

    monkeypatch.setattr(run_folder, "locked", late)
    with pytest.raises(ValueError, match="holds a finished run"):
        run_folder.taken(tmp_path, overwrite=False).__enter__()
    assert run_lock.LOCK not in tiny.files(tmp_path)


def test_of_several_processes_the_first_alone_holds_the_lock(
    tmp_path, monkeypatch
):
    with resume.open_run(tiny.recipe(tmp_path)):
        assert run_lock.LOCK in tiny.files(tmp_path)
    monkeypatch.setattr(resume, "agreed", lambda function: None)
    with resume.open_run(tiny.recipe(tmp_path)) as (folder, checkpoint):
        assert run_lock.LOCK not in tiny.files(folder)
        assert checkpoint is None
