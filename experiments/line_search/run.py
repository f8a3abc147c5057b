"""Focal temperature scaling by line, by grid and refined, on every network."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median

from calibrant import FocalTemperatureScaling, TemperatureScaling
from experiments.scoreboard import tables
from experiments.scoreboard.measuring import Result
from experiments.scoreboard.methods import Method, calibrant_method
from experiments.scoreboard.networks import DATA, all_networks, families
from experiments.scoreboard.run import grouped, measure_all
from experiments.scoreboard.tables import PERCENT, Family, shown_difference
from experiments.tables import markdown

OUT = Path("out/line-search")
CRITERIA = ("ada_ece", "nll")
SEARCHES = ("grid", "line", "refine")
TEMPERATURE = "temperature alone"
VALIDATION_TIE = 1e-9


def title_of(search: str, criterion: str) -> str:
    """The name of a method."""
    return f"{search} by {criterion}"


def searches() -> list[Method]:
    """The three searches by both criteria, and temperature scaling, which has no gamma."""

    def scaling(search: str, criterion: str) -> Method:
        return calibrant_method(
            title_of(search, criterion),
            lambda: FocalTemperatureScaling(criterion=criterion, search=search),
        )

    def temperature(criterion: str) -> Method:
        return calibrant_method(
            title_of(TEMPERATURE, criterion), lambda: TemperatureScaling(criterion=criterion)
        )

    return [
        method
        for criterion in CRITERIA
        for method in (*(scaling(s, criterion) for s in SEARCHES), temperature(criterion))
    ]


def main(argv: list[str] | None = None) -> None:
    """Measure what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of .npz files")
    parser.add_argument("--out", type=Path, default=OUT, help="where results and the table go")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    arguments = parser.parse_args(argv)
    networks, methods = all_networks(arguments.data), searches()
    folder = arguments.out / "results"
    results = measure_all(networks, methods, folder, source=searches, fresh=arguments.fresh)
    parts = []
    for criterion in CRITERIA:
        for title, members in families(networks).items():
            by_method = grouped(results, methods, members)
            parts += [
                f"### By {criterion}, {title} ({len(members)} networks)",
                table(criterion, by_method),
            ]
    text = "\n\n".join(parts) + "\n"
    (arguments.out / "table.md").write_text(text)
    print(text)


def table(criterion: str, results: dict[str, list[Result]]) -> str:
    """What each search finds on validation and what that is worth on test."""
    grid = title_of("grid", criterion)
    compared = [(metric, grid) for metric in CRITERIA]
    chosen = {
        title: results[title]
        for title in (title_of(name, criterion) for name in (*SEARCHES, TEMPERATURE))
    }
    family = tables.summarise(criterion, chosen, compared)
    unit = " %" if criterion in PERCENT else ""
    head = [
        "search",
        "evaluations",
        "s",
        f"validation {criterion}{unit}",
        "minus grid: mean",
        "worst",
        "w-l-t",
        "test ada_ece %",
        "minus grid",
        "w-l-t",
        "test nll",
        "minus grid",
        "w-l-t",
    ]
    cells = [list(_cells(title, criterion, chosen, family, compared)) for title in chosen]
    return markdown(head, cells)


def _cells(
    title: str,
    criterion: str,
    results: dict[str, list[Result]],
    family: Family,
    compared: Sequence[tuple[str, str]],
) -> Iterator[str]:
    mine, grid = results[title], results[compared[0][1]]
    scale, digits = (100.0, 3) if criterion in PERCENT else (1.0, 5)
    after = [scale * result.facts["after"] for result in mine]
    lost = [a - scale * result.facts["after"] for a, result in zip(after, grid, strict=True)]
    worst = max(range(len(lost)), key=lambda i: lost[i])
    yield title.removesuffix(f" by {criterion}")
    yield f"{mean(result.facts['evaluations'] for result in mine):.0f}"
    yield f"{median(result.seconds for result in mine):.2f}"
    yield f"{mean(after):.{digits}f}"
    if mine is grid:
        yield from ("", "", "")
    else:
        wins = sum(one < -VALIDATION_TIE for one in lost)
        losses = sum(one > VALIDATION_TIE for one in lost)
        yield f"{mean(lost):+.{digits}f}"
        yield f"{lost[worst]:+.{digits}f} ({mine[worst].network})"
        yield f"{wins}-{losses}-{len(lost) - wins - losses}"
    row = next(row for row in family.rows if row.method == title)
    for pair in compared:
        yield tables.shown(pair[0], row.means[pair[0]])
        yield from shown_difference(row.difference(*pair))


if __name__ == "__main__":
    main()
