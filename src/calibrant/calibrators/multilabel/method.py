"""Multi-label calibration as a calibrator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from calibrant import _inputs
from calibrant._array_api import array_namespace
from calibrant._numerics.logspace import sigmoid, softplus
from calibrant._types import Array
from calibrant.calibrators.base import FEW_SAMPLES, Calibrator, Fitted, Shapes, State, fitted_array
from calibrant.calibrators.data import Floats, Samples, rows_with_weight
from calibrant.calibrators.fit_report import FitReport
from calibrant.calibrators.multilabel.data import (
    Pairs,
    label_logits,
    no_and_yes,
    with_label_terms,
)
from calibrant.calibrators.multilabel.shrinkage import fit_label_terms
from calibrant.calibrators.one_vs_rest.base import LARGEST_NUMBER
from calibrant.calibrators.one_vs_rest.parametric import BetaCalibration
from calibrant.calibrators.parts import fit_part, log_probs_after
from calibrant.calibrators.registry import CALIBRATORS, make_calibrators
from calibrant.calibrators.temperature.methods import FocalCalibration, FocalTemperatureScaling
from calibrant.errors import CalibrantError

if TYPE_CHECKING:
    from calibrant.calibrators.multilabel.torch_layer import MultiLabelModule


class MultiLabelCalibration(Calibrator):
    r"""Every label of a multi-label model as a probability of its own, with the others' help.

    With s the logit of a label before the sigmoid, and C a calibrator of two classes,

    .. math:: p_l = \sigma(a_l x + b_l), \qquad x = \log\frac{C(s)}{1 - C(s)}, \quad a_l \ge 0

    The curve C is fitted on all labels together. Slope and shift of each label are normally
    distributed over the labels, with a mean and a covariance that the labels themselves determine
    (empirical Bayes): where labels do not differ, or one has too few positives to tell, its map is
    that of all labels. A label keeps the order of its samples.

    For a model trained with a sigmoid focal loss, ``curve="focal"`` with its gamma is the exact
    map from the optimum of the loss to the true probabilities, and ``curve="focal-temperature"``
    fits gamma and a temperature to all labels.

    Args:
        curve: The curve that all labels share: a name in ``CALIBRATORS``. ``"auto"`` selects one
            by cross-validation.
        gamma: Gamma that the model was trained with, for ``curve="focal"`` only.
        per_label: Whether to fit slopes and shifts of labels; if not, the curve is the whole map.

    Attributes:
        slope_: a of each label.
        shift_: b of each label.
        parts_: The fitted curve; several calibrators if they are applied one after the other.

    References:
        Komisarenko and Kull (2024), Propositions 2 and 3, for the focal map of two classes.

    Examples:
        >>> import numpy as np
        >>> from calibrant import MultiLabelCalibration
        >>> rng = np.random.default_rng(0)
        >>> truth = rng.normal(-2.0, 2.0, size=(2000, 5))
        >>> labels = (rng.random(truth.shape) < 1 / (1 + np.exp(-truth))).astype(int)
        >>> logits = 2.0 * truth + 1.0  # over-confident, and too high
        >>> calibration = MultiLabelCalibration(curve="platt").fit(logits, labels)
        >>> probs = calibration.predict_proba(logits)
        >>> bool(np.abs(probs - 1 / (1 + np.exp(-truth))).mean() < 0.01)
        True
    """

    NAME = "multi-label"
    LARGEST = LARGEST_NUMBER
    STATE: ClassVar[Shapes] = {"slope": ("K",), "shift": ("K",)}
    slope_: Floats = fitted_array("slope")
    shift_: Floats = fitted_array("shift")

    def __init__(
        self,
        *,
        curve: str = BetaCalibration.NAME,
        gamma: float | None = None,
        per_label: bool = True,
    ) -> None:
        self.curve = curve
        self.gamma = gamma
        self.per_label = per_label

    def fit(  # type: ignore[override]  # there are no classes to name
        self,
        scores: Any = None,
        /,
        labels: Any = None,
        sample_weight: Array = None,
        *,
        logits: Any = None,
        probs: Any = None,
    ) -> Self:
        """Fit on held-out samples, which the model was not trained on.

        Args:
            scores: Logits: scores before the sigmoid, (samples, labels). Numbers that are all
                between 0 and 1 are refused: pass ``probs=``.
            labels: 0 or 1 for each sample and label, (samples, labels). The columns of two frames
                are matched by name.
            sample_weight: One weight for each sample.
            logits: The scores by name; these are believed to be logits whatever they look like.
            probs: Probabilities instead of logits. Those closer to 0 or 1 than 6e-8 are moved
                there.

        Returns:
            The calibrator itself; ``report_`` describes the fit and holds its warnings.
        """
        given = _inputs.label_scores(logits, probs, positional=scores)
        pairs, names = Pairs.checked(given, labels, sample_weight)
        self._check_params()
        super().fit_samples(pairs)
        self.n_classes_, self.classes_ = pairs.n_labels, names
        rows = _inputs.as_numpy(given.values).reshape(-1, pairs.n_labels)
        positives = pairs.positives.T
        rows = rows_with_weight(rows, sample_weight, len(positives))
        weight = None if pairs.weight is None else pairs.weight[:: pairs.n_labels]
        self.origin_ = self.origin_.with_data(given.kind, rows, positives, weight)
        return self

    def predict_proba(self, scores: Any = None, /, *, logits: Any = None, probs: Any = None) -> Any:
        """Calibrated probability of each label, in the form in which the scores come.

        The columns of a frame are matched to the labels by name, and a frame becomes a frame.
        """
        given = self._given(scores, logits, probs)
        return given.restored(self._apply(self._probs, label_logits(given)))

    def predict_log_proba(
        self, scores: Any = None, /, *, logits: Any = None, probs: Any = None
    ) -> Any:
        """Logarithms of the calibrated probabilities."""
        given = self._given(scores, logits, probs)
        return given.restored(self._apply(self._log_probs, label_logits(given)))

    def predict(self, scores: Any = None, /, *, logits: Any = None, probs: Any = None) -> Any:
        """Whether each label is more probable than not: 0 or 1."""
        given = self._given(scores, logits, probs)
        found = self._apply(self._probs, label_logits(given))
        xp = array_namespace(found)
        return given.restored(xp.astype(found > 0.5, xp.int64))

    def _given(self, scores: Any, logits: Any, probs: Any) -> _inputs.Scores:
        self._need_fit()
        return _inputs.label_scores(logits, probs, positional=scores, fitted=self.classes_)

    def as_module(self) -> MultiLabelModule:
        """This calibrator as a torch layer, from logits to calibrated log-odds."""
        self._need_fit()
        from calibrant.calibrators.multilabel.torch_layer import MultiLabelModule

        return MultiLabelModule(self)

    def _check_params(self) -> None:
        _inputs.instance(self.per_label, bool, "per_label")
        self._curve()._check_params()

    def _curve(self) -> Calibrator:
        """The unfitted curve."""
        _inputs.instance(self.curve, str, "curve")
        name = CALIBRATORS.key(self.curve, "curves")
        if name == FocalTemperatureScaling.NAME:
            return FocalTemperatureScaling(criterion="nll")
        if self.gamma is not None and name != FocalCalibration.NAME:
            raise CalibrantError(
                f"gamma is the parameter of the curve focal; found it with {name}. Leave it out"
            )
        return make_calibrators([name], gamma=self.gamma)[name]

    def _fit(self, data: Samples) -> Fitted:
        if not isinstance(data, Pairs):
            raise CalibrantError(
                "multi-label calibration needs 0 or 1 for each sample and label; found classes. "
                "Call fit with labels of the shape of the logits"
            )
        curve = self._curve()
        parts = fit_part(curve, data)
        both = log_probs_after(parts, data.logits).reshape(-1, data.n_labels, 2)
        state = {"slope": np.ones(data.n_labels), "shift": np.zeros(data.n_labels)}
        gradient, rounds = None, 0
        if self.per_label:
            x = data.by_label(with_label_terms(both, state))
            terms = fit_label_terms(x, data.positives, data.sample_counts)
            state = {"slope": terms.slope, "shift": terms.shift}
            gradient, rounds = terms.gradient, terms.rounds
        z = with_label_terms(both, state).reshape(-1)
        sign = 2 * data.labels - 1
        return Fitted(
            state=state,
            criterion="nll",
            before=data.mean(softplus(-sign * data.logits[:, 1])),
            after=data.mean(softplus(-sign * z)),
            accuracy_after=data.mean((z > 0.0) == (sign > 0)),
            gradient=gradient,
            at_bound=curve.report_.at_bound,
            evaluations=curve.report_.evaluations + rounds,
            warnings=tuple(f"the curve {curve.NAME}: {each}" for each in curve.report_.warnings),
            parts=parts,
        )

    def _report(self, data: Samples, fitted: Fitted) -> FitReport:
        assert isinstance(data, Pairs)
        report = super()._report(data, fitted)
        return replace(report, n_samples=len(data) // data.n_labels, n_classes=data.n_labels)

    def _doubts(self, data: Samples, n_parameters: int) -> Iterator[str]:
        assert isinstance(data, Pairs)
        n = len(data) // data.n_labels
        if n < FEW_SAMPLES:
            yield f"fitted on {n} samples only; collect more than {FEW_SAMPLES}."
        missing = int((~data.positives.any(axis=1)).sum())
        if missing:
            yield (
                f"{missing} of {data.n_labels} labels have no positive sample; what is known about "
                "them comes from the other labels."
            )

    def _log_odds(self, logits: Array, state: State) -> Array:
        return with_label_terms(log_probs_after(self.parts_, no_and_yes(logits)), state)

    def _log_probs(self, logits: Array, state: State) -> Array:
        return -softplus(-self._log_odds(logits, state))

    def _probs(self, logits: Array, state: State) -> Array:
        return sigmoid(self._log_odds(logits, state))

    def _refuse_state(self, state: State) -> str | None:
        if (state["slope"] < 0.0).any():
            return f"'slope' holds {state['slope'].min():g}, below 0"
        return super()._refuse_state(state)
