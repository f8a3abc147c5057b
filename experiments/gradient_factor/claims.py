"""Statements of Mukhoti et al. (2020) about the factor, each as the result of a search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import lambertw

from calibrant.focal import gamma_for_threshold, inverse_focal_map, phi

Floats = npt.NDArray[np.float64]


def gradients_apart(
    gammas: Iterable[float], *, n_classes: int, n: int, rng: np.random.Generator
) -> float:
    """Prop. 1: the focal gradient against the factor times that of cross-entropy.

    Both gradients are those of the losses as the paper writes them, by automatic differentiation.
    Returns the largest difference, relative to the largest entry of a sample's gradient.
    """
    scores = torch.tensor(rng.normal(scale=3.0, size=(n, n_classes)))
    labels = torch.tensor(rng.integers(n_classes, size=n))
    logits = scores.clone().requires_grad_()
    p = torch.softmax(logits, -1).gather(1, labels[:, None])[:, 0]
    (plain,) = torch.autograd.grad(-torch.log(p).sum(), logits, retain_graph=True)
    worst = 0.0
    for gamma in gammas:
        loss = -((1.0 - p) ** gamma) * torch.log(p)
        (focal,) = torch.autograd.grad(loss.sum(), logits, retain_graph=True)
        factor = phi(p.detach(), gamma=gamma)
        apart = (focal - factor[:, None] * plain).abs().amax(1) / plain.abs().amax(1)
        worst = max(worst, float(apart.max()))
    return worst


def closed_form(p0: Floats, branch: int) -> Floats:
    """Prop. 2: gamma by the Lambert W function, on the given branch."""
    a, b = 1.0 - p0, p0 * np.log(p0)
    return np.asarray(a / b + lambertw(argument_of_w(p0), k=branch).real / np.log(a))


def argument_of_w(p0: Floats) -> Floats:
    """The argument of W in Prop. 2; never below -1/e, where W ends."""
    a, b = 1.0 - p0, p0 * np.log(p0)
    return np.asarray(-(a ** (1.0 - a / b)) / b * np.log(a))


def not_held_back(p0s: Floats, multiples: Sequence[float], n: int) -> int:
    """Prop. 2: pairs p >= p0, gamma >= gamma* with a factor of 1 or more, but for the one at p0."""
    found = 0
    for p0 in p0s:
        for multiple in multiples:
            p = np.linspace(p0, 1.0, n)
            if multiple == 1.0:
                p = p[1:]
            found += int((phi(p, gamma=multiple * gamma_for_threshold(p0)) >= 1.0).sum())
    return found


def not_pulled_harder(p0s: Floats, n: int) -> int:
    """After Prop. 2: probabilities below p0 with a factor of 1 or less at gamma*."""
    found = 0
    for p0 in p0s:
        p = np.linspace(0.0, p0, n)[1:-1]
        found += int((phi(p, gamma=gamma_for_threshold(p0)) <= 1.0).sum())
    return found


def less_entropy(gammas: Iterable[float], n: int) -> int:
    """Fig. 7: truths for which the focal optimum has no more entropy than the truth itself."""
    p = np.linspace(0.0, 0.5, n)[1:-1]
    truth = np.stack([p, 1.0 - p], axis=-1)
    return sum(
        int((entropy(inverse_focal_map(truth, gamma=gamma)) <= entropy(truth)).sum())
        for gamma in gammas
    )


def below_the_bound(
    gammas: Iterable[float], *, n_classes: int, n: int, rng: np.random.Generator
) -> int:
    """App. H: pairs p, q whose focal loss is below cross-entropy less gamma times H(q)."""
    spread = 10.0 ** rng.uniform(-1.0, 1.0, size=(2, n, 1))  # from nearly one-hot to nearly flat
    drawn = np.maximum(rng.gamma(spread, size=(2, n, n_classes)), 1e-300)
    p, q = drawn / drawn.sum(axis=-1, keepdims=True)
    cross_entropy = -(p * np.log(q)).sum(axis=-1)
    found = 0
    for gamma in gammas:
        focal = -(p * (1.0 - q) ** gamma * np.log(q)).sum(axis=-1)
        rounding = 1e-12 * cross_entropy
        found += int((focal < cross_entropy - gamma * entropy(q) - rounding).sum())
    return found


def entropy(probs: Floats) -> Floats:
    """Entropy of each row."""
    return np.asarray(-(probs * np.log(probs)).sum(axis=-1))
