"""Compare auto with other calibrators on forests, boosting, tables, text and a shifted network."""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

import calibrant
from experiments.auto_elsewhere.sources import (
    NEEDS_SKLEARN,
    SHIFT,
    TABULAR,
    Source,
    all_sources,
)
from experiments.processes import single_threads
from experiments.scoreboard.networks import DATA
from experiments.scoreboard.resampling import Interval
from experiments.scoreboard.tables import PERCENT, TIE
from experiments.tables import markdown

OUT = Path("out/auto-elsewhere")
METHODS = ("identity", "temperature", "auto", "vector", "dirichlet", "isotonic")
METRICS = ("nll", "ada_ece")
LEVEL = 0.95
RESAMPLES = 200
N_BINS = 15
MOST_WARNINGS = 8


@dataclass(frozen=True)
class Row:
    """Every method on one source."""

    source: Source
    n_classes: int
    n_val: int
    n_test: int
    accuracy: dict[str, float]
    """By method."""
    values: dict[str, dict[str, float]]
    """By metric and method."""
    floor: float
    """The ``ada_ece`` of a calibrated model with the confidences of auto."""
    chosen: str
    differences: dict[str, Interval]
    """By metric: auto minus temperature on the same test samples."""
    warned: Counter[str]

    def verdict(self, metric: str) -> str:
        """How auto compares with temperature."""
        one = self.differences[metric]
        if abs(one.value) > TIE and (one.better or one.worse):
            return "win" if one.better else "loss"
        return "tie"


