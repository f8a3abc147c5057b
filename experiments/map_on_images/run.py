"""Train with focal losses of several gammas, and measure the effect of the map on the ECE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from calibrant import TemperatureScaling, ece
from calibrant.focal import focal_log_probs
from calibrant.training import recipe
from calibrant.training.grid import Job, folder_of, run_grid
from experiments.kept import unpack
from experiments.map_on_images.pictures import draw_errors, draw_reliability
from experiments.results import Result
from experiments.tables import Table

IMAGES = Path("../shared/data/images")
STANDARD, SCALED, SMOOTHED = "Standard", "TS_FL", "LS"
LEVEL = 0.95
MEASURED = ("error", "raw", "mapped")

Floats = npt.NDArray[np.floating[Any]]
Labels = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Panel:
    """One data set, network and size of the training set, trained with every gamma and seed."""

    data: str
    model: str
    images: int
    epochs: int
    smoothed: bool = False

    @property
    def title(self) -> str:
        """Title in tables and pictures."""
        return f"{self.data}, {self.model}, {self.images} images"

    def job(self, gamma: int, seed: int, label_smoothing: float) -> Job:
        """The run of one gamma and seed: the recipe of the paper, shortened."""
        made = recipe(
            self.data,
            model=self.model,
            loss="ce" if gamma == 0 else f"fl-{gamma}",
            preset="cpu",
            epochs=self.epochs,
            limit=self.images,
            observed=0,
            seed=seed,
            loss_options={"label_smoothing": label_smoothing} if self.smoothed else {},
        )
        return Job(made, str(IMAGES))


@dataclass(frozen=True)
class Measured:
    """A network under one paradigm, before and after the map."""

    panel: Panel
    paradigm: str
    gamma: int
    seed: int
    error: float
    raw: float
    mapped: float
    logits: Floats
    labels: Labels


def run(parameters: Mapping[str, Any]) -> Result:
    """Train what is missing, measure each network with and without the map."""
    panels = [
        Panel(**{**panel, "data": data}) for panel in parameters["panels"] for data in panel["data"]
    ]
    jobs = {
        (panel, gamma, seed): panel.job(gamma, seed, parameters["label_smoothing"])
        for panel in panels
        for seed in parameters["seeds"]
        for gamma in parameters["gammas"]
    }
    unpack(jobs.values(), Path(parameters["folder"]))
    trained = run_grid(list(jobs.values()), parameters["folder"], say=print)
    measured = []
    for (panel, gamma, seed), job in jobs.items():
        file = folder_of(job, Path(parameters["folder"])) / "predictions.npz"
        if file.exists():
            measured += measure(panel, gamma, seed, file, parameters["n_bins"])
    groups = grouped(measured)
    values: dict[str, float] = {"runs": trained.n_runs, "runs that finished": len(trained.results)}
    values |= {name: value for group in groups for name, value in changes(group).items()}
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
            f"ECE in {parameters['n_bins']} equal bins on the whole test set, in percent.",
            "The networks are far smaller runs than the paper's: part of the images, no "
            "augmentation, a few dozen epochs in place of 50 and 200, at most 44 layers of 110.",
            f"Intervals: Student's t over {len(parameters['seeds'])} seeds, level {LEVEL:.0%}.",
        ],
    )


def measure(panel: Panel, gamma: int, seed: int, file: Path, n_bins: int) -> list[Measured]:
    """A network as it is, and after temperature scaling by the focal loss on validation data."""
    with np.load(file, allow_pickle=False) as stored:
        val, val_labels = stored["val_logits"], stored["val_labels"]
        test, labels = stored["test_logits"], stored["test_labels"]
    forms = {SMOOTHED if panel.smoothed else STANDARD: test}
    if not panel.smoothed:
        scaling = TemperatureScaling(criterion="focal", focal_gamma=float(gamma))
        forms[SCALED] = test / scaling.fit(val, val_labels).temperature_
    return [
        Measured(
            panel,
            paradigm,
            gamma,
            seed,
            error=float(np.mean(logits.argmax(axis=1) != labels)),
            raw=ece(logits=logits, labels=labels, n_bins=n_bins),
            mapped=ece(logits=mapped(logits, gamma), labels=labels, n_bins=n_bins),
            logits=logits,
            labels=labels,
        )
        for paradigm, logits in forms.items()
    ]


def mapped(logits: Floats, gamma: int) -> Floats:
    """Log-probabilities after the map."""
    return np.asarray(focal_log_probs(logits, gamma=float(gamma)))


def grouped(measured: Sequence[Measured]) -> list[list[Measured]]:
    """By panel and paradigm, in the order of the config."""
    groups: dict[tuple[Panel, str], list[Measured]] = {}
    for each in measured:
        groups.setdefault((each.panel, each.paradigm), []).append(each)
    return list(groups.values())


def by_data(
    groups: Sequence[list[Measured]], paradigm: str
) -> list[tuple[str, list[list[Measured]]]]:
    """The groups of one paradigm, those of a data set together."""
    chosen = [group for group in groups if group[0].paradigm == paradigm]
    names = dict.fromkeys(group[0].panel.data for group in chosen)
    return [(name, [g for g in chosen if g[0].panel.data == name]) for name in names]


def changes(group: Sequence[Measured]) -> dict[str, float]:
    """Effect of the map on the error for gamma above 0, and the best gamma without it."""
    name = f"{group[0].paradigm}: {group[0].panel.title}"
    seeds = dict.fromkeys(each.seed for each in group)
    by_seed = [
        100.0 * mean(one.mapped - one.raw for one in group if one.seed == seed and one.gamma > 0)
        for seed in seeds
    ]
    low, high = t_interval(by_seed)
    best = "gamma with the smallest ECE without the map"
    return {
        f"{name}: points of ECE that the map adds": mean(by_seed),
        f"{name}: low end of its interval": low,
        f"{name}: high end of its interval": high,
        f"{name}: {best}": smallest(group),
        **{
            f"{name}: {best}, seed {seed}": smallest([one for one in group if one.seed == seed])
            for seed in seeds
        },
    }


def smallest(group: Sequence[Measured]) -> int:
    """The gamma with the smallest mean error without the map."""
    gammas = dict.fromkeys(one.gamma for one in group)
    return min(gammas, key=lambda gamma: mean(one.raw for one in group if one.gamma == gamma))


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """Interval of the mean of independent values; infinite for a single one."""
    if len(values) < 2:
        return -np.inf, np.inf
    reach = stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * stdev(values) / np.sqrt(len(values))
    return mean(values) - float(reach), mean(values) + float(reach)


def table_of_errors(groups: Sequence[list[Measured]]) -> Table:
    """Figs 5 and 6 in numbers: means and standard deviations over seeds."""
    head = ["paradigm", "data, network, training set", "gamma", "seeds", "error %"]
    head += ["ECE % raw", "ECE % with the map"]
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
    head += ["best gamma without the map"]
    rows = []
    for group in groups:
        added, low, high, best, *_ = changes(group).values()
        title = group[0].panel.title
        rows.append(
            [group[0].paradigm, title, f"{added:+.2f}", f"{low:+.2f} to {high:+.2f}", str(best)]
        )
    return Table("What the map adds to the error, mean of gamma 1 to 3", head, rows)
