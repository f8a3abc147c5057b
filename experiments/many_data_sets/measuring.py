"""One table: split, trained, calibrated, measured."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from calibrant import TemperatureScaling, classwise_ece, ece, error_rate, nll
from calibrant.calibrators import CalibrationWarning
from calibrant.focal import focal_log_probs
from calibrant.training.datasets import load
from experiments.many_data_sets.training import Networks, Plan, train

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

BINS = 10
"""From the paper, Sec. 6."""
METRICS = ("ece", "nll", "classwise ece", "error")


@dataclass(frozen=True)
class Division:
    """A table split in three by one seed, standardised by its training set."""

    train: tuple[Tensor, Tensor]
    val: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Measured:
    """What came out for one table.

    Attributes:
        name: Of the table.
        n_classes: Of the whole table.
        sizes: Rows of the training, validation and test set.
        scores: Setting -> method -> (metrics, divisions).
        changed: Test predictions that the focal map changed, of all networks.
        at_limit: Fits of a temperature that ended at T -> 0 or T -> infinity.
        fits: Fits of a temperature.
        unlearned: Test rows of classes that the training set does not have, all divisions.
        absent: Classes without a row in the test set, all divisions.
    """

    name: str
    n_classes: int
    sizes: tuple[int, int, int]
    scores: dict[str, dict[str, Floats]]
    changed: int
    at_limit: int
    fits: int
    unlearned: int
    absent: int


def loss_name(gamma: float) -> str:
    """The name in the tables."""
    return f"FL-{gamma:g}" if gamma else "CE"


def measure(path: Path, parameters: Mapping[str, Any]) -> Measured:
    """Everything about one table.

    ``parameters`` are those of ``config.toml``.
    """
    seeds: Sequence[int] = parameters["seeds"]
    divisions, n_classes = divided(path, seeds, parameters["most_rows"])
    train_part, val, test = (
        (torch.stack([part[0] for part in parts]), torch.stack([part[1] for part in parts]))
        for parts in zip(*((d.train, d.val, d.test) for d in divisions), strict=True)
    )
    scores: dict[str, dict[str, Floats]] = {}
    changed = at_limit = fits = 0
    for network, its_own in parameters["networks"].items():
        plan = Plan(gammas=parameters["gammas"], **parameters["training"], **its_own)
        trained = train(*train_part, *val, n_classes=n_classes, plan=plan, seeds=seeds)
        moments = {"stopped": trained.stopped, "to the end": trained.last}
        for moment, networks in moments.items():
            setting = f"{network}, {moment}"
            if setting not in parameters["settings"]:
                continue
            of_val, of_test = said(networks, val[0], plan), said(networks, test[0], plan)
            scores[setting] = {}
            for d in range(len(seeds)):
                for g, gamma in enumerate(plan.gammas):
                    found = calibrated(of_val[d, g], val[1][d].numpy(), of_test[d, g], gamma)
                    fits += 1
                    at_limit += found.at_limit
                    changed += found.changed
                    for method, log_probs in found.log_probs.items():
                        table = scores[setting].setdefault(
                            method, np.empty((len(METRICS), len(seeds)))
                        )
                        table[:, d] = figures(log_probs, test[1][d].numpy())
    known = [set(labels.tolist()) for labels in train_part[1]]
    tested = [labels.tolist() for labels in test[1]]
    return Measured(
        name=path.stem,
        n_classes=n_classes,
        sizes=(train_part[1].shape[1], val[1].shape[1], test[1].shape[1]),
        scores=scores,
        changed=changed,
        at_limit=at_limit,
        fits=fits,
        unlearned=sum(y not in seen for seen, of in zip(known, tested, strict=True) for y in of),
        absent=sum(n_classes - len(set(of)) for of in tested),
    )


def divided(
    path: Path, seeds: Sequence[int], most: Mapping[str, int]
) -> tuple[list[Division], int]:
    """A division for each seed, and the number of classes.

    Every part comes in the order of its seed, so its first rows are some at random.
    """
    found = []
    for seed in seeds:
        data = load("tabular", path, random_state=seed)
        parts = {
            name: part.batch(torch.arange(min(len(part), most[name])))
            for name, part in (("train", data.train), ("val", data.val), ("test", data.test))
        }
        found.append(Division(**parts))
    return found, len(data.class_names)


@torch.no_grad()
def said(networks: Networks, rows: Tensor, plan: Plan) -> Floats:
    """Logits (divisions, gammas, n, classes)."""
    # In pieces: the hidden units of all networks for all rows at once would not fit the cache.
    pieces = [networks.logits(piece) for piece in torch.split(rows, 1000, dim=1)]
    logits = torch.cat(pieces, dim=1).double().numpy()
    return np.asarray(logits).reshape(len(rows), len(plan.gammas), *logits.shape[1:])


@dataclass(frozen=True)
class Calibrated:
    """What one network says of the test set.

    Attributes:
        log_probs: By method.
        at_limit: Whether the temperature lies at T -> 0 or T -> infinity.
        changed: Predictions that the focal map changed.
    """

    log_probs: dict[str, Floats]
    at_limit: bool
    changed: int


def calibrated(val: Floats, labels: Labels, test: Floats, gamma: float) -> Calibrated:
    """Raw, after a temperature, and after the focal map of the training gamma."""
    loss = loss_name(gamma)
    with warnings.catch_warnings():
        # Of few samples and of limits. The second are counted, the first are in the table.
        warnings.simplefilter("ignore", CalibrationWarning)
        scaling = TemperatureScaling().fit(val, labels)
    found = {loss: test, f"{loss}, T": np.asarray(scaling.predict_log_proba(test))}
    changed = 0
    if gamma:
        mapped = np.asarray(focal_log_probs(test, gamma=gamma))
        found[f"{loss}, map"] = mapped
        changed = int(np.count_nonzero(test.argmax(1) != mapped.argmax(1)))
    return Calibrated(found, scaling.report_.at_bound is not None, changed)


def figures(log_probs: Floats, labels: Labels) -> Floats:
    """The metrics, in their order."""
    return np.array(
        [
            ece(logits=log_probs, labels=labels, n_bins=BINS),
            nll(logits=log_probs, labels=labels),
            classwise_ece(logits=log_probs, labels=labels, n_bins=BINS),
            error_rate(logits=log_probs, labels=labels),
        ]
    )
