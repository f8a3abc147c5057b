"""A network of three layers, trained by Adam with a learning rate that falls to zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from calibrant.losses import FocalLoss
from calibrant.training.models import MLP
from experiments.synthetic_posterior.data import Floats, Ints


def train(
    inputs: Floats, labels: Ints, *, gamma: float, seed: int, parameters: Mapping[str, Any]
) -> MLP:
    """Minimise the focal loss; gamma = 0 is cross-entropy."""
    torch.manual_seed(seed)
    x, y = column(inputs), torch.tensor(labels)
    network = MLP(len(parameters["means"]), n_features=1, hidden=parameters["hidden"])
    loss = FocalLoss(gamma=gamma)
    optimiser = torch.optim.Adam(network.parameters(), lr=parameters["learning_rate"])
    n_batches = len(x) // parameters["batch_size"]
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimiser, parameters["n_epochs"] * n_batches
    )
    for _ in range(parameters["n_epochs"]):
        for batch in torch.randperm(len(x)).reshape(n_batches, -1):
            optimiser.zero_grad()
            loss(network(x[batch]), y[batch]).backward()
            optimiser.step()
            schedule.step()
    return network


def logits_of(network: MLP, inputs: Floats) -> npt.NDArray[np.float64]:
    """Logits of the network, in double precision."""
    with torch.no_grad():
        return np.asarray(network(column(inputs)).double().numpy())


def column(inputs: Floats) -> Tensor:
    """One input per sample, as a column."""
    return torch.tensor(inputs[:, None], dtype=torch.float32)
