"""The copy of a run on this machine, and its objects in emulated stores."""

import json

import object_stores
import pytest
import tiny_runs as tiny

from keras_vit.io.run_folder import MANIFEST, RESULT
from keras_vit.io.stores import Store
from keras_vit.training.run import files as run_folder
from keras_vit.training.run import files as run_lock

CHECKPOINT = "checkpoints/step-000000010.npz"
SHARDS = [f"checkpoints/step-000000010-0123abcd-{i}.npz" for i in range(2)]
BESIDE = ["config.yaml", "metrics.jsonl", "history.csv", "model.keras"]


def anew(address):
    """The local copy that another machine makes."""
    run_folder._mirrors.clear()
    return run_folder.local(address)


def write(folder, names, text):
    for name in names:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").replace(path)


def contents(address):
    store = Store(address)
    return {name: (store.read(name) or b"").decode() for name in store.find()}


def test_a_second_machine_has_what_the_first_published(address):
    folder = run_folder.local(address)
    write(folder, [*BESIDE, CHECKPOINT, MANIFEST], "one")
    write(folder, [".partial-a.npz", "mine"], "mine")
    run_folder.publish(folder)
    write(folder, ["metrics.jsonl"], "two")
    (folder / CHECKPOINT).unlink()
    (folder / "model.keras").unlink()
    run_folder.publish(folder)
    # A run removes no models; who empties folders for temporary files does.
    assert CHECKPOINT not in contents(address)
    assert "model.keras" in contents(address)
    run_folder.publish(folder, exactly=True)
    other = anew(address)
    assert tiny.files(other) == {MANIFEST, "config.yaml"}
    run_folder.get(other, *run_folder.ALL)
    assert tiny.files(other) == tiny.files(folder) - {".partial-a.npz", "mine"}
    assert (other / "metrics.jsonl").read_text() == "two"
    assert run_folder.shown(other / "x") == f"{address}/x"


@pytest.mark.parametrize(
    "content", [b"\x00\r", b"\r\n", b"\n", b"a\n--==0==--\nb", b""], ids=repr
)
def test_any_bytes_come_back(address, tmp_path, content):
    store = Store(address)
    store.write("written", content)
    (tmp_path / "file").write_bytes(content)
    store.upload(tmp_path / "file", "uploaded")
    assert store.read("written") == store.read("uploaded") == content


def test_nothing_is_put_that_has_not_changed(address, emulator):
    folder = run_folder.local(address)
    write(folder, BESIDE, "one")
    run_folder.publish(folder)
    before = emulator.requests
    run_folder.publish(folder)
    assert emulator.requests == before


def refusing_after(emulator, count):
    """Lets so many requests pass, and no more: as where a machine dies."""
    end = emulator.requests + count
    return emulator.failing(lambda n, *_: 403 if n > end else None)


def after_each_request(emulator, address, work):
    """What the store has where the work ends after each of its requests.

    Work is a function of the number of its attempt.
    """
    for count in range(200):
        with refusing_after(emulator, count):
            try:
                work(count)
            except PermissionError:
                ended = False
            else:
                ended = True
        yield contents(address)
        if ended:
            return
    raise AssertionError("It did not end.")


def test_a_checkpoint_is_there_when_all_else_is(address, emulator):
    def work(count):
        anew(address)
        Store(address).remove(Store(address).find())
        folder = run_folder.local(address)
        write(folder, [*BESIDE, *SHARDS, CHECKPOINT, "result.json"], "new")
        run_folder.publish(folder)

    seen = []
    for found in after_each_request(emulator, address, work):
        if CHECKPOINT in found:
            assert found.keys() >= {*BESIDE, *SHARDS}
        if RESULT in found:
            assert CHECKPOINT in found
        seen.append(len(found))
    assert seen[-1] == 8 and len({*seen}) > 4


@pytest.mark.slow
def test_a_replaced_run_is_whole_at_every_moment(address, emulator):
    """At the top or in .previous-run, and the same command goes on."""
    old = [*BESIDE, CHECKPOINT]

    def finished():
        Store(address).remove(Store(address).find())
        folder = anew(address)
        run_folder.begin(folder, {"old": 1}, {})
        write(folder, old, "old")
        run_folder.write_result(folder, {"old": 1})
        return contents(address)

    def replace(count):
        anew(address)
        with run_folder.taken(address, overwrite=True) as folder:
            run_folder.begin(folder, {"new": 1}, {})

    before = finished()
    copies = 0
    for count, found in enumerate(
        after_each_request(emulator, address, replace)
    ):
        previous = {
            name.removeprefix(".previous-run/"): text
            for name, text in found.items()
            if name.startswith(".previous-run/")
        }
        whole = [found.items() >= before.items(), previous == before]
        assert any(whole), (count, sorted(found))
        copies += whole[1]
        Store(address).remove([run_lock.LOCK])
    assert copies > 1
    folder = anew(address)
    with run_folder.taken(address, overwrite=True):
        run_folder.write_result(folder, {"new": 1})
    assert "old" not in "".join(contents(address).values())


