"""The papers' data sets, read from the files their authors publish.

    data = load("cifar10", "data/cifar10", random_state=1)
    inputs, targets = data.train.batch(indices)

Nothing is downloaded: the error for a missing file says where to get it, its checksum and where to
put it. This package needs PyTorch: ``pip install 'calibrant[torch]'``.
"""

from calibrant.training.datasets.base import Augment, DataSet, Split, TreeBatch
from calibrant.training.datasets.images import CropAndFlip
from calibrant.training.datasets.registry import DATASETS, load

__all__ = ["DATASETS", "Augment", "CropAndFlip", "DataSet", "Split", "TreeBatch", "load"]
