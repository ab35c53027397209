import pytest

from keras_vit.training.stages import Plan


def plan(**options):
    fields = {
        "total": 50,
        "steps_per_epoch": 20,
        "batch_size": 8,
        "checkpoint_every": 20,
        "evaluate_every": 40,
    }
    return Plan(**{**fields, **options})


def test_the_last_interval_may_be_shorter():
    assert plan().intervals == 3
    assert plan(total=40).intervals == 2


def test_the_end_is_evaluated_whatever_the_interval():
    assert plan().evaluations == [2, 3]
    assert plan(total=80).evaluations == [2, 4]
    assert plan(total=10).evaluations == [1]


def test_the_run_ends_with_its_last_step():
    last = [
        (interval, batch)
        for interval in range(3)
        for batch in range(20)
        if plan().is_last_call(interval, batch)
    ]
    assert last[0] == (2, 9)  # the 50th step


def test_the_parts_of_a_step_count_as_one():
    parts = plan(batches_per_step=4)
    assert parts.batches == 80
    assert parts.step(interval=1, batches=7) == 21
    assert parts.is_last_call(2, 39) and not parts.is_last_call(2, 38)


def test_calls_of_several_batches_fill_the_run():
    calls = plan(batches_per_call=5)
    assert calls.is_last_call(2, 5) and not calls.is_last_call(2, 0)
    with pytest.raises(ValueError, match="steps_per_execution=4.*50 batches"):
        plan(batches_per_call=4)
