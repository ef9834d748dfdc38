"""What ``shasam audit`` does beside an audit: plans before data, and forms of regulators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shasam.errors import SpecError

if TYPE_CHECKING:
    from shasam.report.predictions import Columns


def print_plan(
    groups: str | None, gap: float, rate: float, base_rate: float, level: float, power: float
) -> None:
    """How many rows show a gap between every two groups."""
    from shasam.metrics.power import rows_needed
    from shasam.output import Screen

    try:
        shares = [float(part) for part in (groups or "").split(",")]
    except ValueError:
        raise SpecError("--plan needs the shares of the groups: --groups 0.6,0.3,0.1") from None
    found = rows_needed(shares, gap, rate=rate, positives=base_rate, level=level, power=power)
    screen = Screen()
    screen.print(
        f"Rows in all that show a gap of {100 * gap:g} points with {100 * power:g} % probability, "
        f"around an accuracy of {100 * rate:g} % in a class of {100 * base_rate:g} % of the rows:"
    )
    for a, b, rows in found:
        screen.print(f"  groups of {shares[a]:g} and {shares[b]:g}: {rows:,} rows")
    screen.print(f"For all groups: {found[-1][2]:,} rows.")


def write_form(
    files: list[Path],
    columns: Columns,
    about: list[str],
    level: float,
    places: tuple[Path | None, Path | None, Path | None, Path | None],
) -> None:
    """The form of a regulator from one table."""
    from shasam.output import Screen, say
    from shasam.report.bias_audit import bias_audit, header_of
    from shasam.report.bias_audit_form import print_bias_audit, write_bias_audit

    if len(files) != 1:
        raise SpecError("--standard takes one table")
    found = bias_audit(files[0], columns, header_of(about), level)
    json, html, csv, markdown = places
    lines = write_bias_audit(found, json_file=json, html=html, csv=csv, markdown=markdown)
    print_bias_audit(found, Screen())
    for line in lines:
        say(line)


def verify_form(document: Path, files: list[Path]) -> None:
    """Compute a form again and say whether it is the same."""
    from shasam.output import complain, say
    from shasam.report.bias_audit import verify

    if len(files) != 1:
        raise SpecError("--verify compares one form with one table")
    differ = verify(document, files[0])
    for line in differ:
        complain(line)
    if differ:
        raise SystemExit(1)
    say(f"{document} is what {files[0]} gives: data, result and hashes agree")
