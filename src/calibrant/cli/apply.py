"""``calibrant apply``: write calibrated probabilities for the predictions in a file."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import click
import numpy as np
import numpy.typing as npt

from calibrant import _inputs, _thresholds
from calibrant._numerics.logspace import split_top
from calibrant._writing import written_whole
from calibrant.calibrators import Calibrator, MultiLabelCalibration, load
from calibrant.calibrators.data import row_blocks
from calibrant.cli.data_sets import DataSetOptions, data_set_options, is_log
from calibrant.cli.inputs import refuse_overwriting, scores_of
from calibrant.cli.multilabel import apply_to_labels, refuse_labels
from calibrant.cli.options import INPUT, OUTPUT, column_options, plugin_option
from calibrant.cli.progress import batches_bar, passes_bar
from calibrant.errors import CalibrantError
from calibrant.files import Predictions, write_predictions
from calibrant.files.columns import arrow
from calibrant.files.csv import write_csv
from calibrant.files.jsonl import JsonlSource
from calibrant.files.parquet import is_truncated
from calibrant.files.parquet.tables import (
    MOST_COLUMNS,
    arrow_table,
    beside,
    score_columns,
    score_table,
    write_tables,
)
from calibrant.files.reading import asked_for, iter_to_calibrate

BATCH_NUMBERS = 1 << 23
"""Numbers that are calibrated at a time."""

Batch: TypeAlias = dict[str, Any]
"""The arguments of ``write_predictions``."""


@click.command()
@click.argument("calibrator_path", type=INPUT, metavar="CALIBRATOR")
@click.argument("file", type=INPUT, metavar="FILE")
@click.option(
    "-o",
    "--output",
    required=True,
    type=OUTPUT,
    metavar="OUT",
    help="File to write: .npz, .parquet or .csv. Overwritten if it exists. If FILE is a folder, "
    "OUT may be a new folder, which gets a file for each. If FILE is .jsonl, OUT may be .jsonl: "
    "its lines with probs.",
)
@data_set_options
@plugin_option
@column_options
def apply(
    calibrator_path: str,
    file: str,
    output: Path,
    data_set: DataSetOptions,
    columns: dict[str, Any],
) -> None:
    """Write calibrated probabilities for the predictions in FILE.

    CALIBRATOR is a file written by `calibrant fit`. FILE is a .npz, .parquet or .csv file, or a
    folder of .parquet files, with logits, probabilities or confidences of the same model. Labels
    are not needed; labels, ids and class names are copied to OUT. From a table to .parquet or .csv,
    every column but the scores is copied, and FILE may be larger than memory. A calibrator that was
    fitted with --by reads the same columns; groups that it does not know are treated like all.

    \b
    Examples:
      calibrant apply cal.json network.npz::test -o calibrated.npz
      calibrant apply cal.json new.parquet -o calibrated.parquet
      calibrant apply cal.json answers.jsonl --options A,B,C,D -o calibrated.jsonl
      calibrant apply cal.json logs/ -o calibrated/ --scheduler local
    """
    truncated = is_truncated(Path(file))
    skips_rows = data_set.skip_bad and not is_log(file)
    to_folder = data_set.scheduler is not None or skips_rows or truncated
    if not output.suffix and (to_folder or Path(file).is_dir()):
        from calibrant import scale

        parts = data_set.in_parts(file, columns) or {}
        with passes_bar(f"calibrating {Path(file).name}") as show:
            applied = scale.apply(load(calibrator_path), file, output, **parts, progress=show)
        click.echo(f"{applied} Written to {output}")
        return
    if to_folder:
        what = "truncated rows" if truncated else "--scheduler and --skip-bad"
        raise CalibrantError(
            f"{what} need a folder as output; found {str(output)!r}. "
            "Name a new folder, without an extension"
        )
    write = WRITERS.get(output.suffix.lower())
    skipped = data_set.skipped()
    if output.suffix.lower() == ".jsonl" and is_log(file):
        asked = asked_for(**columns, skipped=data_set.skipped(), keep=True)
        log = JsonlSource(Path(file), None, file, asked)
        write = functools.partial(_write_jsonl, log)
    if write is None:
        raise CalibrantError(
            f"-o must end in {', '.join(WRITERS)}; found {str(output)!r}. Rename it"
        )
    if output.suffix.lower() == ".parquet":
        arrow("writing")  # fail before the first rows
    calibrator = load(calibrator_path)
    data_set.check_classes(calibrator_path, calibrator.n_classes_)
    refuse_overwriting(output, calibrator_path, file)
    digest = hashlib.sha256(Path(calibrator_path).read_bytes()).hexdigest()
    if isinstance(calibrator, MultiLabelCalibration):
        apply_to_labels(calibrator, file, output, digest)
        return
    refuse_labels(f"the calibrator {calibrator_path}", file)
    batch_rows = max(1, min(_thresholds.BATCH_ROWS, BATCH_NUMBERS // calibrator.n_classes_))
    rows = iter_to_calibrate(
        file,
        batch_rows=batch_rows,
        kind=calibrator.origin_.input,
        classes=calibrator.class_names(),
        columns={**columns, "skipped": skipped},
        groups=calibrator.group_columns_,
    )
    tally = _Tally()
    with (
        written_whole(output) as temporary,
        batches_bar(f"calibrating {Path(file).name}", rows, file, batch_rows) as batches,
    ):
        write(temporary, _calibrated(calibrator, batches, file, tally), digest)
    changed = f", {tally.changed} predicted classes changed" if tally.changed else ""
    click.echo(
        f"{tally.rows} rows of {calibrator.n_classes_} classes calibrated by {calibrator.NAME}: "
        f"mean confidence {tally.before / tally.rows:.2%} before, "
        f"{tally.after / tally.rows:.2%} after{changed}. "
        f"{f'{skipped}. ' if skipped else ''}Written to {output}"
    )


@dataclass
class _Tally:
    """Counts for the summary that is printed."""

    rows: int = 0
    before: float = 0.0
    after: float = 0.0
    changed: int = 0

    def count(self, kind: str, scores: npt.NDArray[Any], probs: npt.NDArray[Any]) -> None:
        self.rows += len(probs)
        self.before += float(_confidence(kind, scores).sum(dtype=np.float64))
        self.after += float(probs.max(axis=1).sum(dtype=np.float64))
        self.changed += int((scores.argmax(axis=1) != probs.argmax(axis=1)).sum())

    def count_confidences(self, before: npt.NDArray[Any], after: npt.NDArray[Any]) -> None:
        """Confidences in answers, which may fall below 1/2 and change no answer."""
        self.rows += len(after)
        self.before += float(before.sum(dtype=np.float64))
        self.after += float(after.sum(dtype=np.float64))


def _calibrated(
    calibrator: Calibrator, batches: Iterable[Predictions], file: str, tally: _Tally
) -> Iterator[Batch]:
    for batch in batches:
        with _inputs.naming(f"{file}, counting from row {tally.rows}" if tally.rows else file):
            check_source(calibrator.origin_.source, batch.source)
            scored = batch.with_scores()
            kind, scores = scores_of(scored)
            probs = calibrator.predict_columns(
                kind,
                scores,
                scored.class_names,
                single=scored.single,
                groups=batch.groups(calibrator.group_columns_),
            )
            labels = None if batch.labels is None else _inputs.labels(batch.labels, probs)
        if batch.confidence is None:
            tally.count(kind, scores, probs)
        else:
            tally.count_confidences(batch.confidence, probs[:, 1])
        yield {
            "probs": probs[:, 1] if scored.single else probs,
            "labels": labels,
            "ids": batch.ids,
            "class_names": batch.class_names,
            "confidence": batch.confidence is not None,
            "correct": batch.correct,
            "others": batch.others,
            "groups": calibrator.group_columns_,
        }


def check_source(fitted: str | None, found: str | None) -> None:
    """Refuse a log whose probabilities come from elsewhere than those of the fit."""
    if fitted is not None and found is not None and fitted != found:
        raise CalibrantError(
            f"this calibrator is for the source {fitted}; found {found}. Choose --source {fitted}, "
            f"or fit a calibrator on {found}"
        )


def _confidence(kind: str, scores: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Largest probability of each row before calibration."""
    if kind == "probs":
        return np.asarray(scores.max(axis=1))
    wide = _inputs.logits(scores)
    with np.errstate(over="ignore"):  # a class this far below the top has probability 0
        parts = [split_top(wide[block]).log_top[:, 0] for block in row_blocks(*wide.shape)]
    return np.asarray(np.exp(np.concatenate(parts)))


