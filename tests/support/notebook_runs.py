"""Notebooks run from top to bottom, as a script and in a Jupyter kernel."""

import json
import os
import pathlib
import subprocess
import sys

import jupytext
import nbformat

ROOT = pathlib.Path(__file__).parents[2]
RUN_KERNEL = "from nbclient.cli import main; main()"
SECONDS = 600

# Two devices of TensorFlow; those of JAX come by the environment.
TWO_DEVICES = """
import tensorflow as tf

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
"""


def run(path, folder, parameters=None, *, first="", devices=1, backend=None):
    """Runs a notebook, .py or .ipynb, with some of its parameters changed.

    A cell that sets them follows the one with the tag "parameters", as
    papermill does it.

    Args:
        path: the file, from the root of the project.
        folder: where it runs.
        parameters: dictionary of names and plain values.
        first: code that comes before the first cell.
        devices: int, virtual devices of JAX.
        backend: KERAS_BACKEND, None to leave it to the notebook.

    Returns:
        What a script printed; the notebook with its outputs.
    """
    path = ROOT / path
    made = jupytext.read(path) if path.suffix == ".py" else _read(path)
    _set(made, parameters or {})
    if first:
        made.cells.insert(0, nbformat.v4.new_code_cell(first))
    copy = pathlib.Path(folder, path.name)
    runner = _run_script if path.suffix == ".py" else _run_kernel
    return runner(made, copy, _environment(folder, devices, backend))


def printed(result) -> str:
    """What a run wrote to its standard output."""
    if isinstance(result, str):
        return result
    return "".join(
        output.text
        for cell in result.cells
        for output in cell.get("outputs", ())
        if output.get("name") == "stdout"
    )


def pictures(result) -> int:
    """How many pictures a notebook with outputs shows."""
    return sum(
        "image/png" in output.get("data", {})
        for cell in result.cells
        for output in cell.get("outputs", ())
    )


def _read(path):
    return nbformat.read(path, as_version=4)


def _set(made, parameters):
    tagged = [
        number
        for number, cell in enumerate(made.cells)
        if "parameters" in cell.metadata.get("tags", ())
    ]
    assert len(tagged) == 1, "one cell has the tag parameters"
    given = made.cells[tagged[0]].source
    unknown = [name for name in parameters if f"{name} = " not in given]
    assert unknown in ([], ["ID", "LABEL"]), unknown
    lines = [f"{name} = {value!r}" for name, value in parameters.items()]
    made.cells.insert(
        tagged[0] + 1, nbformat.v4.new_code_cell("\n".join(lines))
    )


def _environment(folder, devices, backend):
    own = ("KERAS_BACKEND", "PYTHONPATH", "MPLBACKEND")
    kept = {name: x for name, x in os.environ.items() if name not in own}
    count = f"--xla_force_host_platform_device_count={devices}"
    return {
        **kept,
        **({"KERAS_BACKEND": backend} if backend else {}),
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": f"{kept.get('XLA_FLAGS', '')} {count}",
        "OMP_NUM_THREADS": "1",
        "IPYTHONDIR": str(pathlib.Path(folder, ".ipython")),
        "JUPYTER_PLATFORM_DIRS": "1",
    }


def _run_script(made, copy, environment):
    jupytext.write(made, copy, fmt="py:percent")
    return _done([str(copy)], copy, {**environment, "MPLBACKEND": "agg"})


def _run_kernel(made, copy, environment):
    nbformat.write(made, copy)
    _done(["-c", RUN_KERNEL, "--inplace", str(copy)], copy, environment)
    return _read(copy)


def _done(arguments, copy, environment):
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=copy.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return done.stdout


if __name__ == "__main__":
    # python tests/support/notebook_runs.py NOTEBOOK FOLDER '{"EPOCHS": 1}'
    print(printed(run(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))))
