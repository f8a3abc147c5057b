"""Candidates for the constants of Platt, beta, isotonic and histogram, on validation halves."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

import calibrant
from calibrant.calibrators import (
    BetaCalibration,
    CalibrationWarning,
    Calibrator,
    HistogramBinning,
    IsotonicCalibration,
    PlattScaling,
)
from experiments.processes import single_threads
from experiments.scoreboard.networks import DATA
from experiments.scoreboard.tables import TIE
from experiments.tables import markdown

FOLDERS = (DATA, DATA.parent / "probs")
OUT = Path("out/one-vs-rest-constants")
SEEDS = (0, 1)
SIZES = ("half", "tenth")
METRICS = ("nll", "ada_ece")

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Candidate:
    """One value of one constant."""

    constant: str
    value: float
    make: Callable[[], Calibrator]
    weight: float = 1.0
    """Of every sample in the fit. Weights count samples, so with 1/2 for each of them what is
    added to the samples counts twice."""


def all_candidates() -> dict[str, list[Candidate]]:
    """By constant; the default of the library is among the values."""

    def ridge(kind: type[PlattScaling] | type[BetaCalibration], value: float) -> Candidate:
        return Candidate(f"{kind.NAME}: ridge", value, lambda: kind(ridge=value))

    def bins(value: int) -> Candidate:
        return Candidate("histogram: n_bins", value, lambda: HistogramBinning(n_bins=value))

    def samples(kind: type[HistogramBinning] | type[IsotonicCalibration], c: float) -> Candidate:
        what = {"histogram": "samples added to a bin", "isotonic": "c in the bound c / (n + 2c)"}
        return Candidate(f"{kind.NAME}: {what[kind.NAME]}", c, kind, weight=1.0 / c)

    candidates = [
        *(ridge(PlattScaling, value) for value in (0.1, 0.3, 1.0)),
        *(ridge(BetaCalibration, value) for value in (0.1, 0.3, 1.0)),
        *(bins(value) for value in (10, 15, 20, 25, 30)),
        *(samples(HistogramBinning, c) for c in (0.5, 1.0, 2.0)),
        *(samples(IsotonicCalibration, c) for c in (0.5, 1.0, 2.0)),
    ]
    constants: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        constants.setdefault(candidate.constant, []).append(candidate)
    return constants


DEFAULTS = {
    "platt: ridge": PlattScaling().ridge,
    "beta: ridge": BetaCalibration().ridge,
    "histogram: n_bins": HistogramBinning().n_bins,
    "histogram: samples added to a bin": 1.0,
    "isotonic: c in the bound c / (n + 2c)": 1.0,
}


def main(argv: list[str] | None = None) -> None:
    """Measure every candidate and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, nargs="+", default=FOLDERS, help="folders of .npz files"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="where the tables go")
    arguments = parser.parse_args(argv)

    files = sorted(
        (path for folder in arguments.data for path in folder.glob("*.npz")), key=lambda p: p.stem
    )
    if len(files) < 2:
        raise SystemExit("fewer than two networks; pass --data with folders of .npz files")
    measured = measure_all(files)
    parts = []
    for title, members in (("chosen on", files[::2]), ("checked on", files[1::2])):
        for size in SIZES:
            values = np.stack([measured[path][size] for path in members], axis=1)
            parts += [
                f"## Networks {title}: {len(members)}; fitted on a {size} of the validation set",
                table(values),
            ]
    text = "\n\n".join(parts) + "\n"
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "table.md").write_text(text)
    print(text)


def measure_all(files: Sequence[Path]) -> dict[Path, dict[str, Floats]]:
    """The results of ``measure`` for every file."""
    measured = {}
    with (
        single_threads() as pool,
        click.progressbar(length=len(files), label="measuring", file=sys.stderr) as progress,
    ):
        largest_first = sorted(files, key=lambda path: -path.stat().st_size)
        futures = {pool.submit(measure, path): path for path in largest_first}
        for future in as_completed(futures):
            measured[futures[future]] = future.result()
            progress.update(1)
    return measured


def measure(path: Path) -> dict[str, Floats]:
    """(candidate, split, metric) for each size; only the validation set is read."""
    kind, scores, labels = validation_part(path)
    found: dict[str, list[list[tuple[float, float]]]] = {size: [] for size in SIZES}
    for candidates in all_candidates().values():
        for candidate in candidates:
            for size in SIZES:
                found[size].append(
                    [
                        fitted_and_measured(candidate, kind, scores, labels, fit, score)
                        for fit, score in splits(len(labels), size)
                    ]
                )
    return {size: np.array(values) for size, values in found.items()}


def validation_part(path: Path) -> tuple[str, Floats, npt.NDArray[np.int64]]:
    """The kind (``"logits"`` or ``"probs"``), the scores and the labels."""
    with np.load(path) as file:
        kind = "logits" if "val_logits" in file else "probs"
        scores: npt.NDArray[Any] = file[f"val_{kind}"]
        return kind, scores.astype(np.float64), file["val_labels"].astype(np.int64)


def splits(n: int, size: str) -> Iterator[tuple[Indices, Indices]]:
    """Rows to fit on and rows to measure on: two halves, both ways, for every seed."""
    for seed in SEEDS:
        order = np.random.default_rng(seed).permutation(n)
        one, other = order[: n // 2], order[n // 2 :]
        for fit, score in ((one, other), (other, one)):
            yield (fit if size == "half" else fit[: n // 10]), score


def fitted_and_measured(
    candidate: Candidate,
    kind: str,
    scores: Floats,
    labels: npt.NDArray[np.int64],
    fit: Indices,
    score: Indices,
) -> tuple[float, float]:
    """The metrics of one fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # few samples are the point here
        calibrator = candidate.make().fit(
            **{kind: scores[fit]},
            labels=labels[fit],
            sample_weight=np.full(len(fit), candidate.weight),
        )
    probs = calibrator.predict_proba(**{kind: scores[score]})
    nll, ada_ece = (calibrant.METRICS[name](probs, labels[score]) for name in METRICS)
    return nll, ada_ece


def table(values: Floats) -> str:
    """Means over networks and splits; ``values`` by candidate, network, split and metric."""
    head = ["constant", "value", "nll", "minus default", "in the four fits", "w-l-t", "ada_ece %"]
    cells = []
    first = 0
    for constant, candidates in all_candidates().items():
        rows = values[first : first + len(candidates)]
        first += len(candidates)
        default = rows[[one.value for one in candidates].index(DEFAULTS[constant])]
        for candidate, row in zip(candidates, rows, strict=True):
            nll, ada_ece = row.mean(axis=(0, 1))
            shown = f"{candidate.value:g}"
            line = [constant, shown, f"{nll:.4f}", "", "", "", f"{100 * ada_ece:.2f}"]
            if candidate.value == DEFAULTS[constant]:
                line[1] = f"**{shown}**"
            else:
                line[3:6] = compared((row - default)[:, :, 0])
            cells.append(line)
    return markdown(head, cells)


def compared(off: Floats) -> list[str]:
    """Mean difference, its range over the splits, and wins, losses and ties of networks."""
    by_split, by_network = off.mean(axis=0), off.mean(axis=1)
    wins, losses = int((by_network < -TIE).sum()), int((by_network > TIE).sum())
    return [
        f"{off.mean():+.4f}",
        f"{by_split.min():+.4f} to {by_split.max():+.4f}",
        f"{wins}-{losses}-{len(by_network) - wins - losses}",
    ]


if __name__ == "__main__":
    main()
