"""Operations and times against the paper and by hand."""

import pytest

from keras_vit.planning import Settings, count, duration, machine, paper_runs
from keras_vit.planning.estimate import training_flops, vit_config

JFT_IMAGES, JFT_CLASSES = 303e6, 18_291

# Table 6: epochs on JFT-300M, exaFLOPs.
TABLE_6 = {
    "ViT_B32": (7, 55),
    "ViT_B16": (7, 224),
    "ViT_L32": (7, 196),
    "ViT_L16": (14, 1567),
    "ViT_H14": (14, 4262),
}


@pytest.mark.parametrize("name", TABLE_6)
def test_operations_are_those_of_table_6(name):
    epochs, published = TABLE_6[name]
    counts = count(vit_config(name, num_classes=JFT_CLASSES))
    found = training_flops(counts) * JFT_IMAGES * epochs / 1e18
    assert found == pytest.approx(published, rel=0.025)


def test_rematerialisation_adds_a_forward_pass_of_the_blocks():
    counts = count(vit_config("ViT_B16"))
    added = training_flops(counts, rematerialize=True) - training_flops(counts)
    assert added == 2 * counts.block_multiply_adds


def test_step_by_hand():
    config = vit_config("ViT_B16")
    counts = count(config)
    found = duration(
        config, Settings(batch=512, efficiency=0.5), machine("v5e-4")
    )
    products = 512 * 6 * counts.multiply_adds / (4 * 197e12 * 0.5)
    # AdamW reads four float32 a parameter and writes three.
    update = 7 * 4 * counts.parameters / 819e9
    assert found.seconds == pytest.approx(products + update)
    assert found.images_per_second == pytest.approx(512 / found.seconds)
    assert found.pixel_bytes == pytest.approx(
        found.images_per_second * 224 * 224 * 3
    )
    days = found.device_days(86_400 * found.images_per_second, devices=4)
    assert days == pytest.approx(4)


def test_runs_of_table_2():
    runs = {(run.model, run.dataset, run.epochs): run for run in paper_runs()}
    huge = runs["ViT_H14", "JFT-300M", 14]
    assert huge.paper_core_days == 2500
    assert huge.exaflops == pytest.approx(huge.paper_exaflops, rel=0.01)
    # 123 TFLOPS a chip of two cores.
    by_hand = 4262e18 / (0.4 * 61.5e12) / 86_400
    assert huge.core_days == pytest.approx(by_hand, rel=0.01)
    at_its_own = paper_runs(huge.efficiency)[0]
    assert at_its_own.core_days == pytest.approx(2500)


@pytest.mark.parametrize("efficiency", [0, -0.4, 1.5, 40])
def test_wrong_efficiency(efficiency):
    with pytest.raises(ValueError, match="share of the peak"):
        paper_runs(efficiency)
    with pytest.raises(ValueError, match="share of the peak"):
        Settings(efficiency=efficiency)
