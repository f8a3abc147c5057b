"""The papers' data sets, read from the files their makers publish.

    data = load("cifar10", "data/cifar10", seed=1)
    inputs, targets = data.train.batch(indices)

Nothing is downloaded: a missing file says where it is to be had, how to know it, and where to put
it. This package needs PyTorch: ``pip install 'calibrant[torch]'``.
"""

from calibrant.training.datasets.base import Augment, DataSet, Part, TreeBatch
from calibrant.training.datasets.images import CropAndFlip
from calibrant.training.datasets.registry import DATASETS, load

__all__ = ["DATASETS", "Augment", "CropAndFlip", "DataSet", "Part", "TreeBatch", "load"]
