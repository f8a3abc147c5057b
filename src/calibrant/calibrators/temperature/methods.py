"""Temperature scaling, the focal map, and both combined.

    softmax(s / T),    Psi^gamma(softmax(s)),    Psi^gamma(softmax(s / T))

All of them are one map with gamma or T fixed. None changes the predicted class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant._array_api import array_namespace
from calibrant._numerics.first_use import are_few
from calibrant._numerics.logspace import below_top, keep_argmax, split_top
from calibrant._numerics.precision import narrowed, widened
from calibrant._types import Array
from calibrant.calibrators.base import Calibrator, Fitted, Shapes, State, fitted_number
from calibrant.calibrators.data import NEARLY_TIED, FitData, Floats, Samples
from calibrant.calibrators.fit_report import LIMITS
from calibrant.calibrators.temperature import search as searches
from calibrant.calibrators.temperature.criterion import BINNED, Evaluator, Point, evaluator_of
from calibrant.calibrators.temperature.solver import (
    SMALLEST,
    SMOOTH,
    best_temperature,
    uncalibrated,
)
from calibrant.errors import CalibrantError
from calibrant.focal.calibration_map import map_log_probs
from calibrant.focal.scalar import log_phi_low, log_phi_top
from calibrant.metrics.calibration import MOST_BINS

MOST_GAMMA = 1e4
"""Far above any gamma used in training, and about the limit of what single precision resolves."""
MOST_GAMMA_IN_SINGLE = 10.0
"""Above this, the logarithms that gamma multiplies need double precision for six digits."""
GRID_TEMPERATURES = (1e-3, 1e3)
"""Bounds of the temperatures that a grid may have."""
REACH = 1e6
"""A gap between logits that gives probability 0 at every temperature of a search."""
CRITERIA = (*SMOOTH, *BINNED)
COMPILED_GAMMAS = (-0.9, 100.0)
"""Between these the compiled map is exact to rounding; outside them the general one is used."""


def small_softmax(logits: npt.NDArray[Any], temperature: float) -> npt.NDArray[Any]:
    """softmax(s / T) without compiled code, which would take seconds to compile for a first row.

    The top class stays strictly on top, and classes tied with it have its probability.

    Examples:
        >>> small_softmax(np.array([[2.0, 2.0, 0.0]]), 2.0).round(4)
        array([[0.4223, 0.4223, 0.1554]])
    """
    wide = logits.astype(np.float64, copy=False)
    top = wide.max(axis=-1, keepdims=True)
    weights = np.exp((wide - top) * (1.0 / temperature))
    exact: npt.NDArray[Any] = weights / weights.sum(axis=-1, keepdims=True)
    probs = exact.astype(logits.dtype, copy=False)
    if np.count_nonzero(weights > NEARLY_TIED) > len(weights):
        highest = probs.max(axis=-1, keepdims=True)
        below = highest * (1.0 - np.finfo(probs.dtype).eps)
        probs = np.where(wide == top, highest, np.minimum(probs, below))
    return probs


class _MapAndTemperature(Calibrator):
    """Psi^gamma(softmax(s / T)); gamma is 0 and T is 1 in subclasses that do not have them."""

    KEEPS_ARGMAX = True
    PER_CLASS = False
    IN_DOUBLE = False  # _log_probs decides: rounding must not change the predicted class

    def _log_probs(self, logits: Array, state: State) -> Array:
        xp = array_namespace(logits)
        gamma, temperature = state.get("gamma", 0.0), state.get("temperature", 1.0)
        types = xp.finfo(logits.dtype)
        fits = float(types.smallest_normal) <= temperature <= float(types.max)
        inner = logits if fits and gamma <= MOST_GAMMA_IN_SINGLE else widened(logits)
        split = split_top(inner, temperature)
        return keep_argmax(narrowed(map_log_probs(split, gamma), logits), split)

    def _probs(self, logits: Array, state: State) -> Array:
        gamma, temperature = state.get("gamma", 0.0), state.get("temperature", 1.0)
        small = isinstance(logits, np.ndarray) and are_few(logits.size)
        if small and gamma == 0.0:
            return small_softmax(logits, temperature)
        if isinstance(logits, np.ndarray) and not small and self._probs_are_compiled(state):
            from calibrant.calibrators.temperature.kernels import map_probs

            out = np.empty_like(logits)
            map_probs(logits, 1.0 / temperature, gamma, float(np.finfo(out.dtype).eps), out)
            return out
        log_probs = self._log_probs(logits, state)
        split = split_top(logits)
        return keep_argmax(array_namespace(logits).exp(log_probs), split)

    def _row_scores(self, row: Floats, state: State) -> Floats:
        gamma, z = state.get("gamma", 0.0), below_top(row, state.get("temperature", 1.0))
        if gamma == 0.0:
            return z
        m = row.argmax()
        q = np.exp(z)
        q[m] = 0.0
        rest = float(np.add.reduce(q))
        if rest == 0.0:
            return super()._row_scores(row, state)
        log_top = -math.log1p(rest)
        q *= math.exp(log_top)
        scores: Floats = z - log_phi_low(z + log_top, q, gamma)
        scores[m] = -log_phi_top(math.log(rest) + log_top, -log_top, gamma)
        return scores

    def _of_search(self, evaluator: Evaluator, point: Point) -> Fitted:
        """The fit that a search ended with."""
        before = evaluator.unchanged
        return Fitted(
            state={name: getattr(point, name) for name in self.STATE},
            criterion=evaluator.criterion,
            before=before,
            after=point.value,
            at_bound=point.at_bound,
            evaluations=evaluator.evaluations,
            n_parameters=len(self.STATE),
            warnings=_beyond_bounds(point),
        )

    def _probs_are_compiled(self, state: State) -> bool:
        return COMPILED_GAMMAS[0] <= float(state.get("gamma", 0.0)) <= COMPILED_GAMMAS[1]

    def _refuse_state(self, state: State) -> str | None:
        if not SMALLEST <= state.get("temperature", 1.0) <= 1.0 / SMALLEST:
            return f"its temperature is {state['temperature']:g}, not between 1e-300 and 1e300"
        if not -1.0 <= state.get("gamma", 0.0) <= MOST_GAMMA:
            return f"its gamma is {state['gamma']:g}, not between -1 and {MOST_GAMMA:g}"
        return None


class Identity(_MapAndTemperature):
    """The uncalibrated probabilities: the baseline for comparisons.

    Examples:
        >>> import numpy as np
        >>> from calibrant import Identity
        >>> logits, labels = np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([0, 1])
        >>> Identity().fit(logits, labels).predict_proba(logits).round(4)
        array([[0.8808, 0.1192],
               [0.2689, 0.7311]])
    """

    NAME = "identity"
    STATE: ClassVar[Shapes] = {}

    def _fit(self, data: Samples) -> Fitted:
        nll = uncalibrated(data)
        return Fitted(state={}, criterion="nll", before=nll, after=nll, evaluations=1)


class FocalCalibration(_MapAndTemperature):
    r"""The focal map alone, with the gamma that the model was trained with.

    .. math:: \Psi^\gamma(\mathrm{softmax}(s))

    Nothing is fitted. If a network of enough capacity was trained to the minimum of the focal loss,
    this is the true posterior. ``fit`` measures how the map changes the NLL.

    Args:
        gamma: The gamma of the focal loss, at least -1.

    References:
        Charoenphakdee et al. (2021), Theorem 11.

    Examples:
        >>> import numpy as np
        >>> from calibrant import FocalCalibration
        >>> logits, labels = np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([0, 1])
        >>> FocalCalibration(gamma=2).fit(logits, labels).predict_proba(logits).round(4)
        array([[0.9955, 0.0045],
               [0.0641, 0.9359]])
    """

    NAME = "focal"
    STATE: ClassVar[Shapes] = {"gamma": ()}
    gamma_: float = fitted_number("gamma")

    def __init__(self, *, gamma: float) -> None:
        self.gamma = gamma

    def _check_params(self) -> None:
        _inputs.gamma(self.gamma, lowest=-1.0, highest=MOST_GAMMA)

    def _fit(self, data: Samples) -> Fitted:
        gamma = float(self.gamma)
        return Fitted(
            state={"gamma": gamma},
            criterion="nll",
            before=uncalibrated(data),
            after=evaluator_of(data, "nll", n_bins=1, focal_gamma=0.0)(gamma, 1.0),
            evaluations=2,
        )


class TemperatureScaling(_MapAndTemperature):
    r"""One temperature for all logits.

    .. math:: \mathrm{softmax}(s / T), \qquad T > 0

    For the NLL, the Brier score and the focal loss, T is the exact minimum, and multiplying the
    logits by c multiplies T by c. For a calibration error, T is the best of 0.01, 0.02, ..., 5. If
    there is no minimum, the limit is reported: T -> 0 if every sample is classified correctly,
    T -> infinity if the model is worse than chance.

    Args:
        criterion: What to minimise: nll, brier, focal, ece or ada_ece.
        grid: Temperatures to choose from, for any criterion; None is as above. Of equally good ones
            the closest to 1 is chosen. Mukhoti et al. use ``np.arange(1, 101) / 10`` with ece.
        focal_gamma: The gamma of the focal loss, for that criterion.
        n_bins: Bins of the calibration errors, for those criteria.

    References:
        Guo et al. (2017), Sec. 4.2; Mukhoti et al. (2020); Charoenphakdee et al. (2021), TS_FL.

    Examples:
        >>> import numpy as np
        >>> from calibrant import TemperatureScaling
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(2000, 10))
        >>> labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        >>> round(TemperatureScaling().fit(3 * logits, labels).temperature_, 1)
        3.0
    """

    NAME = "temperature"
    STATE: ClassVar[Shapes] = {"temperature": ()}
    temperature_: float = fitted_number("temperature")

    def __init__(
        self,
        *,
        criterion: str = "nll",
        grid: Sequence[float] | Floats | None = None,
        focal_gamma: float = 3.0,
        n_bins: int = 15,
    ) -> None:
        self.criterion = criterion
        self.grid = grid
        self.focal_gamma = focal_gamma
        self.n_bins = n_bins

    def _check_params(self) -> None:
        _check_criterion(self.criterion, self.focal_gamma, self.n_bins)
        _grid_temperatures(self.grid, "grid")

    def _fit(self, data: Samples) -> Fitted:
        if self.criterion in BINNED or self.grid is not None:
            evaluator = _evaluator(data, self.criterion, self.focal_gamma, self.n_bins)
            temperatures = _grid_temperatures(self.grid, "grid")
            point = searches.grid(evaluator, np.zeros(1), temperatures)
            return self._of_search(evaluator, point)
        gamma = float(self.focal_gamma)
        before = uncalibrated(data, self.criterion, gamma)
        best = best_temperature(data, self.criterion, gamma)
        doubts = () if best.limit is None else (LIMITS[best.limit],)
        return Fitted(
            state={"temperature": best.temperature},
            criterion=self.criterion,
            before=before,
            after=best.value,
            gradient=abs(best.gradient),
            at_bound=best.limit,
            evaluations=best.evaluations + 1,
            n_parameters=1,
            warnings=doubts,
        )


class FocalTemperatureScaling(_MapAndTemperature):
    r"""The focal map after a temperature, both fitted.

    .. math:: \Psi^\gamma(\mathrm{softmax}(s / T))

    A two-parameter family that contains temperature scaling (gamma = 0). On the samples of the fit
    its criterion is never worse than that of the best temperature of the same grid. It suits any
    network, whatever loss it was trained with.

    Args:
        criterion: What to minimise: ada_ece, ece, nll, brier or focal.
        search: ``"grid"``: ten gammas from -0.5 to 5 and T = 0.01, 0.02, ..., 5, exactly;
            ``"line"``: a line through the best T of two gammas; ``"refine"``: the grid, then a
            continuous search around its best point.
        gammas: Other gammas for the grid, from -0.9 to 20; a single one fixes gamma.
        temperatures: Other temperatures for the grid. Of equally good points, the one with the
            gamma closest to 0 and then the T closest to 1 is chosen.
        focal_gamma: The gamma of the focal loss, for that criterion.
        n_bins: Bins of the calibration errors, for those criteria.

    References:
        Komisarenko and Kull (2024), Sec. 4.2 and 5.2.

    Examples:
        >>> import numpy as np
        >>> from calibrant import FocalTemperatureScaling
        >>> from calibrant.focal import focal_log_probs
        >>> rng = np.random.default_rng(0)
        >>> logits = 5 * rng.normal(size=(5000, 10))
        >>> truth = focal_log_probs(logits, gamma=1, temperature=4)
        >>> labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
        >>> scaling = FocalTemperatureScaling(criterion="nll").fit(logits, labels)
        >>> scaling.gamma_, scaling.temperature_
        (1.0, 3.99)
        >>> fixed = FocalTemperatureScaling(gammas=[2.0], temperatures=np.arange(1, 101) / 10)
        >>> fixed.fit(logits, labels).state_
        {'gamma': 2.0, 'temperature': 4.6}
    """

    NAME = "focal-temperature"
    STATE: ClassVar[Shapes] = {"gamma": (), "temperature": ()}
    gamma_: float = fitted_number("gamma")
    temperature_: float = fitted_number("temperature")

    def __init__(
        self,
        *,
        criterion: str = "ada_ece",
        search: str = "grid",
        gammas: Sequence[float] | Floats | None = None,
        temperatures: Sequence[float] | Floats | None = None,
        focal_gamma: float = 3.0,
        n_bins: int = 15,
    ) -> None:
        self.criterion = criterion
        self.search = search
        self.gammas = gammas
        self.temperatures = temperatures
        self.focal_gamma = focal_gamma
        self.n_bins = n_bins

    def _check_params(self) -> None:
        _check_criterion(self.criterion, self.focal_gamma, self.n_bins)
        _inputs.choice(self.search, "search", tuple(searches.SEARCHES))
        self._axes()
        given = [name for name in ("gammas", "temperatures") if getattr(self, name) is not None]
        if given and self.search != "grid":
            raise CalibrantError(
                f"{given[0]} can only be given with search='grid'; found search={self.search!r}. "
                "Leave one of them out"
            )

    def _axes(self) -> tuple[Floats, Floats]:
        """The gammas and temperatures of the grid."""
        gammas = searches.GAMMAS
        if self.gammas is not None:
            lowest, highest = searches.REFINED_GAMMAS
            gammas = _inputs.values_to_try(self.gammas, "gammas", lowest=lowest, highest=highest)
        return gammas, _grid_temperatures(self.temperatures, "temperatures")

    def _fit(self, data: Samples) -> Fitted:
        evaluator = _evaluator(data, self.criterion, self.focal_gamma, self.n_bins)
        if self.search == "grid":
            point = searches.grid(evaluator, *self._axes())
        else:
            point = searches.SEARCHES[self.search](evaluator)
        fitted = self._of_search(evaluator, point)
        if data.labels_on_top:
            return replace(fitted, at_bound="T -> 0", warnings=(LIMITS["T -> 0"],))
        return fitted


def within_reach(data: FitData) -> FitData:
    """The samples with logits within REACH of the largest of their row; unchanged if they are.

    A class REACH below the top class has probability 0 at every temperature of the search. It does
    not affect a calibration error, however far below it is.
    """
    lowest = np.min(data.logits, where=data.logits > -np.inf, initial=0.0)
    if max(-lowest, data.logits.max()) < REACH:
        return data
    with np.errstate(over="ignore"):
        below = data.logits - data.logits.max(axis=1, keepdims=True)
    below = np.where(data.logits == -np.inf, -np.inf, np.maximum(below, -REACH))
    return replace(data, logits=below)


def _beyond_bounds(point: Point) -> tuple[str, ...]:
    if point.at_bound is None:
        return ()
    return (
        f"the best point is at a bound of the search ({point.at_bound}), so a better one may lie "
        "beyond it; if it is a bound of T, divide the logits by a constant first, or pass a wider "
        "grid.",
    )


def _check_criterion(criterion: str, focal_gamma: float, n_bins: int) -> None:
    _inputs.choice(criterion, "criterion", CRITERIA)
    _inputs.gamma(focal_gamma, lowest=0.0, highest=MOST_GAMMA)
    _inputs.whole_number(n_bins, "n_bins", allowed=MOST_BINS)


def _grid_temperatures(given: Sequence[float] | Floats | None, name: str) -> Floats:
    if given is None:
        return searches.TEMPERATURES
    lowest, highest = GRID_TEMPERATURES
    return _inputs.values_to_try(given, name, lowest=lowest, highest=highest)


def _evaluator(data: Samples, criterion: str, focal_gamma: float, n_bins: int) -> Evaluator:
    if criterion in BINNED:
        data = data.mapped(within_reach)
    return evaluator_of(data, criterion, n_bins=n_bins, focal_gamma=float(focal_gamma))
