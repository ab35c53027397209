"""Every wrong entry of a table is found out by independent numbers.

Each row of each table is dropped, its names are put in another order, it
trades names with each row of a like shape, and its transform is replaced by
each other that keeps the shape. The checks are those of the other tests: the
format's strictness, the outputs of the original code (or of NumPy, where
there are none), and the arrays that no output shows. Nothing may survive.
"""

import collections
import functools

import numpy as np
import pytest
from layouts_table import MAKERS, layout
from mutations import Case, run
from reference_cases import CASES, expected, options_of, path_of

from keras_vit.checkpoints.dialects import LAYOUTS
from keras_vit.checkpoints.engine.layout import expression

# Golden cases that together hold most rows of the tables.
GOLDEN = (
    "vit_tiny_google",
    "hybrid_tiny_google",
    "vit_tiny_bigvision_tok",
    "vit_tiny_bigvision_map",
    "vit_tiny_bigvision_gap_sincos",
    "mixer_tiny_google",
    "bit_tiny_google",
    "timm_vit_tiny",
    "timm_vit_tiny_gap",
    "timm_vit_tiny_layer_scale",
    "timm_vit_tiny_gammas",
    "timm_vit_tiny_clip",
    "timm_vit_tiny_registers",
    "timm_vit_tiny_registers_gap",
    "timm_vit_tiny_eva02",
    "timm_vit_tiny_dinov3",
    "timm_vit_tiny_perception",
    "timm_vit_tiny_rope_mixed",
    "timm_vit_tiny_post_norm",
    "timm_vit_tiny_beit",
    "timm_vit_tiny_relpos",
    "timm_vit_tiny_relpos_shared",
    "timm_vit_tiny_relpos_swin",
    "timm_vit_tiny_relpos_table",
    "timm_vit_tiny_relpos_shared_table",
    "timm_vit_tiny_patch_stem",
    "timm_vit_tiny_aimv2",
    "timm_vit_tiny_swiglu",
    "timm_vit_tiny_inner_norms",
    "timm_vit_tiny_cait",
    "timm_vit_tiny_sapiens2",
    "timm_vit_tiny_sam",
    "timm_vit_tiny_differential",
    "timm_vit_tiny_parallel",
    "timm_vit_tiny_parallel_differential",
    "timm_vit_tiny_parallel_query_norm",
    "timm_vit_tiny_naflex",
    "timm_vit_tiny_naflex_axes",
    "timm_hybrid_tiny",
    "timm_mixer_tiny",
    "timm_mixer_tiny_resmlp",
    "timm_mixer_tiny_gmlp",
    "timm_mixer_tiny_gmixer",
    "timm_resnetv2_bit_tiny",
    "timm_resnetv2_tiny_basic",
    "timm_resnetv2_tiny_tiered",
    "timm_resnetv2_tiny_evolved",
    "hf_vit_tiny",
    "hf_vit_tiny_in21k",
    "hf_dinov2_tiny",
    "hf_dinov2_registers_tiny",
    "hf_dinov2_swiglu_tiny",
    "hf_dinov3_tiny",
    "hf_dinov3_gated_tiny",
    "hf_tipsv2_tiny",
    "hf_tipsv2_swiglu_tiny",
    "hf_aimv2_tiny",
    "hf_aimv2_head_tiny",
    "hf_aimv2_projection_tiny",
    "hf_beit_tiny",
    "hf_beit_token_tiny",
    "hf_clip_tiny",
    "hf_sam_tiny",
    "hf_siglip_tiny",
    "hf_siglip_classifier_tiny",
    "open_clip_tiny",
    "open_clip_text_tiny",
    "open_clip_mean_tiny",
    "hub_vit_tiny",
    "hub_deit_tiny",
    "hub_dinov2_tiny",
    "hub_dinov2_swiglu_tiny",
    "hub_dinov3_tiny",
    "hub_dinov3_gated_tiny",
    "hub_clip_tiny",
    "hub_metaclip_2_tiny",
    "hub_siglip_tiny",
    "hub_pali_gemma_tiny",
)
NAMES = (*GOLDEN, *MAKERS)
# One of each file's writer; the others take their time.
QUICK = (
    "vit_tiny_google",
    "mixer_tiny_google",
    "hf_clip_tiny",
    "hf_siglip_tiny",
    "torchvision",
    "timm_deit",
    "hugging_face_deit_teacher",
    "keras_hub",
    "hub_dinov3_gated_tiny",
)


@functools.cache
def case_of(name):
    """A golden case, or one that `layouts` writes by hand."""
    if name in MAKERS:
        case = layout(name)
        return Case(case.path, case.options, case.images, case.logits)
    arrays = expected(name)
    outputs = arrays.get("logits", arrays["pre_logits"])
    return Case(path_of(name), options_of(name), arrays["image"], outputs)


@pytest.mark.parametrize("name", QUICK)
def test_dropped_and_reordered_rows_are_found_out(name, monkeypatch):
    number, survivors = run(monkeypatch, case_of(name), "drop|order")
    assert number >= 13 and survivors == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_mutant_is_found_out(name, monkeypatch):
    number, survivors = run(monkeypatch, case_of(name))
    print(f"{name}: {number - len(survivors)} of {number} mutants found out")
    assert number > 100 and survivors == []


@pytest.mark.parametrize("name", MAKERS)
def test_right_tables_give_the_expected_outputs(name):
    case = case_of(name)
    assert case.verdict() == "the same" and not case.outputs_differ()


@pytest.mark.parametrize("name", MAKERS)
def test_parts_that_no_output_shows_are_those_of_the_file(name):
    case = case_of(name)
    hidden = {path: case.hidden(path) for path in case.right}
    hidden = {path: x for path, x in hidden.items() if x.size}
    unseen = layout(name).unseen
    assert set(hidden) == set(unseen) and hidden
    for path, value in hidden.items():
        np.testing.assert_array_equal(value, unseen[path], err_msg=path)


def rows_of(layout_of_files):
    """Every row of a layout, those of its variants too."""
    tables = [layout_of_files.table, *layout_of_files.variants.values()]
    return {(path, str(table[path])) for table in tables for path in table}


# Held by files whose names are those of golden cases, renamed, in
# test_original_names.py, and by trunks of timm in test_open_clip.py.
ELSEWHERE = {
    ("dinov2", "vit"): None,
    ("dinov3", "vit"): None,
    ("timm", "vit"): {
        ("predictions/kernel", "('projection.weight', 'linear')")
    },
}


def test_cases_reach_every_row():
    missing = collections.defaultdict(set)
    for one in LAYOUTS:
        missing[one.name, one.family] |= rows_of(one)
    for name in NAMES:
        source, _ = case_of(name).source()
        table = source.layout.rows(source.features)
        for pattern, row in table.items():
            if any(expression(pattern).fullmatch(x) for x in source.rows):
                key = source.layout.name, source.layout.family
                missing[key].discard((pattern, str(row)))
    for key, rows in ELSEWHERE.items():
        missing[key] -= missing[key] if rows is None else rows
    assert {key: x for key, x in missing.items() if x} == {}


def test_cases_are_golden():
    assert set(GOLDEN) <= set(CASES)
