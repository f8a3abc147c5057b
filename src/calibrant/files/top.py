"""Files of the largest logits of each row, as servers of language models log them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import _inputs
from calibrant._types import Array
from calibrant._writing import written_whole
from calibrant.errors import CalibrantError
from calibrant.files.columns import arrow
from calibrant.files.parquet import N_CLASSES
from calibrant.files.writing import PARQUET_OPTIONS, ROW_GROUP, checked_ids


def write_top_predictions(
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

    The values of rows are looked at when they are used: by :func:`calibrant.scale.fit`, say.

    Args:
        path: ends in ``.parquet``; an existing file is replaced whole.
        top_classes: (N, k) class indices of the largest scores, in any order.
        n_classes: how many classes there are in all.
        top_logits: (N, k) logits, which need a ``normaliser``.
        normaliser: (N,) log of the sum of e^logit over all classes.
        top_logprobs: (N, k) log-probabilities, in place of these two.
        labels: (N,) class indices.
        label_logits: (N,) the logit (or log-probability) of each label; NaN where the label is
            among ``top_classes`` will do.
        ids: (N,) whole numbers or strings naming the rows.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> from calibrant.files import read_predictions, write_top_predictions
        >>> file = tempfile.mkdtemp() + "/tokens.parquet"
        >>> top = {"top_logprobs": np.log([[0.6, 0.2]]), "top_classes": [[17, 4]]}
        >>> write_top_predictions(file, **top, n_classes=50_000, labels=[4])
        >>> read_predictions(file).n_classes
        50000
    """
    target = check_parquet_name(_inputs.path(path, "the output"))
    kind, scores = _inputs.one_of(top_logits=top_logits, top_logprobs=top_logprobs)
    n_classes = _inputs.whole_number(n_classes, "n_classes", allowed=range(2, 1 << 31))
    check_normaliser_of(kind, normaliser)
    given = _inputs.truncated_arrays(
        scores, top_classes, labels, normaliser, label_logits, n_classes
    )
    columns = {
        "id": None if ids is None else checked_ids(ids, len(given.logits)),
        "label": None if labels is None else _inputs.as_numpy(labels),
        "normaliser": None if normaliser is None else _inputs.as_numpy(normaliser),
        f"label_{kind.removeprefix('top_').removesuffix('s')}": None
        if label_logits is None
        else _inputs.as_numpy(label_logits),
    }
    table = top_table(kind, _inputs.as_numpy(scores), given.classes, columns, n_classes)
    with written_whole(target) as temporary:
        arrow("writing").parquet.write_table(
            table, temporary, row_group_size=ROW_GROUP, **PARQUET_OPTIONS
        )


def top_table(
    kind: str,
    scores: NDArray[Any],
    classes: NDArray[np.int64],
    others: dict[str, NDArray[Any] | None],
    n_classes: int,
) -> Any:
    """The columns of a file; of ``others`` those that are there."""
    given = {name: values for name, values in others.items() if values is not None}
    lists = {kind: scores, "top_classes": classes.astype(np.int32)}
    table = arrow("writing").table(given | {name: _lists(each) for name, each in lists.items()})
    return table.replace_schema_metadata({N_CLASSES: str(n_classes)})


def _lists(array: NDArray[Any]) -> Any:
    flat = arrow("writing").array(np.ascontiguousarray(array).reshape(-1))
    return arrow("writing").FixedSizeListArray.from_arrays(flat, array.shape[1])


def check_parquet_name(path: Path) -> Path:
    """A file name that ends in .parquet."""
    if path.suffix.lower() != ".parquet":
        raise CalibrantError(
            f"rows of the largest logits are written as .parquet; found {str(path)!r}. Rename it"
        )
    return path


def check_normaliser_of(kind: str, normaliser: Any) -> None:
    """A normaliser with logits, and none with log-probabilities."""
    if (kind == "top_logits") == (normaliser is None):
        raise CalibrantError(
            "top_logits need a normaliser, the log of the sum of e^logit over all classes, and "
            f"top_logprobs have none; found {kind} with{'out' if normaliser is None else ''} one. "
            "Pass one of the two"
        )
