"""What was mined, so that a page can show it: rows, gains, similarities, random beside them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from shasam.mining.miner import Mined

_SETS = ("anchors", "positives", "negatives")


def explain(
    step: int,
    pair: tuple[int, int],
    sides: dict[str, list[Tensor]],
    z: Sequence[Tensor],
    mined: Mined,
) -> dict[str, object]:
    """One iteration for ``mining.json``: each pick with its row, gain and nearest anchor.

    ``sides["pool"]`` holds the rows of the three pools, ``z`` their embeddings, and
    ``sides["random"]`` the first rows of each pool, which were drawn at random.
    """
    sets: dict[str, list[dict[str, object]]] = {}
    places = dict(zip(_SETS, (mined.anchors, mined.positives, mined.negatives), strict=True))
    for number, name in enumerate(_SETS):
        gains = mined.gains.get(name)
        near = _nearest(z[number][places[name]], z[0][mined.anchors], name == "anchors")
        rows = sides["pool"][number][places[name]].tolist()
        sets[name] = [
            {"row": row, "gain": None if gains is None else float(gains[i]), "similarity": near[i]}
            for i, row in enumerate(rows)
        ]
        shown = z[number][: len(sides["random"][number])]
        # random picks are held against the anchors that the mined ones are held against
        own = name == "anchors"
        near = _nearest(shown, shown if own else z[0][mined.anchors], own)
        sets[f"random_{name}"] = [
            {"row": row, "gain": None, "similarity": near[i]}
            for i, row in enumerate(sides["random"][number].tolist())
        ]
    return {"step": step, "target": pair[0], "sensitive": pair[1], "sets": sets}


def _nearest(z: Tensor, z_anchors: Tensor, same: bool) -> list[float]:
    """The largest cosine to an anchor; for an anchor, to another one."""
    near = z @ z_anchors.T
    if same:
        near.fill_diagonal_(-1.0)
    return [float(value) for value in near.amax(dim=1)]
