"""Evaluate, fit and apply on Parquet files larger than memory, on this machine or a cluster.

Everything here is a sum over rows, computed for one bundle of rows at a time and added up. On this
machine that needs PyArrow (``pip install 'calibrant[files]'``), on a cluster Dask too
(``pip install 'calibrant[scale]'``).
"""

from calibrant._inputs.skipped import Skipped
from calibrant.scale.application import Applied, apply
from calibrant.scale.evaluation import evaluate
from calibrant.scale.fitting import METHODS, fit

__all__ = ["METHODS", "Applied", "Skipped", "apply", "evaluate", "fit"]
