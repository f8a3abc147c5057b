"""Cross-entropy and focal loss on every table, without and with the focal map or a temperature."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import torch

from experiments.many_data_sets.measuring import METRICS, Measured, loss_name, measure
from experiments.many_data_sets.picture import draw_changes, draw_ranks
from experiments.many_data_sets.ranking import Mean, Ranking, ranking, resampled_mean
from experiments.results import Result
from experiments.tables import Table

Floats = npt.NDArray[np.float64]

PROCESSES = 2
CE = loss_name(0.0)


def run(parameters: Mapping[str, Any]) -> Result:
    """Train, calibrate and measure on every table, then compare over the tables."""
    measured = measure_all(sorted(Path(parameters["folder"]).glob("*.npz")), parameters)
    names = [each.name for each in measured]
    groups = grouped(names, parameters["related"])
    rows = np.array([each.sizes[0] for each in measured], dtype=np.float64)
    many = rows >= parameters["few_rows"]
    gammas = [gamma for gamma in parameters["gammas"] if gamma]
    strongest = loss_name(max(gammas))

    def mean_of(values: Floats) -> Mean:
        options = {"level": parameters["level"], "resamples": parameters["resamples"]}
        return resampled_mean(values, groups, **options)

    values: dict[str, float] = {
        "data sets": len(measured),
        "data sets with many rows": many.sum(),
        "data sets with few rows": (~many).sum(),
        "test predictions that the map changes": sum(each.changed for each in measured),
    }
    verdicts, rankings, changes, tables = [], {}, {}, {}
    for setting in parameters["settings"]:
        errors = means(measured, setting, "ece")
        values[f"{setting}: mean ECE % of {CE}"] = 100 * errors[CE].mean()
        for loss in map(loss_name, gammas):
            plain, mapped = 100 * errors[loss], 100 * errors[f"{loss}, map"]
            worse, helped = plain > 100 * errors[CE], mapped < plain
            change = mean_of(mapped - plain)
            to_ce, mapped_to_ce = (mean_of(of - 100 * errors[CE]) for of in (plain, mapped))
            about = f"{setting}, {loss}"
            values[f"{about}: data sets with a larger ECE than {CE}"] = worse.sum()
            values[f"{about}: data sets on which the map lowers ECE"] = helped.sum()
            values[f"{about}: mean change of ECE by the map, %"] = change.value
            values[f"{about}: mean ECE with map minus that of {CE}, %"] = mapped_to_ce.value
            if loss == strongest:
                values[f"{about}: low end of the change by the map, %"] = change.low
                values[f"{about}: high end of the change by the map, %"] = change.high
                values[f"{about}: share helped, many rows"] = helped[many].mean()
                values[f"{about}: share helped, few rows"] = helped[~many].mean()
                changes[setting] = mapped - plain
            verdicts.append(
                [setting, loss, f"{worse.sum()}", f"{helped.sum()}"]
                + [f"{helped[part].sum()} of {part.sum()}" for part in (many, ~many)]
                + [str(each) for each in (to_ce, change, mapped_to_ce)]
            )
        rankings[setting] = ranking(list(errors), np.stack(list(errors.values()), axis=1))
        place = rankings[setting].methods.index(CE)
        values[f"{setting}: mean rank of {CE} by ECE"] = rankings[setting].average[place]
        values[f"{setting}: Friedman's chi-square"] = rankings[setting].chi_square
        tables[f"ece-{setting.replace(', ', '-').replace(' ', '-')}"] = of_each_set(
            measured, setting, errors
        )
    values["critical difference"] = rankings[setting].critical_difference
    head = ["", "loss", f"worse than {CE}", "map helps"]
    head += [f"from {parameters['few_rows']} training rows on", "with fewer"]
    head += [f"loss - {CE}", "map - loss", f"map - {CE}"]
    title = (
        f"ECE % on {len(measured)} data sets: on how many, and mean differences with "
        f"{100 * parameters['level']:g}% intervals"
    )
    return Result(
        values,
        {
            "verdicts": Table(title, head, verdicts),
            "ranks": of_ranks(measured, rankings),
            **tables,
        },
        {
            "critical-difference": draw_ranks(rankings),
            "map-by-rows": draw_changes(rows, changes, gamma=max(gammas)),
        },
        notes(measured, rankings, parameters),
    )


def measure_all(paths: Sequence[Path], parameters: Mapping[str, Any]) -> list[Measured]:
    """All tables, in the order of ``paths``; each in one thread, two at a time."""
    spawn = multiprocessing.get_context("spawn")
    one_thread = partial(torch.set_num_threads, 1)
    largest_first = sorted(paths, key=lambda path: (-path.stat().st_size, path))
    with (
        ProcessPoolExecutor(PROCESSES, mp_context=spawn, initializer=one_thread) as pool,
        click.progressbar(length=len(paths), label="training", file=sys.stderr) as progress,
    ):
        waiting = {path: pool.submit(measure, path, parameters) for path in largest_first}
        for each in waiting.values():
            each.add_done_callback(lambda _: progress.update(1))
        return [waiting[path].result() for path in paths]


def means(measured: Sequence[Measured], setting: str, metric: str) -> dict[str, Floats]:
    """Method -> mean over the divisions, for each data set."""
    place = METRICS.index(metric)
    methods = measured[0].scores[setting]
    return {
        method: np.array([each.scores[setting][method][place].mean() for each in measured])
        for method in methods
    }


def grouped(names: Sequence[str], related: Sequence[Sequence[str]]) -> list[int]:
    """A number for each data set, shared by those of the same objects or source."""
    first = {name: members[0] for members in related for name in members}
    numbers: dict[str, int] = {}
    return [numbers.setdefault(first.get(name, name), len(numbers)) for name in names]


def of_each_set(measured: Sequence[Measured], setting: str, errors: Mapping[str, Floats]) -> Table:
    """ECE of every method on every data set; the smallest in bold."""
    wrong = means(measured, setting, "error")[CE]
    rows = []
    for i, each in enumerate(measured):
        found = {method: f"{100 * of[i]:.2f}" for method, of in errors.items()}
        smallest = min(found.values(), key=float)
        cells = [f"**{cell}**" if cell == smallest else cell for cell in found.values()]
        size = f"{each.sizes[0]}/{each.sizes[2]}"
        rows.append([each.name, size, str(each.n_classes), f"{100 * wrong[i]:.1f}", *cells])
    title = f"ECE % ({setting}), means over divisions"
    return Table(title, ["", "train/test", "classes", f"error % of {CE}", *errors], rows)


def of_ranks(measured: Sequence[Measured], rankings: Mapping[str, Ranking]) -> Table:
    """Mean ranks by each metric, and its median over the data sets."""
    rows = []
    for setting, by_ece in rankings.items():
        others = {
            metric: means(measured, setting, metric) for metric in ("nll", "classwise ece", "ece")
        }
        ranks = {
            metric: ranking(list(of), np.stack(list(of.values()), axis=1))
            for metric, of in others.items()
        }
        for place in by_ece.order():
            method = by_ece.methods[place]
            cells = [f"{by_ece.average[place]:.2f}"]
            cells += [f"{ranks[m].average[place]:.2f}" for m in ("nll", "classwise ece")]
            cells += [
                f"{100 * np.median(others['ece'][method]):.2f}",
                f"{np.median(others['nll'][method]):.3f}",
                f"{100 * np.median(others['classwise ece'][method]):.2f}",
            ]
            rows.append([setting, method, *cells])
    head = ["", "method", "rank by ECE", "by NLL", "by classwise ECE"]
    head += ["median ECE %", "median NLL", "median classwise ECE %"]
    return Table("Mean ranks over the data sets, 1 is best, and medians", head, rows)


def notes(
    measured: Sequence[Measured], rankings: Mapping[str, Ranking], parameters: Mapping[str, Any]
) -> list[str]:
    """Notes on the result."""
    largest = max(each.p_value for each in rankings.values())
    unlearned = {each.name: each.unlearned for each in measured if each.unlearned}
    absent = [each.name for each in measured if each.absent]
    limits, fits = (sum(getattr(each, of) for each in measured) for of in ("at_limit", "fits"))
    n = len(parameters["seeds"])
    most = parameters["most_rows"]
    said = [
        "The paper's appendix, with its 30 data sets, networks and numbers, is not in the text "
        "this was written from. Data sets and training are ours; gammas and 10 bins are its "
        "Sec. 6.",
        f"Every table is divided {n} times, classes in equal shares: 60% to train, 20% to stop and "
        "to fit the temperature, 20% to measure. Of larger tables the first rows in the order of "
        f"the seed are taken, {most['train']}, {most['val']} and {most['test']} at most.",
        f"That all methods are alike has p at most {largest:.1g} (Iman and Davenport's F of "
        "Friedman's ranks).",
        "Intervals resample data sets; those made from the same objects are drawn together.",
        f"{limits} of {fits} temperatures lie at a limit, such as T -> 0 where the validation set "
        "holds no mistake. They stay in; their NLL can be huge, hence ranks and medians.",
    ]
    if absent:
        said.append(
            f"Some class has no row in the test set of some division: {', '.join(absent)}. "
            "Its column counts in classwise ECE."
        )
    if unlearned:
        shown = ", ".join(f"{name} ({count})" for name, count in unlearned.items())
        said.append(
            f"Test rows of a class that the rows to train on have none of, all divisions: {shown}. "
            "They count as what they are: mistakes."
        )
    return said
