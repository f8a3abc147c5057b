"""The same statistics and fits for data sets that no memory holds, in one process or on a cluster.

Parquet files in, sums out: everything here is a sum over rows, computed for a bundle of rows at a
time and added up. ``pip install 'calibrant[scale]'`` brings Dask and PyArrow.
"""

from calibrant.scale.application import Applied, apply
from calibrant.scale.evaluation import evaluate
from calibrant.scale.fitting import METHODS, FitOverFiles, fit
from calibrant.scale.source import Skipped

__all__ = ["METHODS", "Applied", "FitOverFiles", "Skipped", "apply", "evaluate", "fit"]
