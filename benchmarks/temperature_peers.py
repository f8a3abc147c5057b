"""Temperature scaling by NLL against other installed packages, in one run.

Every package gets the input that suits it: float32 logits, or probabilities where it takes no
logits (made beforehand, so that this is not part of its time). Beside the times stand the
temperature that each found and its NLL, computed alike for all of them in float64; a temperature
that is off by more than one in a thousand is marked as wrong, and a wrong one is not the fastest.

The other packages are in the environment of ``make bench-peers``. torch-uncertainty is not among
them: to import it, version 0.13.0 too, takes torchvision, whose builds come with CUDA libraries.
Its method is measured in the copy that probmetrics has of an earlier version.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.timing import peer, print_ratios, side_by_side
from calibrant import TemperatureScaling
from experiments.scoreboard.peers import given_logits

SHAPES = ((5_000, 100), (25_000, 1000))
ROUNDS = {5_000: 7, 25_000: 3}
TRUE_TEMPERATURE = 1.5
WRONG = 1e-3
OURS = "calibrant"

Floats = npt.NDArray[Any]
Run = Callable[[], float]
"""A fit that returns the temperature."""


def problem(n: int, n_classes: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Logits in float32, and labels drawn from softmax(logits / T)."""
    rng = np.random.default_rng(0)
    logits = 3.0 * rng.standard_normal((n, n_classes), dtype=np.float32)
    noise = rng.gumbel(size=logits.shape)
    return logits, (logits / TRUE_TEMPERATURE + noise).argmax(axis=1)


def runs(logits: Floats, labels: npt.NDArray[np.int64]) -> dict[str, Run]:
    """The fits of all installed packages."""
    tensor, target = torch.from_numpy(logits), torch.from_numpy(labels)
    fits: dict[str, Run] = {OURS: lambda: TemperatureScaling().fit(logits, labels).temperature_}
    if calibration := peer("sklearn.calibration", report=True):
        frozen = import_module("sklearn.frozen").FrozenEstimator(given_logits(logits.shape[1]))

        def scikit_learn() -> float:
            scaled = calibration.CalibratedClassifierCV(frozen, method="temperature")
            fitted = scaled.fit(logits, labels).calibrated_classifiers_[0]
            return 1.0 / float(fitted.calibrators[0].beta_)

        fits["scikit-learn"] = scikit_learn
    if calibrators := peer("probmetrics.calibrators", report=True):
        given = import_module("probmetrics.distributions").CategoricalLogits

        def probmetrics(name: str) -> Run:
            def fit() -> float:
                scaling = calibrators.get_calibrator(name)
                scaling.fit_torch(given(tensor), target)
                return 1.0 / float(scaling.invtemp_)

            return fit

        fits["probmetrics"] = probmetrics("temp-scaling")
        fits["torch-uncertainty, as in probmetrics"] = probmetrics("torchunc-ts")
    if scaling := peer("netcal.scaling", report=True):
        single = torch.softmax(tensor, dim=-1).numpy()

        def netcal(probs: Floats) -> Run:
            def fit() -> float:
                model = scaling.TemperatureScaling()
                with contextlib.redirect_stdout(io.StringIO()):
                    model.fit(probs, labels)
                return 1.0 / float(model.temperature[0])

            return fit

        fits["netcal, float32"] = netcal(single)
        fits["netcal, float64"] = netcal(torch.softmax(tensor.double(), dim=-1).numpy())
    if post_processing := peer("torch_uncertainty.post_processing", report=True):
        batches = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(tensor, target), batch_size=len(labels)
        )

        def torch_uncertainty() -> float:
            model = post_processing.TemperatureScaler(model=torch.nn.Identity())
            model.fit(batches, progress=False)
            return float(model.temperature[0])

        fits["torch-uncertainty"] = torch_uncertainty
    return fits


def nll(logits: Floats, labels: npt.NDArray[np.int64], temperature: float) -> float:
    """NLL of softmax(logits / T), always in float64."""
    scaled = torch.from_numpy(logits).double() / temperature
    return float(torch.nn.functional.cross_entropy(scaled, torch.from_numpy(labels)))


def findings(
    logits: Floats, labels: npt.NDArray[np.int64], fits: dict[str, Run]
) -> Iterator[tuple[str, float, float, bool]]:
    """Name, T and NLL of each package, and whether T is correct."""
    ours = fits[OURS]()
    for name, fit in fits.items():
        temperature = fit()
        is_correct = abs(temperature / ours - 1.0) <= WRONG
        yield name, temperature, nll(logits, labels, temperature), is_correct


def main() -> None:
    """Print temperatures, times and ratios."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    load = os.getloadavg()[0]
    threads = torch.get_num_threads()
    print(f"\ntemperature scaling by NLL, {threads} threads, load average {load:.1f}, seed 0")
    for shape in SHAPES:
        logits, labels = problem(*shape)
        print(f"\n{shape[0]} x {shape[1]}, float32, labels drawn at T = {TRUE_TEMPERATURE:g}")
        fits = runs(logits, labels)
        width = max(map(len, fits))
        correct = []
        for name, temperature, value, is_correct in findings(logits, labels, fits):
            print(
                f"  {name:<{width}}  T {temperature:.6f}  NLL {value:.8f}"
                f"{'' if is_correct else '  WRONG'}"
            )
            correct += [name] if is_correct else []
        seconds = side_by_side(fits, rounds=ROUNDS[shape[0]])
        print_ratios(f"fit, {shape[0]} x {shape[1]}", seconds, against=OURS)
        others = {name: seconds[name] for name in correct if name != OURS}
        if others:
            fastest = min(others, key=lambda name: others[name])
            ratio = others[fastest] / seconds[OURS]
            print(f"  {OURS} is {ratio:.1f} times as fast as {fastest}, the fastest correct one")
    print(f"\nload average {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