def test_every_third_request_fails_and_nothing_is_missing(address, emulator):
    folder = run_folder.local(address)
    faults = ("cut", 503)
    with emulator.failing(lambda n, *_: faults[n % 2] if n % 3 == 0 else None):
        write(folder, [*BESIDE, CHECKPOINT], "one")
        run_folder.publish(folder)
        other = anew(address)
        run_folder.get(other, *run_folder.ALL)
    assert tiny.files(other) == {*BESIDE, CHECKPOINT}


@pytest.mark.parametrize("scheme", object_stores.SCHEMES)
def test_a_bucket_that_is_not_there_is_named(emulator, scheme):
    if emulator.scheme == scheme:
        with pytest.raises(ValueError, match="no bucket 'none'"):
            with run_folder.taken(f"{scheme}://none/run", overwrite=False):
                pass


def test_without_permission_there_is_one_line(address, emulator):
    with refusing_after(emulator, 0):
        with pytest.raises(PermissionError) as refusal:
            run_folder.local(address)
    assert f"No permission for {address}" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_second_process_is_refused_and_a_dead_one_is_not(
    address, monkeypatch
):
    monkeypatch.setattr(run_lock, "STALE_SECONDS", 0.3)
    monkeypatch.setattr(run_lock, "POLL_SECONDS", 0.05)
    folder = run_folder.local(address)
    lock = run_lock._StoreLock(run_folder._mirrors[address])
    holder = {"host": "far", "process": 7, "machine": "another", "time": "-"}
    assert lock.make(json.dumps(holder))
    assert not lock.make("second")
    with monkeypatch.context() as patch:
        patch.setattr(run_lock, "_is_renewed", lambda lock: True)
        with pytest.raises(ValueError, match=f"{address}' belongs .* 7 on far"):
            run_lock.locked(folder).__enter__()
    with run_lock.locked(folder):
        assert run_lock.LOCK in Store(address).find()
    assert run_lock.LOCK not in Store(address).find()


def test_a_renewal_is_seen(address, monkeypatch):
    run_folder.local(address)
    lock = run_lock._StoreLock(run_folder._mirrors[address])
    assert lock.make("text")
    before = lock.read()
    lock.renew()
    assert lock.read() != before
    assert (lock.read() or "")[0] == "text"


def test_who_lost_the_run_to_another_process_puts_nothing(address):
    folder = run_folder.local(address)
    with run_lock.locked(folder):
        Store(address).write(run_lock.LOCK, b"another\n")
        before = contents(address)
        write(folder, BESIDE, "late")
        with pytest.raises(
            PermissionError, match="Another process has taken the run"
        ):
            run_folder.publish(folder)
        assert contents(address) == before
    assert contents(address) == before


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(run_folder, "MISSED", (0, 0))
    monkeypatch.setattr(run_lock, "POLL_SECONDS", 0.01)


def test_what_a_listing_lacks_is_not_gone(address, monkeypatch, quick):
    """As stores list that are consistent in the end alone."""
    folder = run_folder.local(address)
    write(folder, [*BESIDE, CHECKPOINT, MANIFEST], "one")
    run_folder.publish(folder)
    store = run_folder._mirrors[address].store
    found = store.find()
    lacking = {x: found[x] for x in found if x != "model.keras"}
    with monkeypatch.context() as patch:
        patch.setattr(store, "find", lambda below="": lacking)
        run_folder.get(folder, *run_folder.ALL)
    assert (folder / "model.keras").read_text() == "one"
    store.remove(["model.keras"])
    run_folder.get(folder, *run_folder.ALL)
    assert not (folder / "model.keras").exists()
    assert (folder / "metrics.jsonl").exists()


def test_what_is_not_found_once_is_looked_for_again(
    address, emulator, monkeypatch, quick
):
    write(run_folder.local(address), [*BESIDE, CHECKPOINT, MANIFEST], "one")
    run_folder.publish(run_folder.local(address))
    other = anew(address)
    store, names = run_folder._mirrors[address].store, []
    download = store.download

    def missing(name, path):
        if name not in names:
            names.append(name)
            return False
        return download(name, path)

    monkeypatch.setattr(store, "download", missing)
    run_folder.get(other, *run_folder.ALL)
    assert tiny.files(other) == {*BESIDE, CHECKPOINT, MANIFEST}
    monkeypatch.setattr(store, "download", lambda name, path: False)
    (other / CHECKPOINT).unlink()
    run_folder._mirrors[address]._known.clear()
    with pytest.raises(OSError, match=f"^{address} lists '.*Give the same"):
        run_folder.get(other, *run_folder.ALL)


