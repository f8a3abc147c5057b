"""Calibrators that are linear in the logits or in the log-probabilities, followed by a softmax.

    softmax(w * s + b),    softmax(s / T + b),    softmax(W s + b),    softmax(W log q + b)

In all but the last, s are *centred* logits: the logits of a row minus their mean. Softmax
probabilities do not change if a constant is added to a row, but w * s and W s do: on raw logits the
result would depend on a meaningless number, and a model known only by its probabilities could not
be calibrated. On centred logits it depends only on the probabilities. Log-probabilities have that
property by themselves.

All of them have these properties:

- A class excluded by -inf keeps probability 0 and adds nothing to the scores of the others; the
  mean of a row is that of its finite logits.
- The fit starts from the best temperature, in units of the typical size of the logits (the median
  over rows of their root mean square), and its criterion has one minimum: see ``linear.loss``.
  Multiplying the logits by c gives the same probabilities (except for Dirichlet calibration, whose
  log-probabilities do not scale).
- On the samples of the fit the NLL never rises.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from calibrant import _inputs
from calibrant._array_api import array_namespace
from calibrant._numerics.logspace import below_top, exact_log_softmax, relative_to
from calibrant._types import Array
from calibrant.calibrators.base import Shapes, State, fitted_array, fitted_number
from calibrant.calibrators.data import Floats
from calibrant.calibrators.linear.loss import Penalty, RegressionRows
from calibrant.calibrators.linear.map import RIDGE, CentredLinear, Linear, temperature_of
from calibrant.calibrators.linear.solver import INVERSE_TEMPERATURES, BestInverseTemperature

OFF_DIAGONAL = 5e-4
LOG_PROBS_OFF_DIAGONAL = 1e-4
INTERCEPT = 1e-3
"""Default strengths for matrices; :class:`MatrixScaling` says how they were chosen."""


class _WithRidge(Linear):
    """A few numbers for each class, with a ridge."""

    def __init__(self, *, ridge: float = RIDGE) -> None:
        self.ridge = ridge

    def _check_params(self) -> None:
        _inputs.strength(self.ridge, "ridge")

    def _is_free(self) -> bool:
        return self.ridge <= RIDGE


class VectorScaling(_WithRidge, CentredLinear):
    r"""A weight and a bias for each class.

    .. math:: \mathrm{softmax}(w_k s_k + b_k), \qquad s \text{ centred}

    Centred logits are the logits of a row minus their mean. The result thus depends only on the
    probabilities, not on a constant added to a row. The criterion is the NLL plus a ridge towards
    temperature scaling,

    .. math:: \rho \sum_k \big( r^2 (w_k - 1/T)^2 + b_k^2 \big),

    with T the best temperature and r the typical size of the centred logits. Without the ridge
    there is no minimum if a class has no samples, or is separated from the others without an error.
    The criterion is convex and has one minimum.

    Args:
        ridge: :math:`\rho`, above 0. The default was chosen on 14 networks of 2 to 100 classes,
            each fitted on one half of its validation samples and measured on the other: no NLL is
            more than 0.0003 above that with a ridge of nearly 0, and with 5 samples per class the
            NLL is lower by 1.5 to 2. With few samples, more is better still.

    Attributes:
        weights_: w.
        bias_: b.

    References:
        Guo et al. (2017), Sec. 4.2.

    Examples:
        >>> import numpy as np
        >>> from calibrant.calibrators.linear.methods import VectorScaling
        >>> rng = np.random.default_rng(0)
        >>> scores = rng.normal(size=(20000, 3))
        >>> labels = (2 * scores + [0, 0, 3] + rng.gumbel(size=scores.shape)).argmax(axis=1)
        >>> vector = VectorScaling().fit(scores, labels)
        >>> vector.bias_.round(1)
        array([-1., -1.,  2.])
    """

    NAME = "vector"
    STATE: ClassVar[Shapes] = {"weights": ("K",), "bias": ("K",)}
    weights_: Floats = fitted_array("weights")

    def _scores(self, centred: Array, features: Array, state: State) -> Array:
        return centred * state["weights"]

    def _shape(self, n_classes: int) -> tuple[int, ...]:
        return (n_classes,)

    def _penalty(self, rows: RegressionRows) -> Penalty:
        return Penalty(float(self.ridge), float(self.ridge))

    def _state(
        self, rows: RegressionRows, inverse_temperature: float, correction: Floats, bias: Floats
    ) -> dict[str, Any]:
        return {"weights": (inverse_temperature + correction) / rows.size, "bias": bias}


class BiasCorrectedTemperatureScaling(_WithRidge):
    r"""One temperature and a bias for each class.

    .. math:: \mathrm{softmax}(s / T + b_k), \qquad T > 0

    The biases correct for class frequencies that differ from those of the training data. The
    criterion is the NLL plus the ridge :math:`\rho \sum_k b_k^2`, without which the bias of a class
    without samples would be minus infinity. It is convex in 1/T and b. T stays within a wide range
    around the typical size of the logits; at its ends the limit is reported.

    Args:
        ridge: :math:`\rho`, above 0; the default was chosen like that of :class:`VectorScaling`.

    Attributes:
        temperature_: T.
        bias_: b.

    References:
        Alexandari, Kundaje and Shrikumar (2020), BCTS.

    Examples:
        >>> import numpy as np
        >>> from calibrant.calibrators.linear.methods import BiasCorrectedTemperatureScaling
        >>> rng = np.random.default_rng(0)
        >>> scores = rng.normal(size=(20000, 3))
        >>> labels = (scores + [0, 0, 3] + rng.gumbel(size=scores.shape)).argmax(axis=1)
        >>> scaling = BiasCorrectedTemperatureScaling().fit(4 * scores, labels)
        >>> round(scaling.temperature_, 1), scaling.bias_.round(1)
        (4.0, array([-1., -1.,  2.]))
    """

    NAME = "bias-corrected-temperature"
    STATE: ClassVar[Shapes] = {"temperature": (), "bias": ("K",)}
    temperature_: float = fitted_number("temperature")

    def _log_probs(self, logits: Array, state: State) -> Array:
        # Centred logits would lose the digits between nearly equal logits if another logit is far
        # below them.
        xp = array_namespace(logits)
        top = xp.argmax(logits, axis=-1, keepdims=True)
        z = relative_to(top, logits, state["temperature"])
        log_probs = exact_log_softmax(z + state["bias"], finite=True)
        return xp.where(logits == -float("inf"), -float("inf"), log_probs)

    def _row_scores(self, row: Floats, state: State) -> Floats:
        scores: Floats = below_top(row, state["temperature"]) + state["bias"]
        return scores

    def _shape(self, n_classes: int) -> tuple[int, ...]:
        return ()

    def _penalty(self, rows: RegressionRows) -> Penalty:
        return Penalty(0.0, float(self.ridge))

    def _state(
        self, rows: RegressionRows, inverse_temperature: float, correction: Floats, bias: Floats
    ) -> dict[str, Any]:
        corrected = max(inverse_temperature + float(correction), INVERSE_TEMPERATURES[0])
        return {"temperature": temperature_of(rows, corrected), "bias": bias}

    def _at_bound(self, best: BestInverseTemperature, correction: Floats) -> str | None:
        corrected = best.value + float(correction)
        if corrected <= INVERSE_TEMPERATURES[0] * 1.001:
            return "T -> infinity"
        return "T -> 0" if corrected >= INVERSE_TEMPERATURES[1] * 0.999 else None


class _MatrixMap(CentredLinear):
    """s / T + M f + b: temperature scaling plus a full matrix on features f.

    W = I / T + M is stored in two parts because the first is exact on the logits: log-probabilities
    of nearly equal classes have lost the digits that a small T needs.
    """

    STATE: ClassVar[Shapes] = {"temperature": (), "matrix": ("K", "K"), "bias": ("K",)}

    @property
    def matrix_(self) -> Floats:
        """The fitted W."""
        matrix: Floats = np.asarray(self.state_["matrix"])
        return matrix + np.eye(len(matrix)) / float(self.state_["temperature"])

    def _scores(self, centred: Array, features: Array, state: State) -> Array:
        transposed = array_namespace(features).matrix_transpose(state["matrix"])
        return centred / state["temperature"] + features @ transposed

    def _shape(self, n_classes: int) -> tuple[int, ...]:
        return (n_classes, n_classes)

    def _state(
        self, rows: RegressionRows, inverse_temperature: float, correction: Floats, bias: Floats
    ) -> dict[str, Any]:
        return {
            "temperature": temperature_of(rows, inverse_temperature),
            "matrix": correction / rows.feature_size,
            "bias": bias,
        }


class MatrixScaling(_MatrixMap):
    r"""A full matrix and a bias.

    .. math:: \mathrm{softmax}(W s + b), \qquad s \text{ centred}

    Centred logits are the logits of a row minus their mean. The result thus depends only on the
    probabilities, not on a constant added to a row. The criterion is the NLL plus

    .. math:: \lambda K \sum_{i \ne j} (r W_{ij})^2 + \mu \sum_i b_i^2,

    with r the typical size of the centred logits. The factor K gives a strength the same meaning
    for any number of classes: a score is a sum of K products, and the penalty keeps scores close to
    temperature scaling. The diagonal has only the weak ridge of :class:`VectorScaling`, which keeps
    it finite. The criterion is convex and has one minimum.

    Both strengths were chosen together on 14 networks of 2 to 100 classes, each fitted on one half
    of its validation samples and measured on the other. For all networks but one the NLL is within
    0.008 of the best of all strengths if :math:`\lambda` is from 3e-4 to 1e-3, and within 0.004 if
    :math:`\mu` is from 3e-4 to 3e-3; the exception would gain 0.03 with nearly no penalty. The
    defaults are in between, and are not tuned further.

    Args:
        off_diagonal: :math:`\lambda`, above 0.
        intercept: :math:`\mu`, above 0.

    Attributes:
        matrix_: W.
        bias_: b.

    References:
        Guo et al. (2017), Sec. 4.2; Kull et al. (2019), Sec. 3, for the penalties.

    Examples:
        >>> import numpy as np
        >>> from calibrant.calibrators.linear.methods import MatrixScaling
        >>> rng = np.random.default_rng(0)
        >>> scores = rng.normal(size=(5000, 3))
        >>> truth = scores @ np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 2.0]])
        >>> labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
        >>> matrix = MatrixScaling().fit(scores, labels)
        >>> matrix.matrix_[0, 1] > matrix.matrix_[0, 2]
        np.True_
    """

    NAME = "matrix"

    def __init__(self, *, off_diagonal: float = OFF_DIAGONAL, intercept: float = INTERCEPT) -> None:
        self.off_diagonal = off_diagonal
        self.intercept = intercept

    def _check_params(self) -> None:
        _inputs.strength(self.off_diagonal, "off_diagonal")
        _inputs.strength(self.intercept, "intercept")

    def _penalty(self, rows: RegressionRows) -> Penalty:
        n_classes = rows.data.n_classes
        entry = self.off_diagonal * n_classes
        return Penalty(_with_free_diagonal(entry, n_classes), float(self.intercept))


class DirichletCalibration(_MatrixMap):
    r"""Dirichlet calibration: a full matrix on log-probabilities, and a bias.

    .. math:: \mathrm{softmax}(W \log q + b), \qquad q = \mathrm{softmax}(s)

    The correct map if q has a Dirichlet distribution within each class. The criterion is the NLL
    plus ODIR, the off-diagonal and intercept regularisation of the paper,

    .. math:: \frac{\lambda}{K (K - 1)} \sum_{i \ne j} W_{ij}^2
              + \frac{\mu}{K} \sum_i b_i^2.

    The diagonal has only the weak ridge of :class:`VectorScaling`, which keeps it finite. The
    criterion is convex and has one minimum.

    The paper tunes both strengths for each model; no single pair serves both 4 and 100 classes. The
    defaults are the penalties of :class:`MatrixScaling` in these units, with strengths chosen in
    the same way on the same networks.

    Args:
        off_diagonal: :math:`\lambda`, above 0; None is 1e-4 K^2 (K - 1) r^2, with r the typical
            size of the log-probabilities.
        intercept: :math:`\mu`, above 0; None is 0.001 K.

    Attributes:
        matrix_: W.
        bias_: b.

    References:
        Kull, Perello-Nieto, Kängsepp, Silva Filho, Song and Flach (2019).

    Examples:
        >>> import numpy as np
        >>> from calibrant.calibrators.linear.methods import DirichletCalibration
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 3, size=5000)
        >>> probs = np.array([rng.dirichlet(1.0 + 2.0 * np.eye(3)[label]) for label in labels])
        >>> dirichlet = DirichletCalibration().fit(probs=probs, labels=labels)
        >>> np.diag(dirichlet.matrix_).round()  # 3 - 1: how the classes differ
        array([2., 2., 2.])
    """

    NAME = "dirichlet"
    ON_LOG_PROBS = True

    def __init__(
        self, *, off_diagonal: float | None = None, intercept: float | None = None
    ) -> None:
        self.off_diagonal = off_diagonal
        self.intercept = intercept

    def _check_params(self) -> None:
        for name in ("off_diagonal", "intercept"):
            if getattr(self, name) is not None:
                _inputs.strength(getattr(self, name), name)

    def _penalty(self, rows: RegressionRows) -> Penalty:
        n_classes = rows.data.n_classes
        entry, bias = LOG_PROBS_OFF_DIAGONAL * n_classes, INTERCEPT
        if self.off_diagonal is not None:
            entry = self.off_diagonal / (n_classes * (n_classes - 1)) / rows.feature_size**2
        if self.intercept is not None:
            bias = self.intercept / n_classes
        return Penalty(_with_free_diagonal(entry, n_classes), bias)


def _with_free_diagonal(strength: float, n_classes: int) -> Floats:
    strengths = np.full((n_classes, n_classes), strength)
    np.fill_diagonal(strengths, RIDGE)
    return strengths
