"""Prior shift as a calibrator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from calibrant import _inputs
from calibrant.calibrators.base import Calibrator, Fitted
from calibrant.calibrators.data import FitData, Floats, Samples
from calibrant.calibrators.fit_report import FitReport
from calibrant.calibrators.linear.methods import BiasCorrectedTemperatureScaling
from calibrant.calibrators.parts import InParts, fit_part, log_probs_after
from calibrant.calibrators.registry import CALIBRATORS, new_calibrator
from calibrant.errors import CalibrantError

PerClass: TypeAlias = "Sequence[float] | Floats | float | None"
"""One number for each class; of two classes only that of the second."""
SUM_TOLERANCE = 1e-3


class PriorShift(InParts):
    r"""Another share of each class than the model, or its calibrator, was fitted for.

    .. math:: p'_k \propto p_k \, \frac{\pi'_k}{\pi_k}

    This is exact under label shift: the classes have other shares, and the samples of each class
    look as before. p are the probabilities of ``base``, :math:`\pi` the shares that they hold for
    (``train``) and :math:`\pi'` the ``target``.

    A model trained with class weights, or on classes sampled at different rates, is one for the
    shares :math:`\pi_k w_k`. Before ``base`` is fitted, its probabilities are divided by
    ``weights`` and ``rates``.

    ``fit`` takes samples with the old shares. Its report is about the new ones: a sample counts
    :math:`\pi'_y / \pi_y` times.

    Args:
        target: The share of each class where the probabilities will be used; for two classes a
            number is the share of the second. None keeps the shares. For unlabelled samples,
            :func:`calibrant.estimate_prevalence` estimates it.
        train: The shares that the probabilities of ``base`` hold for. None is those of the samples
            of the fit, as for any base that is fitted on them.
        weights: Class weights of the training loss; for two classes a number is the weight of the
            second, as ``scale_pos_weight`` of XGBoost.
        rates: Share of the samples of each class that training kept, or how often it repeated them.
        base: The calibrator before the shift: a name in ``CALIBRATORS``. ``"identity"`` takes the
            probabilities as they are.

    Attributes:
        parts_: The fitted calibrators, applied one after the other.

    References:
        Saerens, Latinne and Decaestecker (2002), Eq. 2.4; Elkan (2001), Theorem 2, for two classes.

    Examples:
        >>> import numpy as np
        >>> from calibrant import PriorShift
        >>> probs, labels = np.array([[0.5, 0.5], [0.8, 0.2]]), np.array([1, 0])
        >>> shift = PriorShift(train=0.5, target=0.1, base="identity")
        >>> shift.fit(probs=probs, labels=labels).predict_proba(probs=probs).round(3)
        array([[0.9  , 0.1  ],
               [0.973, 0.027]])
        >>> undo = PriorShift(target=None, weights=9.0, base="identity")
        >>> undo.fit(probs=probs, labels=labels).predict_proba(probs=probs).round(3)
        array([[0.9  , 0.1  ],
               [0.973, 0.027]])
    """

    NAME = "prior-shift"

    def __init__(
        self,
        *,
        target: PerClass,
        train: PerClass = None,
        weights: PerClass = None,
        rates: PerClass = None,
        base: str = "auto",
    ) -> None:
        self.target = target
        self.train = train
        self.weights = weights
        self.rates = rates
        self.base = base

    def _check_params(self) -> None:
        for name in ("target", "train", "weights", "rates"):
            self._numbers(name, None)
        _inputs.instance(self.base, str, "base")
        if CALIBRATORS.key(self.base, "base") == self.NAME:
            raise CalibrantError("base must be another method; found prior-shift. Choose auto")
        new_calibrator(self.base)

    def _numbers(self, name: str, n_classes: int | None) -> Floats | None:
        """One positive number for each class, from a parameter; None if it is not given."""
        given = getattr(self, name)
        if given is None:
            return None
        if hasattr(given, "iloc") and list(given.index) != list(range(len(given))):
            raise CalibrantError(
                f"{name} must be numbers in the order of the classes; found a series with names, "
                f"{_inputs.shown(list(given.index))}, which are not matched. Pass a list"
            )
        are_shares = name in ("target", "train")
        if np.ndim(given) == 0 and not isinstance(given, str) and name != "rates":
            positive = _inputs.finite_number(given, name)
            if are_shares and not 0.0 < positive < 1.0:
                raise CalibrantError(
                    f"{name} must be a share between 0 and 1; found {positive:g}. Pass 0.02 for 2%"
                )
            given = [1.0 - positive if are_shares else 1.0, positive]
        found = _inputs.as_numpy(_inputs.floating(given, name)).astype(np.float64)
        if found.ndim != 1 or len(found) < 2 or len(found) != (n_classes or len(found)):
            expected = "each class" if n_classes is None else f"each of the {n_classes} classes"
            raise CalibrantError(
                f"{name} must have one number for {expected}; found shape {found.shape}. "
                "Pass a list in the order of the classes"
            )
        _inputs.refuse(
            ~(np.isfinite(found) & (found > 0.0)),
            f"{name} must be above 0 and finite; found {{found:g}} in {{where}}. "
            "Pass a small number such as 1e-6 for a class that hardly occurs",
            found,
        )
        if are_shares and abs(found.sum() - 1.0) > SUM_TOLERANCE:
            raise CalibrantError(
                f"{name} must be shares that sum to 1; found a sum of {found.sum():.6g}. "
                "Divide counts by their total"
            )
        return np.asarray(found / found.sum()) if are_shares else found

    def _fit(self, data: Samples) -> Fitted:
        samples = data.in_memory()
        base = new_calibrator(self.base)
        undo, shift = self._undo(samples.n_classes), self._shift(samples)
        first = () if undo is None else (_offset(-np.log(undo)),)
        undone = replace(samples, logits=log_probs_after(first, samples.logits))
        parts = (*first, *fit_part(base, undone))
        if shift is not None:
            parts = (*parts, _offset(np.log(shift)))
        shifted = self._at_target(samples)
        return Fitted(
            state={},
            criterion="nll",
            before=_nll((new_calibrator("identity").with_state({}, samples.n_classes),), shifted),
            after=_nll(parts, shifted),
            evaluations=base.report_.evaluations + 2,
            at_bound=base.report_.at_bound,
            warnings=tuple(f"the base {base.NAME}: {each}" for each in base.report_.warnings),
            parts=parts,
        )

    def _undo(self, n_classes: int) -> Floats | None:
        """What each class counted for in training."""
        given = (self._numbers(name, n_classes) for name in ("weights", "rates"))
        known = [each for each in given if each is not None]
        return np.asarray(np.prod(known, axis=0)) if known else None

    def _shift(self, data: FitData) -> Floats | None:
        """The target shares divided by those of the samples."""
        target, train = (self._numbers(name, data.n_classes) for name in ("target", "train"))
        if target is None:
            return None
        if train is not None:
            return np.asarray(target / train)
        found = np.bincount(data.labels, data.weight, minlength=data.n_classes)
        if not found.all():
            raise CalibrantError(
                f"every class must have a sample; found none of class {int(found.argmin())}. "
                "Pass train=, or add samples"
            )
        return np.asarray(target * found.sum() / found)

    def _at_target(self, data: FitData) -> FitData:
        """The samples with weights that give the classes their target shares."""
        shift = self._shift(data)
        if shift is None:
            return data
        weight = shift[data.labels]
        return replace(data, weight=weight if data.weight is None else weight * data.weight)

    def _report(self, data: Samples, fitted: Fitted) -> FitReport:
        return super()._report(self._at_target(data.in_memory()), fitted)


CALIBRATORS.register(PriorShift.NAME, PriorShift)


def _offset(bias: Floats) -> Calibrator:
    """softmax(s + bias)."""
    scaling = BiasCorrectedTemperatureScaling()
    return scaling.with_state({"temperature": 1.0, "bias": bias - bias.mean()}, len(bias))


def _nll(parts: Sequence[Calibrator], data: FitData) -> float:
    log_probs = log_probs_after(parts, data.logits)
    true: Any = log_probs[np.arange(len(data)), data.labels].astype(np.float64)
    return data.mean(-true)
