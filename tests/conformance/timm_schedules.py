"""Gives timm's own tests our schedules: `pytest -p timm_schedules ...`.

A plugin of pytest for timm's test_scheduler.py: `CosineLRScheduler`,
`PolyLRScheduler` and `WSDLRScheduler` take their rates from the schedules of a
recipe, "cosine", "linear", "constant" and "rsqrt" with warm-up and cool-down.
Left out are schedules that there are none of, cycles, noise, k-decay and the
factory, which is timm's alone.
"""

import importlib
from typing import Any

from listed import mark
from timm_stub import import_timm

from keras_vit.training.optimizers import OptimizerConfig, make_schedule

timm: Any = import_timm()
schedulers: Any = importlib.import_module("timm.scheduler")
Scheduler: Any = importlib.import_module("timm.scheduler.scheduler").Scheduler

LEFT_OUT = (
    "k_decay",
    "cycle",
    "factory",
    "state_dict",
    "noise",
    "lr_min_floor",
    "invalid_args",
)
OTHERS = ("Step", "MultiStep", "Plateau", "Tanh")


class Ours(Scheduler):
    """Rates of a schedule of ours for each group of an optimizer."""

    def __init__(
        self,
        optimizer,
        t_initial,
        *,
        warmup_t=0,
        warmup_lr_init=0.0,
        lr_min=0.0,
        t_in_epochs=True,
        warmup_prefix=True,
        cooldown_steps=0,
        **fields,
    ):
        # The warm-up begins at 0, whatever warmup_lr_init; all but the linear
        # schedule end at 0, whatever lr_min; the warm-up comes before the rest.
        super().__init__(optimizer, "lr", t_in_epochs=t_in_epochs)
        if fields["schedule"] == "linear":
            fields["end_learning_rate"] = lr_min
        self.schedules = [
            make_schedule(
                OptimizerConfig(
                    learning_rate=rate,
                    warmup_steps=warmup_t,
                    cooldown_steps=cooldown_steps,
                    **fields,
                ),
                total_steps=warmup_t + t_initial,
            )
            for rate in self.base_values
        ]
        self.length = warmup_t + t_initial
        self.update_groups(self._get_lr(0))

    def _get_lr(self, t):
        return [float(schedule(t)) for schedule in self.schedules]

    def get_cycle_length(self):
        return self.length


class CosineLRScheduler(Ours):
    def __init__(self, optimizer, t_initial, **options):
        super().__init__(optimizer, t_initial, schedule="cosine", **options)


class PolyLRScheduler(Ours):
    def __init__(self, optimizer, t_initial, power=1.0, **options):
        assert power == 1.0
        super().__init__(optimizer, t_initial, schedule="linear", **options)


class WSDLRScheduler(Ours):
    def __init__(
        self,
        optimizer,
        t_initial,
        decay_t,
        *,
        stable_fn="constant",
        stable_timescale=None,
        stable_power=0.5,
        decay_fn="linear",
        decay_power=None,
        **options,
    ):
        assert stable_power == 0.5 and decay_fn == "linear"
        if stable_fn == "rsqrt":
            timescale = stable_timescale or options["warmup_t"]
            options |= {"schedule": "rsqrt", "timescale": timescale}
        else:
            options["schedule"] = "constant"
        super().__init__(
            optimizer, t_initial, cooldown_steps=decay_t, **options
        )


for ours in (CosineLRScheduler, PolyLRScheduler, WSDLRScheduler):
    setattr(schedulers, ours.__name__, ours)


def is_ours(item) -> bool:
    """Return whether a test is of something that schedules here do."""
    values = item.callspec.params if hasattr(item, "callspec") else {}
    kind = values.get("scheduler_cls")
    name = item.nodeid.lower()
    of_others = any(f"{x.lower()}scheduler" in name for x in OTHERS)
    return (
        (kind is None or issubclass(kind, Ours))
        and not of_others
        and not any(x in name for x in LEFT_OUT)
        and "plateau" not in name
        and values.get("decay_fn", "linear") == "linear"
        and values.get("stable_fn", "rsqrt") == "rsqrt"
    )


def pytest_collection_modifyitems(config, items):
    mark(items)
    kept = [x for x in items if is_ours(x)]
    left_out = [x for x in items if not is_ours(x)]
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)
