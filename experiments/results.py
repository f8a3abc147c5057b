"""Results of a run: written with their origin, and compared with the expected values."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from experiments.catalogue import Experiment, catalogue
from experiments.claims import CLAIMS
from experiments.pictures import save
from experiments.tables import Table

NOT_CODE = (":(top,exclude)experiments/*/result.json", ":(top,exclude)docs", ":(top,exclude)*.md")
"""Files that may differ from the commit of a result."""


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        values: Single numbers by name; those in ``expected.toml`` are checked.
        tables: Tables by file name.
        pictures: Pictures by file name.
        notes: Remarks for the reader.
        unfinished: A line on the runs that are missing; such a result is neither compared with the
            expected values nor published.
    """

    values: Mapping[str, float]
    tables: Mapping[str, Table] = field(default_factory=dict)
    pictures: Mapping[str, Figure] = field(default_factory=dict)
    notes: Sequence[str] = ()
    unfinished: Sequence[str] = ()


def reproduce(experiment: Experiment, out: Path, *, publish: bool = False) -> list[str]:
    """Run, write and print an experiment; return a line for each unexpected value."""
    started = time.perf_counter()
    result: Result = experiment.module.run(experiment.parameters)
    record = recorded(experiment, result, seconds=time.perf_counter() - started)
    write(result, record, out)
    print("\n\n".join([*(f"{t.title}\n\n{t.markdown()}" for t in result.tables.values())]))
    print("\n".join(["", *result.notes, *result.unfinished, f"Written to {out}"]))
    if result.unfinished:
        return [f"{experiment.name}: incomplete, and not compared: {' '.join(result.unfinished)}"]
    wrong = differences(experiment, result.values)
    if not publish:
        wrong += changed_verdicts(experiment, result.values)
    if publish and not wrong:
        text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
        (experiment.folder / "result.json").write_text(text)
        drawn = result.pictures.get(experiment.config.get("draws", ""))
        if experiment.picture and drawn is not None:
            save(drawn, experiment.picture)
    return wrong


def recorded(experiment: Experiment, result: Result, *, seconds: float) -> dict[str, Any]:
    """The result as plain data, with its origin."""
    return {
        "experiment": experiment.name,
        "parameters": experiment.parameters,
        "config_hash": experiment.hash,
        "commit": commit(),
        "calibrant": version("calibrant"),
        "seconds": round(seconds, 1),
        "values": {name: float(value) for name, value in result.values.items()},
        "tables": {
            name: {"title": table.title, "head": list(table.head), "rows": [*map(list, table.rows)]}
            for name, table in result.tables.items()
        },
        "notes": [*result.notes, *result.unfinished],
    }


def write(result: Result, record: Mapping[str, Any], out: Path) -> None:
    """Write ``result.json``, each table in three formats, and each picture."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "result.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    for name, table in result.tables.items():
        (out / f"{name}.md").write_text(f"{table.title}\n\n{table.markdown()}\n")
        (out / f"{name}.csv").write_text(table.csv())
        (out / f"{name}.tex").write_text(table.latex() + "\n")
    for name, figure in result.pictures.items():
        save(figure, out / f"{name}.svg")


def differences(experiment: Experiment, values: Mapping[str, float]) -> list[str]:
    """The values of a run that are not as expected."""
    wrong = []
    for name, expected in experiment.expected().items():
        if name not in values:
            wrong.append(f"{experiment.name}: {name} is expected but missing")
        elif not expected.holds(values[name]):
            wrong.append(
                f"{experiment.name}: {name} is {values[name]:.6g}; "
                f"expected {expected.here:.6g} ± {expected.tolerance:g}"
            )
    return wrong


def changed_verdicts(experiment: Experiment, values: Mapping[str, float]) -> list[str]:
    """The claims on which the verdict differs from that of the published run."""
    published = experiment.published()
    if published is None or published["config_hash"] != experiment.hash:
        return []
    changed, everything = [], catalogue()
    for claim in CLAIMS:
        if experiment.name not in claim.experiments:
            continue
        known = [everything[name].published() for name in claim.experiments]
        of_published = [each["values"] for each in known if each is not None]
        if len(of_published) < len(known):
            continue
        mine = claim.experiments.index(experiment.name)
        of_run = [*of_published[:mine], values, *of_published[mine + 1 :]]
        now, before = claim.by(of_run)[0], claim.by(of_published)[0]
        if now != before:
            changed.append(f"{experiment.name}: {claim.says}: {now}; published: {before}")
    return changed


def commit() -> str:
    """The commit of this checkout, with ``+changes`` if files differ from it."""

    def said(*command: str) -> str:
        finished = subprocess.run(
            ["git", *command], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
        return finished.stdout.strip()

    try:
        changed = said("status", "--porcelain", "--", ":(top)", *NOT_CODE)
        return said("rev-parse", "--short=12", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
