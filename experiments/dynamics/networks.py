"""The networks whose curves are drawn, with every seed; those on texts at the paper's length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrant.training.folders import RunFolder
from calibrant.training.grid import Job, folder_of
from experiments.catalogue import NothingToReadError
from experiments.kept import unpack
from experiments.trained.runs import Place, TrainedRun, jobs

Runs = dict[str, list[TrainedRun]]
"""The runs of a network by loss, one for each seed."""


def networks(parameters: Mapping[str, Any]) -> tuple[dict[Place, Runs], list[str]]:
    """The finished runs, and a line that names the missing ones, if any.

    The runs of the grids ``long``, which has their folders, take the place of all others of the
    same networks.
    """
    found: dict[Place, Runs] = {}
    absent: dict[str, Counter[str]] = {}
    for job, folder in wanted(parameters):
        run = RunFolder(folder_of(job, folder))
        result, loss = run.read_result(), job.recipe.loss
        if result is None:
            absent.setdefault(" ".join(place_of(job)), Counter())[loss] += 1
        else:
            runs = found.setdefault(place_of(job), {})
            runs.setdefault(loss, []).append(TrainedRun(job, run, result))
    if not found:
        raise NothingToReadError(
            f"{parameters['folder']} must hold finished runs of {', '.join(parameters['grids'])}; "
            "found none. Make them with: python -m experiments trained"
        )
    named = "; ".join(
        f"{place}: {', '.join(f'{loss} ({n} runs)' if n > 1 else loss for loss, n in each.items())}"
        for place, each in absent.items()
    )
    return found, [f"Not finished, and left out: {named}."] if absent else []


def wanted(parameters: Mapping[str, Any]) -> list[tuple[Job, Path]]:
    """The runs to read and their folders, into which those that are kept are unpacked."""
    long = [
        (job, Path(folder)) for grid, folder in parameters["long"].items() for job in jobs([grid])
    ]
    replaced = {place_of(job) for job, _ in long}
    short = [
        (job, Path(parameters["folder"]))
        for job in jobs(parameters["grids"])
        if place_of(job) not in replaced
    ]
    for folder in {folder for _, folder in (*short, *long)}:
        unpack([job for job, its in (*short, *long) if its == folder], folder)
    return [*short, *long]


def place_of(job: Job) -> Place:
    """The data set and the network of a run."""
    return job.recipe.data, job.recipe.model


def pairs(runs: Runs, first: str, second: str) -> list[tuple[TrainedRun, TrainedRun]]:
    """The runs with two losses and the same seed."""
    of_seed = {run.recipe.seed: run for run in runs.get(second, [])}
    return [
        (run, of_seed[run.recipe.seed]) for run in runs.get(first, []) if run.recipe.seed in of_seed
    ]
