"""Several processes of one run, on this machine.

    python tests/support/several_processes.py FOLDER CHOICE OPTIONS

is one of them: it trains the run of `whole_runs` with options as JSON, and
says what the weights are at its end.
"""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import keras
import numpy as np
import sharded
import whole_runs

from keras_vit.runtime import interrupts
from keras_vit.training import train
from keras_vit.training.distribution.processes import LostProcessError, leave

SUPPORT = pathlib.Path(__file__).parent
ROOT = SUPPORT.parents[1]
SECONDS = 280  # after which what has not ended is killed
SIGNAL = "SIGNAL_IN_THE_MIDST"  # the environment variable that tells which


class Signalled(keras.callbacks.Callback):
    """Sends this process a signal after 14 steps, the 4th of an interval."""

    def __init__(self, number: int):
        super().__init__()
        self.number = number

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if (self.epoch, batch) == (1, 4):
            os.kill(os.getpid(), self.number)


def environments(count: int, devices: int) -> list[dict]:
    """What tells each process which one it is."""
    addresses = [f"localhost:{port}" for port in free_ports(count)]
    if count == 1:
        return [{}]
    if keras.backend.backend() == "jax":
        flag = f"--xla_force_host_platform_device_count={devices}"
        return [
            {
                "KERAS_DISTRIBUTION_JOB_ADDRESSES": addresses[0],
                "KERAS_DISTRIBUTION_NUM_PROCESSES": str(count),
                "KERAS_DISTRIBUTION_PROCESS_ID": str(i),
                "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flag}",
            }
            for i in range(count)
        ]
    cluster = {"worker": addresses}
    tasks = [{"type": "worker", "index": i} for i in range(count)]
    return [
        {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}
        for task in tasks
    ]


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("localhost", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def start(
    command: list,
    *,
    count=2,
    devices=1,
    victim: int | None = None,
    number: int = signal.SIGKILL,
) -> list[subprocess.Popen]:
    """Starts the same command in each of several processes.

    One of them may be told to send itself a signal in the midst of the run.
    """
    paths = [SUPPORT, ROOT, os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(str(part) for part in paths if str(part))
    return [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            env={
                **os.environ,
                "PYTHONPATH": path,
                SIGNAL: str(int(number) if victim == i else 0),
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i, environment in enumerate(environments(count, devices))
    ]


def ended(processes: list[subprocess.Popen], seconds=SECONDS) -> list[tuple]:
    """Waits for processes: exit code, output and errors of each."""
    deadline = time.monotonic() + seconds
    found = []
    try:
        for process in processes:
            left = max(deadline - time.monotonic(), 0.1)
            output, errors = process.communicate(timeout=left)
            found.append((process.returncode, output, errors))
    finally:
        for process in processes:
            process.kill()
    return found


def command(folder, choice, options=None) -> list:
    script = SUPPORT / "several_processes.py"
    return [script, folder, choice, json.dumps(options or {})]


def trained(folder, choice, options=None, **several) -> dict:
    """Trains in several processes, as `whole_runs.told` does in one."""
    found = ended(start(command(folder, choice, options), **several))
    for code, _, errors in found:
        assert code == 0, errors[-3000:]
    weights = [json.loads(output.splitlines()[-1]) for _, output, _ in found]
    assert all(one == weights[0] for one in weights)
    said = [output.count("Distribution") for _, output, _ in found]
    assert said == [1] + [0] * (len(found) - 1)
    read = [re.search(r"^read (\d+)$", out, re.M) for _, out, _ in found]
    return {
        "lines": whole_runs.lines(folder),
        "history": whole_runs.history(folder),
        "weights": weights[0],
        "read": [int(number[1]) for number in read if number],
    }


def main(folder, choice, options):
    folder = pathlib.Path(folder)
    options = json.loads(options)
    asked = whole_runs.recipe(folder, choice, **options)
    read = sharded.count_bytes()
    try:
        number = int(os.environ.get(SIGNAL, 0))
        callbacks = [Signalled(number)] if number else []
        run = train(
            asked,
            dataset=whole_runs.dataset_of(asked),
            callbacks=callbacks,
            task=whole_runs.task_of(**options),
        )
    except LostProcessError as error:
        leave(str(error))
    except KeyboardInterrupt as interrupt:
        sys.exit(interrupts.ended(interrupt, "the same command continues."))
    print("read", sum(n for name, n in read.items() if "train" in name))
    print(json.dumps([float(np.abs(x).sum()) for x in run.model.get_weights()]))


if __name__ == "__main__":
    main(*sys.argv[1:])
