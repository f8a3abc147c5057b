"""Top-rest scaling as a calibrator."""

from __future__ import annotations

from calibrant import _inputs
from calibrant.calibrators.base import Fitted, fitted_number
from calibrant.calibrators.data import Samples
from calibrant.calibrators.top_rest.map import TopAndRest
from calibrant.calibrators.top_rest.solver import fit_top_rest, problem_of


class TopRestScaling(TopAndRest):
    r"""The confidence and the odds among the other classes, calibrated separately.

    With :math:`z` the log-odds of the predicted class m under :math:`\mathrm{softmax}(s/T)` and
    :math:`a` its lead over the runner-up,

    .. math::

        \log \frac{p_m}{1 - p_m} &= \sum_j w_j B_j(z) + c + v (z - a) + d_m \\
        \frac{p_k}{1 - p_m} &= \mathrm{softmax}_{k \ne m}\big(s_k / (T T') + b_k\big)

    The pieces B cut z at 0, 2, 4 and 6 and add up to z: w = 1, with all other terms 0, is
    temperature scaling. w is at least 0, so the order of confidences is kept. The lead over every
    other class stays between a quarter and four times a, so **the predicted class never changes**.

    T is that of :class:`TemperatureScaling`. The other parameters are the most probable under a
    normal prior around temperature scaling, of variance 1 for w, c and v and 1/5 for log T'. The
    variance of the class terms d and b is estimated from the samples, so they vanish if the classes
    do not differ or have too few samples to tell.

    On the samples of the fit the NLL is never above that of temperature scaling.

    Args:
        classes: Whether to fit the class terms d and b.

    Attributes:
        temperature_: T.
        rest_temperature_: T'.

    References:
        Kull, Silva Filho and Flach (2017): beta calibration has one knot and no class terms.

    Examples:
        >>> import numpy as np
        >>> from calibrant import TemperatureScaling, TopRestScaling
        >>> rng = np.random.default_rng(0)
        >>> truth = 3 * rng.normal(size=(8000, 10))
        >>> labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
        >>> logits = np.where(truth == truth.max(axis=1, keepdims=True), truth + 2, truth)
        >>> fit, test = slice(0, 4000), slice(4000, None)
        >>> for method in TemperatureScaling(), TopRestScaling():
        ...     log_probs = method.fit(logits[fit], labels[fit]).predict_log_proba(logits[test])
        ...     print(round(-log_probs[np.arange(4000), labels[test]].mean(), 2))
        1.01
        0.96
    """

    NAME = "top-rest"
    temperature_: float = fitted_number("temperature")
    rest_temperature_: float = fitted_number("rest_temperature")

    def __init__(self, *, classes: bool = True) -> None:
        self.classes = classes

    def _check_params(self) -> None:
        _inputs.instance(self.classes, bool, "classes")

    def _fit(self, data: Samples) -> Fitted:
        problem = problem_of(data)
        found = fit_top_rest(problem, classes=self.classes)
        return problem.fitted(found)
