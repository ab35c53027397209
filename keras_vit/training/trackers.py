"""Reporting of a run to TensorBoard, Weights & Biases and MLflow.

Keras's callbacks for them have other steps and names of metrics, and forget
nothing where a run resumes from an earlier checkpoint; its own of TensorBoard
needs TensorFlow.

The id of a run of the last two is kept in the run folder, so that a run that
resumes goes on in the same one. Where they report to is set by their own
variables: WANDB_PROJECT, WANDB_MODE, MLFLOW_TRACKING_URI,
MLFLOW_EXPERIMENT_NAME and so on. A failure there is logged once and does not
end the training.
"""

import contextlib
import importlib.util
import json
import logging
import os
import pathlib
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from keras_vit.io.atomic_files import write_json
from keras_vit.io.checks import EXTRAS, check_installed
from keras_vit.training.distribution.processes import is_first
from keras_vit.training.run import files as run_folder
from keras_vit.training.run.resume import flat

__all__ = ["check_trackers", "event_writer", "report_result", "tracking"]

LOGGER = logging.getLogger(__name__)
EVENTS = "tensorboard"  # the folder
IDS = "trackers.json"
PROJECT = "keras_vit"  # where the environment names none
STATUSES = ("FINISHED", "FAILED", "KILLED")
LONGEST_VALUE = 500  # characters of a parameter of MLflow
PICTURES = ("report.html", "curves.png", "confusion.png")


def check_trackers(names: Sequence[str]) -> None:
    """Raise a ValueError with the pip command for one that is not here."""
    for name in names:
        check_installed(f"training.trackers={name}", *EXTRAS[name])


@contextlib.contextmanager
def tracking(
    folder: pathlib.Path, names: Sequence[str]
) -> Iterator[list[Callable[[dict], None]]]:
    """Open the runs of the trackers, and close them with how it ended.

    Args:
        folder: the run folder, which has its config.yaml.
        names: of `TRACKERS`. Of several processes the first one reports.

    Yields:
        Functions of a line of metrics, see `MetricsLog`.

    Example:
        >>> with tracking(folder, ["mlflow"]) as listeners:
        ...     listeners[0]({"step": 1, "loss": 2.3})
    """
    runs = _opened(folder, names) if is_first() else []
    status = "FAILED"
    try:
        yield [run.log for run in runs]
        status = "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        for run in runs:
            run.close(status)


def report_result(
    folder: pathlib.Path, names: Sequence[str], result: dict
) -> None:
    """Add the result and the report to the runs that `tracking` opened.

    Args:
        folder: the run folder.
        names: of `TRACKERS`.
        result: what result.json has.
    """
    for run in _opened(folder, names):
        run.add_result(flat(result), [folder / name for name in PICTURES])
        run.close("FINISHED")


def _opened(folder, names) -> list["_Guarded"]:
    """Open the runs of the trackers, those of the ids in the folder if any."""
    path = folder / IDS
    try:
        ids = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        ids = {}
    config = flat(run_folder.read_config(folder)) if names else {}
    runs = []
    for name in names:
        run = _Guarded(name, folder.resolve().name, config, ids.get(name))
        ids[name] = run.id
        runs.append(run)
    if runs:
        write_json(path, ids)
    return runs


class _Guarded:
    """The run of a tracker, until something fails there."""

    def __init__(self, name, title, config, known):
        self.name, self.id = name, known
        self._run: Any = None
        with self._logging_failures():
            self._run = TRACKERS[name](title, config, known)
            self.id = self._run.id

    def __getattr__(self, method):
        def call(*arguments):
            if self._run is not None:
                with self._logging_failures():
                    getattr(self._run, method)(*arguments)

        return call

    @contextlib.contextmanager
    def _logging_failures(self):
        try:
            yield
        except Exception as error:
            self._run = None
            reason = " ".join(str(error).split())
            LOGGER.warning("%s gets no more of this run: %s", self.name, reason)


