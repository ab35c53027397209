"""What recipes share: command line, evaluation and report of a run."""

from typing import TYPE_CHECKING

from keras_vit.runtime.environment import lazy_names

__all__ = [
    "batches_of",
    "evaluated",
    "facts",
    "finish",
    "numbers_line",
    "run_script",
]

if TYPE_CHECKING:
    from keras_vit.runs.reporting import (
        batches_of,
        evaluated,
        facts,
        finish,
        numbers_line,
    )
    from keras_vit.runs.script import run_script
else:  # Of reports alone: it needs Keras.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "keras_vit.runs.reporting": (
                *("batches_of", "evaluated", "facts", "finish"),
                "numbers_line",
            ),
            "keras_vit.runs.script": ("run_script",),
        },
    )
