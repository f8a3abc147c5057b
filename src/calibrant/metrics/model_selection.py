"""Metrics as scikit-learn's model selection calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calibrant.errors import CalibrantError
from calibrant.metrics.registry import METRICS


def scorer(name: str, **options: Any) -> Callable[..., float]:
    """A metric for ``scoring=`` of ``cross_val_score`` or ``GridSearchCV``: minus its value.

    Higher is better there, so errors are negated, as in ``neg_log_loss``. The columns of
    ``predict_proba`` are matched to ``classes_`` of the estimator, so a class may be missing in a
    test fold.

    Args:
        name: A name in ``METRICS``, of a metric for which lower is better.
        **options: Options of the metric, such as ``n_bins``.

    Examples:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.model_selection import cross_val_score
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from calibrant.metrics import scorer
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> cross_val_score(GaussianNB(), X, y, cv=3, scoring=scorer("positive_ece")).round(3)
        array([-0.084, -0.05 , -0.049])
    """
    metric = METRICS[name]
    if not metric.lower_is_better:
        comparable = ", ".join(each for each, m in METRICS.items() if m.lower_is_better)
        raise CalibrantError(
            f"a scorer needs a metric for which lower is better; found {name}. Choose one of "
            f"{comparable}"
        )

    def score(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        probs = estimator.predict_proba(X)
        value = metric(probs, y, classes=estimator.classes_, sample_weight=sample_weight, **options)
        return -value

    return score