def test_a_lock_that_is_not_found_once_is_kept(address, monkeypatch, quick):
    folder = run_folder.local(address)
    with run_lock.locked(folder):
        mirror = run_folder._mirrors[address]
        read, missed = mirror.store.read, [True]
        monkeypatch.setattr(
            mirror.store,
            "read",
            lambda name: None if missed and missed.pop() else read(name),
        )
        write(folder, BESIDE, "one")
        run_folder.publish(folder)
        assert not missed
    assert {*BESIDE} <= contents(address).keys()


def test_an_object_is_copied_within_its_store(address):
    store = Store(address)
    store.write("old.json", b"content")
    store.copy("old.json", "new.json")
    assert store.read("old.json") == store.read("new.json") == b"content"


def test_a_file_with_another_name_is_not_sent_again(address, monkeypatch):
    folder = run_folder.local(address)
    write(folder, [*BESIDE, CHECKPOINT], "one")
    run_folder.publish(folder)
    later = CHECKPOINT.replace("1", "2")
    (folder / CHECKPOINT).rename(folder / later)
    mirror = run_folder._mirrors[address]
    monkeypatch.setattr(mirror, "_upload", lambda name: 1 / 0)
    run_folder.publish(folder)
    assert later != CHECKPOINT
    assert contents(address) == {**dict.fromkeys(BESIDE, "one"), later: "one"}


def test_a_token_that_is_none_is_an_error_and_no_log(address, emulator, caplog):
    run_folder.local(address)
    with emulator.failing(lambda n, *_: 401):
        with pytest.raises(PermissionError, match="No permission"):
            Store(address).read(MANIFEST)
    assert not caplog.records  # gcsfs logs it with a traceback.


def test_who_is_denied_midway_goes_on_later(address, emulator):
    folder = run_folder.local(address)
    with run_folder.taken(address, overwrite=False):
        run_folder.begin(folder, {"seed": 0}, {})
        write(folder, [*BESIDE, SHARDS[0]], "one")
        run_folder.publish(folder)
        before = contents(address)
        write(folder, [*BESIDE, CHECKPOINT], "two")
        with refusing_after(emulator, 3):
            with pytest.raises(PermissionError, match="No permission"):
                run_folder.publish(folder)
        assert CHECKPOINT not in contents(address)
        assert contents(address).keys() == before.keys()
        run_folder.publish(folder)
    found = contents(address)
    assert found[CHECKPOINT] == found["model.keras"] == "two"


def test_names_that_lead_out_of_the_folder_are_left(address, monkeypatch):
    """No store forbids them, though clients and emulators may."""
    Store(address).write("examples/a.png", b"")
    folder = run_folder.local(address)
    names = ["examples/../../x.png", "examples/a.png", "examples//b.png"]
    store = run_folder._mirrors[address].store
    monkeypatch.setattr(store, "find", lambda: dict.fromkeys(names, "1"))
    run_folder.get(folder, *run_folder.ALL)
    assert tiny.files(folder) == {"examples/a.png"}


def test_a_missing_package_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr(
        "keras_vit.io.checks.importlib.util.find_spec", lambda name: None
    )
    with pytest.raises(ValueError) as refusal:
        run_folder.local("gs://bucket/run")
    assert str(refusal.value) == (
        "Opening gs:// addresses needs gcsfs, which is not installed. Install "
        'it: pip install "keras-vision-transformer[storage]".'
    )


def test_what_a_killed_process_left_on_its_machine_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(
        run_folder.tempfile, "gettempdir", lambda: str(tmp_path)
    )
    monkeypatch.setattr(run_folder.tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f"{run_folder.PREFIX}left"
    left.mkdir()
    (left / "in-use").touch()
    mine = run_folder._new_home()
    assert not left.exists()
    run_folder._new_home()
    assert mine.exists()


@pytest.mark.slow
def test_a_store_that_does_not_answer_is_named(address, emulator):
    with emulator.failing(lambda *_: 503):
        with pytest.raises(OSError, match=f"{address} cannot be reached"):
            run_folder.local(address)


def test_a_store_that_answers_again_gets_the_checkpoint(
    address, monkeypatch, capsys
):
    monkeypatch.setattr(run_folder, "WAITS", (0, 0, 0))
    folder = run_folder.local(address)
    write(folder, [*BESIDE, CHECKPOINT], "one")
    mirror = run_folder._mirrors[address]
    upload, failures = mirror.store.upload, [1, 2]

    def failing(path, name):
        if name == CHECKPOINT and failures:
            raise OSError(f"no answer {failures.pop()}")
        upload(path, name)

    monkeypatch.setattr(mirror.store, "upload", failing)
    run_folder.publish(folder)
    assert contents(address).keys() == {*BESIDE, CHECKPOINT}
    assert capsys.readouterr().err.count("Again in 0 s") == 2
