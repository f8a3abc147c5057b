"""The networks of ``calibrant train --grid``: those whose runs are finished."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.scoreboard.networks import Network


@dataclass(frozen=True)
class Trained:
    """One finished run: its predictions, and what it was trained with."""

    network: Network
    data: str
    model: str
    loss: str
    seed: int
    epochs: int

    @property
    def setting(self) -> str:
        """Everything but the loss, as it stands in tables."""
        return f"{self.data}, {self.model}" + (f", seed {self.seed}" if self.seed else "")


def finished(folder: Path) -> list[Trained]:
    """Every run in the folder that has its result, sorted by data, model, seed and loss."""
    found = [
        _trained(path.parent)
        for path in sorted(folder.glob("*/result.json"))
        if (path.parent / "predictions.npz").exists()
    ]
    if not found:
        raise SystemExit(f"no finished runs in {folder}; train some first, as the README says")
    return sorted(found, key=lambda each: (each.data, each.model, each.seed, each.loss))


def _trained(folder: Path) -> Trained:
    recipe: dict[str, Any] = json.loads((folder / "config.json").read_text())["recipe"]
    data, model, loss, seed = (recipe[name] for name in ("data", "model", "loss", "seed"))
    name = f"{data}-{model}-{loss}-{folder.name[:6]}"
    network = replace(Network.of(folder / "predictions.npz"), name=name)
    return Trained(network, data, model, loss, int(seed), int(recipe["epochs"]))


def settings(runs: Iterable[Trained]) -> dict[str, dict[str, Trained]]:
    """The runs of each setting, by loss; of several lengths the longest."""
    found: dict[str, dict[str, Trained]] = {}
    for each in sorted(runs, key=lambda each: each.epochs):
        found.setdefault(each.setting, {})[each.loss] = each
    return dict(sorted(found.items()))


def complete(
    found: dict[str, dict[str, Trained]], losses: Sequence[str]
) -> dict[str, dict[str, Trained]]:
    """The settings in which every one of the losses is finished, with these in their order."""
    return {
        setting: {loss: by_loss[loss] for loss in losses}
        for setting, by_loss in found.items()
        if set(losses) <= set(by_loss)
    }
