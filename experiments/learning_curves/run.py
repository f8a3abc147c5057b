"""Auto and temperature scaling, fitted on 20 to 5000 samples of every set of the scoreboard."""

from __future__ import annotations

import argparse
import csv
import io
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from pathlib import Path

import click
import numpy as np

from experiments.learning_curves.intervals import paired
from experiments.learning_curves.measuring import (
    AUTO,
    METHODS,
    METRICS,
    SEEDS,
    TEMPERATURE,
    Fits,
    measure,
)
from experiments.learning_curves.picture import Curve, draw
from experiments.processes import single_threads
from experiments.scoreboard.networks import DATA, GROUPS, Network, families, of_group
from experiments.scoreboard.resampling import LEVEL, RESAMPLES, Interval
from experiments.scoreboard.tables import PERCENT, TIE
from experiments.tables import markdown

OUT = Path("out/learning-curves")
TABULAR = Path("out/scoreboard/tabular")


def main(argv: list[str] | None = None) -> None:
    """Measure, then print and write the tables and the picture."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments learning-curves", description=__doc__
    )
    parser.add_argument("--data", type=Path, default=DATA, help="folder of .npz files")
    parser.add_argument("--out", type=Path, default=OUT, help="where tables and picture go")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="networks measured side by side"
    )
    arguments = parser.parse_args(argv)

    networks = [n for group in GROUPS for n in of_group(group, arguments.data, TABULAR)]
    members = groups(networks)
    fits = measure_all(networks, arguments.processes)
    curves, parts = [], [heading(networks)]
    for title, some in members.items():
        rows = {size: [fits[n.name, size] for n in some] for size in SEEDS}
        curve = Curve.of(title, rows)
        curves.append(curve)
        parts += [f"## {title}: {len(some)} sets", group_table(curve, rows)]
    verdicts = {key: paired([each]) for key, each in fits.items()}
    parts += [
        f"## Set by set: {len(networks)} sets, auto against temperature",
        count_table(verdicts),
        chance(verdicts),
        worst(verdicts),
        "## Notes",
        "\n".join(notes(fits)),
    ]
    text = "\n\n".join(parts) + "\n"
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "table.md").write_text(text)
    (arguments.out / "groups.csv").write_text(groups_csv(curves))
    (arguments.out / "networks.csv").write_text(networks_csv(fits, verdicts))
    print(text)
    try:
        draw(curves, arguments.out / "learning-curves.svg")
    except ModuleNotFoundError as missing:
        print(f"no picture: {missing}", file=sys.stderr)


def groups(networks: Sequence[Network]) -> dict[str, list[Network]]:
    """The disjoint families of the scoreboard."""
    return {
        title: members
        for title, members in families(networks).items()
        if title != "All" and "designed" not in title
    }


def measure_all(networks: Sequence[Network], processes: int | None) -> dict[tuple[str, int], Fits]:
    """All fits by set and size."""
    most_work_first = sorted(networks, key=lambda n: -n.n_test * n.n_classes)
    fits = {}
    with (
        single_threads(processes) as pool,
        click.progressbar(
            length=len(networks) * len(SEEDS), label="fitting", file=sys.stderr
        ) as progress,
    ):
        fitting = [pool.submit(measure, n, size) for n in most_work_first for size in SEEDS]
        for done in as_completed(fitting):
            found = done.result()
            fits[found.network.name, found.size] = found
            progress.update(1)
    return {(n.name, size): fits[n.name, size] for n in networks for size in SEEDS}


def heading(networks: Sequence[Network]) -> str:
    """The introductory paragraph."""
    seeds = ", ".join(f"{n} at {size}" for size, n in SEEDS.items())
    return (
        f"{len(networks)} sets. Both methods are fitted on random subsets of the validation part "
        f"({seeds} samples; seeds 0, 1, ...; once, on all, where a set has no more) and measured "
        "on the test part. Values are means over sets of the mean over subsets. Brackets: "
        f"{100 * LEVEL:g}% intervals of auto minus temperature from {RESAMPLES} resamples of the "
        "test samples and of the subsets, each drawn once for all sets with the same test samples; "
        "bold where auto is significantly better. Where a set was fitted once, the interval is "
        "about other test samples only."
    )


def group_table(curve: Curve, rows: dict[int, list[Fits]]) -> str:
    """Means of one group at every size."""
    head = ["samples", "fits", "nll: temperature", "auto", "auto minus temperature"]
    head += ["standard error over draws", "ada_ece %: temperature", "auto", "auto chose"]
    cells = []
    for i, (size, fits) in enumerate(rows.items()):
        chosen = Counter(name for each in fits for name in each.chosen)
        line = [str(size), str(sum(each.n_subsets for each in fits))]
        line += [shown("nll", curve.means["nll"][name][i]) for name in METHODS]
        error = error_over_draws(fits)
        line += [shown_interval(curve.differences[i]), "" if np.isnan(error) else f"{error:.4f}"]
        line += [shown("ada_ece", curve.means["ada_ece"][name][i]) for name in METHODS]
        line.append(", ".join(f"{name} {count}" for name, count in chosen.most_common(3)))
        cells.append(line)
    return markdown(head, cells)


def error_over_draws(fits: Sequence[Fits]) -> float:
    """Standard error over draws of the mean NLL difference; subsets with one seed are one draw."""
    drawn = [each.difference("nll") for each in fits if each.n_subsets > 1]
    if not drawn:
        return float("nan")
    by_draw = np.nansum(drawn, axis=0) / len(fits)
    return float(by_draw.std(ddof=1) / np.sqrt(len(by_draw)))


def shown(metric: str, value: float) -> str:
    """A mean as a table cell."""
    return f"{100 * value:.2f}" if metric in PERCENT else f"{value:.4f}"


def shown_interval(one: Interval) -> str:
    """A difference with its interval."""
    if one.low is None or one.high is None:
        return f"{one.value:+.4f}"
    text = f"{one.value:+.4f} [{one.low:+.4f}, {one.high:+.4f}]"
    _, better, _ = counts([one])
    return f"**{text}**" if better else text


Verdicts = dict[tuple[str, int], Interval]


def count_table(verdicts: Verdicts) -> str:
    """On how many sets auto is significantly better or worse, at every size."""
    cells = [
        [str(size), *map(str, counts([one for (_, n), one in verdicts.items() if n == size]))]
        for size in SEEDS
    ]
    cells.append(["all", *map(str, counts(list(verdicts.values())))])
    return markdown(["samples", "differ", "better", "worse"], cells)


def counts(intervals: Sequence[Interval]) -> tuple[int, int, int]:
    """How many are no ties, significantly below 0 and significantly above 0."""
    differ = [one for one in intervals if abs(one.value) > TIE]
    return len(differ), sum(one.better for one in differ), sum(one.worse for one in differ)


def chance(verdicts: Verdicts) -> str:
    """The counts to expect by chance if both were equally good."""
    tail = (1.0 - LEVEL) / 2.0
    differ, _, worse = counts(list(verdicts.values()))
    return (
        f"Worse in {worse} of {len(verdicts)} comparisons, {differ} of which differ at all; chance "
        f"alone would give {tail * differ:.1f}: {100 * tail:g}% of the comparisons that differ, if "
        "both were equally good. Sets with the same test samples err together, so the count varies "
        "by more than that of as many independent comparisons."
    )


def worst(verdicts: Verdicts) -> str:
    """Where auto loses significantly, by name."""
    lost = [(key, one) for key, one in verdicts.items() if counts([one])[2]]
    lost.sort(key=lambda pair: -pair[1].value)
    listed = [f"- {name} at {size}: {shown_interval(one)}" for (name, size), one in lost]
    return "Significantly worse, the most first:\n\n" + ("\n".join(listed) or "none")


def notes(fits: dict[tuple[str, int], Fits]) -> Iterator[str]:
    """Likelihoods of 0, networks with few samples, and warnings of the fits."""
    for size in SEEDS:
        of_size = [each for (_, n), each in fits.items() if n == size]
        infinite = {
            name: sum(int(np.isinf(each.values["nll"][name]).sum()) for each in of_size)
            for name in METHODS
        }
        if any(infinite.values()):
            listed = ", ".join(f"{name} {count}" for name, count in infinite.items())
            yield (
                f"- {size} samples: infinite NLL, because a test sample got probability 0 for its "
                f"true class ({listed} fits). These subsets are left out of the NLL of all "
                "methods, not of ada_ece."
            )
    for size in SEEDS:
        warned = Counter[str]()
        for (_, n), each in fits.items():
            if n == size:
                warned += each.warned
        if warned:
            text, count = warned.most_common(1)[0]
            yield (
                f"- {size} samples: {warned.total()} warnings, {len(warned)} different; the most "
                f'frequent ({count} times): "{text}"'
            )


COLUMNS = (
    *(f"{metric} {name}" for metric in METRICS for name in METHODS),
    *(f"nll {AUTO} minus {TEMPERATURE}{end}" for end in ("", " low", " high")),
)


def groups_csv(curves: Sequence[Curve]) -> str:
    """The means of every group at full precision."""
    lines = [
        [
            curve.title,
            curve.n_networks,
            size,
            *(curve.means[metric][name][i] for metric in METRICS for name in METHODS),
            *curve.differences[i],
        ]
        for curve in curves
        for i, size in enumerate(curve.sizes)
    ]
    return as_csv(["group", "sets", "samples", *COLUMNS], lines)


def networks_csv(fits: dict[tuple[str, int], Fits], verdicts: Verdicts) -> str:
    """The means over subsets of every set at full precision."""
    lines = [
        [
            *key,
            each.n_subsets,
            *(each.values[metric][name].mean() for metric in METRICS for name in METHODS),
            *verdicts[key],
            ", ".join(each.chosen),
        ]
        for key, each in fits.items()
    ]
    return as_csv(["set", "samples", "subsets", *COLUMNS, "chosen"], lines)


def as_csv(head: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """A table as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(lines)
    return out.getvalue()


if __name__ == "__main__":
    main()
