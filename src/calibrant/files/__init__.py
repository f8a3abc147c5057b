"""Prediction files: read whole or in batches, written whole.

Formats are ``.npz``, Parquet (a file or a folder of them), CSV, and ``.jsonl`` logs of language
models. Names in the file (``logits`` or ``probs``, ``labels``) say what it holds; values are never
used to guess.
"""

from calibrant._writing import written_whole
from calibrant.files.predictions import Predictions
from calibrant.files.reading import (
    count_rows,
    is_multilabel,
    iter_predictions,
    read_predictions,
)
from calibrant.files.truncated import write_truncated_predictions
from calibrant.files.writing import write_predictions

__all__ = [
    "Predictions",
    "count_rows",
    "is_multilabel",
    "iter_predictions",
    "read_predictions",
    "write_predictions",
    "write_truncated_predictions",
    "written_whole",
]
