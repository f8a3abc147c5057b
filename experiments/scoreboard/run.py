"""All methods on all networks and other models: means, paired differences, failures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from pathlib import Path

import click
import numpy as np

from experiments.processes import single_threads
from experiments.scoreboard import measuring, resampling, tables
from experiments.scoreboard.measuring import Result
from experiments.scoreboard.methods import (
    AUTO,
    BY_NLL,
    KEEP_CLASS,
    Method,
    all_methods,
    left_out,
    missing_packages,
)
from experiments.scoreboard.networks import DATA, GROUPS, Network, families, of_group
from experiments.tables import latex, markdown

OUT = Path("out/scoreboard")
COMPARED = (("nll", AUTO), ("ada_ece", AUTO), ("nll", BY_NLL), ("ada_ece", BY_NLL))
"""Metrics, and the method to which the others are compared."""


def main(argv: list[str] | None = None) -> None:
    """Measure what is missing, then print and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of .npz files")
    parser.add_argument("--out", type=Path, default=OUT, help="where results and tables go")
    parser.add_argument("--group", action="append", choices=GROUPS, help="only this group")
    parser.add_argument("--only", action="append", help="only methods with this in their name")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    parser.add_argument("--processes", type=int, help="sets measured side by side")
    arguments = parser.parse_args(argv)

    tabular = arguments.out / "tabular"
    networks = [
        network
        for group in arguments.group or GROUPS
        for network in of_group(group, arguments.data, tabular)
    ]
    wanted = (*(arguments.only or [""]), BY_NLL, AUTO)
    methods = [m for m in all_methods() if any(word in m.title for word in wanted)]
    folder = arguments.out / "results"
    results = measure_all(
        networks, methods, folder, source=all_methods, fresh=arguments.fresh, n=arguments.processes
    )
    text = report(networks, methods, results, arguments.out)
    print(text)


def report(
    networks: Sequence[Network], methods: Sequence[Method], results: list[Result], out: Path
) -> str:
    """Write the tables as Markdown, CSV and LaTeX; the Markdown is returned."""
    all_families = [
        tables.summarise(title, grouped(results, methods, members), COMPARED)
        for title, members in families(networks).items()
    ]
    parts, tex = [heading(networks, methods)], []
    for family in all_families:
        title = f"{family.title}: {family.n_networks} sets"
        head, cells = tables.head_and_cells(family, COMPARED)
        better = [tables.lower(family, metric, AUTO) for metric in ("nll", "ada_ece")]
        parts += [f"## {title}", markdown(head, cells), *better]
        tex.append(latex(title, head, cells))
    parts += ["## What changing the class gains", changes(networks, results)]
    parts.append("\n".join(notes(results)))
    text = "\n\n".join(parts) + "\n"
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text(text)
    (out / "table.tex").write_text("\n\n".join(tex) + "\n")
    (out / "table.csv").write_text(tables.as_csv(all_families, COMPARED))
    return text


def grouped(
    results: Iterable[Result], methods: Iterable[Method], members: Iterable[Network]
) -> dict[str, list[Result]]:
    """The results of some networks, by method."""
    names = {network.name for network in members}
    by_method: dict[str, list[Result]] = {method.title: [] for method in methods}
    for result in results:
        if result.network in names:
            by_method[result.method].append(result)
    return by_method


GAINS = ("changed", "accuracy", "nll", "ada_ece")


def changes(networks: Sequence[Network], results: Iterable[Result]) -> str:
    """Auto minus auto that keeps the class, on the sets on which auto changes predictions."""
    by_key = {(result.network, result.method): result.values for result in results}
    head = ["group", "sets", "with changed predictions"]
    head += [f"{name} %" if name in tables.PERCENT else name for name in GAINS]
    cells = []
    for title, members in families(networks).items():
        pairs = [(by_key[n.name, AUTO], by_key.get((n.name, KEEP_CLASS))) for n in members]
        gains = [
            [free[name] - kept[name] for name in GAINS]
            for free, kept in pairs
            if kept and free["changed"] > 0.0
        ]
        means = np.mean(gains, axis=0) if gains else [float("nan")] * len(GAINS)
        shown = [tables.shown(name, value) for name, value in zip(GAINS, means, strict=True)]
        cells.append([title, str(len(members)), str(len(gains)), *shown])
    return markdown(head, cells)


