"""Grouped calibration as a calibrator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant._array_api import array_namespace
from calibrant._inputs import Groups
from calibrant._inputs.groups import ONE_COLUMN_NAME
from calibrant._numerics.logspace import split_top
from calibrant._numerics.precision import narrowed
from calibrant._types import Array
from calibrant.calibrators.base import Calibrator, Fitted, Shapes, State, fitted_array, state_like
from calibrant.calibrators.data import (
    FitData,
    Floats,
    Samples,
    given_scores,
    rows_with_weight,
    samples_of,
    to_logits,
)
from calibrant.calibrators.grouped.shrinkage import LEAST, fit_group_terms
from calibrant.calibrators.one_vs_rest.base import LARGEST_NUMBER
from calibrant.calibrators.parts import fit_part, log_probs_after
from calibrant.calibrators.registry import CALIBRATORS, make_calibrators
from calibrant.calibrators.temperature.rows import temperature_rows
from calibrant.errors import CalibrantError


@dataclass(frozen=True)
class GroupedData(FitData):
    """Checked samples with their groups."""

    groups: Groups | None = None

    @classmethod
    def of(cls, data: FitData, groups: Groups) -> GroupedData:
        """The samples ``data``, whose groups these are."""
        return cls(data.logits, data.labels, data.weight, groups)


class GroupedCalibration(Calibrator):
    r"""A calibrator that all groups share, and a temperature and class biases for each group.

    With C a calibrator fitted on all samples, the probabilities of a sample of group g are

    .. math:: \mathrm{softmax}(a_g \log C(s) + b_g), \qquad a_g > 0

    which for two classes is a slope and a shift of the log-odds. The terms of the groups are
    normally distributed around :math:`a = 1, b = 0`, with variances that the groups themselves
    determine (empirical Bayes): where groups do not differ, or one has too few samples to tell, its
    map is C. So is that of groups that the fit has not seen. Of several columns, a group is a
    combination of their values; rows without a value form a group of their own.

    Args:
        base: C: a name in ``CALIBRATORS``. ``"auto"`` selects one by cross-validation.

    Attributes:
        group_columns_: The names of the columns.
        group_keys_: The values of the columns for each group.
        inverse_temperature_: a of each group.
        bias_: b of each group, (groups, classes).
        parts_: The fitted C; several calibrators if they are applied one after the other.

    References:
        Dempster, Laird and Rubin (1977), random effects by expectation-maximisation.

    Examples:
        >>> import numpy as np
        >>> from calibrant import GroupedCalibration
        >>> rng = np.random.default_rng(0)
        >>> logit, sex = rng.normal(size=8000), rng.choice(["f", "m"], 8000)
        >>> labels = rng.random(8000) < 1 / (1 + np.exp(-logit - (sex == "m")))
        >>> calibration = GroupedCalibration(base="platt").fit(logit, labels, groups={"sex": sex})
        >>> given = {"logits": np.zeros(3), "groups": {"sex": ["f", "m", "unseen"]}}
        >>> calibration.predict_proba(**given).round(1).tolist()
        [0.5, 0.7, 0.6]
    """

    NAME = "grouped"
    LARGEST = LARGEST_NUMBER
    STATE: ClassVar[Shapes] = {"inverse_temperature": ("G",), "bias": ("G", "K")}
    inverse_temperature_: Floats = fitted_array("inverse_temperature")
    bias_: Floats = fitted_array("bias")

    def __init__(self, *, base: str = "auto") -> None:
        self.base = base

    def fit(
        self,
        scores: Any = None,
        /,
        labels: Any = None,
        sample_weight: Array = None,
        *,
        logits: Any = None,
        probs: Any = None,
        positive: Any = None,
        classes: Any = None,
        groups: Any = None,
    ) -> Self:
        """Fit on held-out samples, which the model was not trained on.

        Args:
            scores: Logits, as in ``Calibrator.fit``.
            labels: One for each row: class indices, or names.
            sample_weight: One weight for each row.
            logits: The scores by name.
            probs: Probabilities instead of logits.
            positive: The positive class, if there is one column and the labels are not 0 and 1.
            classes: The label of each column, if labels are neither indices nor names of columns.
            groups: The groups of the rows: a frame, a dict of columns or one column.
        """
        given = given_scores(scores, logits, probs)
        _inputs.same_rows(given, labels=labels, sample_weight=sample_weight, groups=groups)
        data, names = samples_of(given, labels, sample_weight, classes=classes, positive=positive)
        self._check_params()
        found = self._need_groups(groups, math.prod(given.values.shape[:-1]))
        found = rows_with_weight(found, sample_weight, len(data))
        self.fit_samples(GroupedData.of(data, found))
        return self._with_origin(given, data, names, sample_weight)

    def predict_proba(
        self, scores: Any = None, /, *, logits: Any = None, probs: Any = None, groups: Any = None
    ) -> Any:
        """Calibrated probabilities, in the form in which the scores come."""
        given = self._given(scores, logits, probs)
        found = self._calibrated(given, groups)
        return given.restored(array_namespace(found).exp(found))

    def predict_log_proba(
        self, scores: Any = None, /, *, logits: Any = None, probs: Any = None, groups: Any = None
    ) -> Any:
        """Calibrated log-probabilities."""
        given = self._given(scores, logits, probs)
        return given.restored(self._calibrated(given, groups))

    def predict(
        self, scores: Any = None, /, *, logits: Any = None, probs: Any = None, groups: Any = None
    ) -> Array:
        """The most probable class of each row: its label, as in ``classes_``."""
        return self._most_probable(self._calibrated(self._given(scores, logits, probs), groups))

    def as_module(self) -> NoReturn:
        """Refused: a torch layer takes logits and no groups."""
        raise CalibrantError(
            "a grouped calibrator needs the groups of the rows, which a torch layer or an exported "
            "model does not get; found grouped. Export it as numpy"
        )

    def _check_params(self) -> None:
        self._base()._check_params()

    def _base(self) -> Calibrator:
        """The unfitted calibrator that all groups share."""
        _inputs.instance(self.base, str, "base")
        name = CALIBRATORS.key(self.base, "base")
        return make_calibrators([name])[name]

    def _need_groups(self, groups: Any, n_rows: int) -> Groups:
        if groups is None:
            raise CalibrantError(
                "grouped calibration needs the group of each row; found none. Pass groups=, a "
                "frame or a dict of columns"
            )
        return _inputs.groups(groups, n_rows)

    def _fit(self, data: Samples) -> Fitted:
        if not isinstance(data, GroupedData) or data.groups is None:
            raise CalibrantError(
                "grouped calibration needs the group of each row; found none. Pass groups= to fit, "
                "or --by on the command line"
            )
        base = self._base()
        parts = fit_part(base, FitData(data.logits, data.labels, data.weight))
        log_probs = log_probs_after(parts, data.logits.astype(np.float64))
        keys, rows = zip(*data.groups.cells(), strict=True)
        terms = fit_group_terms(log_probs, data.labels, data.counts, rows)
        self.group_columns_, self.group_keys_ = data.groups.names, keys
        state = {"inverse_temperature": terms.inverse_temperature, "bias": terms.bias}
        after = _with_terms(log_probs, state, self._places(data.groups))
        return Fitted(
            state=state,
            criterion="nll",
            before=data.mean(temperature_rows(data, 1.0)[0]),
            after=data.mean(-after[np.arange(len(data)), data.labels]),
            accuracy_after=data.mean(after.argmax(axis=1) == data.labels),
            gradient=terms.gradient,
            evaluations=base.report_.evaluations + terms.rounds,
            warnings=tuple(f"the base {base.NAME}: {each}" for each in base.report_.warnings),
            parts=parts,
        )

    def _places(self, groups: Groups) -> npt.NDArray[np.intp]:
        """The place of each row's group in the state; one more for groups that are not there."""
        names = *groups.names, *self.group_columns_
        if len(names) > 2 or ONE_COLUMN_NAME not in names:  # a bare column has no name of its own
            groups = groups.only(self.group_columns_)
        place = {key: i for i, key in enumerate(self.group_keys_)}
        places = np.empty(len(groups), dtype=np.intp)
        for key, rows in groups.cells():
            places[rows] = place.get(key, len(place))
        return places

    def _calibrated(self, given: _inputs.Scores, groups: Any) -> Array:
        """Log-probabilities of every row under the terms of its group."""
        _inputs.same_rows(given, groups=groups)
        logits = to_logits(given.kind, given.checked())
        found = self._need_groups(groups, math.prod(logits.shape[:-1]))
        places = self._places(found).reshape(logits.shape[:-1])
        inner = self._inner(logits)
        common = log_probs_after(self.parts_, inner)
        return narrowed(_with_terms(common, self.state_, places), logits)

    def _log_probs(self, logits: Array, state: State) -> Array:
        """Those of a group that is not known."""
        return log_probs_after(self.parts_, logits)

    def _refuse_state(self, state: State) -> str | None:
        if (state["inverse_temperature"] < LEAST).any():
            return f"'inverse_temperature' holds a number below {LEAST:g}"
        return super()._refuse_state(state)


def _with_terms(log_probs: Array, state: State, places: npt.NDArray[np.intp]) -> Array:
    """log softmax(a_g l + b_g), where ``places`` has g of each row; the last g has no terms."""
    xp = array_namespace(log_probs)
    slopes = np.append(state["inverse_temperature"], 1.0)
    biases = np.vstack([state["bias"], np.zeros(log_probs.shape[-1])])
    terms = {"a": slopes[places][..., np.newaxis], "b": biases[places]}
    moved = state_like(terms, log_probs)
    found = split_top(moved["a"] * log_probs + moved["b"]).log_q
    return xp.where(log_probs == -float("inf"), -float("inf"), found)
