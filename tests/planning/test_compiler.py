"""What the compiler for TPUs is asked for a plan, and what is made of it."""

import dataclasses
import importlib.util
import json
import re
import sys
import types

import pytest

from keras_vit.cli import main
from keras_vit.planning import Settings, confirm, machine, memory, plan
from keras_vit.planning import compiler as the_compiler
from keras_vit.planning.compiler import (
    compiled_peaks,
    peak_bytes,
    step_of,
    topology,
)
from keras_vit.planning.estimate import Way, largest_batch, vit_config
from keras_vit.training import optimizers
from keras_vit.training.distribution import topologies
from keras_vit.training.tasks import MAEConfig
from keras_vit.training.tasks.mae import LOSSES

LIBTPU = importlib.util.find_spec("libtpu")
B16 = vit_config("ViT_B16")
V5E = machine("v5e-8")
ON_TPU = Settings(batch=512, attention="recomputed", compiler="fusing")
TINY = {"image_size": 16, "patch_size": 8, "hidden_dim": 8, "num_layers": 1}
TINY |= {"num_heads": 2, "mlp_dim": 16, "num_classes": 3}
USABLE = 0.9 * 16e9


def row(layout="data_parallel", settings=ON_TPU, rematerialize=False):
    wanted = (layout, rematerialize)
    rows = plan(B16, settings, V5E)
    return next(x for x in rows if (x.layout, x.rematerialize) == wanted)


def compiler(megabytes_an_image, asked):
    """A compiler for which a block and an image take so much, one after one."""

    def peaks(cases):
        asked.append(cases)
        return [
            round(1e6 * megabytes_an_image * x["config"]["num_layers"])
            * x["batch"]
            // 8
            for x in cases
        ]

    return peaks


def test_a_machine_is_a_topology():
    named = {"v5e-8": "v5e:2x4", "v5e-256": "v5e:16x16", "v5p-16": "v5p:2x2x2"}
    assert {x: topology(machine(x)) for x in named} == named


@pytest.mark.parametrize(
    ("name", "message"),
    [("h100x8", "device to compile for"), ("v5e-24", "number of v5e chips")],
)
def test_what_is_not_compiled_for_is_said(name, message):
    with pytest.raises(ValueError, match=message):
        topology(machine(name))


def test_the_largest_batch_is_one_that_the_compiler_confirms():
    asked = []
    found = confirm(B16, ON_TPU, V5E, row(), compiler(10, asked))
    assert found.compiled_bytes == 12 * 10e6 * 64  # From 2 and 4 blocks.
    # 120 MB an image: 120 of them take 14.4 GB, 90 % of the memory.
    assert found.largest_batch == 8 * 120
    assert found.largest_bytes == 12 * 10e6 * 120 <= USABLE
    depths = [[x["config"]["num_layers"] for x in cases] for cases in asked]
    assert depths == [[2, 4]] * len(asked)
    assert len(asked) <= 5


def test_what_the_compiler_does_not_fit_in_is_no_batch():
    found = confirm(B16, ON_TPU, V5E, row(), lambda cases: [None, None])
    assert found.compiled_bytes is None
    assert found.largest_batch == 0


@pytest.mark.parametrize("most", [600, 1000, 1500])
def test_a_compiler_that_gives_up_early_is_searched(most):
    """From `most` images on it fits nothing, and below it needs little."""

    def peaks(cases) -> list[int | None]:
        batch = cases[0]["batch"]
        tried.append(batch)
        return [10**9, 10**9 + batch] if batch <= most else [None, None]

    tried = []
    found = confirm(B16, ON_TPU, V5E, row(), peaks)
    assert found.largest_batch in tried
    assert 0.8 * most < found.largest_batch <= most


def test_parts_of_a_batch_are_compiled_with_the_sum_of_gradients():
    asked = []
    settings = dataclasses.replace(ON_TPU, batch=8192)
    wanted = row(settings=settings)
    assert wanted.parts == 4
    confirm(B16, settings, V5E, wanted, compiler(10, asked))
    assert [x["parts"] for x in asked[0]] == [4, 4]
    assert [x["batch"] for x in asked[0]] == [2048, 2048]
    assert [x["parts"] for x in asked[1]] == [None, None]


@pytest.mark.parametrize("layout", ["data_parallel", "fsdp", "model_parallel"])
def test_the_largest_batch_of_the_formula_fits_and_no_larger(layout):
    replicas = 4 if layout == "model_parallel" else 8
    batch = largest_batch(B16, ON_TPU, V5E, Way(layout, False))
    assert batch % (8 * replicas) == 0

    def total(batch):
        settings = dataclasses.replace(ON_TPU, batch=batch)
        return memory(B16, settings, layout, devices=8).total

    assert total(batch) <= USABLE < total(batch + 8 * replicas)


def test_few_images_are_counted_one_by_one():
    one, way = machine("v5e-1"), Way("data_parallel", False)

    def total(batch):
        settings = dataclasses.replace(ON_TPU, batch=batch)
        return memory(B16, settings).total

    between = USABLE / (total(3) + total(4)) * 2
    assert largest_batch(B16, ON_TPU, one, way, between) == 3
    assert largest_batch(B16, ON_TPU, one, way, 1.1 * USABLE / total(1)) == 0


