"""The list of artefacts: what each shows and needs, how many runs it has, how long they take."""

from __future__ import annotations

from rich import box
from rich.table import Table

from shasam.output.terminal import Screen
from shasam.reproduce.artefact import NAMES, artefact
from shasam.reproduce.cells import Place, cells
from shasam.reproduce.speed import on_drawn_faces, views_of_training

_IMAGES = {"celeba": 162_770, "utkface": 11_458}  # of the whole training splits


def show_list(profile: str, seeds: int) -> None:
    """Print the list; the speed of this machine is measured first, by a few steps."""
    screen = Screen()
    screen.print(f"measuring a few steps of the profile {profile} …")
    speed = {encoder: on_drawn_faces(profile, encoder) for encoder in ("resnet18", "vit")}
    table = Table(box=box.SIMPLE)
    for head in ("artefact", "what it shows", "needs", "runs", "hours"):
        table.add_column(head, justify="right" if head in ("runs", "hours") else "left")
    for name in NAMES:
        one = artefact(name, profile=profile)
        if one.kind != "table" or one.data is None:
            table.add_row(name, one.title, one.data or "nothing", "–", "–")
            continue
        found, _ = cells(one, Place(one.data), profile=profile, seeds=1)
        wanted = {cell.identity: cell for cell in found}.values()  # rows can share runs
        seconds = seeds * sum(
            views_of_training(cell.spec, _IMAGES[one.data])
            / speed["vit" if cell.spec.model.encoder == "vit" else "resnet18"]
            for cell in wanted
        )
        table.add_row(name, one.title, one.data, str(seeds * len(wanted)), f"{seconds / 3600:.1f}")
    screen.print(table)
    screen.print(
        f"Hours of the stages on images, one run after the other, {seeds} seeds, profile "
        f"{profile}. Measured just now with balanced cross-entropy: {speed['resnet18']:,.0f} views "
        f"a second with ResNet-18 and {speed['vit']:,.0f} with a ViT. Methods with several "
        "networks take longer.",
        soft_wrap=True,
    )
