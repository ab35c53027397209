"""Scripts that see several virtual devices of a CPU, each in a process."""

import os
import pathlib
import subprocess
import sys

SUPPORT = pathlib.Path(__file__).parent

# JAX has an option of the environment for it.
ON_TENSORFLOW = """
import sys
import tensorflow as tf

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * {devices}
)
"""


def run(script: str, *arguments, devices: int, backend: str) -> str:
    """The last line of what a script says; its errors fail the test."""
    if backend == "tensorflow":
        script = ON_TENSORFLOW.format(devices=devices) + script
    paths = [
        str(SUPPORT),
        str(SUPPORT.parent / "training"),
        str(SUPPORT.parents[1]),
        os.environ.get("PYTHONPATH", ""),
    ]
    flag = f"--xla_force_host_platform_device_count={devices}"
    ended = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flag}",
        },
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout.splitlines()[-1]
