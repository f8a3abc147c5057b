"""``calibrant fit``: from validation predictions to a calibrator in a file."""

from __future__ import annotations

import inspect
import json
import os
import warnings
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from calibrant import _inputs, _thresholds
from calibrant._writing import refuse_foreign, refuse_unwritable
from calibrant.calibrators import (
    CALIBRATORS,
    AutoCalibration,
    CalibrationWarning,
    Calibrator,
)
from calibrant.calibrators.comparison import Labelled, required
from calibrant.calibrators.saving import is_calibrator
from calibrant.cli.data_sets import (
    classes_option,
    passes_bar,
    refuse_other_number,
    scheduler_argument,
    scheduler_of,
    scheduler_option,
    skip_bad_option,
)
from calibrant.cli.paths import INPUT, OUTPUT, force_option
from calibrant.errors import CalibrantError
from calibrant.files import Predictions, read_predictions
from calibrant.files.parquet import is_truncated


class MethodsCommand(click.Command):
    """A command whose help ends in the list of methods, as the registry has them."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The methods, what each is, and what can be set of it."""
        with formatter.section("Methods"):
            formatter.write_dl([(name, _described(cls)) for name, cls in CALIBRATORS.items()])


@click.command(cls=MethodsCommand)
@click.argument("val", type=INPUT, metavar="VAL")
@click.option(
    "--method",
    default=AutoCalibration.NAME,
    show_default=True,
    metavar="NAME",
    help="One of the methods listed below.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of the method, as in --set gamma=3; repeatable.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=OUTPUT,
    metavar="FILE",
    help="The calibrator, a small .json file. An older calibrator there is replaced.",
)
@force_option
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON in place of text.")
@scheduler_option
@skip_bad_option
@classes_option
def fit(
    val: str,
    method: str,
    settings: tuple[str, ...],
    output: Path,
    force: bool,
    as_json: bool,
    scheduler: str | None,
    skip_bad: bool,
    classes: int | None,
) -> None:
    """Fit a calibrator on the predictions in VAL and save it.

    VAL is .npz, .parquet (or a folder of them) or .csv with logits or probabilities and labels;
    FILE.npz::val picks val_logits and val_labels. They must be held out: on samples that the model
    was trained on it is surer than elsewhere. Without --method the samples themselves choose: how
    far beyond one temperature to go, by what they say of samples that were held out. Prints that
    evidence, how the fit went, and what speaks against trusting it.

    \b
    Examples:
      calibrant fit network.npz::val -o cal.json
      calibrant fit val.parquet --method temperature --set criterion=ada_ece -o cal.json
      calibrant fit val.csv --method focal --set gamma=3 -o cal.json --json
      calibrant fit logs/ --method temperature --scheduler local -o cal.json
    """
    if output.suffix.lower() != ".json":
        raise CalibrantError(f"a calibrator is written as .json; found {str(output)!r}. Rename it")
    refuse_overwriting(output, val)
    refuse_unwritable(output)  # now, and not after a long fit
    if not force:
        refuse_foreign(output, is_calibrator, "a calibrator")
    calibrator = _made(method, settings)
    most = _thresholds.ROWS_TO_FIT_IN_MEMORY
    where = scheduler_of(val, scheduler, skip_bad=skip_bad, rows_in_memory=most)
    # What the fit warns of is part of its report, which is printed below.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        if where is None:
            samples = read_labelled(val, to_fit=True)
            refuse_other_number(val, samples.scores.shape[1], classes)
            with _inputs.naming(val):
                calibrator.fit(**samples.named(), labels=samples.labels)
        else:
            from calibrant import scale

            with passes_bar(f"fitting on {Path(val).name}") as show:
                scale.fit(
                    calibrator,
                    val,
                    scheduler=scheduler_argument(where),
                    skip_bad=skip_bad,
                    n_classes=classes,
                    progress=show,
                )
    calibrator.save(output)
    if as_json:
        click.echo(json.dumps(calibrator.report_.to_dict(), indent=2, allow_nan=False))
        return
    click.echo(f"{calibrator.report_}\nWritten to {output}\n")
    # Truncated rows are written as a folder only.
    calibrated = "calibrated" if is_truncated(Path(val)) else "calibrated.npz"
    click.echo(f"To use it:     calibrant apply {output} FILE -o {calibrated}")
    click.echo(f"To measure it: calibrant evaluate {calibrated}")


def read_labelled(file: str, *, to_fit: bool) -> Labelled:
    """Scores and labels of a file; a refusal of their values names it."""
    predictions = read_predictions(file)
    with _inputs.naming(file):
        kind, scores = scores_of(predictions)
        _inputs.some_labels(predictions.labels)
        checked = getattr(_inputs, kind)(scores)
        labels = _inputs.labels(predictions.labels, checked)
        if to_fit:
            _inputs.possible_labels(scores, labels, np.full(len(labels), True))
        return Labelled(kind, scores, labels)


def scores_of(predictions: Predictions) -> tuple[str, npt.NDArray[Any]]:
    """``"logits"`` or ``"probs"``, and the array; confidence alone cannot be calibrated."""
    if predictions.top_logits is not None:
        _inputs.every_class_known("this command, on this file,")
    _inputs.some_scores(predictions.logits, predictions.probs)
    if predictions.logits is not None:
        return "logits", predictions.logits
    assert predictions.probs is not None
    return "probs", predictions.probs


def refuse_overwriting(output: Path, *sources: str) -> None:
    """Neither a file that is read, nor one in a folder that is read, may be written."""
    for source in sources:
        for path in (Path(source), Path(source.rpartition("::")[0] or source)):
            if not path.exists():
                continue
            if (output.exists() and output.samefile(path)) or (
                Path(os.path.realpath(output)).parent == path.resolve()
            ):
                raise CalibrantError(
                    f"{output} is read as {source}; it cannot be written as well. "
                    "Choose another name"
                )


def _made(method: str, settings: tuple[str, ...]) -> Calibrator:
    """The unfitted calibrator, its parameters checked."""
    cls = CALIBRATORS[CALIBRATORS.key(method, "--method")]
    known = list(inspect.signature(cls).parameters)
    takes = f"it has {', '.join(known)}" if known else "it has none"
    params: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or name in params:
            raise CalibrantError(
                f"--set takes NAME=VALUE, each name once; found {setting[:60]!r}. "
                "Write --set gamma=3, say"
            )
        if name not in known:
            raise CalibrantError(f"{method} has no parameter {name[:60]!r}; {takes}")
        params[name] = _scalar(text)
    missing = [name for name in required(cls) if name not in params]
    if missing:
        raise CalibrantError(
            f"{method} needs {' and '.join(missing)}. Add --set {missing[0]}=VALUE"
        )
    calibrator = cls(**params)
    calibrator._check_params()
    return calibrator


def _scalar(text: str) -> Any:
    """A number, true, false or null as JSON writes them; anything else is a word."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, dict | list) else value


def _described(cls: type[Calibrator]) -> str:
    summary = (inspect.getdoc(cls) or "").partition("\n")[0]
    params = inspect.signature(cls).parameters.values()
    shown = [p.name if p.name in required(cls) else f"{p.name}={p.default}" for p in params]
    return f"{summary} Parameters: {', '.join(shown)}." if shown else summary