def _write_npz(target: Path, batches: Iterator[Batch], calibrator: str) -> None:
    held = list(batches)
    joined: dict[str, Any] = {
        field: None if held[0][field] is None else np.concatenate([part[field] for part in held])
        for field in ("probs", "labels", "ids", "correct")
    }
    correct = joined.pop("correct")
    if held[0]["confidence"]:
        arrays = {"confidence": joined["probs"], "correct": correct, "ids": joined["ids"]}
        given = {name: array for name, array in arrays.items() if array is not None}
        with target.open("wb") as file:
            np.savez(file, allow_pickle=False, **given, calibrator=np.array(calibrator))
    else:
        names = held[0]["class_names"]
        write_predictions(target, **joined, class_names=names, calibrator=calibrator)


def _write_csv(target: Path, batches: Iterator[Batch], calibrator: str) -> None:
    write_csv(target, map(_columns, batches), calibrator=calibrator)


def _write_parquet(target: Path, batches: Iterator[Batch], calibrator: str) -> None:
    write_tables(target, map(_table, batches), calibrator=calibrator)


def _table(batch: Batch) -> Any:
    named = batch["class_names"] is not None and len(batch["class_names"]) <= MOST_COLUMNS
    if batch["confidence"] or (named and batch["probs"].ndim == 2):
        return arrow_table(_columns(batch))
    return score_table(batch["probs"], others=_others(batch), class_names=batch["class_names"])


