"""The finished runs of ``experiments/trained`` as networks with validation and test sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from experiments.scoreboard.networks import Network
from experiments.trained.runs import Place, TrainedRun, finished

ByLoss = dict[str, Network]


def trained_networks(grids: Sequence[str], folder: str) -> dict[Place, ByLoss]:
    """Runs by data set and network, then by loss. Other runs in the folder are ignored."""
    return {
        place: {loss: network_of(run) for loss, run in runs.items()}
        for place, runs in finished(grids, folder).items()
    }


def network_of(run: TrainedRun) -> Network:
    """The predictions of a run, under a unique name."""
    recipe, path = run.recipe, run.folder.predictions
    name = f"{recipe.data}-{recipe.model}-{recipe.loss}-{path.parent.name[:6]}"
    return replace(Network.of(path), name=name)


def complete(found: Mapping[Place, ByLoss], losses: Sequence[str]) -> dict[Place, ByLoss]:
    """The settings in which all losses are finished, with the losses in order."""
    return {
        place: {loss: by_loss[loss] for loss in losses}
        for place, by_loss in found.items()
        if set(losses) <= set(by_loss)
    }


def said_of(place: Place) -> str:
    """A data set and a network, as in the tables."""
    return ", ".join(place)
