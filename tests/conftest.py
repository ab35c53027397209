"""What every test starts from: fixed seeds and nobody's own Keras settings."""

import collections
import contextlib
import gc
import importlib.metadata
import os
import re
import signal
import tempfile

# Before Keras is imported: it reads its settings from KERAS_HOME, or else
# writes them to the user's home folder; TensorFlow prints unless it is told.
KERAS_HOME = tempfile.TemporaryDirectory(prefix="keras-home-")
os.environ["KERAS_HOME"] = KERAS_HOME.name
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# XLA takes longer to optimise tiny programs than to run them, and half of its
# time goes into MLIR's passes and into starting one compiler for each part.
FLAGS = "--xla_backend_optimization_level=0"
FLAGS += " --xla_cpu_parallel_codegen_split_count=1"
with contextlib.suppress(importlib.metadata.PackageNotFoundError):
    jaxlib = importlib.metadata.version("jaxlib").split(".")
    if (int(jaxlib[0]), int(jaxlib[1])) < (0, 11):  # XLA ends at unknown ones.
        FLAGS += " --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("XLA_FLAGS", FLAGS)
# oneDNN's bfloat16 convolutions on AMX read memory that nobody wrote where a
# stride of 2 and 128 channels leave 2x1 pixels: NaN, on TensorFlow and torch.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# What is started in the background ignores Ctrl-C, and hands that on.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tracing makes many objects that stay: with fewer collections the tests take
# 7 % less time on JAX.
gc.set_threshold(100_000, 50, 1000)

import pytest  # noqa: E402


# The process that hands out the tests imports no Keras, for which all wait.
@pytest.fixture(autouse=True)
def seeded() -> None:
    import keras

    keras.utils.set_random_seed(0)


@pytest.fixture(autouse=True, scope="module")
def frozen():
    """What a file of tests leaves behind is no longer looked through.

    Keras collects all garbage as a layer is quantised: in a worker that has
    traced a thousand programs, seconds each time.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from browser import Browser

    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module", params=["s3", "gs"])
def emulator(request):
    """An emulated object store."""
    import object_stores

    with object_stores.emulated(request.param) as found:
        yield found


@pytest.fixture
def address(emulator, request):
    """Of a run of this test alone in the store."""
    from keras_vit.training.run import files as run_folder

    name = re.sub(r"\W+", "-", request.node.name)
    yield emulator.address(f"runs/{name}")
    run_folder._mirrors.clear()


def pytest_terminal_summary(terminalreporter):
    """Print the ten files of tests that took the most time."""
    seconds = collections.Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration"):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    if len(seconds) > 1:
        terminalreporter.section("slowest files")
    for name, total in seconds.most_common(10) if len(seconds) > 1 else ():
        terminalreporter.write_line(f"{total:7.1f} s  {name}")


@pytest.fixture
def backend() -> str:
    import keras

    return keras.backend.backend()
