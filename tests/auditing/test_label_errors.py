"""Labels that are probably wrong, against cleanlab and planted ones."""

import numpy as np

from keras_vit.auditing import (
    confident_classes,
    label_errors,
    out_of_sample,
)

# Of cleanlab 2.9.0, for `_table`: compute_confident_joint(labels, table,
# calibrate=False), and find_label_issues(..., filter_by="confident_learning").
CONFIDENT_JOINT = [[4, 1, 1, 0], [0, 9, 3, 1], [0, 0, 6, 0], [1, 0, 2, 11]]
ISSUES = [1, 7, 10, 17, 18, 29, 32, 51, 56]


def _table():
    draw = np.random.default_rng(7)
    labels = np.concatenate([np.arange(4), draw.integers(0, 4, 56)])
    logits = draw.normal(size=(60, 4))
    logits[np.arange(60), labels] += 1.5
    table = np.exp(logits)
    return table / table.sum(axis=1, keepdims=True), labels


def test_confident_joint_is_that_of_cleanlab():
    table, labels = _table()
    found = confident_classes(table, labels)
    joint = np.zeros((4, 4), int)
    np.add.at(joint, (labels[found >= 0], found[found >= 0]), 1)
    assert joint.tolist() == CONFIDENT_JOINT


def test_a_probability_at_the_threshold_is_confident():
    """Of one image a class, whose own probability is the threshold."""
    found = confident_classes(np.array([[0.9, 0.1], [0.8, 0.2]]), np.arange(2))
    assert found.tolist() == [0, 1]


def test_label_errors_are_those_of_cleanlab_surest_first():
    errors = label_errors(*_table())
    assert sorted(x.image for x in errors) == ISSUES
    margins = [x.margin for x in errors]
    assert margins == sorted(margins, reverse=True)


def test_images_of_one_group_are_not_judged_by_each_other():
    # Two clusters; in the first one two copies of an image share a wrong label.
    features = np.repeat(np.eye(2), 12, axis=0)
    features += 0.01 * np.random.default_rng(0).normal(size=(24, 2))
    features[1] = features[0]
    labels = np.repeat([0, 1], 12)
    labels[:2] = 1
    contents = ["same", "same", *map(str, range(22))]
    found = out_of_sample(features, labels, contents)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert found[:2, 0].min() > 0.9
    assert {x.image for x in label_errors(found, labels)} == {0, 1}
