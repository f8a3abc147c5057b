"""Files of predictions: reading them whole or in batches, and writing whole files only.

``.npz``, Parquet (a file or a folder of them) and CSV. Which numbers a file holds is read from
the names in it (``logits`` or ``probs``, ``labels``) and never guessed from their values.
"""

from calibrant._writing import written_whole
from calibrant.files.predictions import Predictions
from calibrant.files.reading import count_rows, iter_predictions, read_predictions
from calibrant.files.truncated import write_truncated_predictions
from calibrant.files.writing import write_predictions

__all__ = [
    "Predictions",
    "count_rows",
    "iter_predictions",
    "read_predictions",
    "write_predictions",
    "write_truncated_predictions",
    "written_whole",
]
