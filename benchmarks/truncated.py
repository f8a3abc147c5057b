"""Fits on the 64 largest of 100,000 logits: time, passes, peak memory and bounds.

``python -m benchmarks.truncated [ROWS]``, default one million. The files take half a
gigabyte per million rows, are written in parts, and are deleted at the end. Not part of
``python -m benchmarks``, because it takes minutes.

Drawing 100,000 logits for every row would dominate the time, so rows come from a few hundred
*templates*, whole rows whose probabilities fall like a power of the rank. A row takes the classes
below the 64 largest unchanged from its template, so their sum at any temperature is known; the 64
largest get their own noise, but stay the largest. Its label is drawn from all
100,000 classes at ``TRUE_TEMPERATURE``.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from distributed import Client, LocalCluster
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from calibrant import FocalTemperatureScaling, TemperatureScaling, scale
from calibrant.calibrators import Calibrator
from calibrant.files import write_truncated_predictions

ROWS = 1_000_000
CLASSES = 100_000
KNOWN = 64
TEMPLATES = 256
ROWS_OF_FILE = 50_000
TRUE_TEMPERATURE = 1.25
LABELS_OF_TAIL = 512
"""Number of labels below the 64 largest to draw for each template."""
WHOLE_ROWS = 200
"""Number of complete rows on which an ordinary fit is timed."""

Floats = npt.NDArray[np.float64]


def whole_row(number: int) -> Floats:
    """Logits of a template in decreasing order; the position is the class."""
    rng = np.random.default_rng(number)
    ranks = np.log(np.arange(1, CLASSES + 1))
    logits = -rng.uniform(1.0, 1.8) * ranks + 0.6 * rng.standard_normal(CLASSES)
    logits[0] += rng.exponential(3.0)
    return np.sort(logits)[::-1]


@dataclass(frozen=True)
class Templates:
    """Values that rows take from their templates."""

    top: Floats
    """(templates, 65): the largest logits, and the largest of the others."""
    rest: Floats
    """(templates, 2): log sum of e^(b s) over the others, at T = 1 and at the true temperature."""
    labels: npt.NDArray[np.int64]
    """(templates, some): classes among the others, drawn at the true temperature."""
    label_logits: Floats

    @classmethod
    def made(cls) -> Templates:
        """Draw all templates."""
        top, rest, labels, logits = [], [], [], []
        for number in range(TEMPLATES):
            row = whole_row(number)
            below = row[KNOWN:]
            cumulative = np.cumsum(np.exp((below - below[0]) / TRUE_TEMPERATURE))
            draws = np.random.default_rng(number).random(LABELS_OF_TAIL) * cumulative[-1]
            drawn = np.minimum(np.searchsorted(cumulative, draws), len(below) - 1)
            top.append(row[: KNOWN + 1])
            rest.append([logsumexp(below), logsumexp(below / TRUE_TEMPERATURE)])
            labels.append(KNOWN + drawn)
            logits.append(below[drawn])
        return cls(np.array(top), np.array(rest), np.array(labels), np.array(logits))


def write(folder: Path, rows: int, templates: Templates) -> None:
    """Files of ``ROWS_OF_FILE`` rows, in float32."""
    for number, start in enumerate(range(0, rows, ROWS_OF_FILE)):
        rng = np.random.default_rng(10_000 + number)
        n = min(ROWS_OF_FILE, rows - start)
        of = rng.integers(0, TEMPLATES, n)
        noisy = templates.top[of, :KNOWN] + 0.3 * rng.standard_normal((n, KNOWN))
        known = np.maximum(noisy, templates.top[of, KNOWN:])
        heated = np.concatenate([known / TRUE_TEMPERATURE, templates.rest[of, 1:]], axis=1)
        place = (heated + rng.gumbel(size=heated.shape)).argmax(axis=1)
        drawn = rng.integers(0, LABELS_OF_TAIL, n)
        below = place == KNOWN
        turn = rng.integers(0, CLASSES, n)  # classes are numbered differently in every row
        labels = np.where(below, templates.labels[of, drawn], place)
        write_truncated_predictions(
            folder / f"{number:05d}.parquet",
            top_logits=known.astype(np.float32),
            top_classes=(np.arange(KNOWN) + turn[:, None]) % CLASSES,
            normaliser=np.logaddexp(logsumexp(known, axis=1), templates.rest[of, 0]),
            labels=(labels + turn) % CLASSES,
            label_logits=np.where(below, templates.label_logits[of, drawn], np.nan),
            n_classes=CLASSES,
        )


def peak_memory() -> float:
    """Peak memory of this process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def ordinary_fit() -> float:
    """Seconds per row of fitting a temperature by scipy on complete rows in memory."""
    logits = np.array([whole_row(number) for number in range(WHOLE_ROWS)], dtype=np.float32)
    labels = np.random.default_rng(0).integers(0, 10, WHOLE_ROWS)
    of_label = logits[np.arange(WHOLE_ROWS), labels]

    def nll(log_t: float) -> float:
        inverse_temperature = float(np.exp(-log_t))
        scaled = inverse_temperature * logits
        return float((logsumexp(scaled, axis=1) - inverse_temperature * of_label).mean())

    start = time.perf_counter()
    minimize_scalar(nll, bounds=(-3.0, 3.0), method="bounded")
    return (time.perf_counter() - start) / WHOLE_ROWS


def main(rows: int = ROWS) -> None:
    """Each fit on two workers."""
    print(f"\n{rows:,} rows of the {KNOWN} largest of {CLASSES:,} logits, on two local workers")
    per_row = ordinary_fit()
    print(
        f"  scipy on complete rows in memory: {1e3 * per_row:.1f} ms per row, so "
        f"{per_row * rows:,.0f} s and {4e-9 * rows * CLASSES:,.0f} GB for all of them"
    )
    methods: list[Calibrator] = [
        TemperatureScaling(),
        FocalTemperatureScaling(criterion="nll"),
        TemperatureScaling(criterion="ece"),
        FocalTemperatureScaling(criterion="ece"),
    ]
    with (
        tempfile.TemporaryDirectory() as name,
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):
        folder = Path(name)
        start = time.perf_counter()
        write(folder, rows, Templates.made())
        print(f"  written in {time.perf_counter() - start:.0f} s")
        for method in methods:
            client.run(scale.fit, method, min(folder.iterdir()))  # each worker loads and compiles
            start = time.perf_counter()
            found = scale.fit(method, folder, scheduler=client)
            seconds = time.perf_counter() - start
            peaks: dict[str, Any] = client.run(peak_memory)
            print(f"  {method!r}: {seconds:.1f} s, {found.report_.passes} passes, peak ", end="")
            print(f"{max(peaks.values()):.0f} MB per worker\n    {found.state_}")
            print(f"    {found.report_.tail_bounds}")


if __name__ == "__main__":
    main(*(int(rows) for rows in sys.argv[1:2]))
