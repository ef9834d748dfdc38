"""Known vulnerabilities of what is installed, and a list of it: ``make audit-dependencies``.

pip-audit ends with 0 where it could look up nothing, without a connection say. Here every package
that was not looked up is an error too, but for those that no advisory can name.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SBOM = Path("sbom.cdx.json")
# this package itself; torch where its version has a local part, such as +cpu, that PyPI lacks
NOT_LISTED = frozenset({"shasam", "torch"})
WORDS = [sys.executable, "-m", "pip_audit", "--local", "--skip-editable", "--progress-spinner=off"]


def problems(report: Mapping[str, Any]) -> list[str]:
    """Return a line for each vulnerability, and one for the packages that were not looked up."""
    found, unknown = [], []
    for package in report["dependencies"]:
        name = package["name"]
        for hole in package.get("vulns", ()):
            fixed = ", ".join(hole["fix_versions"]) or "no version yet"
            found.append(f"{name} {package['version']}: {hole['id']}, mended in {fixed}")
        if "skip_reason" in package and name not in NOT_LISTED:
            unknown.append(name)
    if unknown:
        few = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
        found.append(
            f"{len(unknown)} of {len(report['dependencies'])} packages could not be looked up "
            f"({few}): is there a connection to PyPI?"
        )
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "audit.json")
        words = [*WORDS, "--format", "json", "--output", str(out)]
        done = subprocess.run(words, check=False, stderr=subprocess.PIPE, text=True)
        if not out.is_file():
            raise SystemExit(done.stderr)
        found = problems(json.loads(out.read_text(encoding="utf-8")))
    sbom = ["--format", "cyclonedx-json", "--output", str(SBOM)]
    subprocess.run([*WORDS, *sbom], check=False, stderr=subprocess.DEVNULL)
    print("\n".join(found) or "no known vulnerability in any of the packages")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
