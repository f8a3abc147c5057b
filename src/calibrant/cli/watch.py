"""``calibrant watch``: is a model in use still calibrated?"""

from __future__ import annotations

import json
from pathlib import Path

import click

from calibrant.cli.data_sets import scheduler_option, skip_bad_option
from calibrant.cli.inputs import refuse_overwriting
from calibrant.cli.options import INPUT, OUTPUT, Name, by_option, json_option, plugin_option
from calibrant.cli.progress import passes_bar

ALARM = 1
"""Exit status of an alarm."""


def _separated(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text else ()


@click.command()
@click.argument("logs", type=INPUT, metavar="LOGS")
@click.option(
    "--time",
    required=True,
    metavar="COLUMN",
    help="Column of dates, times (in UTC) or whole numbers such as years; it may be part of the "
    "path.",
)
@click.option(
    "--every",
    type=Name(["day", "week", "month", "year"]),
    default="day",
    show_default=True,
    metavar="PERIOD",
    help="Length of a period: day, week, month or year. Whole numbers are their own periods.",
)
@click.option(
    "--since",
    metavar="TIME",
    help="First time that counts, such as the day of a repair: 2026-11-01.",
)
@by_option("Columns whose values are groups to watch too, such as country,sex.")
@click.option(
    "--calibrator",
    type=INPUT,
    metavar="FILE",
    help="Calibrator to apply to the scores first (.json).",
)
@click.option(
    "--level",
    type=float,
    default=0.05,
    show_default=True,
    help="Largest probability of a false alarm, however often you look.",
)
@click.option(
    "--state",
    type=OUTPUT,
    metavar="FILE",
    help="File that remembers what was read, so that the next run reads only what is new. Made if "
    "it does not exist.",
)
@click.option(
    "-o",
    "--output",
    type=OUTPUT,
    metavar="FILE",
    help="Page with the history to write, an .html file. Overwritten if it exists.",
)
@click.option("--label", metavar="NAME", help="Column of the labels, if not label or y_true.")
@click.option(
    "--score",
    callback=_separated,
    metavar="NAME,...",
    help="Column of the scores of the positive class, or the columns of all classes.",
)
@click.option(
    "--positive", metavar="LABEL", help="Label of the positive class, if labels are not 0 and 1."
)
@json_option
@scheduler_option
@skip_bad_option
@plugin_option
@click.pass_context
def watch(
    ctx: click.Context,
    logs: str,
    time: str,
    every: str,
    since: str | None,
    by: list[str],
    calibrator: str | None,
    level: float,
    state: Path | None,
    output: Path | None,
    label: str | None,
    score: tuple[str, ...],
    positive: str | None,
    as_json: bool,
    scheduler: str | None,
    skip_bad: bool,
) -> None:
    """Watch the calibration of a model in use; status 1 is an alarm.

    LOGS is a .parquet file or a folder of them, with the probabilities or logits of a model, labels
    as far as they are known, and a time. Prints the calibration of each period, and whether the
    evidence against calibration has reached the alarm. You may look after every batch: a
    calibrated model ever raises the alarm with a probability of at most --level. After an alarm:
    since when, which classes or groups are off, and the smallest repair that the labels support.

    Rows without a label wait until their file is written again with it. With --state, the next run
    goes on from this one and reads only files that are new or have changed.

    Exit status: 0 without an alarm, 1 with one, 2 for input that cannot be used.

    \b
    Examples:
      calibrant watch logs/ --time day
      calibrant watch logs/ --time day --state watch.json -o watch.html
      calibrant watch logs/ --time timestamp --every week --by country,sex
      calibrant watch logs/ --time day --since 2026-11-01 --state after-repair.json
      calibrant watch logs/ --time day --calibrator cal.json --json
      calibrant watch employment.parquet --time year --label employed --score risk_prob
    """
    from calibrant import monitoring
    from calibrant.monitoring.page import check_page, write_page

    for written in filter(None, (state, output)):
        refuse_overwriting(written, *filter(None, (calibrator,)))
    if output is not None:
        check_page(output)
    with passes_bar(f"reading {Path(logs).name}") as show:
        watched = monitoring.watch(
            logs,
            time=time,
            every=every,
            since=since,
            by=by,
            calibrator=calibrator,
            level=level,
            state=state,
            label=label,
            score=score or None,
            positive=positive,
            scheduler=scheduler,
            skip_bad=skip_bad,
            progress=show,
        )
    if output is not None:
        write_page(watched, output)
    if as_json:
        click.echo(json.dumps(watched.to_dict(), indent=2))
    else:
        click.echo(str(watched))
        if output is not None:
            click.echo(f"Page written to {output}")
    if watched.alarm is not None:
        ctx.exit(ALARM)
