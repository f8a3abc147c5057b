"""``calibrant compare``: which calibrator for these predictions?"""

from __future__ import annotations

import click

from calibrant import _inputs
from calibrant.calibrators.comparison import REFERENCE, SORTABLE, compare_samples
from calibrant.cli.fit import MethodsCommand, read_labelled
from calibrant.cli.fitting import fitting_bar, named_methods
from calibrant.cli.paths import INPUT


@click.command(cls=MethodsCommand)
@click.argument("val", type=INPUT, metavar="VAL")
@click.argument("test", type=INPUT, metavar="TEST")
@click.option(
    "--method",
    "--methods",
    "names",
    multiple=True,
    metavar="NAME,...",
    help="Compare these, in place of all that need no parameter; repeatable.",
)
@click.option(
    "--gamma",
    type=float,
    help="What the model was trained with: adds the methods that need it (focal).",
)
@click.option(
    "--against",
    default=REFERENCE,
    show_default=True,
    metavar="NAME",
    help="The method that the others are compared with.",
)
@click.option(
    "--sort",
    default=SORTABLE[0],
    show_default=True,
    metavar="METRIC",
    help=f"Best first, with its interval (--json has all). One of {', '.join(SORTABLE)}.",
)
@click.option("--bins", "n_bins", type=int, default=15, show_default=True, help="Number of bins.")
@click.option("--level", type=float, default=0.95, show_default=True, help="Of the intervals.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the redrawn samples.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of a table.")
def compare(
    val: str,
    test: str,
    names: tuple[str, ...],
    gamma: float | None,
    against: str,
    sort: str,
    n_bins: int,
    level: float,
    seed: int,
    as_json: bool,
) -> None:
    """Fit every method on VAL, measure each on TEST.

    Both are files as `calibrant evaluate` reads them, of one model, with other samples in each. A
    method has its default parameters; one that does not suit the data gets its reason. The table
    has calibration errors, proper scores and accuracy, best first, and the noise floor: the error
    that a calibrated model would show. Signs mark what differs from temperature scaling by more
    than redrawing the samples explains; with many methods, one sign in twenty is chance.

    \b
    Examples:
      calibrant compare network.npz::val network.npz::test
      calibrant compare val.parquet test.parquet --method identity,temperature --sort nll
      calibrant compare val.csv test.csv --gamma 3 --json
    """
    _inputs.choice(sort, "--sort", SORTABLE)
    chosen = named_methods(names, gamma, against=against)
    fit_on, measure_on = read_labelled(val, to_fit=True), read_labelled(test, to_fit=False)
    with fitting_bar(val, len(chosen)) as show:
        result = compare_samples(
            fit_on,
            measure_on,
            methods=chosen,
            against=against,
            sort=sort,
            n_bins=n_bins,
            level=level,
            random_state=seed,
            progress=show,
        )
    if as_json:
        click.echo(result.to_json())
        return
    click.echo(f"{result}\n")
    click.echo(f"To keep one: calibrant fit {val} --method NAME -o cal.json")
