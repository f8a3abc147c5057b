"""The commands on multi-label files, whose labels are 0 or 1 for each sample and label."""

from __future__ import annotations

from pathlib import Path

import click

from calibrant import _inputs
from calibrant._writing import written_whole
from calibrant.calibrators import MultiLabelCalibration
from calibrant.cli.inputs import scores_of
from calibrant.errors import CalibrantError
from calibrant.files import Predictions, is_multilabel, read_predictions, write_predictions
from calibrant.files.csv import write_csv
from calibrant.files.parquet.tables import arrow_table, beside, score_columns, write_tables
from calibrant.files.reading import read_to_calibrate
from calibrant.metrics import MultiLabelEvaluation, evaluate_multilabel


def evaluate_labels(
    file: str, *, where: str | None, n_bins: int, level: float, seed: int
) -> MultiLabelEvaluation:
    """Evaluate every label of a file."""
    predictions = read_predictions(file, where=where)
    with _inputs.naming(file):
        return evaluate_multilabel(
            predictions.probs,
            predictions.labels,
            logits=predictions.logits,
            label_names=predictions.class_names,
            n_bins=n_bins,
            level=level,
            random_state=seed,
        )


def fit_labels(calibrator: MultiLabelCalibration, file: str, *, where: str | None) -> None:
    """Fit on the samples of a file."""
    predictions = read_predictions(file, where=where)
    with _inputs.naming(file):
        calibrator.fit(
            labels=predictions.labels, logits=predictions.logits, probs=predictions.probs
        )
    calibrator.classes_ = predictions.class_names


def apply_to_labels(
    calibrator: MultiLabelCalibration, file: str, output: Path, digest: str
) -> None:
    """Write calibrated probabilities of every label, from a table to a table beside the others.

    ``digest`` is the SHA-256 of the calibrator, which is written too.
    """
    predictions: Predictions = read_to_calibrate(file)
    with _inputs.naming(file):
        kind, scores = scores_of(predictions)
        named = calibrator.class_names()
        _inputs.same_label_names(named, predictions.class_names)
        probs = calibrator.predict_proba(**{kind: scores})
        ending = output.suffix.lower()
        if predictions.others and ending in (".csv", ".parquet"):
            calibrated = score_columns(probs, "probs", predictions.class_names)
            columns = beside(predictions.others, calibrated)
            with written_whole(output) as temporary:
                if ending == ".csv":
                    write_csv(temporary, [columns], calibrator=digest)
                else:
                    write_tables(temporary, [arrow_table(columns)], calibrator=digest)
        else:
            write_predictions(
                output,
                probs=probs,
                labels=predictions.labels,
                ids=predictions.ids,
                class_names=predictions.class_names,
                multilabel=True,
                calibrator=digest,
            )
    click.echo(
        f"{len(probs)} rows of {calibrator.n_classes_} labels calibrated: on average "
        f"{probs.sum(axis=1).mean():.2f} labels per row. Written to {output}"
    )


def refuse_labels(command: str, *files: str) -> None:
    """Refuse multi-label files in a command about classes."""
    for file in files:
        if is_multilabel(file):
            raise CalibrantError(
                f"{command} takes files of classes; {file} is multi-label (labels of the shape of "
                "the scores). Use calibrant fit, evaluate or report"
            )
