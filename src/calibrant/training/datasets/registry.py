"""The data sets by name."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from calibrant import _inputs
from calibrant._registry import Registry
from calibrant._types import RandomState
from calibrant.training.datasets.base import DataSet
from calibrant.training.datasets.cifar import read_cifar
from calibrant.training.datasets.digits import read_digits
from calibrant.training.datasets.idx import read_mnist
from calibrant.training.datasets.newsgroups import read_newsgroups
from calibrant.training.datasets.pictures import read_cifar10_jpeg, read_tiny_imagenet
from calibrant.training.datasets.sst import read_sst_binary, read_sst_fine
from calibrant.training.datasets.svhn import read_svhn, read_svhn_subset
from calibrant.training.datasets.tabular import read_tabular

DATASETS: Registry[Callable[..., DataSet]] = Registry(
    "name",
    {
        "cifar10": partial(read_cifar, "cifar10"),
        "cifar100": partial(read_cifar, "cifar100"),
        "cifar10-jpeg": read_cifar10_jpeg,
        "svhn": read_svhn,
        "svhn-subset": read_svhn_subset,
        "tinyimagenet": read_tiny_imagenet,
        "mnist": partial(read_mnist, "mnist"),
        "fashion-mnist": partial(read_mnist, "fashion-mnist"),
        "20newsgroups": read_newsgroups,
        "sst-binary": read_sst_binary,
        "sst-fine": read_sst_fine,
        "tabular": read_tabular,
        "digits": read_digits,
    },
)
"""Name -> its reader, ``reader(folder, *, seed, limit, **options)``.

The record that a reader makes is without the name, seed, limit and sizes.
"""


def load(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    random_state: RandomState = 0,
    limit: int | None = None,
    **options: Any,
) -> DataSet:
    """Read a data set from the files its authors publish, in the papers' splits.

    The same files, seed, limit and options give the same data set on every machine.

    Args:
        name: One of ``DATASETS``.
        folder: Folder with the files, or the file itself if there is only one; ``digits`` needs
            none.
        random_state: Seed, ``numpy.random.Generator`` or None. It decides which items are held out
            and the order of the training split; the record keeps the seed.
        limit: Number of training items to keep, the first in the seed's order; None keeps all.
        options: Other options of this data set; see its reader.

    Returns:
        DataSet: the three splits and their record.

    Examples:
        >>> import torch
        >>> from calibrant.training.datasets import load
        >>> digits = load("digits", random_state=3, limit=500)
        >>> digits
        DataSet(digits: 500 train, 360 val, 359 test, 10 classes)
        >>> inputs, targets = digits.train.batch(torch.arange(128))
        >>> inputs.shape, inputs.dtype, targets.dtype
        (torch.Size([128, 1, 8, 8]), torch.float32, torch.int64)
        >>> load("cifar", "data")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        calibrant.errors.UnknownNameError: name must be one of ... Did you mean 'cifar10'?
    """
    reader = DATASETS[name]
    seed = _inputs.seed_of(random_state)
    if limit is not None:
        limit = _inputs.whole_number(limit, "limit", allowed=range(1, 2**62))
    known = [name for name in inspect.signature(reader).parameters if name not in _COMMON]
    for option in options:
        _inputs.parameter(option, f"the data set {name}", known, kind="option")
    data = reader(folder, seed=seed, limit=limit, **options)
    sizes = {"train": len(data.train), "val": len(data.val), "test": len(data.test)}
    common = {"name": data.name, "seed": seed, "limit": limit, "sizes": sizes}
    return replace(data, record=common | data.record)


_COMMON = ("name", "folder", "seed", "limit")
