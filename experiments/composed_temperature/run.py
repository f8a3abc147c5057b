"""T of a focal-trained network against T of cross-entropy times the map's closest temperature."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from calibrant import TemperatureScaling
from calibrant.focal import closest_temperature
from calibrant.plots.palette import GUIDE, look
from experiments.catalogue import NothingToReadError
from experiments.dynamics.networks import networks as networks_with_seeds, pairs as with_same_seed
from experiments.focal_temperature.paper import Row, table_1
from experiments.focal_temperature_trained.networks import network_of
from experiments.results import Result
from experiments.scoreboard.networks import Network
from experiments.scoreboard.resampling import Interval
from experiments.tables import Table
from experiments.temperature_line.closest import closest_after
from experiments.trained.runs import Place

PLAIN_LOSS = "ce"
FOCAL_PREFIX = "fl-"
"""Prefix of losses with one gamma for all samples; the gamma follows."""
BY_OWN, BY_SIMPLEX = attrgetter("by_own"), attrgetter("by_simplex")
"""The ratios of a pair."""
ENOUGH = 3
"""Smallest number of networks or data sets for an interval; two would give a useless one."""


@dataclass(frozen=True)
class Pair:
    """A network trained with cross-entropy and one trained with a focal loss, all else equal.

    Attributes:
        data: The data set.
        network: The architecture; with ``data``, it names what is independent of other pairs.
        gamma: Of the focal loss.
        plain: T of the network trained with cross-entropy, by NLL.
        focal: T of the network trained with the focal loss, by NLL.
        simplex: T closest to the map over the whole simplex, for a few classes.
        own: T closest to the map over the outputs of the focal-trained network; None where these
            are not to be had.
        source: The losses or the paper, if the table has to tell.
    """

    data: str
    network: str
    gamma: float
    plain: float
    focal: float
    simplex: float
    own: float | None = None
    source: str = ""

    @property
    def where(self) -> str:
        """Data, network and source, as in the tables."""
        return ", ".join(part for part in (self.data, self.network, self.source) if part)

    @property
    def by_simplex(self) -> float:
        """Found over composed, with the map's T of the simplex."""
        return self.focal / (self.plain * self.simplex)

    @property
    def by_own(self) -> float:
        """Found over composed, with the map's T on the network's own outputs."""
        assert self.own is not None
        return self.focal / (self.plain * self.own)


def run(parameters: Mapping[str, Any]) -> Result:
    """Compare the product with what is found, on networks trained here and in Table 1."""
    networks, unfinished = networks_with_seeds(parameters)
    trained = [
        pair_of(
            place, gamma_of(loss), network_of(plain), network_of(focal), parameters["n_classes"]
        )
        for place, by_loss in networks.items()
        for loss in by_loss
        if loss.startswith(FOCAL_PREFIX)
        for plain, focal in with_same_seed(by_loss, PLAIN_LOSS, loss)
    ]
    if not trained:
        raise NothingToReadError(
            f"{parameters['folder']} must hold runs of {PLAIN_LOSS} and of {FOCAL_PREFIX}... on "
            "the same data; found no such pair. Make them with: python -m experiments trained"
        )
    printed = list(pairs_of_the_paper(table_1(), parameters["n_classes"]))
    values: dict[str, float] = {
        "pairs trained here": len(trained),
        "networks trained here": len({(pair.data, pair.network) for pair in trained}),
        "data sets trained here": len({pair.data for pair in trained}),
        "pairs of Table 1": len(printed),
    }
    for gamma in parameters["gammas"]:
        map_t = closest_temperature(gamma=gamma, n_classes=parameters["n_classes"])
        values[f"T of the map on the simplex, gamma = {gamma:g}"] = map_t
    plain = [pair.plain for pair in printed]
    values |= {
        "smallest T of cross-entropy in Table 1": min(plain),
        "largest T of cross-entropy in Table 1": max(plain),
    }
    values |= found_over_composed("trained here, map's T on own outputs", trained, BY_OWN)
    values |= found_over_composed("trained here, map's T on the simplex", trained, BY_SIMPLEX)
    values |= found_over_composed(
        "temperatures of Table 1, map's T on the simplex", printed, BY_SIMPLEX
    )
    values |= {
        f"typical factor off, trained here, {name}": value
        for name, value in off_by(trained).items()
    }
    return Result(
        values=values,
        tables={"pairs": table([*trained, *printed])},
        pictures={"pairs": draw(trained, printed)},
        notes=[
            "Composed: T of the network trained with cross-entropy times the temperature that is "
            "closest to the map. All T by NLL on the validation set; ratios are geometric means "
            "over networks, in which the pairs of a network count as one, and over data sets, in "
            f"which its networks do; from {ENOUGH} on with 95% intervals by Student's t.",
            "Of texts the runs of the paper's length, of images those that ResNet-8 fits, in place "
            "of the short ones; five seeds on SST.",
            f"The map's T on the simplex is that of {parameters['n_classes']} classes, or fewer "
            "where there are fewer: more are not computed. Own outputs: those of the focal-trained "
            "network on its validation set.",
        ],
        unfinished=unfinished,
    )


def gamma_of(loss: str) -> float:
    """Gamma of a loss with one gamma for all samples."""
    return float(loss.removeprefix(FOCAL_PREFIX))