class _WandbRun:
    """A run of Weights & Biases."""

    def __init__(self, title, config, known):
        import wandb  # pyright: ignore[reportMissingImports]

        project = os.environ.get("WANDB_PROJECT", PROJECT)
        self._run = wandb.init(
            id=known,
            project=project,
            name=title,
            config=config,
            resume="allow",
        )
        self.id = self._run.id
        # Its own steps only grow, and a run may resume from an earlier one.
        self._run.define_metric("*", step_metric="step")

    def log(self, row):
        self._run.log({k: x for k, x in row.items() if x is not None})

    def add_result(self, result, files):
        self._run.summary.update(result)
        for file in filter(pathlib.Path.is_file, files):
            self._run.save(file, base_path=file.parent, policy="now")

    def close(self, status):
        self._run.finish(exit_code=STATUSES.index(status))


class _MlflowRun:
    """A run of MLflow."""

    def __init__(self, title, config, known):
        from mlflow.tracking import (  # pyright: ignore[reportMissingImports]
            MlflowClient,
        )

        self._client = MlflowClient()
        self.id = known if self._is_there(known) else None
        if self.id is not None:
            self._client.update_run(self.id, "RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(name)
        experiment = (
            self._client.create_experiment(name)
            if found is None
            else found.experiment_id
        )
        run = self._client.create_run(experiment, run_name=title)
        self.id = run.info.run_id
        for key, value in config.items():
            self._client.log_param(self.id, key, str(value)[:LONGEST_VALUE])

    def _is_there(self, known):
        from mlflow.exceptions import (  # pyright: ignore[reportMissingImports]
            MlflowException,
        )

        with contextlib.suppress(MlflowException):
            return known is not None and bool(self._client.get_run(known))
        return False

    def log(self, row):
        for name, value in row.items():
            if name != "step" and value is not None:
                self._client.log_metric(
                    self.id, name, float(value), step=row["step"]
                )

    def add_result(self, result, files):
        for name, value in result.items():
            if isinstance(value, int | float):
                self._client.log_metric(self.id, f"result.{name}", value)
        for file in filter(pathlib.Path.is_file, files):
            self._client.log_artifact(self.id, str(file))

    def close(self, status):
        self._client.set_terminated(self.id, status)


# Names of `keras_vit.training.config.TRACKERS`.
TRACKERS: dict[str, Callable] = {"wandb": _WandbRun, "mlflow": _MlflowRun}


def event_writer(folder: pathlib.Path, step: int) -> Callable[[dict], None]:
    """Return a function that writes a line of metrics as TensorBoard events.

    Where no writer is installed, it prints that, and the function does
    nothing.

    Args:
        folder: the run folder.
        step: the step that the run continues from; TensorBoard forgets later
            ones.
    """
    for needed, make in WRITERS.items():
        if all(map(importlib.util.find_spec, needed)):
            scalar = make(folder / EVENTS, step)
            break
    else:
        print("No TensorBoard events: pip install tensorboardX for them.")
        return lambda row: None

    def write(row: dict) -> None:
        for name, value in row.items():
            if name not in ("step", "epoch") and value is not None:
                scalar(name, value, row["step"])

    return write


def _tensorboardx(folder, step):
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event, SessionLog
    from tensorboardX.summary import scalar as summary

    # Its SummaryWriter writes by a thread, which a full disk ends: add_scalar
    # then waits forever.
    folder.mkdir(parents=True, exist_ok=True)
    writer = EventsWriter(str(folder / "events"))

    def write(**fields):
        writer.write_event(Event(wall_time=time.time(), **fields))
        writer.flush()

    if step:
        start = SessionLog(status=SessionLog.START)
        write(step=step + 1, session_log=start)

    def close():
        with contextlib.suppress(OSError):  # It was said as it was written.
            writer.close()

    weakref.finalize(write, close)
    return lambda name, value, step: write(
        step=step, summary=summary(name, value)
    )


def _tensorflow(folder, step):
    import tensorflow as tf

    writer = tf.summary.create_file_writer(str(folder))

    def scalar(name, value, step):
        with writer.as_default():
            tf.summary.scalar(name, value, step=step)
        writer.flush()

    return scalar


# What each writer needs; the first one installed is taken. TensorFlow's
# summaries are in the package tensorboard.
WRITERS = {
    ("tensorboardX",): _tensorboardx,
    ("tensorboard", "tensorflow"): _tensorflow,
}
