"""What steps without labels cost, by hand and against what is fitted.

Letters: N patches, K of them visible, T tokens, D hidden dimension, M MLP
dimension.
"""

import dataclasses
import json
import math

import pytest

from keras_vit.cli import main
from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.planning import (
    Pretraining,
    Settings,
    cost_of,
    duration,
    machine,
    memory,
    plan,
)
from keras_vit.planning.estimate import vit_config
from keras_vit.planning.pretraining import METHODS
from keras_vit.runtime.workarounds import without_values
from keras_vit.training.tasks import DINOConfig, DistillConfig, MAEConfig

SMALL = ViTConfig(
    image_size=(32, 32),
    patch_size=(8, 8),
    channels=3,
    hidden_dim=16,
    num_layers=3,
    mlp_dim=40,
    num_heads=2,
    num_classes=0,
)
TEACHER = dataclasses.replace(
    SMALL,
    patch_size=(16, 16),
    hidden_dim=24,
    num_layers=2,
    mlp_dim=48,
    num_heads=3,
)
DECODER = MAEConfig(
    decoder_dim=8, decoder_layers=2, decoder_heads=2, decoder_mlp_dim=20
)
HEAD: dict = {
    "head_dim": 12,
    "bottleneck_dim": 6,
    "out_dim": 50,
    "local_crops": 3,
}
IBOT = DINOConfig(**HEAD, ibot_weight=1.0, ibot_ratio=(0.25, 0.25))
CASES = {
    "mae": Pretraining(DECODER),
    "simmim": Pretraining(MAEConfig(kind="simmim")),
    "dino": Pretraining(DINOConfig(**HEAD)),
    "ibot": Pretraining(IBOT),
    "own": Pretraining(DINOConfig(**HEAD, ibot_weight=1.0, ibot_head="own")),
    "free": Pretraining(DINOConfig(**HEAD, norm_last_layer=False)),
    "distill": Pretraining(DistillConfig(), TEACHER),
    "features": Pretraining(DistillConfig(patches=0.0), TEACHER),
}
# State besides weights: centres and momentum of DINO, running moments.
STATE = ("center", "momentum", "running", "seed")


def sizes(variables):
    """Numbers in variables that are weights."""
    return sum(
        math.prod(x.shape)
        for x in variables
        if not any(name in x.path for name in STATE)
    )


@pytest.mark.parametrize("name", CASES)
def test_parameters_are_those_of_what_is_fitted(name):
    method = CASES[name]
    with without_values():
        model = VisionTransformer(SMALL)
        network = METHODS[method.name].network(model, method)
    cost = cost_of(SMALL, method)
    trained = sizes(network.trainable_variables)
    assert cost.trained.parameters == trained
    frozen = 0 if cost.frozen is None else cost.frozen.parameters
    assert frozen == sizes(network.non_trainable_variables)


def blocks(tokens, dim, mlp, layers):
    """Section 3.1 of the ViT paper, by its matrices: qkv, QK, AV, out, MLP."""
    each = tokens * (4 * dim**2 + 2 * dim * mlp) + 2 * tokens**2 * dim
    return layers * each


