"""Audits of data sets: duplicates, wrong labels and odd images."""

from keras_vit.auditing.audit import Audit, Finding, audit

__all__ = ["Audit", "Finding", "audit"]
