"""Gradients of all weights, of DINO, iBOT and distillation, against torch.

The networks are written here once more, in float64 from the papers' equations,
and differentiated by torch; ours compute in float32. Axes: B images, G and L
large and small crops, N patches, D features, K prototypes.
"""

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.training.tasks.dino import (
    DRAWS,
    DINOConfig,
    OutputLoss,
    dino_network,
)
from keras_vit.training.tasks.distillation import (
    DistillationLoss,
    DistillConfig,
    distillation_network,
)

torch = pytest.importorskip("torch")
F = torch.nn.functional
B, G, L, D, HEADS = 4, 2, 2, 8, 2
SIZES = {
    **{"hidden_dim": D, "num_layers": 2, "num_heads": HEADS, "mlp_dim": 16},
    **{"channels": 3, "include_preprocessing": True},
}
# Of the largest gradient: in float32 each has an error of some 1e-7 of it.
TOLERANCE = 1e-5


def built(image, patch, seed, **options):
    model = VisionTransformer(
        ViTConfig(
            image_size=(image, image),
            patch_size=(patch, patch),
            **{**SIZES, **options},
        )
    )
    random = np.random.default_rng(seed)
    model.set_weights(
        [x + random.normal(0, 0.2, x.shape) for x in model.get_weights()]
    )
    return model


def tensor(x):
    return torch.tensor(np.array(ops.convert_to_numpy(x)), dtype=torch.float64)


def dense(x, w, name):
    return x @ w[f"{name}/kernel"] + w[f"{name}/bias"]


def norm(x, w, name):
    shape = (x.shape[-1],)
    return F.layer_norm(x, shape, w[f"{name}/gamma"], w[f"{name}/beta"], 1e-6)


def tokens(w, images, hidden=None, mask=None):
    """Equations 1 to 4 of arXiv:2010.11929: (B, 1 + N, D)."""
    kernel = w["patch_embed/projection/kernel"]
    x = (images / 127.5 - 1).permute(0, 3, 1, 2)
    x = F.conv2d(x, kernel.permute(3, 2, 0, 1), stride=kernel.shape[0])
    side = x.shape[-1]
    x = x.flatten(2).transpose(1, 2) + w["patch_embed/projection/bias"]
    if hidden is not None:
        x = torch.where(hidden[..., None], torch.as_tensor(mask), x)
    token = w["class_token/token"].expand(len(x), 1, -1)
    table = w["position_embedding/embedding"]
    old = round((table.shape[1] - 1) ** 0.5)
    grid = table[:, 1:].transpose(1, 2).reshape(1, -1, old, old)
    grid = F.interpolate(
        grid, (side, side), mode="bilinear", align_corners=True
    )
    positions = grid.flatten(2).transpose(1, 2)
    x = torch.cat([token, x], 1) + torch.cat([table[:, :1], positions], 1)
    for i in range(2):
        name = f"block_{i}"
        y = norm(x, w, f"{name}/attention_norm")
        y = dense(y, w, f"{name}/attention/qkv")
        y = y.reshape(*y.shape[:2], HEADS, 3, -1).permute(3, 0, 2, 1, 4)
        query, key, value = y  # (B, heads, 1 + N, d)
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        y = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
        x = x + dense(y, w, f"{name}/attention/out")
        y = norm(x, w, f"{name}/mlp_norm")
        y = F.gelu(dense(y, w, f"{name}/mlp/dense"), approximate="tanh")
        x = x + dense(y, w, f"{name}/mlp/dense_1")
    return norm(x, w, "encoder_norm")


def stepped(network, loss, inputs, answers):
    """The loss, and what a step of gradient descent takes from each weight."""
    network.compile(keras.optimizers.SGD(1.0), loss)
    variables = list(network.trainable_variables)
    before = [np.array(ops.convert_to_numpy(x)) for x in variables]
    found = network.train_on_batch(inputs, answers)
    moved = {
        x.path: old - np.array(ops.convert_to_numpy(x))
        for x, old in zip(variables, before, strict=True)
    }
    return float(np.ravel(found)[0]), moved


def check(found, wanted):
    """Compares the gradients of all weights that are trained."""
    assert found.keys() == wanted.keys()
    largest = max(float(x.grad.abs().max()) for x in wanted.values())
    assert largest > 0.01
    for name, x in wanted.items():
        np.testing.assert_allclose(
            found[name], x.grad, 0, TOLERANCE * largest, err_msg=name
        )


