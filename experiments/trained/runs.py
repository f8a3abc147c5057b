"""The runs of grids, read from the folders of `calibrant train --grid`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant.training import Recipe
from calibrant.training.folders import RunFolder
from calibrant.training.grid import Job, folder_of, jobs_of, read_grid
from experiments.catalogue import NothingToReadError
from experiments.kept import stored_epoch, unpack

HERE = Path(__file__).parent
TITLES = {
    "ce": "cross-entropy",
    "label-smoothing": "label smoothing",
    "brier": "Brier",
    "mmce": "MMCE",
    "mmce-published": "MMCE, published",
    "adafocal": "AdaFocal",
}

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Place = tuple[str, str]
"""A data set and a network."""


class StoredPredictions(NamedTuple):
    """Stored predictions of one split."""

    logits: Floats
    labels: Labels
    ids: npt.NDArray[np.str_]


@dataclass(frozen=True)
class TrainedRun:
    """One finished run."""

    job: Job
    folder: RunFolder
    result: Mapping[str, Any]

    @property
    def recipe(self) -> Recipe:
        """Its recipe."""
        return self.job.recipe

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Sizes of the three splits."""
        found: Mapping[str, int] = self.folder.stored()["data"]["sizes"]
        return found

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Records of the epochs."""
        return self.folder.records()

    @property
    def training_error(self) -> float:
        """Share wrong of ``recipe.observed`` training samples, after the epoch that is stored."""
        return float(stored_epoch(self.records, self.recipe.choice)["train"]["error"])

    @cached_property
    def val(self) -> StoredPredictions:
        """The validation set."""
        return self._part("val")

    @cached_property
    def test(self) -> StoredPredictions:
        """The test set."""
        return self._part("test")

    def measured(self, method: str, metric: str) -> dict[str, float]:
        """``value``, ``low`` and ``high`` of a calibrator's metric on the test set."""
        found: dict[str, float] = self.result["comparison"]["methods"][method]["metrics"][metric]
        return found

    def _part(self, name: str) -> StoredPredictions:
        with np.load(self.folder.predictions, allow_pickle=False) as stored:
            logits, labels, ids = (stored[f"{name}_{what}"] for what in ("logits", "labels", "ids"))
        return StoredPredictions(logits.astype(np.float64), labels, ids)


def jobs(grids: Sequence[str]) -> list[Job]:
    """The runs of grids beside this file."""
    return [job for name in grids for job in jobs_of(read_grid(HERE / name))]


def finished(grids: Sequence[str], folder: str) -> dict[Place, dict[str, TrainedRun]]:
    """The finished runs by data set and network, then by loss; the grids have one seed."""
    found: dict[Place, dict[str, TrainedRun]] = {}
    unpack(jobs(grids), Path(folder))
    for job in jobs(grids):
        place = RunFolder(folder_of(job, Path(folder)))
        result = place.read_result()
        if result is not None:
            runs = found.setdefault((job.recipe.data, job.recipe.model), {})
            runs[job.recipe.loss] = TrainedRun(job, place, result)
    if not found:
        raise NothingToReadError(
            f"{folder} must hold finished runs of {', '.join(grids)}; found none. "
            "Make them with: python -m experiments trained"
        )
    return found


def missing(grids: Sequence[str], found: Mapping[Place, Mapping[str, object]]) -> list[str]:
    """A line that names the missing runs of the grids, if any."""
    absent: dict[str, list[str]] = {}
    for job in jobs(grids):
        data, model, loss = job.recipe.data, job.recipe.model, job.recipe.loss
        if loss not in found.get((data, model), {}):
            absent.setdefault(f"{data} {model}", []).append(loss)
    named = "; ".join(f"{place}: {', '.join(losses)}" for place, losses in absent.items())
    return [f"Not finished, and left out: {named}."] if absent else []


def test_logits(a: TrainedRun, b: TrainedRun) -> tuple[Floats, Floats, Labels]:
    """Logits of two runs on the same test samples, and their labels."""
    if not np.array_equal(a.test.ids, b.test.ids):
        raise ValueError(
            f"{a.recipe.name} and {b.recipe.name} must have the same test samples; found other "
            "ids. Train both with the same data and seed"
        )
    return a.test.logits, b.test.logits, a.test.labels


def title(loss: str) -> str:
    """Name of a loss in tables and pictures."""
    return TITLES.get(loss, loss.upper())
