"""The report of a run, one HTML file, and other pages of its sections."""

from keras_vit.analysis.report.page import (
    EXPLANATION,
    attention_arrays,
    date_of,
    explain_run,
    render_page,
    render_report,
    write_attention,
    write_report,
    write_rows,
)
from keras_vit.analysis.report.run_files import FilesInMemory, write_augmented

__all__ = [
    "EXPLANATION",
    "FilesInMemory",
    "attention_arrays",
    "date_of",
    "explain_run",
    "render_page",
    "render_report",
    "write_attention",
    "write_augmented",
    "write_report",
    "write_rows",
]