# --- DINO and iBOT ---


def head(x, w, name):
    for i in range(2):
        x = F.gelu(dense(x, w, f"{name}/dense_{i}"))
    x = F.normalize(dense(x, w, f"{name}/dense_2"), dim=-1)
    return x @ (F.normalize(w[f"{name}/kernel"], dim=0) * w[f"{name}/length"])


def koleo(x):
    """Of DINOv2, arXiv:2304.07193, section 4."""
    x = F.normalize(x, dim=-1)
    alike = x @ x.T - 3 * torch.eye(len(x))
    near = x[alike.argmax(1)]
    distances = F.pairwise_distance(x, near, 2, eps=1e-8)
    return -(distances + 1e-8).log().mean()


# On each backend every value once, all pairs on the first.
@pytest.mark.parametrize(
    ("centering", "own"),
    [
        ("mean", "own"),
        ("sinkhorn", "shared"),
        pytest.param("mean", "shared", marks=pytest.mark.once),
        pytest.param("sinkhorn", "own", marks=pytest.mark.once),
    ],
)
def test_gradients_of_dino_and_ibot_are_those_of_torch(centering, own):
    config = DINOConfig(
        local_crops=L, local_size=4, head_dim=12, bottleneck_dim=6, out_dim=10,
        blur_sigma=1.0, norm_last_layer=False, koleo_weight=0.2,
        ibot_weight=0.5, ibot_head=own, centering=centering,
    )  # fmt: skip
    keras.utils.set_random_seed(0)
    network = dino_network(built(8, 2, 0, num_classes=0), config)
    layer = network.get_layer("self_distillation")
    random = np.random.default_rng(1)
    for x in network.variables:  # Student and teacher differ.
        if "float" in x.dtype and x.path.rpartition("/")[2] != "momentum":
            x.assign(ops.convert_to_numpy(x) + random.normal(0, 0.2, x.shape))
    hidden = np.array([[3, 0], [8, 1], [2, 5], [5, 8]], "int32")[..., None]
    inputs = {
        "image": random.uniform(0, 255, (B, 12, 12, 3)).astype("float32"),
        "drawn": random.random((B, G + L, len(DRAWS)), "float32"),
        "schedules": np.tile(np.array([0.05, 0.9, 1, 1], "float32"), (B, 1)),
        "order": random.random((B, G, 16)).argsort(-1).astype("int32"),
        "hidden": hidden,
    }
    names = "global_views", "local_views"
    crops = keras.Model(
        network.input, [network.get_layer(x).output for x in names]
    )
    large, small = map(tensor, crops(inputs))  # (B * G, ...), (B * L, ...)
    w = {
        x.path.removeprefix("student/"): tensor(x).requires_grad_()
        for x in network.trainable_variables
    }
    known = {x.path: tensor(x) for x in layer.variables}
    mask = w["corrupt_patches/mask"]
    ranks = inputs["order"].argsort(-1)
    places = torch.tensor((ranks < hidden).reshape(B * G, -1))
    said, own_tokens = {}, tokens(w, large, places, mask)
    features = torch.cat(
        [
            own_tokens[:, 0].reshape(B, G, D),
            tokens(w, small)[:, 0].reshape(B, L, D),
        ],
        1,
    )  # (B, V, D)
    prefix = "self_distillation"
    patch_head = "patch_head" if own == "own" else "head"
    taught = tokens(known, large)
    parts = {
        "": head(taught[:, 0], known, f"{prefix}/teacher_head"),
        "patch_": head(taught[:, 1:], known, f"{prefix}/teacher_{patch_head}"),
    }
    for name, logits in parts.items():
        if centering == "mean":
            center = known[f"{prefix}/{name}center"]
            said[name] = ((logits - center) / 0.05).softmax(-1)
    if centering == "sinkhorn":
        views = parts[""].reshape(B, G, -1)
        even = [spread(views[:, g]) for g in range(G)]
        said[""] = torch.stack(even, 1).flatten(0, 1)
        said["patch_"] = torch.zeros_like(parts["patch_"])
        said["patch_"][places] = spread(parts["patch_"][places])
    logs = (head(features, w, f"{prefix}/head") / 0.1).log_softmax(-1)
    teacher = said[""].reshape(B, G, -1)
    terms = [
        -(teacher[:, g] * logs[:, v]).sum(-1).mean()
        for g in range(G)
        for v in range(G + L)
        if v != g
    ]
    loss = sum(terms) / len(terms)
    loss = loss + 0.2 * (koleo(features[:, 0]) + koleo(features[:, 1])) / 2
    logs = head(own_tokens[:, 1:], w, f"{prefix}/{patch_head}") / 0.1
    terms = -(said["patch_"] * logs.log_softmax(-1)).sum(-1)  # (B * G, N)
    counts = places.sum(1).clamp(min=1)
    loss = loss + 0.5 * ((terms * places).sum(1) / counts).mean()
    loss.backward()
    found, moved = stepped(
        network, OutputLoss(), inputs, np.zeros((B, 4), "float32")
    )
    np.testing.assert_allclose(found, float(loss.detach()), rtol=1e-5)
    check({k.removeprefix("student/"): x for k, x in moved.items()}, w)


