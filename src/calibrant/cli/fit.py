"""``calibrant fit``: fit a calibrator on validation predictions and save it."""

from __future__ import annotations

import inspect
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from calibrant import _inputs, _thresholds
from calibrant._inputs import CORRECTNESS
from calibrant._registry import Registry
from calibrant._writing import refuse_foreign, refuse_unwritable
from calibrant.calibrators import (
    CALIBRATORS,
    AutoCalibration,
    CalibrationWarning,
    Calibrator,
    GroupedCalibration,
    MultiLabelCalibration,
    PrevalenceEstimate,
    PriorShift,
    estimate_prevalence,
)
from calibrant.calibrators.data import LabelledScores
from calibrant.calibrators.grouped.method import GroupedData
from calibrant.calibrators.loading import SPECIAL
from calibrant.calibrators.origin import check_metadata
from calibrant.calibrators.registry import required_params
from calibrant.calibrators.saving import is_calibrator
from calibrant.calibrators.temperature.methods import CRITERIA
from calibrant.cli.data_sets import DataSetOptions, data_set_options
from calibrant.cli.inputs import read_labelled, refuse_overwriting, scores_of
from calibrant.cli.multilabel import fit_labels
from calibrant.cli.options import (
    INPUT,
    OUTPUT,
    MethodsCommand,
    Name,
    by_option,
    force_option,
    json_option,
    parse_setting,
    plugin_option,
    where_option,
)
from calibrant.cli.progress import passes_bar
from calibrant.errors import CalibrantError
from calibrant.files import is_multilabel, read_predictions
from calibrant.files.layout import as_options
from calibrant.files.parquet import is_truncated

NAMED = {"criterion": Registry("criterion", dict.fromkeys(CRITERIA))}
"""Parameters of methods that are names."""


@click.command(cls=MethodsCommand)
@click.argument("val", type=INPUT, metavar="VAL")
@click.option(
    "--method",
    type=Name(CALIBRATORS),
    metavar="NAME",
    help="Method, one of those listed below.  [default: auto; for a multi-label file beta]",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a parameter of the method, such as --set gamma=3. Repeatable.",
)
@click.option(
    "--keep-class",
    is_flag=True,
    help="Only use methods that never change the predicted class (for the method auto).",
)
@by_option(
    "Columns of groups: the method is fitted on all rows, and each group gets a temperature and "
    "class biases, shrunk towards none."
)
@click.option(
    "--unlabelled",
    type=INPUT,
    metavar="NEW",
    help="New samples without labels: estimate the share of each class in them, and fit the "
    "method prior-shift for it. Refused if other shares cannot explain their scores.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=OUTPUT,
    metavar="FILE",
    help="Calibrator to write, a small .json file. An earlier calibrator is overwritten.",
)
@click.option(
    "--metadata",
    multiple=True,
    metavar="NAME=VALUE",
    help="Keep a value in the file, such as --metadata model=resnet50. Repeatable.",
)
@force_option
@json_option
@data_set_options
@plugin_option
@where_option
def fit(
    val: str,
    method: str | None,
    settings: tuple[str, ...],
    keep_class: bool,
    by: list[str],
    unlabelled: str | None,
    output: Path,
    metadata: tuple[str, ...],
    force: bool,
    as_json: bool,
    data_set: DataSetOptions,
    columns: dict[str, Any],
) -> None:
    """Fit a calibrator on the predictions in VAL and save it.

    VAL is a .npz, .parquet or .csv file, or a folder of .parquet files, with logits or
    probabilities and labels, or with confidence and correct, or a .jsonl log of a language model.
    FILE.npz::val reads val_logits and
    val_labels. One column, called score, y_score or prob, is the positive class. Use held-out
    samples: on its training samples a model is more confident than on others. The default method,
    auto, selects by cross-validation how far to go beyond one temperature. It may change the
    predicted class where that helps, unless --keep-class is given. Prints the evidence for that
    choice, how the fit went, and any warnings.

    An .npz file with labels of the shape of the scores is multi-label: the method is the curve
    that all labels share, and each label gets a slope and a shift, shrunk towards the others.

    \b
    Examples:
      calibrant fit network.npz::val -o cal.json
      calibrant fit network.npz::val --keep-class -o cal.json
      calibrant fit val.parquet --method temperature --set criterion=ada_ece -o cal.json
      calibrant fit val.csv --label outcome --score risk --positive yes -o cal.json
      calibrant fit val.csv --method focal --set gamma=3 -o cal.json --json
      calibrant fit val.parquet --by country,sex -o cal.json
      calibrant fit val.csv --method prior-shift --set target=0.02 -o cal.json
      calibrant fit val.csv --unlabelled november.csv -o cal.json
      calibrant fit answers.jsonl --options A,B,C,D -o cal.json
      calibrant fit logs/ --method temperature --scheduler local -o cal.json
      calibrant fit logs/ --where "month == '2026-10'" -o october.json
    """
    if output.suffix.lower() != ".json":
        raise CalibrantError(f"-o must end in .json; found {str(output)!r}. Rename it")
    refuse_overwriting(output, val, *([] if unlabelled is None else [unlabelled]))
    refuse_unwritable(output)  # before a long fit
    if not force:
        refuse_foreign(output, is_calibrator, "a calibrator")
    multilabel = is_multilabel(val)
    if multilabel and method is not None:
        settings = (f"curve={method}", *settings)
    if unlabelled is not None:
        method = _method_of_unlabelled(method, multilabel=multilabel)
        settings = ("target=null", *settings)  # until it is estimated
    method = MultiLabelCalibration.NAME if multilabel else method or AutoCalibration.NAME
    if by:
        other = "a multi-label file" if multilabel else "--keep-class" if keep_class else None
        other = "--unlabelled" if unlabelled is not None else other
        if other is not None:
            raise click.UsageError(
                f"--by is for classes, whose order it may change; found {other}. Leave one of them "
                "out"
            )
        method, settings = GroupedCalibration.NAME, (f"base={method}", *settings)
    if keep_class:
        if method != AutoCalibration.NAME:
            raise click.UsageError(
                f"--keep-class is for the method auto; found {method}. Leave one of them out"
            )
        settings = (*settings, "keep_class=true")
    calibrator = _make_calibrator(method, settings)
    kept = check_metadata(
        dict(parse_setting(each, "model=resnet50", "--metadata") for each in metadata)
    )
    most = _thresholds.ROWS_TO_FIT_IN_MEMORY
    found = None
    # The warnings of the fit are in its report, which is printed below.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        if isinstance(calibrator, MultiLabelCalibration):
            fit_labels(calibrator, val, where=columns["where"])
        elif (parts := data_set.in_parts(val, columns, rows_in_memory=most)) is None:
            skipped = data_set.skipped()
            read = {**columns, "skipped": skipped}
            samples = read_labelled(val, columns=read, to_fit=True, by=by)
            data_set.check_classes(val, samples.scores.shape[1])
            data = samples.fit_data()
            with _inputs.naming(val):
                calibrator.fit_samples(
                    GroupedData.of(data, samples.groups) if samples.groups else data
                )
            if unlabelled is not None:
                found = _estimated(calibrator, samples, unlabelled, columns)
                calibrator.set_params(target=found.shares.tolist())
                calibrator.fit_samples(data)
            calibrator.classes_ = samples.classes or calibrator.classes_
            origin = calibrator.origin_.with_data(*samples[:3])
            calibrator.origin_ = replace(origin, source=samples.source)
            calibrator.report_ = replace(calibrator.report_, skipped=skipped)
        else:
            from calibrant import scale

            alone = "--by" if by else "--unlabelled"
            if by or unlabelled is not None:
                raise CalibrantError(
                    f"{alone} needs a file that fits into memory; {val} is read in parts. Fit on "
                    "some of its files"
                )
            with passes_bar(f"fitting on {Path(val).name}") as show:
                scale.fit(calibrator, val, **parts, progress=show)
    calibrator.save(output, metadata=kept)
    if as_json:
        result = calibrator.report_.to_dict()
        if found is not None:
            result["prevalence"] = found.to_dict()
        click.echo(json.dumps(result, indent=2, allow_nan=False))
        return
    if found is not None:
        click.echo(f"{found}\n")
    # What is predicted from a confidence is whether an answer is correct.
    remark = (
        "No answer changes, only how sure of it the model is: predictions and accuracy above are "
        "those of an answer being correct, from a confidence of 50% on.\n"
    )
    remark = remark if calibrator.classes_ == CORRECTNESS else ""
    click.echo(f"{calibrator.report_}\n{remark}Written to {output}\n")
    # Truncated rows are only written as a folder.
    ending = Path(val).suffix.lower()
    calibrated = f"calibrated{ending if ending in ('.csv', '.parquet') else '.npz'}"
    calibrated = "calibrated" if is_truncated(Path(val)) else calibrated
    options = as_options({**columns, "where": None})
    click.echo(f"To use it:     calibrant apply {output} FILE{options} -o {calibrated}")
    click.echo(f"To measure it: calibrant evaluate {calibrated}")
    click.echo(f"To look at it: calibrant info {output}")


