"""Class shares by EM: coverage under label shift, refusals under covariate shift."""

from __future__ import annotations

import argparse

import click
import numpy as np
import numpy.typing as npt

import calibrant

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SHARES: dict[str, tuple[Floats, Floats]] = {
    "2, balanced to 80:20": (np.array([0.5, 0.5]), np.array([0.8, 0.2])),
    "2, 10% to 30%": (np.array([0.9, 0.1]), np.array([0.7, 0.3])),
    "2, 10% to 2%": (np.array([0.9, 0.1]), np.array([0.98, 0.02])),
    "3": (np.array([0.4, 0.3, 0.3]), np.array([0.1, 0.2, 0.7])),
    "10": (np.full(10, 0.1), np.array([0.3, 0.2, 0.1, *[0.4 / 7] * 7])),
}
"""Shares of labelled and of unlabelled samples, by number of classes."""
SEPARATION = {2: 1.0, 3: 1.0, 10: 1.5}
"""Distance of the means of the classes, in units that give accuracies of 75 to 90%."""
SCALE = 2.0
"""The model is over-confident: its logits are the true ones times this."""
COVARIATE_SHIFTS = ("hard", "easy", "mean", "spread", "region")
POOL = 20
"""Samples drawn for each one kept, where a shift selects samples."""


def means(n_classes: int) -> Floats:
    """The mean of the features of each class."""
    corners = np.array([[-1.0], [1.0]]) if n_classes == 2 else np.sqrt(2.0) * np.eye(n_classes)
    return np.asarray(SEPARATION[n_classes] * corners)


def draw(rng: np.random.Generator, n: int, shares: Floats) -> tuple[Floats, Ints]:
    """Normally distributed features around the mean of the class, and labels."""
    labels = rng.choice(len(shares), size=n, p=shares)
    centre = means(len(shares))
    return centre[labels] + rng.normal(size=(n, centre.shape[1])), np.asarray(labels)


def logits_of(features: Floats, shares: Floats) -> Floats:
    """Logits of an over-confident model, trained where classes have these shares."""
    centre = means(len(shares))
    exact = features @ centre.T - 0.5 * (centre**2).sum(axis=1) + np.log(shares)
    return np.asarray(SCALE * exact)


def shifted(rng: np.random.Generator, n: int, shares: Floats, shift: str) -> Floats:
    """Features under a covariate shift, by which the probabilities of a sample do not change.

    - hard, easy: the less, or more, confident half of the samples is twice as frequent;
    - mean: the first feature is larger by half a standard deviation of its noise;
    - spread: deviations from the mean of all samples are larger by a fifth;
    - region: samples whose first feature is in the middle third are twice as frequent.
    """
    features, _ = draw(rng, POOL * n, shares)
    if shift == "mean":
        return np.asarray(features[:n] + 0.5 * (np.arange(features.shape[1]) == 0))
    if shift == "spread":
        centre = features.mean(axis=0)
        return np.asarray(centre + 1.2 * (features[:n] - centre))
    if shift == "region":
        low, high = np.quantile(features[:, 0], [1 / 3, 2 / 3])
        more = (features[:, 0] > low) & (features[:, 0] < high)
    else:
        logits = logits_of(features, shares)
        probs = np.exp(logits - logits.max(axis=1, keepdims=True))
        confidence = 1.0 / probs.sum(axis=1)
        more = (confidence > np.median(confidence)) == (shift == "easy")
    weight = 1.0 + more
    chosen = rng.choice(len(features), size=n, replace=False, p=weight / weight.sum())
    return np.asarray(features[chosen])


def estimates(
    name: str, n: int, n_labelled: int, runs: int, shift: str | None
) -> tuple[Floats, float]:
    """Coverage of each share, and how often the test refuses."""
    source, target = SHARES[name]
    covered, refused = np.zeros(len(source)), 0
    with click.progressbar(range(runs), label=f"{name}, {shift or 'label shift'}") as seeds:
        for seed in seeds:
            rng = np.random.default_rng(seed)
            known, labels = draw(rng, n_labelled, source)
            new = draw(rng, n, target)[0] if shift is None else shifted(rng, n, source, shift)
            found = calibrant.estimate_prevalence(
                logits=logits_of(known, source), labels=labels, unlabelled=logits_of(new, source)
            )
            covered += (found.low <= target) & (target <= found.high)
            refused += not found.is_label_shift
    return covered / runs, refused / runs


def main(argv: list[str] | None = None) -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--n", type=int, default=5000, help="unlabelled samples")
    parser.add_argument("--labelled", type=int, default=5000, help="labelled samples")
    parser.add_argument("--covariate", action="store_true", help="covariate shift")
    arguments = parser.parse_args(argv)
    sizes = arguments.n, arguments.labelled, arguments.runs
    for name in SHARES:
        if arguments.covariate:
            for shift in COVARIATE_SHIFTS:
                print(f"{name:<24}{shift:<10}{estimates(name, *sizes, shift)[1]:>7.1%} refused")
            continue
        covered, refused = estimates(name, *sizes, None)
        share = f"{covered.mean():.1%} ({covered.min():.1%} to {covered.max():.1%})"
        print(f"{name:<24}coverage {share}, {refused:.1%} refused")


if __name__ == "__main__":
    main()
