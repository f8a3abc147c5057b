"""``calibrant report``: one page that says whether to trust a model, what to do, and the gain."""

from __future__ import annotations

from pathlib import Path

import click

from calibrant import _inputs
from calibrant.cli.fit import MethodsCommand, refuse_overwriting
from calibrant.cli.fitting import fitting_bar, named_methods
from calibrant.cli.paths import INPUT, OUTPUT


@click.command(cls=MethodsCommand)
@click.argument("val", type=INPUT, metavar="VAL")
@click.argument("test", type=INPUT, metavar="TEST")
@click.option(
    "-o",
    "--output",
    default="report.html",
    show_default=True,
    type=OUTPUT,
    metavar="FILE",
    help="The page, an .html file; one that is there is replaced.",
)
@click.option("--title", help="Heading of the page, in place of the name of TEST.")
@click.option(
    "--method",
    "--methods",
    "names",
    multiple=True,
    metavar="NAME,...",
    help="Compare these, in place of all that are ready within a minute; repeatable.",
)
@click.option(
    "--gamma",
    type=float,
    help="What the model was trained with: adds the methods that need it (focal).",
)
@click.option("--bins", "n_bins", type=int, default=15, show_default=True, help="Number of bins.")
@click.option("--level", type=float, default=0.95, show_default=True, help="Of the intervals.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the redrawn samples.")
def report(
    val: str,
    test: str,
    output: Path,
    title: str | None,
    names: tuple[str, ...],
    gamma: float | None,
    n_bins: int,
    level: float,
    seed: int,
) -> None:
    """Write a page: can the model in TEST be trusted, what to do, and what is gained.

    Both are files as `calibrant evaluate` reads them, of one model, with other samples in each:
    every method is fitted on VAL and measured on TEST. The page is one file that opens in any
    browser, without a network: a verdict in words, reliability diagrams, all methods side by side,
    the worst classes, the most confidently wrong samples, and sliders to try a gamma and a
    temperature. Methods that would take minutes on so many samples are left out unless named.

    \b
    Examples:
      calibrant report network.npz::val network.npz::test
      calibrant report val.parquet test.parquet -o page.html --title "Our network"
      calibrant report val.csv test.csv --method auto,temperature
    """
    _inputs.page_path(output)
    refuse_overwriting(output, val, test)
    chosen = named_methods(names, gamma)
    from calibrant.report import write_report

    with fitting_bar(val, len(chosen) + 1) as show:
        summary = write_report(
            val,
            test,
            output,
            title=title,
            methods=chosen if names else None,
            gamma=gamma,
            n_bins=n_bins,
            level=level,
            random_state=seed,
            progress=show,
        )
    click.echo(summary.verdict())
    left_out = [method.name for method in summary.methods if method.curve is None]
    if left_out:
        click.echo(f"Without {', '.join(left_out)}; the page says why.")
    click.echo(f"Written to {output}: open it in a browser")