def _method_of_unlabelled(method: str | None, *, multilabel: bool) -> str:
    if multilabel:
        raise CalibrantError(
            "--unlabelled is for exclusive classes; found a multi-label file. Leave it out"
        )
    if method not in (None, PriorShift.NAME):
        raise CalibrantError(
            f"--unlabelled is for the method {PriorShift.NAME}; found {method}. "
            f"Pass --set base={method}"
        )
    return PriorShift.NAME


def _estimated(
    calibrator: Calibrator, labelled: LabelledScores, unlabelled: str, columns: dict[str, Any]
) -> PrevalenceEstimate:
    """The shares of the classes in a file, from a calibrator that keeps those of ``labelled``."""
    others = {**columns, "label": None, "where": None}
    predictions = read_predictions(unlabelled, **others).with_scores()
    with _inputs.naming(unlabelled):
        kind, scores = scores_of(predictions)
        if predictions.class_names is not None and labelled.classes is not None:
            scores = scores[:, _inputs.column_order(predictions.class_names, labelled.classes)]
        found = estimate_prevalence(
            probs=calibrator.predict_proba(**{labelled.kind: labelled.scores}),
            labels=labelled.labels,
            unlabelled=calibrator.predict_proba(**{kind: scores}),
        )
        if not found.is_label_shift:
            raise CalibrantError(found.verdict)
    return found if labelled.classes is None else replace(found, classes=labelled.classes)


def _make_calibrator(method: str, settings: tuple[str, ...]) -> Calibrator:
    """The unfitted calibrator, its parameters checked."""
    cls = SPECIAL[method] if method in SPECIAL else CALIBRATORS[method]
    known = list(inspect.signature(cls).parameters)
    params: dict[str, Any] = {}
    for setting in settings:
        name, value = parse_setting(setting, "gamma=3")
        if name in params:
            raise CalibrantError(f"--set takes each name once; found {name} twice. Leave one out")
        _inputs.parameter(name[:60], method, known)
        params[name] = NAMED[name].key(str(value)) if name in NAMED else value
    missing = [name for name in required_params(cls) if name not in params]
    if missing:
        raise CalibrantError(
            f"{method} needs {' and '.join(missing)}. Add --set {missing[0]}=VALUE"
        )
    calibrator = cls(**params)
    calibrator._check_params()
    return calibrator
