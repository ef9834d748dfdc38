"""``shasam mine``: mine triplets from embeddings of your own, or draw the paper's 2-D scenes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from shasam.errors import SpecError

if TYPE_CHECKING:
    from shasam.mining import Miner


# options of a batch plan, which a table does not have
_OF_TRAINING = (
    "miner", "start", "ramp", "pool", "k", "refresh", "pairs", "roles", "pair_sampling",
    "small_pool", "ground", "ground_shrinks", "epoch",
)  # fmt: skip
SceneName = Literal["imbalanced", "minority", "balanced", "overlap", "all"]


def mine(
    embeddings: Path | None = None,
    labels: Path | None = None,
    /,
    *,
    target: str = "target",
    sensitive: str = "sensitive",
    k: Annotated[int | None, Parameter(name=["-k", "--budget"])] = None,
    triplets: int = 0,
    miner: str = "shasam",
    set_: Annotated[
        list[str] | None,
        Parameter(
            name="--set",
            negative=(),
            help="An option of mining, such as --set margin=0.95 (repeatable); "
            "`shasam methods shasam` lists them as mining.…",
        ),
    ] = None,
    seed: int = 0,
    out: Path | None = None,
    scene: SceneName | None = None,
    profile: bool = False,
) -> None:
    """Mine anchors, hard positives and hard negatives.

    They are picked from embeddings and labels of your own.

    Parameters
    ----------
    embeddings
        One vector per row: .npy, .npz, .safetensors, or a Parquet or Arrow file with a column of
        vectors.
    labels
        CSV, Parquet or Arrow with one row per embedding, in the same order.
    target
        Column of the target class.
    sensitive
        Column of the sensitive group.
    k
        Number of anchors, of positives and of negatives in a triplet (default: 16, or 10 with
        --scene).
    triplets
        Number of triplets; 0 means one for each (target, group) pair.
    miner
        shasam (LogDet, FLCG, FL1MI over all rows), shasam-ld (LogDet, LogDetCG, LogDetMI), random,
        or the registered name of your own.
    seed
        Random seed of the pairs, the scenes and random picks.
    out
        CSV file of the picks to write, or with --scene a folder for the figures (SVG).
    scene
        Draw one of the paper's two-cluster scenes, or all, instead of mining embeddings.
    profile
        Also print the time per triplet.
    """
    from shasam.commands.flags import check_seed

    check_seed(seed)
    if scene is not None:
        draw_scenes(out or Path("scenes"), scene, k=10 if k is None else k, seed=seed)
        return
    if embeddings is None or labels is None:
        raise SpecError(
            "give embeddings and labels (shasam mine embeddings.npy labels.csv --target … "
            "--sensitive …), or a scene to draw (shasam mine --scene all)"
        )
    from shasam.files import check_writable
    from shasam.mining.offline import mine_table

    check_writable(out)
    mine_table(
        embeddings,
        labels,
        target=target,
        sensitive=sensitive,
        k=16 if k is None else k,
        triplets=triplets,
        miner=miner,
        chosen=_miner_of(miner, set_ or []),
        seed=seed,
        out=out or Path("triplets.csv"),
        profile=profile,
    )


def _miner_of(name: str, words: Sequence[str]) -> Miner:
    """Return the miner of a name with ``key=value`` settings, which are those of training."""
    from pydantic import ValidationError

    from shasam.mining import MiningConfig
    from shasam.registry import lookup
    from shasam.spec.layers import parse_set
    from shasam.spec.run import sentences

    made: Miner
    kind, settings = lookup("miner", name), parse_set(words)
    if settings and name not in ("shasam", "shasam-ld"):
        raise SpecError(f"--set has the options of the miner shasam; {name} takes none")
    for key in settings:
        if key in _OF_TRAINING:
            raise SpecError(f"--set {key}: a table is mined at once; {key} belongs to training")
    try:
        made = kind(**settings)
    except ValidationError as error:
        raise SpecError("; ".join(sentences(error, MiningConfig, "--set"))) from error
    return made


def draw_scenes(folder: Path, which: str, *, k: int, seed: int) -> None:
    """Draw one picture per scene: the same points and seed for every miner."""
    from shasam.data.sources.clusters import SCENES
    from shasam.mining.offline import mine_scene
    from shasam.output import say
    from shasam.report.charts import save, scene

    for name in list(SCENES) if which == "all" else [which]:
        z_N2, t_N, mined = mine_scene(name, k, seed)
        first = int((t_N == 0).sum())
        title = (
            f"{name}: cluster A (blue, target) {first} points, cluster B {len(t_N) - first}; "
            f"budget {k}, seed {seed}"
        )
        path = folder / f"{name}.svg"
        save(scene(title, z_N2.tolist(), t_N.tolist(), mined), path)
        say(str(path))