def heading(networks: Sequence[Network], methods: Sequence[Method]) -> str:
    """The introductory paragraph."""
    packages = sorted({method.fingerprint().rsplit(" ", 1)[0] for method in methods})
    return (
        f"{len(networks)} sets, {len(methods)} methods ({', '.join(packages)}). Each is fitted on "
        "the validation part and measured on the test part of a set, means are over sets, errors "
        f"over {measuring.N_BINS} bins. Brackets: {100 * resampling.LEVEL:g}% intervals from "
        f"{resampling.RESAMPLES} resamples of the test samples (seed {resampling.SEED}), drawn "
        "once for all sets with the same test samples, bold where the method is significantly "
        "better. w-l-t: number of sets on which the method is better, worse, or within "
        f"{tables.TIE:g} of the reference. changed: predictions that differ from those of the "
        "model. Over sets: a paired t interval. Noise floor: what a calibrated model would show."
    )


def notes(results: Iterable[Result]) -> Iterator[str]:
    """Failures, what was not run, and infinite likelihoods; nothing is hidden."""
    failed: dict[tuple[str, str], list[str]] = {}
    zeros: dict[str, list[int]] = {}
    for result in results:
        if result.failure is not None:
            failed.setdefault((result.method, f"failed: {result.failure}"), []).append(
                result.network
            )
        if result.skipped is not None:
            failed.setdefault((result.method, f"not run: {result.skipped}"), []).append(
                result.network
            )
        if result.impossible:
            zeros.setdefault(result.method, []).append(result.impossible)
    for (method, reason), where in sorted(failed.items()):
        yield f"- {method}, on {', '.join(where)}: {reason}."
    for method, counts in sorted(zeros.items()):
        yield (
            f"- {method}: probability 0 for the true class of {sum(counts)} test samples of "
            f"{len(counts)} networks, which makes the NLL infinite."
        )
    for name, reason in left_out().items():
        yield f"- {name} has no row: it {reason}."
    if missing := missing_packages():
        yield f"- Not installed, so without rows: {', '.join(missing)}."


def measure_all(
    networks: Sequence[Network],
    methods: Sequence[Method],
    folder: Path,
    *,
    source: Callable[[], list[Method]],
    fresh: bool = False,
    n: int | None = None,
) -> list[Result]:
    """Every method on every network, from files where nothing changed, else measured now.

    ``source`` makes the methods anew in the ``n`` processes that do the work.
    """
    folder.mkdir(parents=True, exist_ok=True)
    todo = [
        (network, method)
        for method in methods
        for network in networks
        if fresh or found(folder, network, method) is None
    ]
    with (
        single_threads(n) as pool,
        click.progressbar(length=len(todo), label="measuring", file=sys.stderr) as progress,
    ):
        futures = [
            pool.submit(work, network, method.title, source, folder) for network, method in todo
        ]
        for future in as_completed(futures):
            future.result()
            progress.update(1)
    results = [found(folder, network, method) for method in methods for network in networks]
    if None in results:
        raise SystemExit("the code changed while it was measured; run again (the rest is kept)")
    return [result for result in results if result is not None]


def found(folder: Path, network: Network, method: Method) -> Result | None:
    """The result of an earlier run, if it is still valid."""
    path = measuring.place(folder, network, method)
    return measuring.kept(path, measuring.fingerprint(network, method))


def work(network: Network, title: str, source: Callable[[], list[Method]], folder: Path) -> None:
    """Measure one method on one network, in a process of the pool."""
    method = next(method for method in source() if method.title == title)
    result = measuring.measure(network, method)
    path = measuring.place(folder, network, method)
    measuring.keep(path, result, measuring.fingerprint(network, method))


if __name__ == "__main__":
    main()
