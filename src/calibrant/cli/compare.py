"""``calibrant compare``: fit every method and measure each."""

from __future__ import annotations

from typing import Any

import click

from calibrant.calibrators import CALIBRATORS
from calibrant.calibrators.comparison import POSITIVE, REFERENCE, SORTABLE, compare_samples
from calibrant.cli.inputs import read_labelled
from calibrant.cli.multilabel import refuse_labels
from calibrant.cli.options import (
    INPUT,
    MethodsCommand,
    Name,
    bins_option,
    chosen_methods,
    further_metrics_option,
    gamma_option,
    json_option,
    level_option,
    methods_option,
    plugin_option,
    seed_option,
    where_option,
)
from calibrant.cli.progress import fitting_bar
from calibrant.files.layout import as_options


@click.command(cls=MethodsCommand)
@click.argument("val", type=INPUT, metavar="VAL")
@click.argument("test", type=INPUT, metavar="TEST")
@methods_option
@gamma_option
@click.option(
    "--against",
    type=Name(CALIBRATORS),
    default=REFERENCE,
    show_default=True,
    metavar="NAME",
    help="Reference method that the others are compared with.",
)
@click.option(
    "--sort",
    type=Name(SORTABLE),
    metavar="METRIC",
    help="Metric to sort by, shown with its interval (--json has all intervals): "
    f"{', '.join(SORTABLE)}.  [default: {SORTABLE[0]}; for two classes {POSITIVE[0]}]",
)
@further_metrics_option
@bins_option
@level_option
@seed_option
@json_option
@plugin_option
@where_option
def compare(
    val: str,
    test: str,
    names: tuple[list[str], ...],
    gamma: float | None,
    against: str,
    sort: str | None,
    metrics: tuple[str, ...],
    n_bins: int,
    level: float,
    seed: int,
    as_json: bool,
    columns: dict[str, Any],
) -> None:
    """Fit every method on VAL and measure each on TEST.

    VAL and TEST are files as in `calibrant evaluate`, with different samples of the same model.
    Methods have their default parameters; a method that cannot be used on these samples is listed
    with the reason. The table has calibration errors, proper scores and accuracy, the best method
    first, and the noise floor: the error that a calibrated model would show. For two classes the
    positive_ errors are those of P(class 1). A sign marks a significant difference from the
    reference method; at a level of 95%, about one sign in twenty is chance. If identity, the model
    as it is, is compared, a verdict on it and a recommendation follow.

    \b
    Examples:
      calibrant compare network.npz::val network.npz::test
      calibrant compare val.parquet test.parquet --method identity,temperature --sort nll
      calibrant compare val.csv test.csv --gamma 3 --json
      calibrant compare val.csv test.csv --metric aurc --metric smooth_ece
    """
    refuse_labels("calibrant compare", val, test)
    methods = chosen_methods(names, gamma, against=against)
    fit_on = read_labelled(val, columns=columns, to_fit=True)
    measure_on = read_labelled(test, columns=columns)
    with fitting_bar(val, len(methods)) as show:
        result = compare_samples(
            fit_on,
            measure_on,
            methods=methods if names else None,
            gamma=gamma,
            against=against,
            sort=sort,
            metrics=metrics,
            n_bins=n_bins,
            level=level,
            random_state=seed,
            progress=show,
        )
    if as_json:
        click.echo(result.to_json())
        return
    click.echo(f"{result}\n")
    click.echo(f"To fit one: calibrant fit {val}{as_options(columns)} --method NAME -o cal.json")