EMBED = 16 * 8 * 8 * 3 * 16  # N of 8 x 8 pixels of 3 channels, to D.
LOCAL = 2 * 2  # Patches of a small crop: 96 / 224 of 32 pixels is 16.
HEADS = 16 * 12 + 12 * 12 + 12 * 6 + 6 * 50
TAUGHT = 4 * 16 * 16 * 3 * 24 + blocks(5, 24, 48, 2)
PRODUCTS: dict = {
    # The class token and int(16 / 4) patches; then all to 8 and to pixels.
    "mae": (
        EMBED
        + blocks(5, 16, 40, 3)
        + 5 * 16 * 8
        + blocks(17, 8, 20, 2)
        + 16 * 8 * 192,
        0,
    ),
    "simmim": (EMBED + blocks(17, 16, 40, 3) + 16 * 16 * 192, 0),
    "dino": (
        2 * (EMBED + blocks(17, 16, 40, 3) + HEADS)
        + 3 * (EMBED * LOCAL // 16 + blocks(LOCAL + 1, 16, 40, 3) + HEADS),
        2 * (EMBED + blocks(17, 16, 40, 3) + HEADS),
    ),
    "distill": (
        EMBED + blocks(17, 16, 40, 3) + (1 + 16) * 16 * 24,
        TAUGHT,
    ),
}
# A quarter of 16 patches of both large crops pass the head besides.
PRODUCTS["ibot"] = tuple(x + 2 * 4 * HEADS for x in PRODUCTS["dino"])


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_those_by_hand(name):
    cost = cost_of(SMALL, CASES[name])
    frozen = 0 if cost.frozen is None else cost.frozen.multiply_adds
    assert (cost.trained.multiply_adds, frozen) == PRODUCTS[name]


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_step_is_three_passes_and_one_of_the_teacher(name):
    settings = Settings(batch=4, method=CASES[name])
    trained, frozen = PRODUCTS[name]
    found = duration(SMALL, settings, machine("h200x1"))
    assert found.flops == 4 * 2 * (3 * trained + frozen)


def test_a_distillation_of_logits_trains_a_head():
    """Of what classes the model has; other methods train none."""
    with_head = dataclasses.replace(SMALL, num_classes=7, representation_dim=5)
    logits = Pretraining(DistillConfig(features=0.0, logits=1.0), TEACHER)
    assert logits.encoder(with_head) == with_head
    features = Pretraining(DistillConfig(features=1.0, logits=0.0), TEACHER)
    assert features.encoder(with_head) == SMALL


def test_a_teacher_has_no_gradients_and_keeps_nothing():
    plain = Settings(batch=8, precision="float32")
    taught = Settings(batch=8, precision="float32", method=CASES["distill"])
    wide = ViTConfig(**{**vars(TEACHER), "num_layers": 40})
    deep = Settings(
        batch=8,
        precision="float32",
        method=Pretraining(DistillConfig(), wide),
    )
    alone, one, many = (memory(SMALL, x) for x in (plain, taught, deep))
    projections = 2 * 17 * 24  # Features and patches, 16 + 1 by 24 each.
    assert one.gradients == alone.gradients + 4 * projections
    assert one.optimizer == 2 * one.gradients
    assert many.activations == one.activations
    assert many.gradients == one.gradients
    assert many.weights > one.weights


def test_a_teacher_works_on_one_attention_at_a_time():
    """Less than a block keeps for a backward pass, whatever the depth."""
    fine = ViTConfig(**{**vars(TEACHER), "patch_size": (2, 2)})
    method = Pretraining(DistillConfig(patches=0.0), fine)
    plain = Settings(batch=8, precision="float32")
    taught = dataclasses.replace(plain, method=method)
    alone, both = (memory(SMALL, x).activations for x in (plain, taught))
    tokens, dim, mlp, heads = 16 * 16 + 1, 24, 48, 3
    scores = heads * tokens**2
    # The stream and its norm, queries, keys and values; logits and softmax.
    attention = tokens * 5 * dim + 2 * scores
    # Both of each norm, q, k, v, heads, and M before GELU, its tanh, after it;
    # logits, exponentials, weights.
    kept = tokens * (8 * dim + 3 * mlp) + 3 * scores
    assert scores < (both - alone) / (8 * 4) < attention < kept


def test_mae_keeps_a_quarter_of_the_tokens():
    config = vit_config("ViT_L16", num_classes=0)
    whole = memory(config, Settings(batch=64))
    few = Pretraining(MAEConfig(decoder_layers=1))
    visible = memory(config, Settings(batch=64, method=few))
    assert 0.2 < visible.activations / whole.activations < 0.35


def test_small_crops_and_prototypes_cost_memory():
    def bytes_of(**options):
        method = Pretraining(DINOConfig(**{**HEAD, **options}))
        return memory(SMALL, Settings(batch=8, method=method))

    few, many = bytes_of(local_crops=2), bytes_of(local_crops=4)
    assert few.activations < many.activations
    assert few.weights == many.weights
    wide = bytes_of(local_crops=2, out_dim=1050)
    # Student and teacher in float32 and bfloat16.
    assert wide.weights - few.weights == 2 * 6 * 1000 * (4 + 2)
    # Logits and softmax of 4 crops of the student and 2 of the teacher.
    more = wide.activations - few.activations
    assert more == 8 * 4 * 2 * (4 + 2) * 1000


def test_batches_of_dino_are_whole():
    config = vit_config("ViT_B16", num_classes=0)
    settings = Settings(batch=4096, method=Pretraining(DINOConfig()))
    rows = plan(config, settings, machine("t4x1"))
    assert [row.parts for row in rows] == [None, None]
    parts = plan(config, Settings(batch=4096), machine("t4x1"))[0].parts
    assert parts is not None and parts > 1


def test_the_decoder_is_not_divided_and_not_recomputed():
    wide = Pretraining(MAEConfig(decoder_layers=8))
    deep = Pretraining(MAEConfig(decoder_layers=9))
    config = vit_config("ViT_B16", num_classes=0)

    def added(**options):
        both = (
            memory(config, Settings(batch=8, method=x), **options)
            for x in (wide, deep)
        )
        few, many = (x.activations for x in both)
        return many - few

    shared = added(layout="model_parallel", devices=2)
    assert added() == added(rematerialize=True) == shared


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "distill"], "config of a teacher"),
        (["--options", "out_dim=8"], "Give --method as well"),
        (["--method", "dino", "--options", "local_size=48"], "local_size=48"),
    ],
)
def test_wrong_input_is_one_line(capsys, arguments, message):
    assert main(["plan", "ViT_S32", "--batch", "8", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error


@pytest.mark.parametrize("word", ["out_dims=8", "out_dim=many", "out_dim=1"])
def test_wrong_options_are_one_line(capsys, word):
    words = ["plan", "ViT_S32", "--method", "dino", "--options", word]
    with pytest.raises(SystemExit, match="2"):
        main(words)
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "out_dim" in error


def test_the_command_shows_what_is_trained(capsys):
    words = ["plan", "ViT_Ti16", "--method", "distill", "--devices", "v5e-8"]
    words += ["--options", "teacher=ViT_B16", "patches=0", "--batch", "64"]
    assert main(words) == 0
    # 5.5 million, and 192 + 1 by 768 of the projection; B/16 with 1000
    # classes.
    out = capsys.readouterr().out
    assert "5.7 million parameters are trained, 86.6 million" in out
    assert main([*words, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["settings"]["method"]["options"]["patches"] == 0
    assert found["cost"]["stacks"][1]["tokens"] == 197
