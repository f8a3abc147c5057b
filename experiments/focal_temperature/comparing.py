"""The numbers and the table of a group of networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from experiments.focal_temperature.gains import counts, gain, mean_of, over_data_sets, shown
from experiments.focal_temperature.methods import AS_IT_IS, CHANGED, FOCAL, PLAIN
from experiments.scoreboard.measuring import Result
from experiments.scoreboard.networks import Network, data_of
from experiments.scoreboard.resampling import Interval

ByMethod = Mapping[str, Sequence[Result]]
"""The results of some networks, in the same order for each method."""

HEAD = (
    "accuracy %",
    "log-loss, temperature (T)",
    "log-loss, focal temperature (gamma, T)",
    "ECE % before",
    "ECE %, temperature (T)",
    "ECE %, focal temperature (gamma, T)",
)
"""As in Table 1: log-loss with parameters selected by NLL, ECE with those selected by ECE."""


GAINS = {
    "gain in ECE of focal temperature over temperature, %": (FOCAL, "ada_ece", PLAIN, "ada_ece"),
    "gain in log-loss of focal temperature over temperature, %": (FOCAL, "nll", PLAIN, "nll"),
    "gain in ECE of choosing by ECE over NLL, focal temperature, %": (
        *(FOCAL, "ada_ece"),
        *(FOCAL, "nll"),
    ),
    "gain in ECE of choosing by ECE over NLL, temperature, %": (PLAIN, "ada_ece", PLAIN, "nll"),
    "gain in log-loss of choosing by NLL over ECE, focal temperature, %": (
        *(FOCAL, "nll"),
        *(FOCAL, "ada_ece"),
    ),
}
"""The paper's claims as gains: a method and its criterion, and those that it is compared with. The
gain is in the first criterion."""


def gains_of(results: ByMethod) -> dict[str, Interval]:
    """The paper's claims as gains, by their names."""
    return {
        name: gain(results[mine[by]], results[reference[other]], by)
        for name, (mine, by, reference, other) in GAINS.items()
    }


def values_of(results: ByMethod, data_of: Callable[[str], str] = data_of) -> dict[str, float]:
    """Means, gains with their intervals, and the number of networks with a gain.

    ``data_of`` tells the data set of a network by its name.
    """
    data = [data_of(result.network) for result in results[AS_IT_IS]]
    by_ece, by_nll = PLAIN["ada_ece"], PLAIN["nll"]
    smaller, larger = counts(results[FOCAL["ada_ece"]], results[by_ece], "ada_ece")
    floors = [result.floors["ada_ece"] for result in results[by_ece]]
    found = {
        "networks": len(results[AS_IT_IS]),
        "ECE %, as it is": 100.0 * mean_of(results[AS_IT_IS], "ada_ece"),
        "ECE %, temperature": 100.0 * mean_of(results[by_ece], "ada_ece"),
        "ECE %, focal temperature": 100.0 * mean_of(results[FOCAL["ada_ece"]], "ada_ece"),
        "ECE %, of a calibrated model": 100.0 * float(np.mean(floors)),
        "T of temperature scaling by ECE": mean_fact(results[by_ece], "temperature"),
        "T of temperature scaling by NLL": mean_fact(results[by_nll], "temperature"),
        "log-loss, temperature": mean_of(results[by_nll], "nll"),
        "log-loss, focal temperature": mean_of(results[FOCAL["nll"]], "nll"),
        "networks with a smaller ECE by focal temperature": smaller,
        "networks with a larger ECE by focal temperature": larger,
    }
    for name, each in gains_of(results).items():
        found[name] = each.value
        if each.low is not None and each.high is not None:
            found |= {f"{name}: 95% from": each.low, f"{name}: 95% to": each.high}
    for name, (mine, by, reference, other) in GAINS.items():
        low, high = over_data_sets(results[mine[by]], results[reference[other]], by, data)
        found |= {
            f"{name}: data sets resampled, from": low,
            f"{name}: data sets resampled, to": high,
        }
    return found | {"data sets": len(set(data))}


def mean_fact(results: Sequence[Result], fact: str) -> float:
    """Mean over networks of a fitted parameter."""
    return float(np.mean([result.facts[fact] for result in results]))


def changed_predictions(results: ByMethod) -> int:
    """Predictions changed by any of the methods, over all networks."""
    return sum(result.facts[CHANGED] for each in results.values() for result in each)


def accuracy(network: Network) -> float:
    """On the test set."""
    logits, labels = network.part("test")
    return float(np.mean(logits.argmax(axis=1) == labels))


def cells(network: Network, results: ByMethod) -> list[str]:
    """One network as a row of Table 1."""
    mine = {
        title: next(result for result in each if result.network == network.name)
        for title, each in results.items()
    }

    def scaled(title: str, metric: str, number: str) -> str:
        facts = mine[title].facts
        gamma = f"{facts['gamma']:g}, " if "gamma" in facts else ""
        return f"{number.format(mine[title].values[metric])} ({gamma}{facts['temperature']:.2f})"

    percent = "{:.2%}"
    row = [
        f"{100.0 * accuracy(network):.1f}",
        scaled(PLAIN["nll"], "nll", "{:.3f}"),
        scaled(FOCAL["nll"], "nll", "{:.3f}"),
        percent.format(mine[AS_IT_IS].values["ada_ece"]),
        scaled(PLAIN["ada_ece"], "ada_ece", percent),
        scaled(FOCAL["ada_ece"], "ada_ece", percent),
    ]
    return [cell.replace("%", "") for cell in row]


def said(title: str, results: ByMethod) -> str:
    """The gains of a group in one line."""
    parts = [
        f"{name.removesuffix(', %')} {shown(each)}" for name, each in gains_of(results).items()
    ]
    return f"{title} ({len(results[AS_IT_IS])} networks): {'; '.join(parts)}."