def main(argv: list[str] | None = None) -> None:
    """Measure every source, then print and write the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments auto-elsewhere", description=__doc__
    )
    parser.add_argument(
        "--data", type=Path, default=DATA.parent, help="folder of probs, tabular, text and logits"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="where the tables go")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="sources measured side by side"
    )
    arguments = parser.parse_args(argv)

    sources = all_sources(arguments.data)
    without: list[str] = []
    if importlib.util.find_spec("sklearn") is None:
        without = sorted({s.group for s in sources if s.group in NEEDS_SKLEARN})
        sources = [s for s in sources if s.group not in NEEDS_SKLEARN]
    rows = measure_all(sources, arguments.data, arguments.processes)
    parts = [heading(rows), "## Summary", summary(rows), chance(rows)]
    for group in dict.fromkeys(row.source.group for row in rows):
        of_group = [row for row in rows if row.source.group == group]
        for metric in METRICS:
            parts += [f"## {group.capitalize()}: {metric}", table(of_group, metric)]
    parts += ["## Notes", "\n".join(notes(rows, without))]
    text = "\n\n".join(parts) + "\n"
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "table.md").write_text(text)
    (arguments.out / "table.csv").write_text(as_csv(rows))
    print(text)


def measure_all(sources: Sequence[Source], data: Path, processes: int | None) -> list[Row]:
    """A row for each source, in their order."""
    with (
        single_threads(processes) as pool,
        click.progressbar(length=len(sources), label="measuring", file=sys.stderr) as progress,
    ):
        futures = [pool.submit(measure, source, data) for source in sources]
        for _ in as_completed(futures):
            progress.update(1)
    return [future.result() for future in futures]


def measure(source: Source, data: Path) -> Row:
    """Fit every method on the validation rows and measure it on the test rows."""
    probs, chosen, warned = {}, "", Counter[str]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scores = source.scores(data)
        for name in METHODS:
            fitted = calibrant.CALIBRATORS[name]()
            fitted.fit(**{scores.kind: scores.val}, labels=scores.val_labels)
            probs[name] = fitted.predict_proba(**{scores.kind: scores.test})
            if isinstance(fitted, calibrant.AutoCalibration):
                chosen = fitted.chosen_
    warned.update(f"{each.category.__name__}: {each.message}" for each in caught)
    labels = scores.test_labels
    seen = calibrant.paired_difference(
        probs["auto"],
        probs["temperature"],
        labels,
        metrics=METRICS,
        n_bins=N_BINS,
        level=LEVEL,
        n_resamples=RESAMPLES,
    )
    floors = calibrant.evaluate(
        probs["auto"], labels, metrics=("ada_ece",), n_bins=N_BINS, n_resamples=RESAMPLES
    ).noise_floors
    return Row(
        source=source,
        n_classes=scores.val.shape[1],
        n_val=len(scores.val),
        n_test=len(scores.test),
        accuracy={name: float((p.argmax(axis=1) == labels).mean()) for name, p in probs.items()},
        values={
            metric: {name: calibrant.METRICS[metric](p, labels) for name, p in probs.items()}
            for metric in METRICS
        },
        floor=floors[0].expected,
        chosen=chosen,
        differences={m: Interval(seen[m].difference, seen[m].low, seen[m].high) for m in METRICS},
        warned=warned,
    )


def heading(rows: Sequence[Row]) -> str:
    """The introductory paragraph."""
    return (
        f"{len(rows)} sources. Every method is fitted on the validation rows of a source and "
        f"measured on its test rows; errors over {N_BINS} bins. Brackets: {100 * LEVEL:g}% "
        f"intervals of auto minus temperature from {RESAMPLES} resamples of the test rows (seed "
        "0); the fits are not repeated. Win, loss: the interval lies below, above 0. Noise floor: "
        "the ada_ece of a calibrated model with the confidences of auto. Lowest: **bold**."
    )


def summary(rows: Sequence[Row]) -> str:
    """Means of every group, and of every kind of model in the tabular one."""
    head = ["group", "sources", *(f"nll: {name}" for name in METHODS), "auto w-l-t"]
    head += [*(f"ada_ece %: {name}" for name in METHODS), "noise floor %", "auto w-l-t"]
    head += ["auto changed accuracy by, %", "auto chose"]
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.source.group == SHIFT:
            groups[f"{SHIFT}: {row.source.model}"] = [row]
        else:
            groups.setdefault(row.source.group, []).append(row)
        if row.source.group == TABULAR:
            groups.setdefault(f"{TABULAR}: {row.source.model}", []).append(row)
    cells = []
    for title, members in groups.items():
        line = [title, str(len(members))]
        for metric in METRICS:
            means = [float(np.mean([r.values[metric][m] for r in members])) for m in METHODS]
            line += bold_lowest(metric, means)
            if metric == "ada_ece":
                line.append(f"{100 * np.mean([row.floor for row in members]):.2f}")
            verdicts = Counter(row.verdict(metric) for row in members)
            line.append("-".join(str(verdicts[word]) for word in ("win", "loss", "tie")))
        gains = [row.accuracy["auto"] - row.accuracy["identity"] for row in members]
        line.append(f"{100 * np.mean(gains):+.2f}")
        chosen = Counter(row.chosen for row in members)
        line.append(", ".join(f"{name} {count}" for name, count in chosen.most_common(4)))
        cells.append(line)
    return markdown(head, cells)


def bold_lowest(metric: str, values: Sequence[float]) -> list[str]:
    """The means as table cells."""
    lowest = min(values)
    texts = [f"{100 * v:.2f}" if metric in PERCENT else f"{v:.4f}" for v in values]
    return [f"**{t}**" if v <= lowest + TIE else t for t, v in zip(texts, values, strict=True)]


def chance(rows: Sequence[Row]) -> str:
    """The counts to expect by chance if both were equally good."""
    tail = (1.0 - LEVEL) / 2.0
    differ = [row for row in rows if abs(row.differences["nll"].value) > TIE]
    lost = {m: sum(row.verdict(m) == "loss" for row in rows) for m in METRICS}
    return (
        f"{len(rows)} comparisons for each metric, {len(differ)} of which differ: auto loses "
        f"{lost['nll']} in nll and {lost['ada_ece']} in ada_ece, where chance alone would give "
        f"{tail * len(differ):.1f} if both were equally good. Models of one data set share test "
        "rows, so the count varies by more than that of as many independent comparisons."
    )


def table(rows: Sequence[Row], metric: str) -> str:
    """Every source of a group."""
    unit = " %" if metric in PERCENT else ""
    head = ["source", "model", "classes", "val/test", "accuracy %", "auto chose"]
    head += [f"{name}{unit}" for name in METHODS]
    head += ["noise floor %"] if metric == "ada_ece" else []
    head += ["auto minus temperature", ""]
    cells = []
    for row in rows:
        line = [row.source.name, row.source.model, str(row.n_classes)]
        line += [f"{row.n_val}/{row.n_test}", f"{100 * row.accuracy['identity']:.1f}", row.chosen]
        line += bold_lowest(metric, [row.values[metric][name] for name in METHODS])
        line += [f"{100 * row.floor:.2f}"] if metric == "ada_ece" else []
        line += [shown(metric, row.differences[metric]), row.verdict(metric)]
        cells.append(line)
    return markdown(head, cells)


def shown(metric: str, one: Interval) -> str:
    """A difference with its interval."""
    scale, digits = (100.0, 2) if metric in PERCENT else (1.0, 4)
    if one.low is None or one.high is None:
        return f"{scale * one.value:+.{digits}f}"
    ends = f"[{scale * one.low:+.{digits}f}, {scale * one.high:+.{digits}f}]"
    return f"{scale * one.value:+.{digits}f} {ends}"


def notes(rows: Sequence[Row], without: Sequence[str]) -> Iterator[str]:
    """Skipped sources, and warnings of the fits."""
    if without:
        yield (
            f"- Left out: {', '.join(without)}. They need scikit-learn: "
            "pip install 'calibrant[sklearn]'."
        )
    changed = [
        f"{row.source.name} ({row.source.model})"
        for row in rows
        if row.accuracy["auto"] != row.accuracy["identity"]
    ]
    yield f"- Sources on which auto changed the accuracy: {', '.join(changed) or 'none'}."
    infinite = Counter(
        name for row in rows for name, value in row.values["nll"].items() if np.isinf(value)
    )
    if infinite:
        listed = ", ".join(f"{name} on {count}" for name, count in infinite.items())
        yield f"- Infinite NLL, a test sample having probability 0 for its true class: {listed}."
    warned = sum((row.warned for row in rows), Counter[str]())
    if warned:
        yield f"- {warned.total()} warnings, {len(warned)} different; the most frequent:"
    for message, count in warned.most_common(MOST_WARNINGS):
        yield f'  - {count} of "{" ".join(message.split())}"'


def as_csv(rows: Sequence[Row]) -> str:
    """Every source at full precision."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            *("group", "source", "model", "classes", "val", "test", "auto chose"),
            *(f"accuracy {name}" for name in METHODS),
            *(f"{metric} {name}" for metric in METRICS for name in METHODS),
            *(f"{m} auto minus temperature{end}" for m in METRICS for end in ("", " low", " high")),
            "ada_ece noise floor",
        ]
    )
    for row in rows:
        about = (row.source.group, row.source.name, row.source.model)
        writer.writerow(
            [
                *(*about, row.n_classes, row.n_val, row.n_test, row.chosen),
                *(row.accuracy[name] for name in METHODS),
                *(row.values[metric][name] for metric in METRICS for name in METHODS),
                *(end for metric in METRICS for end in row.differences[metric]),
                row.floor,
            ]
        )
    return out.getvalue()


if __name__ == "__main__":
    main()
