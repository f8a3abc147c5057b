"""The smallest expected focal loss, found by gradient descent without the map."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from calibrant.losses import FocalLoss

Floats = npt.NDArray[np.float64]


def minimise(posteriors: Floats, gamma: float) -> Floats:
    """Logits of each row with the smallest focal loss, where labels are drawn from the row.

    A table of logits is trained as a network would be; soft targets make the loss the expected
    one. The rows do not touch each other.
    """
    truth = torch.tensor(posteriors)
    logits = torch.zeros_like(truth, requires_grad=True)
    loss = FocalLoss(gamma=gamma, reduction="sum")
    optimiser = torch.optim.LBFGS(
        [logits],
        max_iter=2000,
        history_size=50,
        tolerance_grad=1e-11,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )

    def step() -> float:
        optimiser.zero_grad()
        value = loss(logits, truth)
        value.backward()
        return float(value.detach())

    optimiser.step(step)  # type: ignore[no-untyped-call]
    return np.asarray(logits.detach().numpy())


def expected_loss(probs: Floats, posteriors: Floats, gamma: float) -> Floats:
    """Eq. 7 of the paper for the focal loss, as printed."""
    return np.asarray(-(posteriors * (1.0 - probs) ** gamma * np.log(probs)).sum(axis=-1))
