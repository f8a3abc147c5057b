"""All quick experiments, one on each core, checked against their expected values."""

from __future__ import annotations

import io
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from experiments.catalogue import Experiment, NothingToReadError
from experiments.results import reproduce

AS_EXPECTED, NOT_AS_EXPECTED, SKIPPED = "as expected", "not as expected", "skipped"


@dataclass(frozen=True)
class Outcome:
    """What one experiment has found.

    Attributes:
        name: Of the experiment.
        kind: As expected, not as expected, or skipped.
        says: The reason, or the unexpected values; may have several lines.
        printed: What it printed.
    """

    name: str
    kind: str
    says: str
    printed: str = ""


def run_quick(
    experiments: Iterable[Experiment],
    out: Path,
    *,
    publish: bool,
    apply: Callable[[Callable[[Experiment], Outcome], list[Experiment]], Iterable[Outcome]] = map,
) -> int:
    """Run all experiments under ten minutes; return 0 if all values are as expected.

    Args:
        experiments: All of them.
        out: The folder of the output folders.
        publish: Store the results for the page.
        apply: The ``map`` of a pool, to run several at a time.
    """
    quick = [experiment for experiment in experiments if experiment.is_quick]
    # The longest first, so that the last ones to end are short.
    quick.sort(key=lambda experiment: -experiment.config["minutes"])
    outcomes = []
    for outcome in apply(partial(outcome_of, out=out, publish=publish), quick):
        print(outcome.printed, flush=True)
        outcomes.append(outcome)
    outcomes.sort(key=lambda outcome: outcome.name)
    print("\n" + "\n".join(f"{outcome.name:<28}{outcome.says}" for outcome in outcomes))
    counts = Counter(outcome.kind for outcome in outcomes)
    kinds = (AS_EXPECTED, NOT_AS_EXPECTED, SKIPPED)
    print("\n" + ", ".join(f"{counts[kind]} {kind}" for kind in kinds))
    return 1 if counts[NOT_AS_EXPECTED] else 0


def outcome_of(experiment: Experiment, out: Path, *, publish: bool) -> Outcome:
    """Run one experiment; an error is its outcome, so that the others still run."""
    name = experiment.name
    if experiment.missing:
        return Outcome(name, SKIPPED, f"skipped: {experiment.missing} is missing")
    started = time.perf_counter()
    with redirect_stdout(io.StringIO()) as printed:
        print(f"\n## {name}: {experiment.config['title']}\n")
        try:
            wrong = reproduce(experiment, out / name, publish=publish)
        except NothingToReadError as absent:
            return Outcome(name, SKIPPED, f"skipped: {absent}", printed.getvalue())
        except Exception as error:
            print(traceback.format_exc())
            wrong = [f"failed: {error!r}"]
    says = "\n".join(wrong) or f"{AS_EXPECTED} ({len(experiment.expected())} values)"
    says += f", {time.perf_counter() - started:.0f} s"
    return Outcome(name, NOT_AS_EXPECTED if wrong else AS_EXPECTED, says, printed.getvalue())
