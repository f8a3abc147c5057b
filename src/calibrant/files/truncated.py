"""Files of truncated rows: the largest logits of each row, as language model servers log them."""

from __future__ import annotations

import os

from calibrant import _inputs
from calibrant._types import Array
from calibrant._writing import written_whole
from calibrant.errors import CalibrantError
from calibrant.files.parquet.tables import truncated_table, write_tables
from calibrant.files.writing import checked_ids


def write_truncated_predictions(
    path: str | os.PathLike[str],
    *,
    top_classes: Array,
    n_classes: int,
    top_logits: Array | None = None,
    normaliser: Array | None = None,
    top_logprobs: Array | None = None,
    labels: Array | None = None,
    label_logits: Array | None = None,
    ids: Array | None = None,
) -> None:
    """Write the largest logits, or log-probabilities, of each row as Parquet.

    Values are checked when they are used, for example by :func:`calibrant.scale.fit`.

    Args:
        path: ends in ``.parquet``; overwritten if it exists.
        top_classes: (N, k) class indices of the largest scores, in any order.
        n_classes: number of classes.
        top_logits: (N, k) logits, which need a ``normaliser``.
        normaliser: (N,) log of the sum of e^logit over all classes.
        top_logprobs: (N, k) log-probabilities, instead of these two.
        labels: (N,) class indices.
        label_logits: (N,) the logit (or log-probability) of each label; may be NaN where the label
            is among ``top_classes``.
        ids: (N,) integers or strings that name the rows.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> from calibrant.files import read_predictions, write_truncated_predictions
        >>> file = tempfile.mkdtemp() + "/tokens.parquet"
        >>> largest = {"top_logprobs": np.log([[0.6, 0.2]]), "top_classes": [[17, 4]]}
        >>> write_truncated_predictions(file, **largest, n_classes=50_000, labels=[4])
        >>> read_predictions(file).n_classes
        50000
    """
    target = _inputs.path(path, "the output")
    if target.suffix.lower() != ".parquet":
        raise CalibrantError(
            f"truncated rows are written as .parquet; got {str(target)!r}. Rename it"
        )
    kind, scores = _inputs.one_of(top_logits=top_logits, top_logprobs=top_logprobs)
    n_classes = _inputs.whole_number(n_classes, "n_classes", allowed=range(2, 1 << 31))
    if (kind == "top_logits") == (normaliser is None):
        raise CalibrantError(
            "top_logits need a normaliser, the log of the sum of e^logit over all classes, and "
            f"top_logprobs have none; got {kind} with{'out' if normaliser is None else ''} one. "
            "Pass either top_logits and normaliser, or top_logprobs"
        )
    given = _inputs.truncated_arrays(
        scores, top_classes, labels, normaliser, label_logits, n_classes
    )
    label_column = f"label_{kind.removeprefix('top_').removesuffix('s')}"
    others = {"label": labels, "normaliser": normaliser, label_column: label_logits}
    columns = {
        "id": None if ids is None else checked_ids(ids, len(given.logits)),
        **{name: None if each is None else _inputs.as_numpy(each) for name, each in others.items()},
    }
    table = truncated_table(kind, _inputs.as_numpy(scores), given.classes, columns, n_classes)
    with written_whole(target) as temporary:
        write_tables(temporary, [table])
