"""Auto, top-rest and temperature scaling, fitted on 50 to 5000 samples of every network."""

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
    noise_floor,
)
from experiments.learning_curves.picture import Curve, draw
from experiments.processes import single_threads
from experiments.scoreboard.networks import DATA, Network, all_networks
from experiments.scoreboard.resampling import LEVEL, RESAMPLES, Interval
from experiments.scoreboard.tables import PERCENT, TIE
from experiments.tables import markdown

OUT = Path("out/learning-curves")
CHECK = "All that auto was not designed on"
CHOICES = ("temperature", "top-rest, classes=False", "top-rest")


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

    networks = all_networks(arguments.data)
    fits, floors = measure_all(networks, arguments.processes)
    curves, parts = [], [heading(networks)]
    for title, members in groups(networks).items():
        floor = float(np.mean([floors[network.name] for network in members]))
        rows = {size: [fits[network.name, size] for network in members] for size in SEEDS}
        curve = Curve.of(title, rows, floor)
        curves.append(curve)
        parts += [f"## {title}: {len(members)} networks", group_table(curve, rows)]
    verdicts = {key: {m: paired([each], m) for m in METRICS} for key, each in fits.items()}
    parts += [
        f"## Network by network: {len(networks)} networks, auto against temperature",
        count_table(verdicts),
        chance(verdicts),
        *worst(verdicts),
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
        draw([c for c in curves if c.title != CHECK], arguments.out / "learning-curves.svg")
    except ModuleNotFoundError as missing:
        print(f"no picture: {missing}", file=sys.stderr)


def groups(networks: Sequence[Network]) -> dict[str, list[Network]]:
    """Groups of networks; except for the last, they are disjoint."""
    cifar = {"CIFAR-10": "c10_", "CIFAR-100": "c100_"}
    parts = {
        title: [n for n in networks if n.name.startswith(start)] for title, start in cifar.items()
    }
    parts["Others"] = [n for n in networks if not n.name.startswith(tuple(cifar.values()))]
    # Top-rest scaling and auto were designed on the validation sets of every second network.
    parts[CHECK] = list(networks[1::2])
    return {title: members for title, members in parts.items() if members}


def measure_all(
    networks: Sequence[Network], processes: int | None
) -> tuple[dict[tuple[str, int], Fits], dict[str, float]]:
    """All fits by network and size, and the noise floor of each network."""
    most_work_first = sorted(networks, key=lambda n: -n.n_test * n.n_classes)
    fits, floors = {}, {}
    with (
        single_threads(processes) as pool,
        click.progressbar(
            length=len(networks) * (len(SEEDS) + 1), label="fitting", file=sys.stderr
        ) as progress,
    ):
        fitting = [pool.submit(measure, n, size) for n in most_work_first for size in SEEDS]
        flooring = {n.name: pool.submit(noise_floor, n) for n in networks}
        for done in as_completed(fitting):
            found = done.result()
            fits[found.network.name, found.size] = found
            progress.update(1)
        for name, floor in flooring.items():
            floors[name] = floor.result()
            progress.update(1)
    ordered = {(n.name, size): fits[n.name, size] for n in networks for size in SEEDS}
    return ordered, floors


def heading(networks: Sequence[Network]) -> str:
    """The introductory paragraph."""
    seeds = ", ".join(f"{n} at {size}" for size, n in SEEDS.items())
    return (
        f"{len(networks)} networks. Every method is fitted on random subsets of the validation "
        f"part ({seeds} samples; seeds 0, 1, ...; once, on all, where a network has no more) and "
        "measured on the test set. Values are means over networks of the mean over subsets. "
        f"Brackets: {100 * LEVEL:g}% intervals of auto minus temperature from {RESAMPLES} "
        "resamples of the test images and of the subsets, each drawn once for all networks that "
        "saw the same images; bold where auto is significantly better. Where a network was fitted "
        "once, the interval is about other test images only."
    )


def group_table(curve: Curve, rows: dict[int, list[Fits]]) -> str:
    """Means of one group at every size."""
    head = ["samples", "fits"]
    for metric in METRICS:
        unit = " %" if metric in PERCENT else ""
        head += [f"{metric}{unit}: {name}" for name in METHODS] + [f"auto minus {TEMPERATURE}"]
    head += ["auto chose temperature / top-rest without / with class terms"]
    cells = []
    for i, (size, fits) in enumerate(rows.items()):
        line = [str(size), str(sum(each.n_subsets for each in fits))]
        for metric in METRICS:
            line += [shown(metric, curve.means[metric][name][i]) for name in METHODS]
            line.append(shown_interval(metric, curve.differences[metric][i]))
        chosen = Counter(name for each in fits for name in each.chosen)
        line.append(" / ".join(str(chosen[name]) for name in CHOICES))
        cells.append(line)
    return f"{markdown(head, cells)}\n\nNoise floor of ada_ece: {100 * curve.floor:.2f}%."


def shown(metric: str, value: float) -> str:
    """A mean as a table cell."""
    return f"{100 * value:.2f}" if metric in PERCENT else f"{value:.4f}"


def shown_interval(metric: str, one: Interval) -> str:
    """A difference with its interval."""
    scale, digits = (100.0, 2) if metric in PERCENT else (1.0, 4)
    if one.low is None or one.high is None:
        return f"{scale * one.value:+.{digits}f}"
    text = (
        f"{scale * one.value:+.{digits}f} "
        f"[{scale * one.low:+.{digits}f}, {scale * one.high:+.{digits}f}]"
    )
    return f"**{text}**" if one.better else text


Verdicts = dict[tuple[str, int], dict[str, Interval]]


def count_table(verdicts: Verdicts) -> str:
    """On how many networks auto is significantly better or worse, at every size."""
    head = ["samples"]
    for metric in METRICS:
        head += [f"{metric}: differ", "better", "worse"]
    cells = []
    for size in SEEDS:
        line = [str(size)]
        for metric in METRICS:
            of_size = [of[metric] for (_, n), of in verdicts.items() if n == size]
            line += [str(count) for count in counts(of_size)]
        cells.append(line)
    totals = [counts([of[metric] for of in verdicts.values()]) for metric in METRICS]
    cells.append(["all", *(str(count) for three in totals for count in three)])
    return markdown(head, cells)


def counts(intervals: Sequence[Interval]) -> tuple[int, int, int]:
    """How many are no ties, significantly below 0 and significantly above 0."""
    differ = [one for one in intervals if abs(one.value) > TIE]
    return len(differ), sum(one.better for one in differ), sum(one.worse for one in differ)


def chance(verdicts: Verdicts) -> str:
    """The counts to expect by chance if both were equally good."""
    tail = (1.0 - LEVEL) / 2.0
    parts = []
    for metric in METRICS:
        differ, _, worse = counts([of[metric] for of in verdicts.values()])
        parts.append(
            f"{metric}: worse in {worse} of {len(verdicts)} comparisons, {differ} of which differ "
            f"at all; chance alone would give {tail * differ:.1f}"
        )
    return (
        f"{'; '.join(parts)}. Chance: {100 * tail:g}% of the comparisons that differ, if both were "
        "equally good. Networks that saw the same images err together, so the count varies by more "
        "than that of as many independent comparisons."
    )


def worst(verdicts: Verdicts) -> Iterator[str]:
    """Where auto loses significantly, by name."""
    for metric in METRICS:
        lost = [(key, of[metric]) for key, of in verdicts.items() if counts([of[metric]])[2]]
        lost.sort(key=lambda pair: -pair[1].value)
        if lost:
            listed = [
                f"- {name} at {size}: {shown_interval(metric, one)}" for (name, size), one in lost
            ]
            yield f"Significantly worse in {metric}, the most first:\n\n" + "\n".join(listed)


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
    once = [name for (name, size), each in fits.items() if size == 1000 and each.n_subsets == 1]
    if once:
        yield f"- At most 1000 validation samples: {', '.join(once)}."
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
    *(f"{m} {AUTO} minus {TEMPERATURE}{end}" for m in METRICS for end in ("", " low", " high")),
)


def groups_csv(curves: Sequence[Curve]) -> str:
    """The means of every group at full precision."""
    lines = [
        [
            curve.title,
            curve.n_networks,
            size,
            *(curve.means[metric][name][i] for metric in METRICS for name in METHODS),
            *(end for metric in METRICS for end in curve.differences[metric][i]),
            curve.floor,
        ]
        for curve in curves
        for i, size in enumerate(curve.sizes)
    ]
    return as_csv(["group", "networks", "samples", *COLUMNS, "ada_ece noise floor"], lines)


def networks_csv(fits: dict[tuple[str, int], Fits], verdicts: Verdicts) -> str:
    """The means over subsets of every network at full precision."""
    lines = [
        [
            *key,
            each.n_subsets,
            *(each.values[metric][name].mean() for metric in METRICS for name in METHODS),
            *(end for metric in METRICS for end in verdicts[key][metric]),
            *(each.chosen.count(name) for name in CHOICES),
        ]
        for key, each in fits.items()
    ]
    chose = [f"chose {name}" for name in CHOICES]
    return as_csv(["network", "samples", "subsets", *COLUMNS, *chose], lines)


def as_csv(head: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """A table as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(lines)
    return out.getvalue()


if __name__ == "__main__":
    main()
