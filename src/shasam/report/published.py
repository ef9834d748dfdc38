"""Numbers that others have printed, for the same setting; ``published.json`` holds them all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Published:
    """One printed result, in per cent and points as printed."""

    method: str
    eo: float
    accuracy: float
    source: str


def published(protocol: Mapping[str, Any]) -> list[Published]:
    """The printed results for a protocol's data, target, sensitive attribute and bias."""
    out = []
    for setting in _data()["settings"]:
        if setting["data"] != _plain(protocol.get("source")):
            continue
        for i, column in enumerate(setting["columns"]):
            same = all(_plain(protocol.get(k)) == column[k] for k in ("target", "sensitive"))
            alpha = column.get("alpha")
            if same and (alpha is None or alpha == protocol.get("alpha")):
                source = _data()["sources"][setting["source"]]
                for row in setting["rows"]:
                    eo, accuracy = row["values"][i]
                    out.append(Published(row["method"], eo, accuracy, source))
    return out


@cache
def _data() -> dict[str, Any]:
    text = files("shasam.report").joinpath("published.json").read_text(encoding="utf-8")
    return json.loads(text)


def _plain(value: Any) -> str:
    return str(value).lower().replace(" ", "_").replace("_&_", "&")