def _columns(batch: Batch) -> dict[str, Any]:
    """The columns to write: the other columns of the file as they are, and the probabilities."""
    if batch["confidence"]:
        return beside(
            {"correct": batch["correct"], **_others(batch)}, {"confidence": batch["probs"]}
        )
    return beside(_others(batch), score_columns(batch["probs"], "probs", batch["class_names"]))


def _others(batch: Batch) -> dict[str, Any]:
    labels, names = batch["labels"], batch["class_names"]
    if labels is not None and names is not None:
        labels = np.array(names)[labels]
    others = batch["others"]
    if set(others) <= set(batch["groups"]):  # no table, or one without labels and ids
        return {"id": batch["ids"], "label": labels, **others}
    return dict(others)


def _write_jsonl(log: JsonlSource, target: Path, batches: Iterator[Batch], digest: str) -> None:
    """The lines of the log with calibrated probabilities of the options, or confidences."""
    rows = ((batch["class_names"], row) for batch in batches for row in batch["probs"])
    with target.open("w", encoding="utf-8") as file:
        for (line, _), (names, row) in zip(log.samples(), rows, strict=True):
            if row.ndim == 0:
                line["confidence"] = float(row)
            else:
                texts = names or map(str, range(len(row)))
                line["probs"] = dict(zip(texts, row.tolist(), strict=True))
            line["calibrator"] = digest
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


WRITERS: dict[str, Callable[[Path, Iterator[Batch], str], None]] = {
    ".npz": _write_npz,
    ".parquet": _write_parquet,
    ".csv": _write_csv,
}
"""By extension. All but ``.npz``, which stores one array after the other, write each batch at once
and hold none."""
