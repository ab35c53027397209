"""Keras's own tests of keras.applications, of the installed Keras, on ours."""

import importlib.util
import sys

import keras
import pytest
from absl.testing import parameterized
from listed import reason_of
from shrunken import shrink, tiny

import keras_vit
from keras_vit import sizes

MODULE = "keras.src.applications.applications_test"
APPLICATIONS = {
    "ViT_B16": sizes.VIT,
    "ViT_R_Ti16": sizes.VIT,
    "Mixer_S16": sizes.MIXER,
}


@pytest.fixture(autouse=True, scope="module")
def small():
    with pytest.MonkeyPatch.context() as monkeypatch:
        shrink(monkeypatch)
        # Their sides of 100, 123 and 224 pixels have no other common divisor.
        for name in ("ViT_B16", "Mixer_S16"):
            fields = APPLICATIONS[name][name] | {"patch_size": (1, 1)}
            monkeypatch.setitem(APPLICATIONS[name], name, fields)
        yield


@pytest.fixture(autouse=True)
def filtering():
    """Keras's TestCase leaves the filtering of tracebacks off."""
    enabled = keras.config.is_traceback_filtering_enabled()
    yield
    if enabled:
        keras.config.enable_traceback_filtering()


@pytest.fixture(autouse=True)
def listed(request):
    if reason := reason_of(request.node.nodeid):
        marker = pytest.mark.xfail(strict=True, reason=reason)
        request.node.add_marker(marker)


def cases():
    """A case of Keras's table for each of our applications and format."""
    for name, table in APPLICATIONS.items():
        width = tiny(table[name])["hidden_dim"]
        for order in ("channels_first", "channels_last"):
            application = getattr(keras_vit, name)
            yield f"_{name}_{order}", application, width, keras_vit, order


def theirs():
    """Keras's class of tests with our cases in place of its own."""
    original = parameterized.named_parameters
    parameterized.named_parameters = lambda *_: original(*cases())
    try:
        sys.modules.pop(MODULE, None)
        tests = importlib.import_module(MODULE).ApplicationsTest
    finally:
        parameterized.named_parameters = original
    for name in [x for x in dir(tests) if "application_base" in x]:
        delattr(tests, name)  # They download weights and a picture.
    return tests


if importlib.util.find_spec(MODULE) is None:
    pytest.skip("Not every wheel of Keras has them.", allow_module_level=True)
ApplicationsTest = theirs()
