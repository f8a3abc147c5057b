"""The same statistics and fits for data sets larger than memory, on this machine or on a cluster.

Parquet files in, sums out: everything here is a sum over rows, computed for a bundle of rows at a
time and added up. On this machine that needs PyArrow (``pip install 'calibrant[files]'``), on a
cluster Dask too (``pip install 'calibrant[scale]'``).
"""

from calibrant.scale.application import Applied, apply
from calibrant.scale.evaluation import evaluate
from calibrant.scale.fitting import METHODS, FitOverFiles, fit
from calibrant.scale.source import Skipped

__all__ = ["METHODS", "Applied", "FitOverFiles", "Skipped", "apply", "evaluate", "fit"]
