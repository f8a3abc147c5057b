"""The (gamma, T) search against trying every point; the cost of ``auto`` and of predictions."""

from __future__ import annotations

import copy
import functools
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from benchmarks.timing import print_ratios, side_by_side
from calibrant import (
    AutoCalibration,
    FocalTemperatureScaling,
    TemperatureScaling,
    TopRestScaling,
    ada_ece,
    focal,
)
from calibrant.calibrators import CALIBRATORS

GAMMAS = (-0.5, -0.25, 0.0, 0.05, 0.25, 0.37, 0.5, 0.75, 1.0, 5.0)
N_TEMPERATURES = 500
N_BINS = 15
SHAPES = ((5_000, 10), (5_000, 100), (25_000, 1000))
EXTRAPOLATED_FROM = 20
"""Number of grid points to time; all 5000 would take minutes."""


def network(n: int, n_classes: int) -> tuple[Any, Any]:
    """Logits of an over-confident model, and labels: 70% of its predictions are correct."""
    rng = np.random.default_rng(0)
    truth = 2.0 * rng.standard_normal((n, n_classes))
    truth[np.arange(n), rng.integers(0, n_classes, n)] += 2.5 + np.log(n_classes)
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    return (1.6 * truth).astype(np.float32), labels


def textbook_numpy(logits: Any, correct: Any, gamma: float, temperature: float) -> float:
    """One grid point in textbook code: the map, the confidence, equal-mass bins."""
    z = logits / np.float32(temperature)
    q = np.exp(z - z.max(axis=1, keepdims=True))
    q /= q.sum(axis=1, keepdims=True)
    q = np.clip(q, 1e-7, 1.0 - 1e-7)
    if gamma != 0.0:
        g = np.float32(gamma)
        q = q / ((1 - q) ** g - g * (1 - q) ** (g - 1) * q * np.log(q))
        q /= q.sum(axis=1, keepdims=True)
    confidence = q.max(axis=1)
    gaps = (confidence - correct)[np.argsort(confidence)]
    edges = np.linspace(0, len(gaps), N_BINS, endpoint=False).astype(int)
    return float(np.abs(np.add.reduceat(gaps, edges)).sum() / len(gaps))


def textbook_torch(logits: Any, correct: Any, gamma: float, temperature: float) -> float:
    """The same in torch."""
    q = torch.softmax(logits / temperature, dim=1).clamp(1e-7, 1.0 - 1e-7)
    if gamma != 0.0:
        q = q / ((1 - q) ** gamma - gamma * (1 - q) ** (gamma - 1) * q * torch.log(q))
        q = q / q.sum(dim=1, keepdim=True)
    confidence = q.max(dim=1).values
    gaps = (confidence - correct)[torch.argsort(confidence)]
    return float(sum(part.sum().abs() for part in torch.tensor_split(gaps, N_BINS)) / len(gaps))


def seconds_a_point(point: Callable[[float, float], float]) -> float:
    """Mean over points spread over the grid."""
    rng = np.random.default_rng(0)
    point(0.5, 1.5)
    start = time.perf_counter()
    for k in range(EXTRAPOLATED_FROM):
        point(GAMMAS[k % len(GAMMAS)], float(rng.integers(1, N_TEMPERATURES + 1)) / 100)
    return (time.perf_counter() - start) / EXTRAPOLATED_FROM


def seconds_of_exponentials(logits: Any) -> float:
    """One exponential per logit and temperature: the lower bound of any direct search."""
    tensor = torch.from_numpy(logits)
    out = torch.empty_like(tensor)
    torch.exp(tensor, out=out)
    start = time.perf_counter()
    for _ in range(5):
        torch.exp(tensor, out=out)
    return (time.perf_counter() - start) / 5 * N_TEMPERATURES


def exact(logits: Any, labels: Any, gamma: float, temperature: float) -> float:
    """The criterion at one point by the public functions, in double precision."""
    log_probs = focal.focal_log_probs(
        logits.astype(np.float64), gamma=gamma, temperature=temperature
    )
    return ada_ece(np.exp(log_probs), labels)


