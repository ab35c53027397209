"""The report of a run: one HTML file with everything in it."""

from keras_vit.analysis.report.files import write_augmented
from keras_vit.analysis.report.page import render_report, write_report

__all__ = ["render_report", "write_augmented", "write_report"]
