"""The pages for users of timm, transformers and keras-hub: every block runs.

Names of public weights stand for tiny files of the same layout.
"""

import importlib
import pathlib
import re
import warnings

import numpy as np
import pytest
import timm_stub
from PIL import Image

import keras_vit
from keras_vit.models import VisionTransformer, ViTConfig

ROOT = pathlib.Path(__file__).parents[1]
REFERENCE = ROOT / "tests" / "reference"
BLOCK = re.compile(r'^```python title="([^"]+)"\n(.*?)^```$', re.M | re.S)
SIDE = 32  # pixels that the tiny files take
# Sizes that fit the tiny models, in the place of those of a B/16.
SMALL = {
    "[5, 11]": "[0, 1]",
    "(6, 12)": "(1, 2)",
    "(512, 384": "(48, 32",
    "(224, 224)": f"({SIDE}, {SIDE})",
}
TIMM_NAME = '"vit_base_patch16_224.augreg_in21k_ft_in1k"'
HUB_NAME = "vit_base_patch16_224_imagenet"


def code(page, library):
    """The blocks of a library on a page, one after the other."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    found = [x[2] for x in BLOCK.finditer(text) if x[1] == library]
    assert len(found) >= 8, (page, library)
    text = "".join(found)
    for large, small in SMALL.items():
        text = text.replace(large, small)
    return text


@pytest.fixture
def names(tmp_path, monkeypatch):
    """What the pages take for granted, in a folder with the pictures."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    for path in (
        "photo.jpg",
        "photos/a.jpg",
        "flowers/b/b.jpg",
        "flowers/c/c.jpg",
    ):
        pixels = random.integers(0, 255, (40, 50, 3), dtype="uint8")
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    images = random.uniform(-1, 1, (2, SIDE, SIDE, 3)).astype("float32")
    return {"keras_vit": keras_vit, "images": images}


def run(text, names, page):
    with warnings.catch_warnings():
        # Those of the other library, of its newest dependencies.
        warnings.simplefilter("ignore", (DeprecationWarning, FutureWarning))
        # The file that stands for public weights has no preprocessor.
        warnings.filterwarnings("ignore", ".*no preprocessor_config.json")
        # keras-hub shuffles what Keras has shuffled.
        warnings.filterwarnings("ignore", ".shuffle=True. was passed")
        exec(compile(text, page, "exec"), names)


@pytest.mark.slow
def test_from_timm(names, tmp_path):
    config = ViTConfig(
        image_size=(SIDE, SIDE),
        patch_size=(8, 8),
        hidden_dim=32,
        num_layers=2,
        mlp_dim=64,
        num_heads=4,
        num_classes=10,
    )
    model = VisionTransformer(config)
    random = np.random.default_rng(0)
    model.set_weights(
        [random.normal(0, 0.1, x.shape) for x in model.get_weights()]
    )
    keras_vit.save_checkpoint(model, tmp_path / "tiny", format="timm")
    ours = code("from-timm", "keras_vit").replace(
        TIMM_NAME, f'"{tmp_path / "tiny"}"'
    )
    run(ours, names, "from-timm.md")
    assert names["found"].classes
    assert names["vectors"].shape == (1, 32)
    assert names["maps"].shape == (2, 2, 4, 17, 17)

    timm = timm_stub.import_timm()
    torch = importlib.import_module("torch")
    theirs = code("from-timm", "timm")
    theirs = theirs.replace(TIMM_NAME, f'"local-dir:{tmp_path / "tiny"}"')
    # They need torchvision, which is not installed here.
    theirs, cut = re.subn(
        r"^(transform|pixels|scores) = .*\n", "", theirs, flags=re.M
    )
    assert cut == 3
    batch = torch.tensor(names["images"].transpose(0, 3, 1, 2).copy())
    try:
        run(theirs, {"timm": timm, "batch": batch}, "from-timm.md")
    finally:
        timm.layers.set_fused_attn(True)


@pytest.mark.slow
def test_from_transformers(names):
    pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    public, tiny = "google/vit-base-patch16-224", REFERENCE / "hf_vit_tiny"
    ours = code("from-transformers", "keras_vit").replace(public, str(tiny))
    run(ours, names, "from-transformers.md")
    logits = names["logits"]

    theirs = code("from-transformers", "transformers")
    theirs = theirs.replace(public, str(tiny))
    # The hub, and the pictures of pipelines, whose config the file lacks.
    theirs = theirs.replace("list_models(author", "dict(author")
    theirs = re.sub(r"^classif.*\n", "", theirs, flags=re.M)
    pixels = torch.tensor(names["images"].transpose(0, 3, 1, 2).copy())
    larger = torch.zeros(1, 3, 48, 32)
    found = {"pixels": pixels, "larger": larger}
    run(theirs, found, "from-transformers.md")
    expected = found["logits"].detach().numpy()
    np.testing.assert_allclose(logits, expected, atol=5e-5)


@pytest.mark.slow
def test_from_keras_hub(names, tmp_path):
    tiny = REFERENCE / "hub_vit_tiny"
    ours = code("from-keras-hub", "keras_vit")
    ours = ours.replace(f"hf://keras/{HUB_NAME}", str(tiny))
    ours = ours.replace('"preset"', f'"{tiny}"')
    run(ours, names, "from-keras-hub.md")
    assert (tmp_path / "model.keras").is_file()
    logits = names["logits"]

    pytest.importorskip("keras_hub")
    theirs = code("from-keras-hub", "keras-hub").replace(HUB_NAME, str(tiny))
    found = {"images": names["images"]}
    run(theirs, found, "from-keras-hub.md")
    assert np.shape(logits) == np.shape(found["logits"])
