"""Kills a tiny training at random moments and gives the same command again.

    PYTHONPATH=.:tests/support python tests/robustness/random_kills.py FOLDER \\
        --processes 2 --distribution fsdp --kills 25 --store s3

A run is killed up to five times, then it may end, and the next one begins: at
the end each has to have the bits of a run that nobody killed. Half of the
moments are drawn from the seconds that a run takes, half from the files that
it writes, as one of them is begun, or from its requests, where the run is in
the emulator of a store. Of two processes one is killed, or the other, or both;
what is left has some seconds, as where a machine dies.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import random
import re
import sys
import time
import zipfile

import numpy as np
import object_stores
import several_processes as several

from keras_vit.io.atomic_files import PARTIAL
from keras_vit.io.run_folder import MANIFEST, RESULT
from keras_vit.io.stores import Store
from keras_vit.training import checkpointing
from keras_vit.training.run.files import LOCK

ROOT = pathlib.Path(__file__).parents[2]
OF_THE_MACHINE = ("images_per_second", "peak_memory")
KILLS_OF_A_RUN = 5
SECONDS = 300  # in which a process ends or has reached its moment
GRACE = 5  # seconds for those that are left
POLL = 0.001
COMMAND = (
    ROOT / "recipes" / "finetune.py",
    *("--data.name=digits", "--data.max_examples=200", "--model.channels=1"),
    *("--model.image_size=8", "--model.patch_size=4", "--model.hidden_dim=8"),
    *("--model.num_layers=1", "--model.mlp_dim=8", "--model.num_heads=2"),
    *("--model.dropout_rate=0.1", "--training.steps=60"),
    *("--training.batch_size=8", "--training.checkpoint_every_steps=5"),
    *("--training.log_every_steps=2", "--training.ema_decay=0.9"),
    *("--optimizer.warmup_steps=2", "--preprocessing.evaluation=squash"),
)


class FolderRun:
    """A run in a folder of this machine."""

    MOST_WRITES = 12  # of which the next one may be the moment

    def __init__(self, folder: pathlib.Path):
        self.folder = self.address = folder
        self._seen: set[str] = set()

    def begun(self, since) -> bool:
        """Whether the lock is that of a process younger than `since`."""
        with contextlib.suppress(OSError):
            locks = self.folder.glob(LOCK)
            return any(path.stat().st_mtime >= since for path in locks)
        return False

    def is_finished(self) -> bool:
        return (self.folder / RESULT).exists()

    def writes(self) -> int:
        """The files that were begun so far, as far as this was asked."""
        folders = [self.folder / x for x in ("", "checkpoints", "examples")]
        for inside in folders:
            with contextlib.suppress(OSError):
                names = os.listdir(inside)
                self._seen |= {x for x in names if x.startswith(PARTIAL)}
        return len(self._seen)

    def copied(self) -> pathlib.Path:
        return self.folder


class StoreRun:
    """A run in an emulated store."""

    MOST_WRITES = 80

    def __init__(self, folder: pathlib.Path, emulator):
        self.folder, self.emulator = folder, emulator
        self.address = emulator.address(folder.name)
        self.store = Store(self.address)

    def begun(self, since) -> bool:
        content = self.store.read(LOCK)
        if content is None:
            return False
        started = json.loads(content.splitlines()[0])["time"]
        return datetime.datetime.fromisoformat(started).timestamp() >= since

    def is_finished(self) -> bool:
        return self.store.read(RESULT) is not None

    def writes(self) -> int:
        return self.emulator.writes

    def copied(self) -> pathlib.Path:
        for name in self.store.find():
            self.store.download(name, self.folder / name)
        return self.folder


def start(run, asked):
    """Starts the processes of a run, asked for by the command line."""
    options = f"--run_dir={run.address}", f"--distribution={asked.distribution}"
    return several.start([*COMMAND, *options], count=asked.processes)


def wait(processes, reached) -> bool:
    """Whether a moment came before all processes had ended."""
    end = time.monotonic() + SECONDS
    while not reached():
        if all(process.poll() is not None for process in processes):
            return False
        if time.monotonic() > end:
            raise TimeoutError("Nothing ended, and no moment came.")
        time.sleep(POLL)
    return True


def at_a_time(draw, run, seconds):
    """A moment of the seconds that a run takes."""
    end = time.monotonic() + draw.uniform(0, seconds)
    return lambda: time.monotonic() >= end


def at_a_file(draw, run, seconds):
    """The moment in which one of the next files is begun, or put."""
    count = run.writes() + draw.randint(1, run.MOST_WRITES)
    return lambda: run.writes() >= count


def killed(draw, run, asked, seconds) -> bool:
    """Starts a run and kills it; False where it ended before that."""
    since, count = time.time(), asked.processes
    processes = start(run, asked)
    try:
        if not wait(processes, lambda: run.begun(since)):
            raise RuntimeError(f"It did not begin: {several.ended(processes)}")
        moment = draw.choice((at_a_time, at_a_file))
        if not wait(processes, moment(draw, run, seconds)):
            check_ended(several.ended(processes))
            return False
        victims = draw.choice([[0], [count - 1], range(count)])
        for victim in victims:
            processes[victim].kill()
        end = time.monotonic() + GRACE
        while time.monotonic() < end and any(
            process.poll() is None for process in processes
        ):
            time.sleep(0.05)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return True


def check_ended(found):
    for code, _, errors in found:
        assert code == 0, errors[-3000:]
        assert "Traceback" not in errors, errors[-3000:]


def contents(folder) -> dict:
    """What a run leaves but the clock: equal to the bit in all."""
    found = {}
    with (
        zipfile.ZipFile(folder / "model.keras") as archive,
        archive.open("model.weights.h5") as file,
    ):
        import h5py

        with h5py.File(file) as h5:
            h5.visititems(
                lambda name, x: (
                    found.update({name: np.array(x).tobytes()})
                    if hasattr(x, "shape")
                    else None
                )
            )
    newest = checkpointing.read_newest(folder / "checkpoints")
    assert newest is not None and newest[1]["step"] == 60
    found |= {x: array.tobytes() for x, array in newest[0].items()}
    with np.load(folder / "predictions.npz") as arrays:
        found |= {x: arrays[x].tobytes() for x in arrays}
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    found["lines"] = [
        {name: row[name] for name in row if name not in OF_THE_MACHINE}
        for row in rows
    ]
    result = json.loads((folder / RESULT).read_text())
    found["top1"] = result["top1"]
    manifest = json.loads((folder / MANIFEST).read_text())
    found["listed"] = sorted(manifest["files"])
    found["files"] = sorted(
        # Each writing of shards has letters of its own.
        re.sub("-[0-9a-f]{8}-", "-", str(path.relative_to(folder)))
        for path in folder.rglob("*")
        if "tfevents" not in path.name and path.name != LOCK
    )
    return found


def compare(one: dict, other: dict) -> None:
    assert one.keys() == other.keys()
    different = [name for name in one if one[name] != other[name]]
    assert not different, {
        name: (one[name], other[name]) for name in different[:3]
    }


def kill_runs(asked, place) -> dict:
    """Kills runs until there were as many kills; how many, in how many runs.

    Args:
        asked: the options.
        place: function from a folder to the run that has its name.
    """
    count, kills = asked.processes, asked.kills
    folder, draw = pathlib.Path(asked.folder), random.Random(asked.seed)
    reference = place(folder / "reference")
    since = time.time()
    processes = start(reference, asked)
    wait(processes, lambda: reference.begun(since))
    begin = time.monotonic()
    check_ended(several.ended(processes))
    seconds = time.monotonic() - begin
    expected = contents(reference.copied())
    total = runs = 0
    while total < kills:
        run, ended = place(folder / f"run-{runs}"), False
        for _ in range(min(KILLS_OF_A_RUN, kills - total)):
            if not killed(draw, run, asked, seconds):
                ended = True
                break
            total += 1
            # Killed after its last file: there is nothing left to do.
            ended = run.is_finished()
            print(f"{count} processes: kill {total}", flush=True)
            if ended:
                break
        if not ended:
            check_ended(several.ended(start(run, asked)))
        compare(expected, contents(run.copied()))
        runs += 1
        print(f"{count} processes: run {runs} is the same", flush=True)
    return {"kills": total, "runs": runs}


def main(arguments=None) -> dict:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--distribution", default="auto")
    parser.add_argument("--store", choices=object_stores.SCHEMES)
    asked = parser.parse_args(arguments)
    if asked.store is None:
        found = kill_runs(asked, FolderRun)
    else:
        with object_stores.emulated(asked.store) as emulator:
            found = kill_runs(asked, lambda x: StoreRun(x, emulator))
    print(json.dumps(found), file=sys.stdout)
    return found


if __name__ == "__main__":
    main()
