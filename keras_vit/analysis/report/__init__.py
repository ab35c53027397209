"""The report of a run: one HTML file with everything in it."""

from keras_vit.analysis.report.model_section import (
    attention_arrays,
    write_attention,
)
from keras_vit.analysis.report.page import (
    render_page,
    render_report,
    write_report,
)
from keras_vit.analysis.report.run_files import Kept, write_augmented
from keras_vit.analysis.report.sections import EXPLANATION

__all__ = [
    "EXPLANATION",
    "Kept",
    "attention_arrays",
    "render_page",
    "render_report",
    "write_attention",
    "write_augmented",
    "write_report",
]