def test_the_command_shows_both_beside_each_other(capsys, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "keras_vit.planning.compiler.compiled_peaks", compiler(10, asked)
    )
    monkeypatch.setattr(
        "keras_vit.cli.model_commands.check_compiler", lambda machine: None
    )
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    arguments = ["plan", "--model", "ViT_B16", "--batch", "512", "--compile"]
    assert main([*arguments, "fsdp", "data_parallel"]) == 0
    printed = capsys.readouterr()
    shown = re.sub("\x1b[^m]*m", "", printed.err)
    assert "Compiling fsdp on v5e:2x4, batch 512, 2 and 4 blocks" in shown
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in printed.out.splitlines()
        if "| 7.68 " in line  # 12 blocks of 10 MB for 64 images.
    ]
    assert [line[0] for line in lines] == ["fsdp", "data_parallel"]
    assert all(line[-2] == "960" for line in lines)
    topologies = {x["topology"] for cases in asked for x in cases}
    assert topologies == {"v5e:2x4"}


@pytest.mark.skipif(bool(LIBTPU), reason="libtpu is installed.")
def test_without_the_compiler_the_command_says_how_to_get_it(capsys):
    asked = ["plan", "--model", "ViT_B16", "--batch", "64", "--compile"]
    assert main(asked) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert 'pip install "keras-vision-transformer[tpu-compiler]"' in error


@pytest.mark.slow
@pytest.mark.skipif(not LIBTPU, reason="libtpu is not installed.")
@pytest.mark.parametrize("layout", ["data_parallel", "fsdp", "model_parallel"])
def test_formula_agrees_with_the_compiler(layout):
    """The whole of B/16 on a v5e-8, 64 images a chip."""
    asked = []

    def once(cases) -> list[int | None]:
        asked.append(cases)
        return compiled_peaks(cases) if len(asked) == 1 else [None, None]

    found = confirm(B16, ON_TPU, V5E, row(layout), once)
    assert found.formula_bytes == pytest.approx(found.compiled_bytes, rel=0.1)


CASE = {
    **{"topology": "v5e:2x4", "config": {}, "precision": "float32"},
    **{"batch": 8, "distribution": "single", "model_axis": 1},
    **{"optimizer": "adamw", "parts": None},
}


@pytest.mark.parametrize(
    "error", ["RESOURCE_EXHAUSTED: 17 GB of 16", "INTERNAL: a fault of XLA"]
)
def test_of_the_errors_of_xla_that_of_memory_alone_is_an_answer(
    error, monkeypatch
):
    def refuse():
        raise RuntimeError(error)

    lowered = types.SimpleNamespace(compile=refuse)
    monkeypatch.setattr(topologies, "devices_of", lambda topology: [])
    monkeypatch.setattr(topologies, "lowered", lambda step, devices: lowered)
    if error.startswith("RESOURCE"):
        assert peak_bytes(CASE) is None
    else:
        with pytest.raises(RuntimeError, match="INTERNAL"):
            peak_bytes(CASE)


def test_its_process_prints_a_peak_a_line(monkeypatch, capsys):
    cases = [{"batch": 8}, {"batch": 24}]
    monkeypatch.setattr(sys, "argv", ["-c", json.dumps(cases)])
    peaks = {8: 1000, 24: None}
    monkeypatch.setattr(the_compiler, "peak_bytes", lambda x: peaks[x["batch"]])
    the_compiler.main()
    assert capsys.readouterr().out == "1000\nnull\n"


@pytest.mark.parametrize("parts", [None, 4])
def test_a_step_is_that_of_its_case(parts):
    step = step_of({**CASE, "config": TINY, "parts": parts, "batch": 24})
    assert (step.batch, step.distribution, step.model_axis) == (24, "single", 1)
    model = step.make()
    assert model.config.num_layers == TINY["num_layers"]
    assert model.output_shape == (None, TINY["num_classes"])
    assert step.optimizer().gradient_accumulation_steps == parts


def test_an_optimizer_that_this_keras_lacks_is_named(monkeypatch):
    monkeypatch.delitem(optimizers.OPTIMIZERS, "muon")
    with pytest.raises(ValueError, match="nknown optimizer.*muon"):
        the_compiler._optimizer("muon", None)


def test_a_step_without_labels_has_the_loss_of_its_method():
    sizes = {"decoder_dim": 8, "decoder_heads": 2, "decoder_mlp_dim": 8}
    options = {**dataclasses.asdict(MAEConfig()), **sizes}
    method = {"name": "mae", "options": options, "teacher": None}
    step = step_of({**CASE, "config": TINY, "method": method})
    assert step.loss is not None and step.answers is not None
    network = step.make()
    pixels, weights = step.answers(network)
    assert pixels == (4, 8 * 8 * 3)  # of each patch
    assert weights == (4, 1)
    assert isinstance(step.loss(), LOSSES["mae"])
