"""Values of made-up results, for the judges of the papers' claims."""

from __future__ import annotations

from experiments.claims import CLAIMS

JUDGES = {claim.says: claim.judge for claim in CLAIMS}
DATA = ("cifar10-jpeg", "svhn-subset")
PLACES = [f"data {i}, network" for i in range(8)]
FIT = dict.fromkeys(PLACES, 1.0)


def training_errors(errors, *losses, epoch=""):
    """A training error for each network, the same with each loss."""
    return {
        f"{place}, {loss}: training error %{epoch}": error
        for place, error in errors.items()
        for loss in losses
    }


def between(name, low, high):
    """A published value with its interval."""
    return {name: (low + high) / 2, f"{name}, low": low, f"{name}, high": high}


def gains(family, name, images, data=None):
    """A gain with the intervals of resampled images and data sets."""
    values = {f"{family}: networks": 20, f"{family}: {name}": sum(images) / 2}
    for of, ends in (("95%", images), ("data sets resampled,", data or images)):
        values |= {f"{family}: {name}: {of} from": ends[0], f"{family}: {name}: {of} to": ends[1]}
    return values


GAIN = "gain in ECE of focal temperature over temperature, %"
