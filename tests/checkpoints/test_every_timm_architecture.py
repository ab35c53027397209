"""No Vision Transformer of timm loads with another output than timm's."""

import collections
import importlib
import pathlib

import keras
import pytest
from timm_stub import import_timm

TOOLS = pathlib.Path(__file__).parents[2] / "tools"
# These are not narrowed, and some of them take 14 GB.
LARGE = ("resnetv2",)


@pytest.mark.slow
def test_every_published_architecture_is_right_or_refused(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(TOOLS))
    tool = importlib.import_module("make_coverage")
    timm = import_timm()
    tags = collections.Counter(
        tag.partition(".")[0] for tag in timm.list_pretrained()
    )
    found = []
    for module in tool.MODULES:
        for name in timm.list_models(module=module):
            if tags[name] and module not in LARGE:
                found.append(tool.examined(timm, module, name))
                keras.utils.clear_session()
    assert [x for x in found if x.verdict == "wrong"] == []
    right = [tags[x.name] for x in found if x.verdict == "timm's output"]
    assert sum(right) >= 485
