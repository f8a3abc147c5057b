"""A first look at rows of logits, in one pass: whether they can be used, and which are right."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant._compiled import index_of, max_of, over_rows


@over_rows
def all_usable(logits: Any, labels: Any, right: Any) -> bool:
    """Whether no row has what a fit refuses; ``right``: whether its largest logit is its label's.

    Refused are NaN, +inf, a row or a label of -inf, and a label that is no class. What is wrong
    with which row is for the checks to say.
    """
    usable = True
    n_classes = logits.shape[1]
    for i in range(len(logits)):
        row = logits[i]
        top = max_of(row)
        label = labels[i]
        right[i] = index_of(row, top) == label
        # Written so that NaN fails it.
        if not (abs(top) < np.inf and 0 <= label < n_classes and row[label] > -np.inf):
            usable = False
    return usable