def search(n: int, n_classes: int) -> None:
    """The grid search against trying all points."""
    logits, labels = network(n, n_classes)
    correct = (logits.argmax(axis=1) == labels).astype(np.float32)
    tensor, is_correct = torch.from_numpy(logits), torch.from_numpy(correct)
    scaling = FocalTemperatureScaling()
    seconds = side_by_side({"ours": lambda: scaling.fit(logits, labels)}, rounds=5)["ours"]
    tracemalloc.start()
    scaling.fit(logits, labels)
    memory = tracemalloc.get_traced_memory()[1] / logits.nbytes
    tracemalloc.stop()
    n_points = len(GAMMAS) * N_TEMPERATURES
    direct = {
        "every point, NumPy": n_points
        * seconds_a_point(lambda g, t: textbook_numpy(logits, correct, g, t)),
        "every point, torch": n_points
        * seconds_a_point(lambda g, t: textbook_torch(tensor, is_correct, g, t)),
        "500 exponentials a logit, torch": seconds_of_exponentials(logits),
    }
    print(f"\ngrid search by ada_ece, {n} x {n_classes}, float32")
    print(f"  {'search, grid':<34}{seconds:10.3f} s")
    for name, value in direct.items():
        print(f"  {name:<34}{value:10.3f} s   {value / seconds:8.1f} x")
    print(f"  memory beside the logits: {memory:.2f} x the logits")
    chosen = scaling.gamma_, scaling.temperature_
    value = exact(logits, labels, *chosen)
    print(
        f"  chosen gamma {chosen[0]:g}, T {chosen[1]:g}: criterion {scaling.report_.after:.9f}, "
        f"computed again {value:.9f}"
    )
    around = [
        (g, round(t / 100, 2))
        for g in GAMMAS
        for t in range(1, N_TEMPERATURES + 1)
        if n * n_classes <= 50_000 or (g == chosen[0] and abs(t / 100 - chosen[1]) < 0.06)
    ]
    lowest = min(exact(logits, labels, g, t) for g, t in around)
    print(f"  lowest of {len(around)} points tried one by one: {lowest:.9f}")


def choosing(n: int, n_classes: int) -> None:
    """Fits with more parameters against temperature scaling."""
    logits, labels = network(n, n_classes)
    auto = AutoCalibration()
    seconds = side_by_side(
        {
            "temperature": lambda: TemperatureScaling().fit(logits, labels),
            "top-rest": lambda: TopRestScaling().fit(logits, labels),
            "auto": lambda: auto.fit(logits, labels),
        }
    )
    print_ratios(f"fit, {n} x {n_classes}, float32", seconds, against="temperature")
    print(f"  auto chose {auto.chosen_}")


def predictions() -> None:
    """Calibrated probabilities against a softmax."""
    logits, labels = network(50_000, 1000)
    tensor = torch.from_numpy(logits)
    scaling = FocalTemperatureScaling().fit(logits[:2000], labels[:2000])
    top_rest = TopRestScaling().fit(logits[:2000], labels[:2000])
    seconds = side_by_side(
        {
            "torch.softmax": lambda: torch.softmax(tensor, dim=1),
            "FocalTemperatureScaling.predict_proba": lambda: scaling.predict_proba(logits),
            "TopRestScaling.predict_proba": lambda: top_rest.predict_proba(logits),
        }
    )
    print_ratios("probabilities, 50000 x 1000, float32", seconds, against="torch.softmax")


