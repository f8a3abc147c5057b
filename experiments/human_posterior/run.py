"""KL from people's votes to the outputs of networks, before and after calibration."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import minimize_scalar

from calibrant import (
    AutoCalibration,
    FocalCalibration,
    FocalTemperatureScaling,
    Identity,
    TemperatureScaling,
)
from calibrant.calibrators import CalibrationWarning, Calibrator
from calibrant.focal import focal_log_probs
from calibrant.plots.palette import GUIDE, look
from experiments.human_posterior.people import EVERY, by_agreement, divergence, vote_shares
from experiments.results import Result
from experiments.scoreboard.networks import DATA, FOLDERS, Floats, Labels, Network, of_group
from experiments.scoreboard.resampling import Interval, draws, interval, resampled_mean
from experiments.tables import Table

GROUP = "Networks of paper 1"
FAMILIES = {"FLSD-53": "c10_flsd53", "Brier": "c10_brier"}
FOCAL_TRAINED = "FLSD-53"
AS_IT_IS, MAP, AUTO = "as it is", "map", "auto"
BY_NLL = "temperature by NLL"
TEMPERATURES = (0.2, 5.0)
"""Bounds of the search for the T that is closest to the votes."""
N_BINS = 15
SURE = 0.99
SURE_IMAGES = "images above 99% confidence, %"


@dataclass(frozen=True)
class Outputs:
    """One network after one method: log-probabilities of the test images."""

    log_probs: Floats
    divergence: Floats
    """KL from the votes, by image."""
    labels: Labels
    votes: Floats
    """Share of the votes for the predicted class."""

    @property
    def rows(self) -> tuple[Any, Any]:
        """Index of the predicted class of each image."""
        return np.arange(len(self.labels)), self.log_probs.argmax(axis=1)

    @property
    def confidence(self) -> Floats:
        """Of each image."""
        return np.asarray(np.exp(self.log_probs[self.rows]))

    @property
    def means(self) -> dict[str, float]:
        """What is compared with the divergence."""
        return {
            "NLL": -float(self.log_probs[self.rows[0], self.labels].mean()),
            "mean confidence %": 100.0 * float(self.confidence.mean()),
            SURE_IMAGES: 100.0 * float((self.confidence > SURE).mean()),
            "votes for the predicted class %": 100.0 * float(self.votes.mean()),
            "accuracy %": 100.0 * float((self.rows[1] == self.labels).mean()),
        }


ByMethod = Mapping[str, Sequence[Outputs]]
"""The networks of a family, in the same order for each method."""


def methods(gamma: float) -> dict[str, Callable[[], Calibrator]]:
    """Every method by its name; all but the map are fitted on the validation images."""
    return {
        AS_IT_IS: Identity,
        MAP: partial(FocalCalibration, gamma=gamma),
        BY_NLL: TemperatureScaling,
        "temperature by ECE": partial(TemperatureScaling, criterion="ece"),
        "temperature by AdaECE": partial(TemperatureScaling, criterion="ada_ece"),
        "focal temperature by NLL": partial(FocalTemperatureScaling, criterion="nll"),
        "focal temperature by AdaECE": FocalTemperatureScaling,
        AUTO: AutoCalibration,
    }


def run(parameters: Mapping[str, Any]) -> Result:
    """The divergence of every method, by agreement of the people, and its explanation."""
    shares = vote_shares(DATA.parent / FOLDERS[GROUP])
    networks = of_group(GROUP, DATA, Path())
    families = {
        title: [network for network in networks if network.name.startswith(start)]
        for title, start in FAMILIES.items()
    }
    counts = draws(families[FOCAL_TRAINED][0].images, len(shares))
    images = by_agreement(shares, parameters["agreement"])
    outputs = {
        title: {
            name: [outputs_of(network, make(), shares) for network in members]
            for name, make in methods(parameters["gamma"]).items()
        }
        for title, members in families.items()
    }
    curves = {
        title: [mapped(network, shares, parameters["gammas"]) for network in members]
        for title, members in families.items()
    }
    labels = families[FOCAL_TRAINED][0].part("test")[1]
    of_labels = shares[np.arange(len(labels)), labels]
    values: dict[str, float] = {
        "votes for the label, mean %": 100.0 * float(of_labels.mean()),
        "images whose label has the most votes, %": 100.0
        * float((of_labels == shares.max(axis=1)).mean()),
    }
    values |= {f"images, {name}": int(chosen.sum()) for name, chosen in images.items()}
    for title, members in families.items():
        found = values_of(outputs[title], counts, images)
        best = np.mean([best_temperatures(network, shares) for network in members], axis=0)
        found |= {"T closest to the votes, test": best[0], "T of the lowest NLL, test": best[1]}
        curve = np.mean(curves[title], axis=0)
        found["gamma of the map closest to the votes"] = parameters["gammas"][curve.argmin()]
        values |= {f"{title}: {name}": value for name, value in found.items()}
    for network, after, before in zip(
        families[FOCAL_TRAINED],
        *(outputs[FOCAL_TRAINED][name] for name in (MAP, AS_IT_IS)),
        strict=True,
    ):
        change = mean_of(after.divergence - before.divergence, counts)
        values |= change.named(f"{network.name}: change of KL by the map")
    return Result(
        values=values,
        tables={
            "methods": table_of_methods(outputs, counts),
            "agreement": table_of_agreement(outputs, images, counts),
        },
        pictures={"people": draw(outputs, curves, images, parameters["gammas"])},
        notes=[
            "KL is from the shares of the votes of about 50 people for each test image to the "
            "output of a network, in nats; a class without votes adds nothing. Means over four "
            "networks of each loss.",
            "Intervals: test images are drawn anew, the same for all networks; fits are not "
            "repeated. T closest to the votes is found on the test images, to explain the others: "
            "it cannot be used without votes.",
        ],
    )


def outputs_of(network: Network, calibrator: Calibrator, shares: Floats) -> Outputs:
    """Fit on the validation part and apply to the test part."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # gamma at the end of the paper's grid
        fitted = calibrator.fit(*network.part("val"))
    logits, labels = network.part("test")
    log_probs = np.asarray(fitted.predict_log_proba(logits))
    votes = shares[np.arange(len(shares)), log_probs.argmax(axis=1)]
    return Outputs(log_probs, divergence(shares, log_probs), labels, votes)


