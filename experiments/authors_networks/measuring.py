"""The cells of one network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import calibrant
from calibrant.metrics import s99, s99_accuracy
from experiments.authors_networks.equal_mass import published_ada_ece
from experiments.loss_tables import paper
from experiments.loss_tables.measuring import BY_NLL, best_temperature, top
from experiments.scoreboard.networks import Network
from experiments.trained.runs import Floats, Labels

DATA = {"c10": "CIFAR-10", "c100": "CIFAR-100"}
LOSSES = {"flsd53": "fla-53", "brier": "brier"}
NETWORKS = {
    "resnet50": "ResNet 50",
    "resnet110": "ResNet 110",
    "wrn26_10": "Wide ResNet 26-10",
    "densenet121": "DenseNet 121",
}
"""Names in the files, and those of the paper's tables."""


@dataclass(frozen=True)
class Measured:
    """One network of the paper; shares and NLL in percent, as printed.

    Attributes:
        data: Data set.
        network: Network.
        loss: Loss that it was trained with.
        logits: Of the test set.
        labels: Of the test set.
        cells: By quantity and stage; stage T is the temperature. The ECE also after the T of the
            smallest NLL.
        printed: The cells that the paper prints, in the same way.
    """

    data: str
    network: str
    loss: str
    logits: Floats
    labels: Labels
    cells: dict[tuple[str, str], float]
    printed: dict[tuple[str, str], str]

    def scaled(self, stage: str) -> Floats:
        """Logits of the test set, ``after`` with the T of the smallest ECE."""
        return self.logits / (self.cells["ece", "T"] if stage == "after" else 1.0)


def measure(path: Path, found: paper.Cells, tenths: Sequence[int]) -> Measured:
    """Every quantity of the tables; T by ECE, for AdaECE by AdaECE, on the validation set."""
    file = Network.of(path)
    val, (logits, labels) = file.part("val"), file.part("test")
    by_ece = best_temperature(*val, calibrant.ece, tenths)
    by_ada_ece = best_temperature(*val, published_ada_ece, tenths)
    cells = {("ece", "T"): by_ece, ("ada_ece", "T"): by_ada_ece}
    metrics: dict[str, Callable[..., float]] = {
        "error": calibrant.error_rate,
        "ece": calibrant.ece,
        "ada_ece": published_ada_ece,
        "nll": calibrant.nll,
        "mce": calibrant.mce,
        "s99": s99,
        "s99_accuracy": s99_accuracy,
    }
    for name, metric in metrics.items():
        for stage, t in (("before", 1.0), ("after", by_ada_ece if name == "ada_ece" else by_ece)):
            cells[name, stage] = 100.0 * metric(logits=logits / t, labels=labels)
    by_nll = calibrant.TemperatureScaling().fit(*val).temperature_
    cells["ece", BY_NLL] = 100.0 * calibrant.ece(logits=logits / by_nll, labels=labels)
    names = path.stem.split("_", 2)
    data, loss, network = DATA[names[0]], LOSSES[names[1]], NETWORKS[names[2]]
    printed = {
        key[:2]: row[loss] for key, row in found.items() if key[2:] == (data, network) and row[loss]
    }
    return Measured(data, network, loss, logits, labels, cells, printed)


def threshold_for_printed(one: Measured, stage: str) -> tuple[float, float]:
    """The threshold that would give the printed S99, and the accuracy above it, in percent."""
    logits, share = one.scaled(stage), float(one.printed["s99", stage]) / 100.0
    confidence = top(logits)
    threshold = np.sort(confidence)[-1 - round(share * len(confidence))]
    correct = logits.argmax(axis=1) == one.labels
    return 100.0 * float(threshold), 100.0 * float(correct[confidence > threshold].mean())
