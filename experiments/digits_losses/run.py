"""Every loss with five seeds, compared with cross-entropy by seed."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

import calibrant
from calibrant.metrics import s99
from calibrant.training import train
from calibrant.training.folders import RunFolder
from calibrant.training.grid import Job, folder_of, jobs_of
from experiments.kept import unpack
from experiments.results import Result
from experiments.tables import Table
from experiments.trained.runs import Floats, TrainedRun, title

PERCENT = ("error %", "ECE %", "AdaECE %", "S99 %", "ECE % after T", "S99 % after T")
LEVEL = 0.95


def run(parameters: Mapping[str, Any]) -> Result:
    """Unpack the kept runs, train what is missing, then means over the seeds with intervals."""
    grid = {
        "data": "digits",
        "loss": parameters["losses"],
        "seed": parameters["seeds"],
        "preset": "cpu",
    }
    jobs = jobs_of(grid)
    unpack(jobs, Path(parameters["folder"]))
    train_all(jobs, Path(parameters["folder"]), parameters["processes"])
    runs = [read(job, Path(parameters["folder"])) for job in jobs]
    measured = {loss: measure(runs, loss) for loss in parameters["losses"]}
    values, means, against = {}, [], []
    for loss, of_loss in measured.items():
        spans = {name: mean_and_half(of_seeds) for name, of_seeds in of_loss.items()}
        for name in ("error %", "ECE %", "ECE % after T", "T"):
            values[f"{title(loss)}: {name}"] = spans[name][0]
        means.append([title(loss), *(shown(name, *span) for name, span in spans.items())])
        if loss == "ce":
            continue
        cells = []
        for name in ("ECE %", "ECE % after T", "NLL", "NLL after T"):
            # Seed by seed: both networks saw the same division of the data.
            mean, half = mean_and_half(of_loss[name] - measured["ce"][name])
            text = shown(name, mean, half, sign="+")
            cells.append(f"**{text}**" if abs(mean) > half else text)
            if name.startswith("ECE"):
                values[f"{title(loss)} minus cross-entropy: {name}"] = mean
                values[f"{title(loss)} minus cross-entropy: {name}, half interval"] = half
        against.append([title(loss), *cells])
    n_seeds = len(parameters["seeds"])
    tables = {
        "means": Table(
            f"Digits, {len(runs[0].test.labels)} test samples, means over {n_seeds} seeds with "
            "95% intervals; T by NLL on the validation set",
            ["loss", *measured["ce"]],
            means,
        ),
        "against": Table(
            "The same minus cross-entropy, seed by seed; bold where the interval leaves out 0",
            ["loss", "ECE %", "ECE % after T", "NLL", "NLL after T"],
            against,
        ),
    }
    seconds = sum(each.result["seconds"] for each in runs)
    took = f"The {len(runs)} trainings took {seconds:.0f} s in all, each on one core."
    return Result(values, tables, notes=[took, *NOTES])


def train_all(jobs: Sequence[Job], folder: Path, processes: int) -> None:
    """Train the missing runs, several at once."""
    waiting = [job for job in jobs if RunFolder(folder_of(job, folder)).read_result() is None]
    if not waiting:
        return
    # In few processes, not one a run: most of a run of seconds would be the start of torch.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        for _ in pool.map(train_one, waiting, [folder] * len(waiting)):
            pass


def train_one(job: Job, folder: Path) -> None:
    """One run, resumed if it was started before."""
    place = RunFolder(folder_of(job, folder))
    begun = place.config.exists()
    train(job.recipe, place.path, resume=begun, accelerator="cpu", threads=1, logger="none")


def read(job: Job, folder: Path) -> TrainedRun:
    """A finished run."""
    place = RunFolder(folder_of(job, folder))
    result = place.read_result()
    assert result is not None
    return TrainedRun(job, place, result)


def measure(runs: Sequence[TrainedRun], loss: str) -> dict[str, Floats]:
    """Each quantity of a loss, by seed."""
    rows = [of_run(run) for run in runs if run.recipe.loss == loss]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def of_run(run: TrainedRun) -> dict[str, float]:
    """The measurements of one run on its test set, before and after temperature scaling."""
    temperature = calibrant.TemperatureScaling().fit(run.val.logits, run.val.labels).temperature_
    logits, labels = run.test.logits, run.test.labels
    before: dict[str, Any] = {"logits": logits, "labels": labels}
    after: dict[str, Any] = {"logits": logits / temperature, "labels": labels}
    return {
        "error %": 100.0 * calibrant.error_rate(**before),
        "ECE %": 100.0 * calibrant.ece(**before),
        "AdaECE %": 100.0 * calibrant.ada_ece(**before),
        "NLL": calibrant.nll(**before),
        "S99 %": 100.0 * s99(**before),
        "T": temperature,
        "ECE % after T": 100.0 * calibrant.ece(**after),
        "NLL after T": calibrant.nll(**after),
        "S99 % after T": 100.0 * s99(**after),
    }


def mean_and_half(of_seeds: Floats) -> tuple[float, float]:
    """The mean over seeds, and half of its interval by Student's t."""
    n = len(of_seeds)
    spread = float(of_seeds.std(ddof=1)) / n**0.5
    return float(of_seeds.mean()), float(student.ppf(0.5 + LEVEL / 2.0, n - 1)) * spread


def shown(name: str, mean: float, half: float, sign: str = "") -> str:
    """A mean with half of its interval."""
    digits = 2 if name in PERCENT or name == "T" else 4
    return f"{mean:{sign}.{digits}f} ± {half:.{digits}f}"


NOTES = (
    "A seed decides the division of the data, the weights and the order of the batches. The runs "
    "are kept in the checkout, with logits rounded by at most 1/64 near the largest of a row.",
    "The second table has four comparisons for each loss, none adjusted for their number: of "
    "every twenty, one is bold by chance where nothing differs.",
)
