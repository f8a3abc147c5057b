"""Four clusters with flipped labels, and a logistic regression trained on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from calibrant.focal import focal_log_probs
from calibrant.losses import SigmoidFocalLoss

N_RECORDED = 100

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Clusters:
    """Normal clusters on the corners of a square; those on the right have label 1.

    Attributes:
        n_samples: In the training set, and again in the test set.
        corner: The corners are at (±corner, ±corner).
        width: Standard deviation of each cluster.
        flipped: Share of the labels that are turned round.
    """

    n_samples: int = 2000
    corner: float = 1.0
    width: float = 0.5
    flipped: float = 0.1

    def draw(self, seed: int = 0) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Points and labels to train on, and to test."""
        rng = np.random.default_rng(seed)
        return self._draw(rng), self._draw(rng)

    def _draw(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        corners = rng.choice([-1.0, 1.0], size=(self.n_samples, 2))
        points = self.corner * corners + self.width * rng.normal(size=corners.shape)
        labels = (corners[:, 0] > 0) ^ (rng.random(self.n_samples) < self.flipped)
        return torch.tensor(points), torch.tensor(labels.astype(np.int64))


NEAR = Clusters()


@dataclass(frozen=True)
class Run:
    """One loss: the path of its weights, and its outputs on the test set."""

    gamma: float
    points: Floats
    """Inputs of the test set."""
    iterations: npt.NDArray[np.int64]
    weights: Floats
    """(recorded, 2)."""
    logits: Floats
    labels: npt.NDArray[np.int64]

    @property
    def confidence(self) -> Floats:
        """Probability of the predicted class."""
        return np.asarray(1.0 / (1.0 + np.exp(-np.abs(self.logits))))

    @property
    def wrong(self) -> npt.NDArray[np.bool_]:
        """Samples whose prediction is not the label."""
        return np.asarray((self.logits > 0) != self.labels.astype(bool))

    @property
    def probs(self) -> Floats:
        """Probabilities of both classes."""
        return np.asarray(torch.softmax(self._two_logits(), -1).numpy())

    @property
    def mapped(self) -> Floats:
        """Probabilities after the focal map."""
        return np.asarray(focal_log_probs(self._two_logits(), gamma=self.gamma).exp())

    def _two_logits(self) -> Tensor:
        return torch.tensor(np.stack([np.zeros_like(self.logits), self.logits], axis=-1))


def train(gamma: float, n_iterations: int, clusters: Clusters = NEAR, step: float = 0.1) -> Run:
    """Gradient descent on all samples, from weights of 0."""
    (points, labels), (test, test_labels) = clusters.draw()
    loss = SigmoidFocalLoss(gamma=gamma)
    weights = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    kept = set(np.unique(np.geomspace(1, n_iterations, N_RECORDED).astype(int)).tolist())
    recorded = {0: np.zeros(2)}
    for i in range(1, n_iterations + 1):
        (gradient,) = torch.autograd.grad(loss(points @ weights, labels), weights)
        with torch.no_grad():
            weights -= step * gradient
        if i in kept:
            recorded[i] = weights.detach().numpy().copy()
    return Run(
        gamma,
        test.numpy(),
        np.array(list(recorded)),
        np.array(list(recorded.values())),
        (test @ weights).detach().numpy(),
        test_labels.numpy(),
    )
