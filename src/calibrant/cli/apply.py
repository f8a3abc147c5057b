"""``calibrant apply``: calibrated probabilities for the predictions in a file."""

from __future__ import annotations

import shutil
import sys
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
from calibrant.calibrators import Calibrator, load
from calibrant.calibrators.data import row_blocks
from calibrant.cli.data_sets import (
    IN_PROCESS,
    classes_option,
    passes_bar,
    refuse_other_number,
    scheduler_argument,
    scheduler_of,
    scheduler_option,
    skip_bad_option,
)
from calibrant.cli.fit import refuse_overwriting, scores_of
from calibrant.cli.paths import INPUT, OUTPUT
from calibrant.errors import CalibrantError
from calibrant.files import (
    Predictions,
    count_rows,
    iter_predictions,
    write_predictions,
)
from calibrant.files.columns import arrow
from calibrant.files.parquet import is_truncated
from calibrant.files.parquet.tables import score_table, write_tables

BATCH_ROWS = 65_536
BATCH_NUMBERS = 1 << 23
"""Rows, and numbers in them, that are calibrated at a time."""

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
    help="The probabilities: .npz, .parquet or .csv; a file that is there is replaced. Of a folder "
    "also a new folder, with a file for each.",
)
@scheduler_option
@skip_bad_option
@classes_option
def apply(
    calibrator_path: str,
    file: str,
    output: Path,
    scheduler: str | None,
    skip_bad: bool,
    classes: int | None,
) -> None:
    """Write calibrated probabilities for the predictions in FILE.

    CALIBRATOR is what `calibrant fit` wrote. FILE is .npz, .parquet (or a folder of them) or .csv
    with the logits, or the probabilities, of the same model; labels are not needed. Labels, ids and
    class names that are there are kept. Where OUT is .parquet or .csv, files larger than memory
    will do.

    \b
    Examples:
      calibrant apply cal.json network.npz::test -o calibrated.npz
      calibrant apply cal.json new.parquet -o calibrated.parquet
      calibrant apply cal.json logs/ -o calibrated/ --scheduler local
    """
    truncated = is_truncated(Path(file))
    to_folder = scheduler is not None or skip_bad or truncated
    if not output.suffix and (to_folder or Path(file).is_dir()):
        from calibrant import scale

        alone = _thresholds.ROWS_IN_ONE_PROCESS
        where = scheduler_of(file, scheduler, skip_bad=skip_bad, rows_in_memory=alone)
        with passes_bar(f"calibrating {Path(file).name}") as show:
            applied = scale.apply(
                load(calibrator_path),
                file,
                output,
                scheduler=scheduler_argument(where or IN_PROCESS),
                skip_bad=skip_bad,
                n_classes=classes,
                progress=show,
            )
        click.echo(f"{applied} Written to {output}")
        return
    if to_folder:
        what = "truncated rows" if truncated else "--scheduler and --skip-bad"
        raise CalibrantError(
            f"{what} write a folder; found the output {str(output)!r}. "
            "Name a folder that is not there yet, without an ending"
        )
    write = WRITERS.get(output.suffix.lower())
    if write is None:
        raise CalibrantError(
            f"the output must end in {', '.join(WRITERS)}; found {str(output)!r}. Rename it"
        )
    if write is not _write_npz:
        arrow("writing")  # now, and not after the first rows
    calibrator = load(calibrator_path)
    refuse_other_number(calibrator_path, calibrator.n_classes_, classes)
    refuse_overwriting(output, calibrator_path, file)
    batch_rows = max(1, min(BATCH_ROWS, BATCH_NUMBERS // calibrator.n_classes_))
    rows = count_rows(file)
    tally = _Tally()
    with (
        written_whole(output) as temporary,
        click.progressbar(
            iter_predictions(file, batch_rows=batch_rows),
            length=None if rows is None else -(-rows // batch_rows),
            label=f"calibrating {Path(file).name}",
            file=sys.stderr,
            hidden=not sys.stderr.isatty(),
        ) as batches,
    ):
        write(temporary, _calibrated(calibrator, batches, file, tally))
    changed = f", {tally.changed} predicted classes changed" if tally.changed else ""
    click.echo(
        f"{tally.rows} rows of {calibrator.n_classes_} classes calibrated by {calibrator.NAME}: "
        f"mean confidence {tally.before / tally.rows:.2%} before, "
        f"{tally.after / tally.rows:.2%} after{changed}. Written to {output}"
    )
    if tally.class_names and output.suffix.lower() == ".csv":
        click.echo("The class names are left out: CSV has no place for them.")


@dataclass
class _Tally:
    """What is counted on the way."""

    rows: int = 0
    before: float = 0.0
    after: float = 0.0
    changed: int = 0
    class_names: bool = False

    def count(self, kind: str, scores: npt.NDArray[Any], probs: npt.NDArray[Any]) -> None:
        self.rows += len(probs)
        self.before += float(_confidence(kind, scores).sum(dtype=np.float64))
        self.after += float(probs.max(axis=1).sum(dtype=np.float64))
        self.changed += int((scores.argmax(axis=1) != probs.argmax(axis=1)).sum())


def _calibrated(
    calibrator: Calibrator, batches: Iterable[Predictions], file: str, tally: _Tally
) -> Iterator[Batch]:
    for batch in batches:
        with _inputs.naming(f"{file}, counting from row {tally.rows}" if tally.rows else file):
            kind, scores = scores_of(batch)
            probs = calibrator.predict_proba(**{kind: scores})
            labels = None if batch.labels is None else _inputs.labels(batch.labels, probs)
        tally.count(kind, scores, probs)
        tally.class_names = batch.class_names is not None
        yield {
            "probs": probs,
            "labels": labels,
            "ids": batch.ids,
            "class_names": batch.class_names,
        }


def _confidence(kind: str, scores: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Largest probability of each row as it came in."""
    if kind == "probs":
        return np.asarray(scores.max(axis=1))
    wide = _inputs.logits(scores)
    with np.errstate(over="ignore"):  # a class that far below the top has no probability
        parts = [split_top(wide[block]).log_top[:, 0] for block in row_blocks(*wide.shape)]
    return np.asarray(np.exp(np.concatenate(parts)))


def _write_npz(target: Path, batches: Iterator[Batch]) -> None:
    held = list(batches)
    joined = {
        field: None if held[0][field] is None else np.concatenate([part[field] for part in held])
        for field in ("probs", "labels", "ids")
    }
    write_predictions(target, **joined, class_names=held[0]["class_names"])


def _write_csv(target: Path, batches: Iterator[Batch]) -> None:
    with target.open("wb") as whole:
        for number, batch in enumerate(batches):
            with _part(target, {**batch, "class_names": None}).open("rb") as part:
                if number > 0:
                    part.readline()  # the header is there already
                shutil.copyfileobj(part, whole)


def _write_parquet(target: Path, batches: Iterator[Batch]) -> None:
    write_tables(target, (score_table(batch.pop("probs"), **batch) for batch in batches))


def _part(target: Path, batch: Batch) -> Path:
    """A batch as a file of its own, in the private folder that ``target`` is being written in."""
    part = target.with_name(f"part-{target.name}")
    write_predictions(part, **batch)
    return part


WRITERS: dict[str, Callable[[Path, Iterator[Batch]], None]] = {
    ".npz": _write_npz,
    ".parquet": _write_parquet,
    ".csv": _write_csv,
}
"""By the ending of the output. All but ``.npz``, whose arrays stand one after the other, write what
they are given at once and hold nothing."""
