"""AdaECE by the authors' bins."""

from __future__ import annotations

import numpy as np

from experiments.loss_tables.measuring import top
from experiments.trained.runs import Floats, Labels

N_BINS = 15


def published_ada_ece(*, logits: Floats, labels: Labels, drop_least: bool = True) -> float:
    """AdaECE by the bins of the authors' code (torrvision/focal_calibration), if none are tied.

    Their edges are the sorted confidences at the ranks 0, n/15, ..., n, counted from 0 and
    interpolated, the last one at rank n - 1. A bin holds what is above its lower edge and not above
    its upper one. So bin i ends with rank floor(i n/15), and the least confident sample, which is
    the lowest edge, is in no bin.

    Args:
        logits: (n, K), with n above 15.
        labels: (n,).
        drop_least: Leave out the least confident sample, as their code does.
    """
    confidence = top(logits)
    gap = (logits.argmax(axis=1) == labels) - confidence
    n = len(gap)
    starts = np.arange(N_BINS) * n // N_BINS + 1
    if not drop_least:
        starts[0] = 0
    sums = np.add.reduceat(gap[np.argsort(confidence)], starts)
    return float(np.abs(sums).sum() / n)
