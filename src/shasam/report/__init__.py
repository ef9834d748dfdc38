"""Tables, figures and pages from the files of runs; never imports torch.

The names are loaded when they are first used: an audit that writes no page needs no templates.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shasam.report.cards import model_card, write_model_card
    from shasam.report.page import write_audit, write_audit_figures, write_report
    from shasam.report.run_tables import rows_of, table
    from shasam.report.subject import Subject


_HOME = {
    "Subject": "subject",
    "model_card": "cards",
    "rows_of": "run_tables",
    "table": "run_tables",
    "write_audit": "page",
    "write_audit_figures": "page",
    "write_model_card": "cards",
    "write_report": "page",
}
__all__ = [
    "Subject",
    "model_card",
    "rows_of",
    "table",
    "write_audit",
    "write_audit_figures",
    "write_model_card",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"shasam.report.{_HOME[name]}"), name)
    raise AttributeError(f"module 'shasam.report' has no attribute {name!r}")