def pair_of(place: Place, gamma: float, plain: Network, focal: Network, n_classes: int) -> Pair:
    """The temperatures of two networks that differ only in the loss."""
    logits, labels = focal.part("val")
    return Pair(
        *place,
        gamma=gamma,
        plain=TemperatureScaling().fit(*plain.part("val")).temperature_,
        focal=TemperatureScaling().fit(logits, labels).temperature_,
        simplex=closest_temperature(gamma=gamma, n_classes=min(n_classes, logits.shape[1])),
        own=closest_after(logits, gamma),
    )


def pairs_of_the_paper(rows: Mapping[tuple[str, str], Row], n_classes: int) -> Iterator[Pair]:
    """The temperatures that Table 1 prints for log-loss."""
    for (data, loss), row in rows.items():
        if loss.startswith(FOCAL_PREFIX):
            gamma = gamma_of(loss)
            yield Pair(
                data,
                "ResNet-50",
                gamma=gamma,
                plain=float(rows[data, PLAIN_LOSS].nll_t),
                focal=float(row.nll_t),
                simplex=closest_temperature(gamma=gamma, n_classes=n_classes),
                source="as printed",
            )


def found_over_composed(
    name: str, pairs: Sequence[Pair], ratio: Callable[[Pair], float]
) -> dict[str, float]:
    """The mean ratio over networks as values, and over data sets if they are fewer.

    Pairs of one network have its T of cross-entropy in common, so they are no independent samples.
    """
    of_networks: dict[Place, list[float]] = {}
    for pair in pairs:
        of_networks.setdefault((pair.data, pair.network), []).append(ratio(pair))
    of_data: dict[str, list[float]] = {}
    for (data, _), each in of_networks.items():
        of_data.setdefault(data, []).append(mean_ratio(each).value)
    name = f"found / composed, {name}"
    by_network = [mean for each in of_data.values() for mean in each]
    found = mean_ratio(by_network).named(name)
    if 1 < len(of_data) < len(by_network):
        by_data = [mean_ratio(each).value for each in of_data.values()]
        found |= mean_ratio(by_data).named(f"{name}, by data set")
    return found


def mean_ratio(ratios: Sequence[float]) -> Interval:
    """Geometric mean of independent ratios, and from a few on its 95% interval by Student's t."""
    logs = np.log(ratios)
    mean = float(np.exp(logs.mean()))
    if len(logs) < ENOUGH:
        return Interval(mean, None, None)
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    return Interval(mean, mean / float(np.exp(half)), mean * float(np.exp(half)))


def off_by(pairs: Sequence[Pair]) -> dict[str, float]:
    """Typical error factor of several predictions of T: e to the mean |log ratio|."""
    guesses = {
        "composed on own outputs": [pair.by_own for pair in pairs],
        "composed on the simplex": [pair.by_simplex for pair in pairs],
        "T of cross-entropy alone": [pair.focal / pair.plain for pair in pairs],
        "T = 1": [pair.focal for pair in pairs],
    }
    return {name: float(np.exp(np.abs(np.log(ratios)).mean())) for name, ratios in guesses.items()}


def table(pairs: Sequence[Pair]) -> Table:
    """Every pair."""
    head = [
        "networks",
        "gamma",
        "T, cross-entropy",
        "T of the map, own outputs",
        "T of the map, simplex",
        "composed, own outputs",
        "composed, simplex",
        "T found",
    ]
    rows = []
    for pair in pairs:
        own = pair.own
        rows.append(
            [
                pair.where,
                f"{pair.gamma:g}",
                f"{pair.plain:.2f}",
                "" if own is None else f"{own:.3f}",
                f"{pair.simplex:.3f}",
                "" if own is None else f"{pair.plain * own:.2f}",
                f"{pair.plain * pair.simplex:.2f}",
                f"{pair.focal:.2f}",
            ]
        )
    return Table("T by NLL of focal-trained networks, composed and found", head, rows)


def draw(trained: Sequence[Pair], printed: Sequence[Pair]) -> Figure:
    """T found against T composed."""
    figure = Figure(figsize=(4.6, 4.2), layout="constrained")
    ax = figure.subplots()
    ends = (0.2, 4.0)
    ax.plot(ends, ends, **GUIDE)
    points = {
        "trained here, map on own outputs": (
            [pair.plain * (pair.own or pair.simplex) for pair in trained],
            [pair.focal for pair in trained],
        ),
        "trained here, map on the simplex": (
            [pair.plain * pair.simplex for pair in trained],
            [pair.focal for pair in trained],
        ),
        "the paper's Table 1, map on the simplex": (
            [pair.plain * pair.simplex for pair in printed],
            [pair.focal for pair in printed],
        ),
    }
    for i, (label, (composed, found)) in enumerate(points.items()):
        # The first are hollow and larger: the second often lie in the same place.
        fill = {"fillstyle": "none", "markersize": 9} if i == 0 else {"markersize": 5}
        ax.plot(composed, found, look(i).marker, color=look(i).color, label=label, **fill)
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    ticks = (0.2, 0.5, 1, 2, 4)
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set(
        xlabel="T of cross-entropy x closest T of the map", ylabel="T of the focal-trained network"
    )
    ax.legend(frameon=False, loc="upper left", fontsize="small")
    return figure