def mapped(network: Network, shares: Floats, gammas: Sequence[float]) -> list[float]:
    """Mean KL after the map, by gamma."""
    logits, _ = network.part("test")
    return [
        float(divergence(shares, focal_log_probs(logits, gamma=gamma)).mean()) for gamma in gammas
    ]


def best_temperatures(network: Network, shares: Floats) -> tuple[float, float]:
    """The T with the lowest KL on the test images, and that with the lowest NLL there."""
    logits, labels = network.part("test")

    def at(temperature: float) -> float:
        log_probs = focal_log_probs(logits, gamma=0.0, temperature=temperature)
        return float(divergence(shares, log_probs).mean())

    found = minimize_scalar(at, bounds=TEMPERATURES, method="bounded")
    return float(found.x), TemperatureScaling().fit(logits, labels).temperature_


def mean_of(rows: Floats, counts: Floats) -> Interval:
    """Mean over images, with its interval."""
    seen = float(rows.mean())
    return interval(seen, [resampled_mean(rows, counts) - seen])


def over_networks(outputs: Sequence[Outputs]) -> Floats:
    """Mean divergence of each image over the networks."""
    return np.asarray(np.mean([each.divergence for each in outputs], axis=0))


def values_of(outputs: ByMethod, counts: Floats, images: Mapping[str, Any]) -> dict[str, float]:
    """KL of every method, its change, and what explains it."""
    before = over_networks(outputs[AS_IT_IS])
    found: dict[str, float] = {}
    for name, of in outputs.items():
        after = over_networks(of)
        found |= mean_of(after, counts).named(f"KL, {name}")
        if name != AS_IT_IS:
            found |= mean_of(after - before, counts).named(f"change of KL by {name}")
        for group, chosen in images.items():
            if group != EVERY:
                found[f"KL, {name}, {group}"] = float(after[chosen].mean())
        found[f"NLL, {name}"] = mean(of, "NLL")
    for name in (AS_IT_IS, AUTO):
        for quantity in ("mean confidence %", SURE_IMAGES):
            found[f"{quantity}, {name}"] = mean(outputs[name], quantity)
    for quantity in ("votes for the predicted class %", "accuracy %"):
        found[quantity] = mean(outputs[AS_IT_IS], quantity)
    return found


def mean(outputs: Sequence[Outputs], quantity: str) -> float:
    """Mean over networks."""
    return float(np.mean([each.means[quantity] for each in outputs]))


