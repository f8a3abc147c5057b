"""``calibrant report``: one HTML page about a model's calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from calibrant import _inputs
from calibrant.calibrators import MultiLabelCalibration
from calibrant.cli.inputs import refuse_overwriting
from calibrant.cli.options import (
    INPUT,
    OUTPUT,
    MethodsCommand,
    bins_option,
    by_option,
    chosen_methods,
    further_metrics_option,
    gamma_option,
    level_option,
    methods_option,
    plugin_option,
    seed_option,
    where_option,
)
from calibrant.cli.progress import fitting_bar
from calibrant.files import is_multilabel


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
    help="Page to write, an .html file. Overwritten if it exists.",
)
@click.option("--title", help="Heading of the page.  [default: the name of TEST]")
@methods_option
@by_option("Columns of TEST; each value, and of several columns each combination, is measured too.")
@click.option(
    "--costs",
    type=INPUT,
    metavar="CSV",
    help="Costs of actions: a row for each true class, a column for each action, with names. Adds "
    "what the decisions of each method cost.",
)
@gamma_option
@further_metrics_option
@bins_option
@level_option
@seed_option
@plugin_option
@where_option
def report(
    val: str,
    test: str,
    output: Path,
    title: str | None,
    names: tuple[list[str], ...],
    by: list[str],
    costs: str | None,
    gamma: float | None,
    metrics: tuple[str, ...],
    n_bins: int,
    level: float,
    seed: int,
    columns: dict[str, Any],
) -> None:
    """Write an HTML page: can the model be trusted, and what does calibration gain?

    VAL and TEST are files as in `calibrant evaluate`, with different samples of the same model.
    Every method is fitted on VAL and measured on TEST. The page is one file that opens in any
    browser without a network: a verdict, reliability diagrams, a table of all methods, the worst
    classes, the most confident errors, and sliders for gamma and temperature. Methods whose fit
    would take minutes are left out unless named.

    For multi-label .npz files, whose labels have the shape of the scores, the page has the worst
    labels first, before and after calibration; --method then names the curve that all labels share.

    \b
    Examples:
      calibrant report network.npz::val network.npz::test
      calibrant report val.parquet test.parquet -o page.html --title "Our network"
      calibrant report val.csv test.csv --method auto,temperature
      calibrant report val.parquet test.parquet --by country,sex
      calibrant report val.csv test.csv --costs costs.csv
      calibrant report val.jsonl test.jsonl --options A,B,C,D
    """
    _inputs.page_path(output)
    refuse_overwriting(output, val, test)
    if is_multilabel(val):
        if by or columns["where"] is not None:
            raise click.UsageError(
                f"--by and --where are for classes; {val} is multi-label. Leave them out"
            )
        if costs is not None:
            raise click.UsageError(
                "--costs is for exclusive classes; found a multi-label file. Leave it out"
            )
        _report_on_labels(
            val,
            test,
            output,
            _calibration([name for each in names for name in each], gamma),
            title=title,
            n_bins=n_bins,
            level=level,
            random_state=seed,
        )
        return
    methods = chosen_methods(names, gamma)
    from calibrant.report import write_report

    with fitting_bar(val, len(methods) + 1) as show:
        summary = write_report(
            val,
            test,
            output,
            title=title,
            methods=methods if names else None,
            gamma=gamma,
            metrics=metrics,
            n_bins=n_bins,
            level=level,
            random_state=seed,
            costs=costs,
            columns=columns,
            by=by,
            progress=show,
        )
    click.echo(summary.verdict())
    left_out = [method.name for method in summary.methods if method.curve is None]
    if left_out:
        click.echo(f"Left out: {', '.join(left_out)}. The page gives the reasons.")
    click.echo(f"Written to {output}. Open it in a browser.")


def _calibration(curves: list[str], gamma: float | None) -> MultiLabelCalibration:
    if len(curves) > 1:
        raise click.UsageError(
            f"the page of a multi-label model has one method; found {len(curves)}. Name one"
        )
    calibration = MultiLabelCalibration(gamma=gamma)
    return calibration.set_params(curve=curves[0]) if curves else calibration


def _report_on_labels(
    val: str, test: str, output: Path, calibration: MultiLabelCalibration, **options: Any
) -> None:
    from calibrant.report import write_multilabel_report

    with fitting_bar(val, 3) as show:
        summary = write_multilabel_report(
            val, test, output, calibration=calibration, progress=show, **options
        )
    click.echo(summary.verdict())
    click.echo(f"Written to {output}. Open it in a browser.")
