"""Train the missing runs of two grids, and tabulate all before and after calibration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import calibrant
from calibrant.metrics import s99, s99_accuracy
from calibrant.training.grid import run_grid
from experiments.kept import unpack
from experiments.results import Result
from experiments.tables import Table
from experiments.trained.runs import Floats, Labels, TrainedRun, finished, jobs, missing, title

MEASURED = (
    "ECE %",
    "AdaECE %",
    "classwise ECE %",
    "MCE %",
    "NLL",
    "S99 %",
    "correct in S99 %",
)
BEFORE = (
    "data",
    "network",
    "loss",
    "seed",
    "epochs",
    "s",
    "train n",
    "test n",
    "error %",
    *MEASURED,
)
AFTER = (
    "data",
    "network",
    "loss",
    "T",
    *MEASURED,
    "ECE %, focal temperature",
    "ECE %, auto",
    "NLL, auto",
)


def run(parameters: Mapping[str, Any]) -> Result:
    """Train, then measure every run on its whole test set."""
    grids, folder = parameters["grids"], parameters["folder"]
    unpack(jobs(grids), Path(folder))
    trained = run_grid(jobs(grids), folder, say=print)
    found = finished(grids, folder)
    values: dict[str, float] = {
        "runs of the grids": trained.n_runs,
        "runs that finished": len(trained.results),
    }
    before, after = [], []
    for (data, network), runs in found.items():
        for loss, each in runs.items():
            name = f"{data}, {network}, {title(loss)}"
            values[f"test error %, {name}"] = 100.0 * each.result["test"]["error"]
            values[f"ECE %, {name}"] = 100.0 * each.measured("identity", "ece")["value"]
            before.append([data, network, title(loss), *before_calibration(each)])
            after.append([data, network, title(loss), *after_calibration(each)])
    tables = {
        "before": Table("Trained here: test set, as trained; 95% intervals", BEFORE, before),
        "after": Table(
            "The same after calibration on the validation set; T by NLL, unless named otherwise",
            AFTER,
            after,
        ),
    }
    failed = [f"Failed: {name}: {said}" for name, said in trained.failures.items()]
    notes = [*failed, *about(found)]
    return Result(values, tables, notes=notes, unfinished=missing(grids, found))


def before_calibration(run: TrainedRun) -> list[str]:
    """The settings of a run, and the calibration of its softmax."""
    recipe = run.recipe
    return [
        str(recipe.seed),
        str(recipe.epochs),
        f"{run.result['seconds']:.0f}",
        str(run.sizes["train"]),
        str(run.sizes["test"]),
        percent(run.result["test"]["error"]),
        with_interval(run.measured("identity", "ece")),
        percent(run.measured("identity", "ada_ece")["value"]),
        *from_logits(run.test.logits, run.test.labels),
    ]


def after_calibration(run: TrainedRun) -> list[str]:
    """The same after temperature scaling, focal temperature scaling and auto."""
    scaling = calibrant.TemperatureScaling().fit(run.val.logits, run.val.labels)
    scaled = run.test.logits / scaling.temperature_
    return [
        f"{scaling.temperature_:.2f}",
        with_interval(run.measured("temperature", "ece")),
        percent(run.measured("temperature", "ada_ece")["value"]),
        *from_logits(scaled, run.test.labels),
        with_interval(run.measured("focal-temperature", "ece")),
        with_interval(run.measured("auto", "ece")),
        f"{run.measured('auto', 'nll')['value']:.4f}",
    ]


def from_logits(logits: Floats, labels: Labels) -> list[str]:
    """Classwise ECE, MCE, NLL, S99 and its accuracy."""
    scores: dict[str, Any] = {"logits": logits, "labels": labels}
    sure = s99(**scores)
    return [
        percent(calibrant.classwise_ece(**scores)),
        percent(calibrant.mce(**scores)),
        f"{calibrant.nll(**scores):.4f}",
        percent(sure),
        percent(s99_accuracy(**scores)) if sure > 0.0 else "none",
    ]


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100.0 * share:.2f}"


def with_interval(measured: Mapping[str, float]) -> str:
    """A share in percent with its interval."""
    low, high = percent(measured["low"]), percent(measured["high"])
    return f"{percent(measured['value'])} [{low}, {high}]"


def about(found: Mapping[tuple[str, str], Mapping[str, TrainedRun]]) -> list[str]:
    """Notes on the data sets."""
    runs = [next(iter(of_place.values())) for of_place in found.values()]
    return [
        f"{run.recipe.data}, {run.recipe.model}: {run.sizes['train']} training samples, "
        f"{run.recipe.epochs} epochs, {run.recipe.optimizer}, learning rate "
        f"{run.recipe.learning_rate:g}; {run.recipe.source}."
        for run in runs
    ]
