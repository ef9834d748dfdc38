"""Tables, figures and pages from the files of runs; never imports torch."""

from __future__ import annotations

from shasam.report.model_card import model_card, write_model_card
from shasam.report.page import write_audit, write_audit_figures, write_report
from shasam.report.run import Run
from shasam.report.subject import Subject
from shasam.report.tables import rows_of, table

__all__ = [
    "Run",
    "Subject",
    "model_card",
    "rows_of",
    "table",
    "write_audit",
    "write_audit_figures",
    "write_model_card",
    "write_report",
]
