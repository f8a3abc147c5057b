"""``calibrant evaluate``: measure the calibration of the probabilities in a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from calibrant import _inputs, _thresholds
from calibrant._inputs import Groups
from calibrant._writing import refuse_unwritable, written_whole
from calibrant.cli.data_sets import DataSetOptions, data_set_options
from calibrant.cli.multilabel import evaluate_labels
from calibrant.cli.options import (
    INPUT,
    OUTPUT,
    Name,
    bins_option,
    by_option,
    json_option,
    level_option,
    plugin_option,
    seed_option,
    slices_option,
    where_option,
)
from calibrant.cli.progress import batches_bar, passes_bar
from calibrant.files import Predictions, is_multilabel, iter_predictions
from calibrant.metrics import (
    Evaluation,
    GroupedEvaluation,
    MultiLabelEvaluation,
    SliceSearch,
)
from calibrant.metrics.evaluation import evaluate_samples
from calibrant.metrics.registry import METRICS
from calibrant.metrics.samples import ScoredSamples, samples_from_scores, samples_of_confidence
from calibrant.metrics.slices import search_slices
from calibrant.metrics.streaming import StreamedEvaluation


@click.command()
@click.argument("files", type=INPUT, nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--metric",
    "metrics",
    type=Name(METRICS),
    multiple=True,
    metavar="NAME",
    help="Metric to measure instead of the default set. Repeatable. One of "
    f"{', '.join(METRICS)}, or of a plug-in.",
)
@by_option("Also measure each value of these columns, and of several columns each combination.")
@slices_option
@bins_option
@level_option
@seed_option
@json_option
@click.option(
    "--plot",
    "plot_path",
    type=OUTPUT,
    metavar="FILE",
    help="Reliability diagram to draw (.png, .svg or .pdf), for one FILE only. With --by, the gap "
    "of each group.",
)
@click.option(
    "--top-class",
    is_flag=True,
    help="For two classes, plot the confidence of the predicted class, as papers do, instead of "
    "the probability of class 1.",
)
@data_set_options
@plugin_option
@where_option
def evaluate(
    files: tuple[str, ...],
    metrics: tuple[str, ...],
    by: list[str],
    slices: list[str],
    n_bins: int,
    level: float,
    seed: int,
    as_json: bool,
    plot_path: Path | None,
    top_class: bool,
    data_set: DataSetOptions,
    columns: dict[str, Any],
) -> None:
    """Measure the calibration of the probabilities in FILE.

    FILE is a .npz, .parquet or .csv file, or a folder of .parquet files, with logits or
    probabilities and labels. FILE.npz::test reads test_logits and test_labels. One column, called
    score, y_score or prob, is the positive class. A file with only confidence and correct also
    works. Prints calibration errors with intervals, and the noise floor: the error that a
    perfectly calibrated model would show with as many samples. For two classes, measures of the
    probability of class 1 come first. The verdict names what is off: the confidence, the
    prevalence or single classes. Files larger than memory are read in parts, large folders of
    Parquet files on all cores or on a cluster. A .jsonl file is the log of a language model; if it
    leaves out options, the verdict is given at both ends of what they can be. An .npz file with
    labels of the shape of the scores is multi-label: every label is measured, and the worst come
    first.

    \b
    Examples:
      calibrant evaluate predictions.npz
      calibrant evaluate network.npz::val network.npz::test --json
      calibrant evaluate predictions.parquet --plot reliability.png
      calibrant evaluate predictions.csv --label outcome --score risk --positive yes
      calibrant evaluate predictions.csv --metric nll --metric smooth_ece
      calibrant evaluate predictions.parquet --by country,sex
      calibrant evaluate predictions.parquet --slices country,sex,age_band,device
      calibrant evaluate answers.jsonl --options A,B,C,D
      calibrant evaluate logs/ --scheduler tcp://head:8786 --skip-bad
    """
    if plot_path is not None and len(files) > 1:
        raise click.UsageError(f"--plot draws one file; found {len(files)}. Run it once for each")
    if plot_path is not None:
        refuse_unwritable(_inputs.picture_path(plot_path))
    results: dict[str, Evaluation | MultiLabelEvaluation] = {}
    searches: dict[str, SliceSearch] = {}
    for file in files:
        if is_multilabel(file):
            if metrics or by or slices or plot_path is not None:
                raise click.UsageError(
                    f"--metric, --by, --slices and --plot are for classes; {file} is multi-label. "
                    "Leave them out"
                )
            results[file] = evaluate_labels(
                file, where=columns["where"], n_bins=n_bins, level=level, seed=seed
            )
            continue
        most = _thresholds.ROWS_TO_EVALUATE_IN_MEMORY
        parts = data_set.in_parts(file, columns, rows_in_memory=most)
        notes: tuple[str, ...] = ()
        if parts is None:
            skipped = data_set.skipped()
            read = {**columns, "skipped": skipped}
            stream, samples = _read(file, n_bins, data_set, read, by, slices)
            notes = (f"{skipped}.",) if skipped else ()
        else:
            from calibrant.scale.data_set import open_data_set
            from calibrant.scale.evaluation import stream_folder

            samples, where = None, parts.pop("scheduler")
            folder = open_data_set(Path(file), keep=by, **parts)
            with passes_bar(f"evaluating {Path(file).name}") as show:
                stream, notes = stream_folder(folder, where, by, n_bins=n_bins, progress=show)
        if samples is not None:
            result = evaluate_samples(
                _by(samples, by),
                metrics=metrics or None,
                n_bins=n_bins,
                level=level,
                random_state=seed,
            )
            if slices:
                searches[file] = search_slices(_by(samples, slices), level=level, random_state=seed)
        elif metrics or slices:
            raise click.UsageError(
                f"--metric and --slices need a file that fits into memory; {file} is read in "
                "parts. Leave them out to measure the default set"
            )
        else:
            result = stream.result(level=level, random_state=seed)
        result = replace(result, notes=(*result.notes, *notes))
        if plot_path is not None:
            if samples is not None:
                stream.count(_by(samples, ()))
            _draw(plot_path, stream, level, file, top_class=top_class, by_group=result.by_group)
        results[file] = result
    if as_json:
        found = {file: each.to_dict() for file, each in results.items()}
        for file, search in searches.items():
            found[file]["slices"] = search.to_dict()
        click.echo(json.dumps(found, indent=2))
        return
    for file, each in results.items():
        click.echo(f"{file}: {each}\n")
        if file in searches:
            click.echo(f"{searches[file]}\n")
    if plot_path is not None:
        click.echo(f"Plot written to {plot_path}")


def _read(
    file: str,
    n_bins: int,
    data_set: DataSetOptions,
    columns: dict[str, Any],
    by: Sequence[str],
    slices: Sequence[str],
) -> tuple[StreamedEvaluation, ScoredSamples | None]:
    """All rows if they fit into memory, else the sums over them."""
    stream = StreamedEvaluation(n_bins=n_bins)
    held: list[ScoredSamples] | None = []
    numbers = first = 0
    keep = list(dict.fromkeys([*by, *slices]))
    rows = iter_predictions(file, batch_rows=_thresholds.BATCH_ROWS, keep=keep, **columns)
    with batches_bar(f"reading {Path(file).name}", rows, file, _thresholds.BATCH_ROWS) as batches:
        for batch in batches:
            with _inputs.naming(f"{file}, counting from row {first}"):
                samples = replace(_samples(batch), groups=batch.groups(keep))
            if samples.scores is not None:
                data_set.check_classes(file, samples.scores.shape[1])
            first += len(batch)
            numbers += samples.confidence.size if samples.scores is None else samples.scores.size
            if held is None:
                stream.count(_by(samples, by))
                continue
            held.append(samples)
            small = (
                numbers <= _thresholds.NUMBERS_TO_EVALUATE_IN_MEMORY
                and first <= _thresholds.ROWS_TO_EVALUATE_IN_MEMORY
            )
            if not small and samples.upper is None:  # for the ends, all rows are needed
                for each in held:
                    stream.count(_by(each, by))
                held = None
    return stream, None if held is None else _joined(held)


def _by(samples: ScoredSamples, columns: Sequence[str]) -> ScoredSamples:
    """The samples grouped by some of the columns that were read."""
    known = samples.groups
    return replace(samples, groups=known.only(columns) if known and columns else None)


def _samples(batch: Predictions) -> ScoredSamples:
    if batch.confidence is not None and batch.correct is not None:
        return samples_of_confidence(batch.confidence, batch.correct)
    if batch.top_logits is not None:
        _inputs.every_class_known("an evaluation of this kind of file")
    _inputs.some_labels(batch.labels)
    samples = samples_from_scores(
        batch.probs, batch.labels, logits=batch.logits, upper_logits=batch.upper_logits
    )
    return replace(samples, classes=batch.class_names)


def _joined(parts: list[ScoredSamples]) -> ScoredSamples:
    if len(parts) == 1:
        return parts[0]
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in (each.name for each in fields(ScoredSamples))
        if isinstance(getattr(parts[0], name), np.ndarray)
    }
    groups = [part.groups for part in parts if part.groups is not None]
    return replace(parts[0], **arrays, groups=Groups.joined(groups) if groups else None)


def _draw(
    path: Path,
    stream: StreamedEvaluation,
    level: float,
    file: str,
    *,
    top_class: bool,
    by_group: GroupedEvaluation | None,
) -> None:
    from calibrant.metrics.reliability import histogram_of_table, reliability_of_table
    from calibrant.plots import draw_groups, draw_reliability

    k = 1 if stream.n_classes == 2 and not top_class else None
    table = (stream.width if k is None else stream.positive_width).table()
    curve = reliability_of_table(table, binning="width", level=level, class_index=k)
    histogram = histogram_of_table(table, class_index=k)
    label = Path(file).name
    if by_group is None:
        figure = draw_reliability(curve, histogram, label=label)
    else:
        figure = draw_groups(by_group, label=label)
    with written_whole(path) as temporary:
        figure.savefig(temporary, dpi=150)
