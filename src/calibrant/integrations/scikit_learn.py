"""A scikit-learn classifier and its calibrator as one classifier.

    estimator -> scores, one column per class -> calibrator -> probabilities

A calibrator needs scores of rows that the classifier was not trained on: on its training rows a
classifier looks far better than it is. So every row is scored by a copy of the classifier that was
trained without it, one calibrator is fitted on all these scores, and the classifier itself is
trained on all rows. This is scikit-learn's ``ensemble=False``. Averaging one calibrated pair per
fold instead costs a prediction per fold, leaves one temperature per fold to inspect, and its
average is softer than any of them. The drawback: the scores come from classifiers trained on fewer
rows, which are slightly less accurate than the one in use.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn import get_config  # type: ignore[import-untyped]
from sklearn.base import (  # type: ignore[import-untyped]
    BaseEstimator,
    ClassifierMixin,
    MetaEstimatorMixin,
    clone,
)
from sklearn.frozen import FrozenEstimator  # type: ignore[import-untyped]
from sklearn.model_selection import check_cv  # type: ignore[import-untyped]
from sklearn.utils import column_or_1d, get_tags, indexable  # type: ignore[import-untyped]
from sklearn.utils.metadata_routing import (  # type: ignore[import-untyped]
    MetadataRouter,
    MethodMapping,
    process_routing,
)
from sklearn.utils.metaestimators import _safe_split  # type: ignore[import-untyped]
from sklearn.utils.multiclass import (  # type: ignore[import-untyped]
    check_classification_targets,
)
from sklearn.utils.parallel import Parallel, delayed  # type: ignore[import-untyped]
from sklearn.utils.validation import (  # type: ignore[import-untyped]
    _check_method_params,
    check_is_fitted,
    has_fit_parameter,
)

from calibrant import _inputs
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.data import to_logits
from calibrant.calibrators.fit_report import CalibrationWarning, FitReport
from calibrant.calibrators.registry import new_calibrator
from calibrant.errors import CalibrantError

Floats = npt.NDArray[Any]

SCORES = ("auto", "decision_function", "predict_proba")
PREFIT = "prefit"


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn classifier with a calibrated ``predict_proba``.

    ``scores="auto"`` calibrates

    - ``decision_function``, if there is one. It is the log-odds of a logistic regression or of
      boosted trees, and keeps what rounding or clipping a probability loses. The margin of a
      support vector machine is not log-odds, but a ranking with a scale, which a temperature fits.
      One column s of a binary classifier becomes the two columns [0, s].
    - ``predict_proba`` otherwise (forests, neighbours, naive Bayes), and if the columns of
      ``decision_function`` are pairs of classes (``decision_function_shape="ovo"``). Probabilities
      below 6e-8 are raised to 6e-8.

    Methods that fit no scale, ``identity`` and ``focal``, take the scores for log-odds; use them
    with ``scores="predict_proba"`` if the decision function is not log-odds. The decision function
    of ``SVC`` with three or more classes counts votes; calibrate ``OneVsRestClassifier(SVC())``
    instead, which is far better.

    Args:
        estimator: A classifier of scikit-learn or with its interface. It is copied, never changed.
            A ``FrozenEstimator`` is used as it is, and all rows are for calibration.
        method: A name in ``CALIBRATORS``, or an unfitted calibrator, as ``focal`` requires:
            ``FocalCalibration(gamma=3)``.
        cv: Number of folds, a splitter, or pairs of index arrays; every row must be in exactly one
            test part. ``"prefit"`` uses a fitted estimator as it is. ``fit`` must then get rows
            that it was not trained on.
        scores: ``"auto"``, ``"decision_function"`` or ``"predict_proba"``.
        n_jobs: Number of folds trained in parallel, as elsewhere in scikit-learn.

    Attributes:
        classes_: The labels, sorted, of any type.
        estimator_: The classifier, trained on all rows.
        calibrator_: The fitted calibrator; ``calibrator_.save(path)`` writes it to a file.
        report_: Its :class:`FitReport`.
        scores_: The output of the classifier that is calibrated.
        n_features_in_: If the classifier has it.
        feature_names_in_: If the classifier has it.

    Examples:
        >>> from sklearn.datasets import make_classification
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from calibrant import CalibratedClassifier
        >>> X, y = make_classification(n_samples=1000, n_features=30, random_state=0)
        >>> classifier = CalibratedClassifier(GaussianNB(), method="temperature").fit(X, y)
        >>> bool(classifier.report_.after < classifier.report_.before)
        True
        >>> classifier.predict_proba(X[:2]).shape, classifier.scores_
        ((2, 2), 'predict_proba')
    """

    def __init__(
        self,
        estimator: Any,
        *,
        method: str | Calibrator = "auto",
        cv: Any = 5,
        scores: str = "auto",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.scores = scores
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> Self:  # noqa: N803
        """Train the classifier and fit its calibrator.

        Args:
            X: Features, one row per sample, in any form that the classifier takes.
            y: Labels of any type.
            sample_weight: One weight for each row, for the classifier (if its ``fit`` takes
                weights) and for the calibrator.
            **fit_params: More arguments of the classifier's ``fit``; those with one entry per row
                are split like the rows.
        """
        _inputs.choice(self.scores, "scores", SCORES)
        calibrator = new_calibrator(self.method)
        X, y = indexable(X, y)  # noqa: N806
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        weight = None if sample_weight is None else np.asarray(sample_weight)
        if self._is_fitted_already():
            check_is_fitted(self.estimator)
            self.estimator_ = self.estimator
            self.scores_ = _output(self.estimator_, self.scores)
            self.classes_ = np.asarray(self.estimator_.classes_)
            check_known_classes(np.unique(y).tolist(), self.classes_.tolist())
            logits = class_scores(self.estimator_, X, self.scores_, self.classes_)
        else:
            self.classes_ = np.unique(y)
            _inputs.two_or_more_classes(len(self.classes_))
            for_fit, for_split = self._arguments(weight, fit_params)
            self.estimator_ = clone(self.estimator)
            self.estimator_.fit(X, y, **_check_method_params(X, for_fit))
            self.scores_ = _output(self.estimator_, self.scores)
            logits = self._cross_fitted(X, y, for_fit, for_split)
        index = {label: k for k, label in enumerate(self.classes_.tolist())}
        labels = np.array([index[label] for label in y.tolist()])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            self.calibrator_ = calibrator.fit(logits=logits, labels=labels, sample_weight=weight)
        for message in self.report_.warnings:  # again, for the line that called this method
            warnings.warn(f"{calibrator.NAME}: {message}", CalibrationWarning, stacklevel=2)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
            elif hasattr(self, name):
                delattr(self, name)
        return self

    @property
    def report_(self) -> FitReport:
        """The report of the calibrator's fit."""
        return self.calibrator_.report_

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Calibrated probabilities, one column for each of ``classes_``."""
        scores = self._scores_of(X)
        probs: Floats = self.calibrator_.predict_proba(logits=scores)
        return probs

    def predict_log_proba(self, X: Any) -> Floats:  # noqa: N803
        """Calibrated log-probabilities, exact also where the probability rounds to 0 or 1."""
        scores = self._scores_of(X)
        log_probs: Floats = self.calibrator_.predict_log_proba(logits=scores)
        return log_probs

    def predict(self, X: Any) -> npt.NDArray[Any]:  # noqa: N803
        """The most probable class of each row."""
        scores = self._scores_of(X)
        labels: npt.NDArray[Any] = self.classes_[self.calibrator_.predict(logits=scores)]
        return labels

    def get_metadata_routing(self) -> MetadataRouter:
        """The metadata routing of scikit-learn."""
        fit_to_fit = MethodMapping().add(caller="fit", callee="fit")
        fit_to_split = MethodMapping().add(caller="fit", callee="split")
        router = MetadataRouter(owner=self).add_self_request(self)
        router = router.add(estimator=self.estimator, method_mapping=fit_to_fit)
        if hasattr(self.cv, "split") and not isinstance(self.cv, str):
            router = router.add(splitter=self.cv, method_mapping=fit_to_split)
        return router

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        own = get_tags(self.estimator)
        tags.input_tags = own.input_tags
        if own.classifier_tags is not None:
            tags.classifier_tags.multi_class = own.classifier_tags.multi_class
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "calibrator_")

    def _is_fitted_already(self) -> bool:
        return isinstance(self.estimator, FrozenEstimator) or (
            isinstance(self.cv, str) and _inputs.choice(self.cv, "cv", [PREFIT]) == PREFIT
        )

    def _scores_of(self, features: Any) -> Floats:
        check_is_fitted(self)
        return class_scores(self.estimator_, features, self.scores_, self.classes_)

    def _arguments(
        self, weight: Any, fit_params: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Keyword arguments of the classifier's ``fit`` and of the splitter's ``split``."""
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", sample_weight=weight, **fit_params)
            splitter = routed.get("splitter", {})
            return dict(routed.estimator.fit), dict(splitter.get("split", {}))
        given = dict(fit_params)
        if weight is not None and has_fit_parameter(self.estimator, "sample_weight"):
            given["sample_weight"] = weight
        elif weight is not None:
            warnings.warn(
                f"{type(self.estimator).__name__} takes no sample_weight: the weights are used for "
                "calibration only. Enable scikit-learn's metadata routing to pass them into a "
                "pipeline",
                UserWarning,
                stacklevel=3,
            )
        return given, {}

    def _cross_fitted(
        self, features: Any, y: Any, for_fit: dict[str, Any], for_split: dict[str, Any]
    ) -> Floats:
        """Scores of every row by a classifier that was trained without it."""
        folds = list(check_cv(self.cv, y, classifier=True).split(features, y, **for_split))
        tested = np.concatenate([np.arange(len(y))[test] for _, test in folds])
        check_each_row_once(np.bincount(tested, minlength=len(y)))
        for train, _ in folds:
            check_classes_of_fold(self.classes_.tolist(), np.unique(y[train]).tolist())
        parts = Parallel(n_jobs=self.n_jobs)(
            delayed(_fold_scores)(
                clone(self.estimator),
                features,
                y,
                train,
                test,
                for_fit,
                self.scores_,
                self.classes_,
            )
            for train, test in folds
        )
        scores = np.empty((len(y), len(self.classes_)))
        scores[tested] = np.concatenate(parts)
        return scores


def class_scores(estimator: Any, features: Any, output: str, classes: npt.NDArray[Any]) -> Floats:
    """Logits of a fitted classifier, one column for each of ``classes``."""
    values = np.asarray(getattr(estimator, output)(features))
    if output == "predict_proba":
        values = to_logits("probs", _inputs.probs(values))
    elif values.ndim == 1 and len(classes) == 2:
        values = np.stack([np.zeros_like(values), values], axis=-1)
    check_one_column_per_class(values, output, len(classes))
    return values


def _fold_scores(
    estimator: Any,
    features: Any,
    y: Any,
    train: npt.NDArray[Any],
    test: npt.NDArray[Any],
    for_fit: dict[str, Any],
    output: str,
    classes: npt.NDArray[Any],
) -> Floats:
    given = _check_method_params(features, for_fit, indices=train)
    estimator.fit(*_safe_split(estimator, features, y, train), **given)
    rows, _ = _safe_split(estimator, features, None, test, train)
    return class_scores(estimator, rows, output, classes)


def _output(estimator: Any, wanted: str) -> str:
    """The output of a fitted classifier that has one score for each class."""
    name = check_has_output(estimator, SCORES[1:] if wanted == "auto" else [wanted])
    if name == "decision_function" and len(estimator.classes_) > 2 and _scores_pairs(estimator):
        if wanted != "auto" or not hasattr(estimator, "predict_proba"):
            raise CalibrantError(
                "decision_function must give one column for each class; found "
                "decision_function_shape='ovo', one for each pair of classes. "
                "Set decision_function_shape='ovr', or pass scores='predict_proba'"
            )
        return "predict_proba"
    return name


def _scores_pairs(estimator: Any) -> bool:
    """Whether the columns of ``decision_function`` are pairs of classes.

    Their number does not tell: three classes have three pairs. So the parameters of every estimator
    inside a pipeline, a search or a frozen estimator are checked.
    """
    if isinstance(estimator, FrozenEstimator):  # get_params does not look inside
        return _scores_pairs(estimator.estimator)
    inside = estimator.get_params().values() if hasattr(estimator, "get_params") else ()
    chosen = getattr(estimator, "best_estimator_", None)
    return any(
        getattr(part, "decision_function_shape", None) == "ovo"
        or (isinstance(part, FrozenEstimator) and _scores_pairs(part))
        for part in (estimator, chosen, *inside)
    )


def check_known_classes(found: Sequence[Any], known: Sequence[Any]) -> None:
    """Refuse labels that the classifier was not trained on."""
    unknown = [label for label in found if label not in known]
    if unknown:
        raise CalibrantError(
            f"labels must be classes of the fitted estimator; found {unknown[0]!r}, which is not "
            f"one of its {len(known)}. Train the estimator on all classes, or drop the rows"
        )


def check_classes_of_fold(classes: Sequence[Any], trained: Sequence[Any]) -> None:
    """Refuse a fold without training rows of a class: its scores would mean nothing."""
    missing = [label for label in classes if label not in trained]
    if missing:
        raise CalibrantError(
            "every class must be in the training part of every fold; class "
            f"{missing[0]!r} is missing in one. Add samples of it, or choose another cv"
        )


def check_each_row_once(counts: npt.NDArray[np.intp]) -> None:
    """Refuse folds that do not test every row exactly once."""
    if not (counts == 1).all():
        row = int(np.argmax(counts != 1))
        raise CalibrantError(
            f"cv must put every row into exactly one test part; found row {row} in {counts[row]}. "
            "Pass a number of folds, or a splitter such as StratifiedKFold"
        )


def check_has_output(estimator: Any, names: Sequence[str]) -> str:
    """The first of the methods ``names`` that a fitted classifier has, or an error."""
    for name in names:
        if hasattr(estimator, name):
            return name
    raise CalibrantError(
        f"the estimator must have {' or '.join(names)}; found {type(estimator).__name__} without. "
        "Pass a classifier with one score for each class"
    )


def check_one_column_per_class(values: npt.NDArray[Any], name: str, n_classes: int) -> None:
    """Refuse scores that a softmax cannot take."""
    if values.ndim != 2 or values.shape[1] != n_classes:
        raise CalibrantError(
            f"{name} must give one column for each of the {n_classes} classes; found shape "
            f"{values.shape}. Set decision_function_shape='ovr', or pass scores='predict_proba'"
        )
