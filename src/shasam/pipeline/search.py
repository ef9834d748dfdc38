"""Search the options of methods with Optuna, on the validation split: ``shasam compare --trials``.

Each method has a study of its own with two objectives, accuracy and EO of the validation split of
one seed. The first trials are the values of the method's dial, so a search of few trials is what
``--front`` does; then Optuna's TPE chooses the dial and the learning rate. A trial is an ordinary
run: the sampler has a seed and finished runs are skipped, so the same command continues a search
that was stopped, without a database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shasam.documents import of_our_shape
from shasam.extras import need
from shasam.registry import lookup
from shasam.runs.directory import RunDirectory
from shasam.spec import RunSpec
from shasam.spec.layers import full_keys, lay

if TYPE_CHECKING:
    import optuna

RATE = "train.learn.lr"
RATE_FACTOR = 3.0  # the rate is searched from a third of the profile's to three times it
MOST_KEPT = 4  # settings of a method that are trained with all seeds

Layer = dict[str, Any]


@dataclass(frozen=True)
class Range:
    """The values of an option between which is searched."""

    low: float
    high: float
    whole: bool = False  # only whole numbers

    def suggest(self, trial: optuna.Trial, name: str) -> float:
        """Return a value with two digits, so that it can be read and typed."""
        log = self.low > 0
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=log)
        return float(f"{trial.suggest_float(name, self.low, self.high, log=log):.2g}")


def ranges_of(spec: RunSpec) -> dict[str, Range]:
    """Say what is searched for a method, by the key of the specification: its dial and its rate."""
    out = {}
    dial = lookup("method", spec.method).dial
    if dial is not None:
        whole = all(isinstance(value, int) for value in dial.values)
        out[f"options.{dial.option}"] = Range(min(dial.values), max(dial.values), whole)
    rate = spec.train.learn.lr
    return out | {RATE: Range(rate / RATE_FACTOR, rate * RATE_FACTOR)}


@dataclass
class _Search:
    """The study of one method."""

    run: Layer
    ranges: dict[str, Range]
    study: optuna.Study
    found: list[tuple[Layer, float, float]] = field(default_factory=list)  # layer, accuracy, EO

    @classmethod
    def of(cls, run: Layer, spec: RunSpec) -> _Search:
        """Begin with the values of the dial, at the rate of the profile."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(
            directions=["maximize", "minimize"], sampler=optuna.samplers.TPESampler(seed=0)
        )
        ranges = ranges_of(spec)
        dial = lookup("method", spec.method).dial
        turned = [{f"options.{dial.option}": value} for value in dial.values] if dial else [{}]
        for values in turned:
            study.enqueue_trial({RATE: spec.train.learn.lr} | values)
        return cls(run, ranges, study)

    def ask(self) -> tuple[optuna.Trial, Layer]:
        """Return the next trial, and the layer of its run."""
        trial = self.study.ask()
        chosen = {name: r.suggest(trial, name) for name, r in self.ranges.items()}
        return trial, lay(self.run, full_keys(chosen))

    def tell(self, trial: optuna.Trial, layer: Layer, metrics: Mapping[str, Any] | None) -> None:
        """Note what validation says; a run that failed or has not learnt is no result."""
        import optuna

        values = _on_validation(metrics)
        if values is None:
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
            return
        self.study.tell(trial, values)
        self.found.append((layer, *values))

    def front(self) -> list[Layer]:
        """Pick at most four settings that no other beats in accuracy and EO, spread over the EO."""
        best = sorted(_undominated(self.found), key=lambda item: item[2])
        if len(best) > MOST_KEPT:
            steps = [round(i * (len(best) - 1) / (MOST_KEPT - 1)) for i in range(MOST_KEPT)]
            best = [best[i] for i in steps]
        return [layer for layer, _, _ in best]


def _on_validation(metrics: Mapping[str, Any] | None) -> tuple[float, float] | None:
    """Return accuracy and EO of a run that has learnt; a guess has no gap and must not win."""
    if not metrics or not metrics.get("learnt", {}).get("learnt", True):
        return None
    accuracy, gap = (metrics["val"][name]["value"] for name in ("accuracy", "eo_mean"))
    return None if accuracy is None or gap is None else (float(accuracy), float(gap))


def _undominated(
    found: Sequence[tuple[Layer, float, float]],
) -> list[tuple[Layer, float, float]]:
    """Return results with no other that is as good in both and better in one.

    Of equals the first.
    """
    out: list[tuple[Layer, float, float]] = []
    for i, (layer, accuracy, gap) in enumerate(found):
        beaten = any(
            a >= accuracy and g <= gap and (a > accuracy or g < gap or j < i)
            for j, (_, a, g) in enumerate(found)
            if j != i
        )
        if not beaten:
            out.append((layer, accuracy, gap))
    return out


def search(
    runs: Sequence[Layer],
    trials: int,
    specify: Callable[[Layer], RunSpec],
    train: Callable[[list[RunSpec]], Mapping[str, Path] | None],
) -> list[Layer]:
    """Return the settings of each run that are worth all seeds, after ``trials`` of each.

    Parameters
    ----------
    runs
        One layer of a specification per method.
    trials
        Trials of each method.
    specify
        Makes the specification of a layer, with the seed that is searched on.
    train
        Trains specifications; returns the folder of each run that came to its end, by its key,
        or None if the time is over.

    Returns
    -------
    list of layers
        Of every method those that no other trial of it beats on validation; a method whose trials
        all failed stays as it was given.
    """
    need("tune", "compare --trials")
    searches = [_Search.of(run, specify(run)) for run in runs]
    for _ in range(trials):
        asked = [one.ask() for one in searches]
        specs = [specify(layer) for _, layer in asked]
        ended = train(specs)
        if ended is None:
            break
        for one, (trial, layer), spec in zip(searches, asked, specs, strict=True):
            path = ended.get(spec.key)
            with of_our_shape(f"{path}/metrics.json"):  # a finished run may be somebody else's
                one.tell(trial, layer, RunDirectory(path).metrics() if path else None)
    return [layer for one in searches for layer in one.front() or [one.run]]
