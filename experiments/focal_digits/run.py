"""Digits with the focal loss: raw, with the map, with a temperature, and with both."""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import nn

import calibrant
from calibrant.calibrators import CalibrationWarning
from calibrant.focal import focal_log_probs
from calibrant.losses import FocalLoss
from experiments.tables import markdown

OUT = Path("out/focal-digits")
GAMMA = 3.0
N_VAL, N_TEST = 300, 600

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Part = tuple[Floats, Labels]


@dataclass(frozen=True)
class Setting:
    """How a network is trained."""

    title: str
    n_train: int
    hidden: int
    """0 is a linear model."""
    steps: int
    mislabelled: float = 0.0
    """Share of random labels in every set."""


SETTINGS = (
    Setting("linear, 890 images, 100 steps", 890, 0, 100),
    Setting("256 units, 890 images, 100 steps", 890, 256, 100),
    Setting("256 units, 200 images, 1000 steps", 200, 256, 1000),
    Setting("the same, 20% of labels random", 200, 256, 1000, mislabelled=0.2),
)


def logits_of(setting: Setting, seed: int) -> tuple[Part, Part]:
    """Logits and labels of validation and test after training, on the whole set at each step."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    images, labels = load_digits(return_X_y=True)
    wrong = rng.random(len(labels)) < setting.mislabelled
    labels[wrong] = rng.integers(0, 10, wrong.sum())
    order = rng.permutation(len(labels))
    x, y = torch.tensor(images[order] / 16.0).float(), torch.tensor(labels[order])
    model: nn.Module = nn.Linear(64, 10)
    if setting.hidden:
        layers = nn.Linear(64, setting.hidden), nn.ReLU(), nn.Linear(setting.hidden, 10)
        model = nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loss = FocalLoss(gamma=GAMMA)
    train, val = slice(0, setting.n_train), slice(-N_VAL - N_TEST, -N_TEST)
    for _ in range(setting.steps):
        optimizer.zero_grad()
        loss(model(x[train]), y[train]).backward()
        optimizer.step()
    with torch.no_grad():
        said = model(x).double().numpy()
    truth = y.numpy()
    return (said[val], truth[val]), (said[-N_TEST:], truth[-N_TEST:])


def mapped(logits: Floats) -> Floats:
    """Log-probabilities after the focal map of the logits."""
    return np.asarray(focal_log_probs(logits, gamma=GAMMA))


def at_prediction(val: Part, test: Floats) -> tuple[dict[str, Floats], dict[str, float]]:
    """Probabilities by method, and the temperatures that were fitted."""
    logits, labels = val
    plain = calibrant.TemperatureScaling().fit(logits, labels)
    after_map = calibrant.TemperatureScaling().fit(mapped(logits), labels)
    both = calibrant.FocalTemperatureScaling(criterion="nll").fit(logits, labels)
    auto = calibrant.AutoCalibration().fit(logits, labels)
    found = {
        "as it is": calibrant.Identity().fit(logits, labels).predict_proba(test),
        "map": np.exp(mapped(test)),
        "temperature": plain.predict_proba(test),
        "map, then temperature": after_map.predict_proba(mapped(test)),
        "focal-temperature": both.predict_proba(test),
        "auto": auto.predict_proba(test),
    }
    return found, {
        "temperature": plain.temperature_,
        "map, then temperature": after_map.temperature_,
    }


def table(setting: Setting, n_seeds: int) -> str:
    """Means over seeds of the figures of the test set."""
    rows: dict[str, list[list[float]]] = {}
    errors = []
    for seed in range(n_seeds):
        val, (test, labels) = logits_of(setting, seed)
        found, temperatures = at_prediction(val, test)
        errors.append(calibrant.error_rate(found["as it is"], labels))
        for name, probs in found.items():
            figures = [
                calibrant.nll(probs, labels),
                100 * calibrant.ada_ece(probs, labels),
                100 * calibrant.metrics.confidence_gap(probs, labels),
                temperatures.get(name, np.nan),
            ]
            rows.setdefault(name, []).append(figures)
    cells = []
    for name, values in rows.items():
        nll, ada_ece, gap, temperature = np.mean(values, axis=0)
        shown = "" if np.isnan(temperature) else f"{temperature:.2f}"
        cells.append([name, f"{nll:.3f}", f"{ada_ece:.1f}", f"{gap:+.1f}", shown])
    head = ["at prediction time", "nll", "ada_ece %", "confidence - accuracy %", "T"]
    title = f"### {setting.title}: error {100 * np.mean(errors):.1f}%"
    return f"{title}\n\n{markdown(head, cells)}"


def main(argv: list[str] | None = None) -> None:
    """Train, calibrate and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="how many runs the means are of")
    parser.add_argument("--out", type=Path, default=OUT, help="where the tables go")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # of few samples, which is the point
        text = "\n\n".join(table(setting, arguments.seeds) for setting in SETTINGS) + "\n"
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "table.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