def spread(logits):
    """Sinkhorn-Knopp of DINOv2, three iterations."""
    x = (logits / 0.05).exp()
    for _ in range(3):
        x = x / x.sum(0) / x.shape[1]
        x = x / x.sum(1, keepdim=True) / len(x)
    return x * len(x)


# --- Distillation ---


def resized(x, size):
    """Maps (B, H, W, C) in another size."""
    x = F.interpolate(
        x.permute(0, 3, 1, 2), size, mode="bilinear", antialias=True
    )
    return x.permute(0, 2, 3, 1)


@pytest.mark.parametrize(
    ("labels", "standardize"),
    [
        ("none", False),
        ("soft", True),
        ("hard", True),
        pytest.param("none", True, marks=pytest.mark.once),
        pytest.param("soft", False, marks=pytest.mark.once),
        pytest.param("hard", False, marks=pytest.mark.once),
    ],
)
def test_gradients_of_a_distillation_are_those_of_torch(labels, standardize):
    """With a teacher of another size, whose patches are others."""
    config = DistillConfig(
        features=2.0,
        patches=0.5,
        logits=1.5,
        standardize=standardize,
        labels=labels,
    )
    keras.utils.set_random_seed(0)
    model = built(8, 2, 0, num_classes=3)
    teacher = built(12, 4, 1, num_classes=3)
    network = distillation_network(model, teacher, config)
    random = np.random.default_rng(2)
    images = random.uniform(0, 255, (B, 8, 8, 3)).astype("float32")
    answers = random.dirichlet([0.3] * 3, size=B).astype("float32")
    w = {x.path: tensor(x).requires_grad_() for x in network.trainable_weights}
    known = {
        x.path.removeprefix("teacher/"): tensor(x) for x in teacher.variables
    }
    pixels = torch.tensor(images, dtype=torch.float64)
    own = tokens(w, pixels)
    taught = tokens(known, resized(pixels, (12, 12)).clamp(0, 255))
    loss = 0.0
    for name, weight in (("features", 2.0), ("patches", 0.5)):
        x, target = own[:, 0], taught[:, 0]
        if name == "patches":
            x, target = own[:, 1:], taught[:, 1:]
        if standardize:
            rows = target.reshape(-1, D)
            variance = rows.var(0, correction=0)
            target = (target - rows.mean(0)) / (variance + 1e-6).sqrt()
        if name == "patches":
            target = resized(target.reshape(B, 3, 3, D), (4, 4)).flatten(1, 2)
        x = dense(x, w, f"project_{name}")
        loss = loss + weight * (1 - F.cosine_similarity(x, target, -1)).mean()
    logits = dense(own[:, 0], w, "predictions")
    said = dense(taught[:, 0], known, "predictions")
    truth = torch.tensor(answers, dtype=torch.float64)
    crossed = F.cross_entropy(logits, truth)
    divergence = 9 * F.kl_div(
        (logits / 3).log_softmax(-1),
        (said / 3).log_softmax(-1),
        log_target=True,
        reduction="batchmean",
    )
    loss = (
        loss
        + 1.5
        * {
            "none": divergence,
            "soft": 0.9 * crossed + 0.1 * divergence,
            "hard": (crossed + F.cross_entropy(logits, said.argmax(-1))) / 2,
        }[labels]
    )
    loss.backward()
    found, moved = stepped(network, DistillationLoss(config), images, answers)
    np.testing.assert_allclose(found, float(loss.detach()), rtol=1e-5)
    check(moved, w)
