"""Metrics of probabilities and of their calibration, with error bars.

Every metric takes ``(probs, labels)``, or ``logits=`` and ``labels=`` by name, as NumPy arrays or
PyTorch tensors with any leading axes, and ``sample_weight=``, ``ignore_label=``, ``positive=`` and
``classes=``.
"""

from calibrant.metrics.calibration import (
    ada_ece,
    classwise_ece,
    confidence_gap,
    debiased_ece,
    ece,
    ks_error,
    mce,
)
from calibrant.metrics.calibration_test import NoiseFloor
from calibrant.metrics.comparison import Comparison, Difference, paired_difference
from calibrant.metrics.costs import CostMatrix, read_costs
from calibrant.metrics.decisions import Decisions, decide
from calibrant.metrics.evaluation import Evaluation, Measured, evaluate
from calibrant.metrics.groups import GroupCalibration, GroupedEvaluation
from calibrant.metrics.kernel_errors import mmce, mmce_weighted, smooth_ece
from calibrant.metrics.model_selection import scorer
from calibrant.metrics.multilabel import (
    LabelCalibration,
    MultiLabelEvaluation,
    evaluate_multilabel,
)
from calibrant.metrics.positive import (
    calibration_intercept,
    calibration_slope,
    positive_ada_ece,
    positive_ece,
    prevalence_gap,
)
from calibrant.metrics.registry import METRICS, Metric, metric
from calibrant.metrics.samples import ScoredSamples
from calibrant.metrics.scores import (
    BrierParts,
    aurc,
    brier,
    brier_decomposition,
    entropy,
    entropy_correct,
    entropy_wrong,
    error_rate,
    focal_loss,
    kl_to_posterior,
    n_impossible,
    nll,
    nll_correct,
    nll_wrong,
    s99,
    s99_accuracy,
    top_k_error,
    true_prob_correct,
    true_prob_wrong,
)
from calibrant.metrics.slices import Slice, SliceSearch, worst_slices
from calibrant.metrics.streaming import StreamedEvaluation
from calibrant.metrics.verdict import ClassOff, Verdict

__all__ = [
    "METRICS",
    "BrierParts",
    "ClassOff",
    "Comparison",
    "CostMatrix",
    "Decisions",
    "Difference",
    "Evaluation",
    "GroupCalibration",
    "GroupedEvaluation",
    "LabelCalibration",
    "Measured",
    "Metric",
    "MultiLabelEvaluation",
    "NoiseFloor",
    "ScoredSamples",
    "Slice",
    "SliceSearch",
    "StreamedEvaluation",
    "Verdict",
    "ada_ece",
    "aurc",
    "brier",
    "brier_decomposition",
    "calibration_intercept",
    "calibration_slope",
    "classwise_ece",
    "confidence_gap",
    "debiased_ece",
    "decide",
    "ece",
    "entropy",
    "entropy_correct",
    "entropy_wrong",
    "error_rate",
    "evaluate",
    "evaluate_multilabel",
    "focal_loss",
    "kl_to_posterior",
    "ks_error",
    "mce",
    "metric",
    "mmce",
    "mmce_weighted",
    "n_impossible",
    "nll",
    "nll_correct",
    "nll_wrong",
    "paired_difference",
    "positive_ada_ece",
    "positive_ece",
    "prevalence_gap",
    "read_costs",
    "s99",
    "s99_accuracy",
    "scorer",
    "smooth_ece",
    "top_k_error",
    "true_prob_correct",
    "true_prob_wrong",
    "worst_slices",
]
