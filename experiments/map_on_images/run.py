"""The effect of the map on the ECE of networks trained with focal losses of several gammas."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant import TemperatureScaling, ece
from calibrant.focal import focal_log_probs
from calibrant.training import Recipe
from calibrant.training.folders import RunFolder
from calibrant.training.grid import folder_of, jobs_of, read_grid
from experiments.catalogue import NothingToReadError
from experiments.kept import unpack
from experiments.map_on_images.pictures import draw_errors, draw_reliability
from experiments.results import Result
from experiments.tables import Table
from experiments.verdicts import LEVEL, t_interval

HERE = Path(__file__).parent
STANDARD, SCALED, SMOOTHED = "Standard", "TS_FL", "LS"
MEASURED = ("training_error", "error", "raw", "mapped")
ADDED = "points of ECE that the map adds"
RISE = "points of ECE that gamma adds without the map, the largest against the smallest"
AGAINST_STANDARD = "points of ECE that TS_FL adds without the map"

Floats = npt.NDArray[np.floating[Any]]
Labels = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Panel:
    """One data set, network and size of the training set, trained with every gamma and seed."""

    data: str
    model: str
    images: int
    smoothed: bool = False

    @classmethod
    def of(cls, recipe: Recipe) -> Panel:
        """The panel of a run."""
        assert recipe.limit is not None
        return cls(
            recipe.data, recipe.model, recipe.limit, "label_smoothing" in recipe.loss_options
        )

    @property
    def title(self) -> str:
        """Title in tables and pictures."""
        return f"{self.data}, {self.model}, {self.images} images"


@dataclass(frozen=True)
class Measured:
    """A network under one paradigm, before and after the map."""

    panel: Panel
    paradigm: str
    gamma: int
    seed: int
    training_error: float
    error: float
    raw: float
    mapped: float
    logits: Floats
    labels: Labels

    def has_learned(self, below: float) -> bool:
        """Whether the training error is below this share of that of the commonest class."""
        commonest = np.bincount(self.labels).max() / len(self.labels)
        return self.training_error < below * (1.0 - float(commonest))


def run(parameters: Mapping[str, Any]) -> Result:
    """Measure each finished run with and without the map."""
    folder = Path(parameters["folder"])
    jobs = [job for name in parameters["grids"] for job in jobs_of(read_grid(HERE / name))]
    unpack(jobs, folder)
    finished = [job for job in jobs if RunFolder(folder_of(job, folder)).is_finished()]
    measured = [
        one
        for job in finished
        for one in measure(job.recipe, RunFolder(folder_of(job, folder)), parameters["n_bins"])
    ]
    learned = [one for one in measured if one.has_learned(parameters["learned_below"])]
    n_idle = sum(one.paradigm != SCALED for one in measured)
    n_idle -= sum(one.paradigm != SCALED for one in learned)
    wanted: dict[Panel, set[int]] = {}
    for job in jobs:
        wanted.setdefault(Panel.of(job.recipe), set()).add(gamma_of(job.recipe.loss))
    groups = whole_seeds(grouped(learned), wanted)
    if not groups:
        raise NothingToReadError(
            f"{folder} must hold runs of {', '.join(parameters['grids'])} with every gamma of a "
            "seed; found none. The README has the commands that make them"
        )
    steps = [steps_of(job.recipe) for job in jobs]
    batches = [job.recipe.batch_size for job in jobs]
    values: dict[str, float] = {
        "runs": len(jobs),
        "runs that finished": len(finished),
        "runs that have learned nothing": n_idle,
        "fewest steps of a run": min(steps),
        "most steps of a run": max(steps),
    }
    values |= {name: value for group in groups for name, value in changes(group).items()}
    values |= scaled_against_standard(groups)
    counts = len(jobs), len(finished)
    left = [unfinished(wanted, groups, *counts)] if len(finished) < len(jobs) else []
    return Result(
        values,
        {"errors": table_of_errors(groups), "changes": table_of_changes(groups)},
        {
            "fig-4": draw_reliability(groups, n_bins=parameters["n_bins"]),
            **{f"fig-5-{name}": draw_errors(some) for name, some in by_data(groups, STANDARD)},
            **{f"fig-6-{name}": draw_errors(some) for name, some in by_data(groups, SCALED)},
            **{f"fig-6-ls-{name}": draw_errors(some) for name, some in by_data(groups, SMOOTHED)},
        },
        [
            f"ECE in {parameters['n_bins']} equal bins on the stored test samples, in percent.",
            "The networks are far smaller runs than the paper's of 110 layers: part of the images, "
            f"no augmentation, {span(steps)} steps of {span(batches)} images.",
            "A seed counts if the runs of all its gammas are finished and have learned: training "
            f"error below {parameters['learned_below']:g} of that of naming the commonest class. "
            "Training errors: last epoch, the `observed` images of the grids.",
            f"Intervals: Student's t over seeds, level {LEVEL:.0%}.",
        ],
        left,
    )


def unfinished(
    wanted: Mapping[Panel, set[int]], groups: Sequence[list[Measured]], n_runs: int, n_finished: int
) -> str:
    """What is missing, in a line."""
    here = {group[0].panel for group in groups}
    kinds = [f"{p.title}{', smoothed' if p.smoothed else ''}" for p in wanted if p not in here]
    absent = f" Without any whole seed: {'; '.join(kinds)}." if kinds else ""
    return f"**{n_finished} of {n_runs} runs are finished, and the rest is left out.**{absent}"


def measure(recipe: Recipe, folder: RunFolder, n_bins: int) -> list[Measured]:
    """A network as it is, and after temperature scaling by the focal loss on validation data."""
    with np.load(folder.predictions, allow_pickle=False) as stored:
        val, val_labels = stored["val_logits"], stored["val_labels"]
        test, labels = stored["test_logits"], stored["test_labels"]
    panel, gamma = Panel.of(recipe), gamma_of(recipe.loss)
    forms = {SMOOTHED if panel.smoothed else STANDARD: test}
    if not panel.smoothed:
        scaling = TemperatureScaling(criterion="focal", focal_gamma=float(gamma))
        forms[SCALED] = test / scaling.fit(val, val_labels).temperature_
    return [
        Measured(
            panel,
            paradigm,
            gamma,
            recipe.seed,
            training_error=folder.records()[-1]["train"]["error"],
            error=float(np.mean(logits.argmax(axis=1) != labels)),
            raw=ece(logits=logits, labels=labels, n_bins=n_bins),
            mapped=ece(logits=mapped(logits, gamma), labels=labels, n_bins=n_bins),
            logits=logits,
            labels=labels,
        )
        for paradigm, logits in forms.items()
    ]


def steps_of(recipe: Recipe) -> int:
    """How many steps a run has."""
    assert recipe.limit is not None
    return recipe.epochs * -(-recipe.limit // recipe.batch_size)


def span(counts: Sequence[int]) -> str:
    """The smallest and the largest of some counts, or the only one."""
    return " to ".join(str(count) for count in sorted({min(counts), max(counts)}))


def gamma_of(loss: str) -> int:
    """Gamma of cross-entropy or of a focal loss."""
    return 0 if loss == "ce" else int(loss.removeprefix("fl-"))


def mapped(logits: Floats, gamma: int) -> Floats:
    """Log-probabilities after the map."""
    return np.asarray(focal_log_probs(logits, gamma=float(gamma)))


def grouped(measured: Sequence[Measured]) -> list[list[Measured]]:
    """By panel and paradigm, in the order of the config."""
    groups: dict[tuple[Panel, str], list[Measured]] = {}
    for each in measured:
        groups.setdefault((each.panel, each.paradigm), []).append(each)
    return list(groups.values())


def whole_seeds(
    groups: Sequence[list[Measured]], wanted: Mapping[Panel, set[int]]
) -> list[list[Measured]]:
    """The groups with the seeds that have every gamma of their panel."""
    whole = []
    for group in groups:
        gammas: dict[int, set[int]] = {}
        for one in group:
            gammas.setdefault(one.seed, set()).add(one.gamma)
        kept = [one for one in group if gammas[one.seed] == wanted[one.panel]]
        whole += [kept] if kept else []
    return whole


def by_data(
    groups: Sequence[list[Measured]], paradigm: str
) -> list[tuple[str, list[list[Measured]]]]:
    """The groups of one paradigm, those of a data set together."""
    chosen = [group for group in groups if group[0].paradigm == paradigm]
    names = dict.fromkeys(group[0].panel.data for group in chosen)
    return [(name, [g for g in chosen if g[0].panel.data == name]) for name in names]


def changes(group: Sequence[Measured]) -> dict[str, float]:
    """What the map adds to the error for gamma above 0, and what gamma adds without the map."""
    name = f"{group[0].paradigm}: {group[0].panel.title}"
    by_seed = {
        seed: [one for one in group if one.seed == seed]
        for seed in dict.fromkeys(each.seed for each in group)
    }
    added = [
        100.0 * mean(one.mapped - one.raw for one in some if one.gamma > 0)
        for some in by_seed.values()
    ]
    ordered = [sorted(some, key=lambda one: one.gamma) for some in by_seed.values()]
    best = "gamma with the smallest ECE without the map"
    return {
        **with_interval(f"{name}: {ADDED}", added),
        f"{name}: {best}": smallest(group),
        f"{name}: training error %": 100.0 * mean(one.training_error for one in group),
        **{f"{name}: {best}, seed {seed}": smallest(some) for seed, some in by_seed.items()},
        **with_interval(
            f"{name}: {RISE}", [100.0 * (some[-1].raw - some[0].raw) for some in ordered]
        ),
    }


def scaled_against_standard(groups: Sequence[list[Measured]]) -> dict[str, float]:
    """The error without the map after TS_FL minus that before it, for gamma above 0."""
    raw: dict[tuple[str, str], dict[int, float]] = {}
    for group in groups:
        raw[group[0].paradigm, group[0].panel.title] = {
            seed: 100.0 * mean(one.raw for one in group if one.seed == seed and one.gamma > 0)
            for seed in dict.fromkeys(each.seed for each in group)
        }
    values: dict[str, float] = {}
    for (paradigm, panel), scaled in raw.items():
        if paradigm == SCALED:
            before = raw[STANDARD, panel]
            values |= with_interval(
                f"{SCALED}: {panel}: {AGAINST_STANDARD}", [scaled[s] - before[s] for s in scaled]
            )
    return values


def with_interval(name: str, by_seed: Sequence[float]) -> dict[str, float]:
    """A mean over seeds, with the ends of its interval where there are several."""
    low, high = t_interval(by_seed)
    ends = {f"{name}, low": low, f"{name}, high": high} if len(by_seed) > 1 else {}
    return {name: mean(by_seed), **ends}


def smallest(group: Sequence[Measured]) -> int:
    """The gamma with the smallest mean error without the map."""
    gammas = dict.fromkeys(one.gamma for one in group)
    return min(gammas, key=lambda gamma: mean(one.raw for one in group if one.gamma == gamma))


def table_of_errors(groups: Sequence[list[Measured]]) -> Table:
    """Figs 5 and 6 in numbers: means and standard deviations over seeds."""
    head = ["paradigm", "data, network, training set", "gamma", "seeds"]
    head += ["training error %", "error %", "ECE % raw", "ECE % with the map"]
    rows = []
    for group in groups:
        for gamma in dict.fromkeys(one.gamma for one in group):
            some = [one for one in group if one.gamma == gamma]
            cells = [shown([getattr(one, name) for one in some]) for name in MEASURED]
            rows.append(
                [group[0].paradigm, group[0].panel.title, str(gamma), str(len(some)), *cells]
            )
    return Table("Calibration errors with and without the focal map", head, rows)


def shown(values: Sequence[float]) -> str:
    """Mean and deviation in percent."""
    text = f"{100 * mean(values):.2f}"
    return f"{text} ± {100 * stdev(values):.2f}" if len(values) > 1 else text


def table_of_changes(groups: Sequence[list[Measured]]) -> Table:
    """One row per group: does the map help?"""
    head = ["paradigm", "data, network, training set", "map adds, points of ECE", "interval"]
    head += ["best gamma without the map", "training error %"]
    rows = []
    for group in groups:
        panel, found = group[0].panel.title, changes(group)
        name = f"{group[0].paradigm}: {panel}"
        added = f"{name}: {ADDED}"
        low, high = (found.get(f"{added}, {end}", math.nan) for end in ("low", "high"))
        interval = f"{low:+.2f} to {high:+.2f}" if f"{added}, low" in found else "one seed"
        best = found[f"{name}: gamma with the smallest ECE without the map"]
        cells = [f"{found[added]:+.2f}", interval, f"{best:.0f}"]
        trained = f"{found[f'{name}: training error %']:.1f}"
        rows.append([group[0].paradigm, panel, *cells, trained])
    return Table("What the map adds to the error, mean of gamma 1 to 3", head, rows)
