"""Which devices a run takes, what it says of them, and what it refuses."""

import json
import os
import subprocess
import sys

import pytest

from keras_vit.io.checks import DISTRIBUTIONS
from keras_vit.runtime.machine import devices
from keras_vit.training.distribution import Distribution, setup
from keras_vit.training.distribution import layouts as choosing

HERE = {
    "jax": {"data_parallel", "fsdp", "model_parallel"},
    "tensorflow": {"mirrored", "multiworker", "tpu"},
    "torch": set(),
}
EVERYWHERE = {"auto", "single"}


def test_one_device_is_told_in_a_line():
    chosen = setup("single", batch_size=64)
    first = devices()[0]
    assert str(chosen) == (
        f"single: 1 device ({first}), 1 replica, batch 64 (64 on each)"
    )


def test_several_are_told_with_the_share_of_each():
    several = Distribution("fsdp", ("gpu:0", "gpu:1"), 2, 512)
    assert str(several) == (
        "fsdp: 2 devices (gpu:0, gpu:1), 2 replicas, batch 512 (256 on each)"
    )


def test_one_device_needs_no_context():
    chosen = setup("single")
    assert chosen.native is None
    with chosen.scope():
        pass


@pytest.mark.parametrize("choice", sorted(set(DISTRIBUTIONS) - EVERYWHERE))
def test_what_a_backend_has_not_is_refused_with_what_to_use(choice, backend):
    if choice in HERE[backend]:
        pytest.skip("It has it.")
    instead = {"jax": "data_parallel", "tensorflow": "mirrored"}
    with pytest.raises(ValueError, match=f"no '{choice}' on the") as refused:
        setup(choice)
    assert f"Use {instead.get(backend, 'single')!r}" in str(refused.value)


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="Did you mean 'mirrored'"):
        setup("mirored")


@pytest.mark.parametrize(
    ("batch", "taken"), [(None, 4), (8, 4), (6, 3), (7, 1), (2, 2)]
)
def test_auto_takes_as_many_devices_as_divide_the_batch(
    batch, taken, backend, monkeypatch
):
    names = [f"cpu:{i}" for i in range(4)]
    monkeypatch.setattr(choosing, "devices", lambda: names)
    made = []

    def maker(devices, *options):
        made.append(devices)
        return None, len(devices)

    plain = choosing.PLAIN[backend]
    monkeypatch.setitem(choosing.MAKERS[backend], plain, maker)
    chosen = setup("auto", batch_size=batch)
    several = taken > 1 and backend != "torch"
    assert chosen.devices == tuple(names[: taken if several else 1])
    assert chosen.choice == (plain if several else "single")
    assert made == ([names[:taken]] if several else [])


def test_a_batch_that_cannot_be_shared_is_refused(backend, monkeypatch):
    if not HERE[backend]:
        pytest.skip("No batch is shared on torch.")
    plain = choosing.PLAIN[backend]
    monkeypatch.setitem(
        choosing.MAKERS[backend], plain, lambda *options: (None, 3)
    )
    with pytest.raises(ValueError, match="batch of 8 .* a multiple of 3"):
        setup(plain, batch_size=8)


def test_layers_are_shared_by_a_number_that_divides_the_devices(backend):
    if backend != "jax":
        pytest.skip("Layers are shared on JAX alone.")
    script = """
import json
from keras_vit.training.distribution import setup
from keras_vit.models import VisionTransformer, ViTConfig

def refused(**options):
    try:
        with setup("model_parallel", **options).scope():
            VisionTransformer(ViTConfig(
                image_size=8, patch_size=4, hidden_dim=8, num_layers=1,
                mlp_dim=9, num_heads=2))
    except ValueError as error:
        return str(error)

print(json.dumps([refused(model_axis=4), refused(model_axis=2)]))
"""
    flags = os.environ.get("XLA_FLAGS", "")
    flags += " --xla_force_host_platform_device_count=6"
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    devices, width = json.loads(ended.stdout.splitlines()[-1])
    assert "model_axis=4, 6 devices" in devices
    assert "of shape (8, 9) cannot be cut into 2 equal shares" in width