def numpy_softmax(logits: Any) -> Any:
    """What a service would write without a calibrator."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def one_row(n_classes: int, dtype: str) -> None:
    """A service's call: ``predict_proba`` of a single row against a softmax."""
    logits, labels = network(3000, n_classes)
    row = logits[:1].astype(dtype)
    temperature = TemperatureScaling().fit(logits, labels)
    auto = AutoCalibration(keep_class=True).fit(logits, labels)
    # A model that prefers a tenth of the classes needs a first part, and huge gaps another.
    shifted = logits + np.float32(8.0) * (np.arange(n_classes) < n_classes // 10)
    in_parts = AutoCalibration().fit(shifted, labels)
    shifted[:20] *= 1e5
    floored = AutoCalibration().fit(shifted, labels)
    with_terms = with_class_terms(floored)
    print_calls(
        f"one row of {n_classes}, {dtype}",
        {
            "NumPy softmax": lambda: numpy_softmax(row),
            "temperature": lambda: temperature.predict_proba(row),
            "temperature, logits=": lambda: temperature.predict_proba(logits=row),
            "auto": lambda: auto.predict_proba(row),
            "auto, logits=": lambda: auto.predict_proba(logits=row),
            f"auto: {in_parts.chosen_}": lambda: in_parts.predict_proba(row),
            f"auto: {floored.chosen_}": lambda: floored.predict_proba(row),
            "the same with class terms": lambda: with_terms.predict_proba(row),
        },
    )
    print(f"  auto chose {auto.chosen_}")


def with_class_terms(auto: AutoCalibration) -> AutoCalibration:
    """A copy whose last part has class terms, which ``auto`` needs many more samples to choose."""
    rng = np.random.default_rng(1)
    copied = copy.deepcopy(auto)
    terms = {
        "class_offsets": 0.1 * rng.standard_normal(auto.n_classes_),
        "rest_biases": 0.1 * rng.standard_normal(auto.n_classes_),
        "rest_temperature": 1.1,
    }
    copied.parts_[-1].state_ |= terms
    return copied


def one_row_of_each_method(n_classes: int) -> None:
    """The same for every method."""
    logits, labels = network(3000, n_classes)
    row = logits[:1].astype("float64")
    calls: dict[str, Callable[[], Any]] = {"NumPy softmax": lambda: numpy_softmax(row)}
    arguments: dict[str, Any] = {"focal": {"gamma": 1.0}, "prior-shift": {"target": None}}
    for name, method in CALIBRATORS.items():
        fitted = method(**arguments.get(name, {})).fit(logits, labels)
        calls[name] = functools.partial(fitted.predict_proba, row)
    print_calls(f"one row of {n_classes}, float64", calls)


def print_calls(title: str, calls: Mapping[str, Callable[[], Any]]) -> None:
    """The time of a thousand calls, as multiples of a softmax."""

    def ten(run: Callable[[], Any]) -> None:
        for _ in range(10):
            run()

    seconds = side_by_side(
        {name: functools.partial(ten, run) for name, run in calls.items()},
        rounds=500,
        of_rounds=min,
    )
    a_thousand = {name: 100 * value for name, value in seconds.items()}
    print_ratios(f"1000 calls with {title}", a_thousand, against="NumPy softmax")


FIRST_CALL = """
import time, numpy, calibrant
rng = numpy.random.default_rng(0)
logits, labels = rng.normal(size=(500, 10)).astype("float32"), rng.integers(0, 10, 500)
for method in calibrant.FocalTemperatureScaling(), calibrant.TopRestScaling():
    start = time.perf_counter()
    method.fit(logits, labels)
    print(f"  {method.NAME:<18} {time.perf_counter() - start:5.1f} s")
"""


def first_calls() -> None:
    """The first fit of a process, without and with compiled code on disk."""
    with tempfile.TemporaryDirectory() as kept:
        environment = {**os.environ, "NUMBA_CACHE_DIR": kept, "PYTHONWARNINGS": "ignore"}
        for state in ("nothing compiled yet", "compiled before, kept on disk"):
            print(f"\nfirst fit in a process, {state}")
            subprocess.run([sys.executable, "-c", FIRST_CALL], env=environment, check=True)


def main() -> None:
    """Print the ratios."""
    print(f"\ntorch {torch.__version__}, {torch.get_num_threads()} threads, seed 0", flush=True)
    first_calls()
    for shape in SHAPES:
        search(*shape)
    for shape in SHAPES:
        choosing(*shape)
    predictions()
    for n_classes in (10, 1000):
        for dtype in ("float64", "float32"):
            one_row(n_classes, dtype)
    for n_classes in (2, 10):
        one_row_of_each_method(n_classes)


if __name__ == "__main__":
    main()