def table_of_methods(outputs: Mapping[str, ByMethod], counts: Floats) -> Table:
    """KL with intervals beside NLL and confidence."""
    rows = []
    for title, by_method in outputs.items():
        before = over_networks(by_method[AS_IT_IS])
        for name, of in by_method.items():
            after = over_networks(of)
            change = mean_of(after - before, counts)
            rows.append(
                [
                    title,
                    name,
                    f"{after.mean():.4f}",
                    "" if name == AS_IT_IS else shown(change),
                    *(
                        f"{mean(of, quantity):.{4 if quantity == 'NLL' else 1}f}"
                        for quantity in of[0].means
                    ),
                ]
            )
    quantities = list(next(iter(outputs.values()))[AS_IT_IS][0].means)
    head = ["trained with", "method", "KL from the votes", "change (95%)", *quantities]
    return Table("Means over four networks, CIFAR-10 test images", head, rows)


def shown(found: Interval) -> str:
    """A change with its interval."""
    return f"{found.value:+.4f} ({found.low:+.4f} to {found.high:+.4f})"


def table_of_agreement(
    outputs: Mapping[str, ByMethod], images: Mapping[str, Any], counts: Floats
) -> Table:
    """KL by the share of the votes that the most frequent class has, with half intervals."""
    rows = []
    for title, by_method in outputs.items():
        for name, of in by_method.items():
            after, row = over_networks(of), [title, name]
            for chosen in images.values():
                # Mean over the drawn images of this group.
                weights = counts[:, chosen]
                ratio = weights @ after[chosen] / weights.sum(axis=1)
                row.append(f"{after[chosen].mean():.3f} ± {1.96 * ratio.std():.3f}")
            rows.append(row)
    head = ["trained with", "method"]
    head += [f"{name} ({chosen.sum()})" for name, chosen in images.items()]
    return Table("KL by the share of the votes for the most frequent class", head, rows)


def draw(
    outputs: Mapping[str, ByMethod],
    curves: Mapping[str, Sequence[Sequence[float]]],
    images: Mapping[str, Any],
    gammas: Sequence[float],
) -> Figure:
    """Reliability against votes, KL by agreement, and KL over gamma."""
    figure = Figure(figsize=(10.5, 3.6), layout="constrained")
    reliability, agreement, gamma = figure.subplots(1, 3)
    draw_reliability(reliability, outputs[FOCAL_TRAINED])
    groups = [name for name in images if name != EVERY]
    for i, name in enumerate((AS_IT_IS, MAP, BY_NLL, AUTO)):
        after = over_networks(outputs[FOCAL_TRAINED][name])
        kl = [after[images[group]].mean() for group in groups]
        agreement.plot(groups, kl, color=look(i).color, marker=look(i).marker, label=name)
    agreement.set(yscale="log", xlabel="votes for the most frequent class", ylabel="KL")
    agreement.tick_params(axis="x", labelrotation=20)
    agreement.legend(frameon=False, fontsize="small")
    for i, (title, lines) in enumerate(curves.items()):
        for line in lines:
            gamma.plot(gammas, line, color=look(i).color, linewidth=0.8)
        gamma.plot([], [], color=look(i).color, label=f"trained with {title}")
    gamma.set(xlabel=r"$\gamma$ of the map", ylabel="KL", ylim=(0, None))
    gamma.legend(frameon=False, fontsize="small")
    return figure


def draw_reliability(ax: Axes, outputs: ByMethod) -> None:
    """Votes for the predicted class in bins of confidence, all networks together."""
    ax.plot((0, 1), (0, 1), **GUIDE)
    for i, name in enumerate((AS_IT_IS, MAP, AUTO)):
        confidence, votes, correct = (
            np.concatenate(rows)
            for rows in zip(
                *((e.confidence, e.votes, e.rows[1] == e.labels) for e in outputs[name]),
                strict=True,
            )
        )
        edges = np.array_split(np.argsort(confidence), N_BINS)
        x = [confidence[rows].mean() for rows in edges]
        ax.plot(x, [votes[rows].mean() for rows in edges], color=look(i).color,
                marker=look(i).marker, markersize=3, label=name)  # fmt: skip
        ax.plot(x, [correct[rows].mean() for rows in edges], ":", color=look(i).color)
    ax.plot([], [], "k-", label="share of the votes")
    ax.plot([], [], "k:", label="share of correct labels")
    ax.set(xlabel="confidence", ylabel="share for the predicted class", xlim=(0.4, 1.01),
           ylim=(0.4, 1.01))  # fmt: skip
    ax.legend(frameon=False, fontsize="small")
