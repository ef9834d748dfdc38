"""The two-cluster scenes: what is drawn is what was mined."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from shasam.commands.mine import draw_scenes
from shasam.mining.offline import mine_scene

SVG = "{http://www.w3.org/2000/svg}"


def test_each_panel_of_a_scene_marks_the_rows_that_its_miner_picked(tmp_path: Path) -> None:
    draw_scenes(tmp_path, "balanced", k=4, seed=0)
    root = ET.fromstring((tmp_path / "balanced.svg").read_text(encoding="utf-8"))
    panels = [group for group in root.findall(f"{SVG}g") if group.get("transform")]
    _, _, mined = mine_scene("balanced", 4, 0)
    wanted = [
        {f"row {row}" for row in getattr(triplet, field).tolist()}
        for triplet in mined.values()
        for field in ("anchors", "positives", "negatives")
    ]
    assert [{title.text for title in panel.iter(f"{SVG}title")} for panel in panels] == wanted


def test_scenes_are_drawn_for_all_names(tmp_path: Path) -> None:
    draw_scenes(tmp_path, "all", k=2, seed=0)
    names = ["balanced", "imbalanced", "minority", "overlap"]
    assert [path.stem for path in sorted(tmp_path.iterdir())] == names
