"""Prediction files as the commands read them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from calibrant import _inputs
from calibrant.calibrators.data import LabelledScores, labelled_scores
from calibrant.errors import CalibrantError
from calibrant.files import Predictions, read_predictions


def read_labelled(
    file: str, *, columns: Mapping[str, Any], to_fit: bool = False, by: Sequence[str] = ()
) -> LabelledScores:
    """The checked scores and labels of a file, and the groups of its columns ``by``.

    An error message names the file.
    """
    predictions = read_predictions(file, keep=by, **columns).with_scores()
    with _inputs.naming(file):
        kind, scores = scores_of(predictions)
        _inputs.some_labels(predictions.labels)
        checked = labelled_scores(predictions.labels, to_fit=to_fit, **{kind: scores})
        return checked._replace(
            classes=predictions.class_names,
            upper_logits=predictions.upper_logits,
            groups=predictions.groups(by),
            source=predictions.source,
        )


def scores_of(predictions: Predictions) -> tuple[str, npt.NDArray[Any]]:
    """``"logits"`` or ``"probs"``, and the array."""
    if predictions.top_logits is not None:
        _inputs.every_class_known("this command, on this file,")
    _inputs.some_scores(predictions.logits, predictions.probs)
    if predictions.logits is not None:
        return "logits", predictions.logits
    assert predictions.probs is not None
    return "probs", predictions.probs


def refuse_overwriting(output: Path, *sources: str) -> None:
    """Refuse to write a file that is read, or a file in a folder that is read."""
    for source in sources:
        for path in (Path(source), Path(source.rpartition("::")[0] or source)):
            if not path.exists():
                continue
            if (output.exists() and output.samefile(path)) or (
                Path(os.path.realpath(output)).parent == path.resolve()
            ):
                raise CalibrantError(
                    f"{output} is read as {source}, so it cannot be written. Choose another name"
                )
