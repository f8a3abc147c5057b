"""What to do about a model: verdict, recommendation and gains, decided in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calibrant._inputs import CORRECTNESS
from calibrant.calibrators.temperature.methods import Identity
from calibrant.metrics.comparison import Comparison, difference_of_resampled
from calibrant.metrics.evaluation import Evaluation
from calibrant.metrics.resampling import ResampledMetrics

if TYPE_CHECKING:
    from calibrant.calibrators.comparison.result import ComparedMethod, MethodComparison

PREFERRED = ("auto", "temperature")
"""Recommended if they can be used, in this order, and then the methods in the order given.
Choosing by test figures would be biased."""
PAIRED = ("ada_ece", "ece", "nll", "brier", "error_rate")
POSITIVE = ("positive_ada_ece", "positive_ece")
"""Beside these for two classes."""


def paired_metrics(n_classes: int) -> tuple[str, ...]:
    """The metrics in which methods are compared; the main calibration error comes first.

    Examples:
        >>> paired_metrics(10)[0], paired_metrics(2)[0]
        ('ada_ece', 'positive_ada_ece')
    """
    return (*POSITIVE, *PAIRED) if n_classes == 2 else PAIRED


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """The method that the samples speak for, or against, and what it gains and costs."""

    before: ComparedMethod
    """The model as it is."""
    after: ComparedMethod
    """The method in question."""
    differences: Comparison
    """``after`` minus ``before``."""
    rival: str | None
    """The method with the smallest log-loss, if it is significantly better than both."""
    of_answers: bool = False
    """Whether the probabilities are those of answers being correct, so that no class changes."""

    @property
    def advice(self) -> str:
        """``calibrate``, ``leave``, ``avoid`` or ``look`` (metrics disagree, or undecided)."""
        if self.verdict.side == "undecided":
            return "look"
        gains = {self.gain(self.error), self.gain("nll")}
        if "worse" in gains:
            return "look" if "better" in gains else "avoid"
        return "calibrate" if "better" in gains else "leave"

    @property
    def trusted(self) -> bool:
        """Whether nothing is off and nothing is to be gained."""
        return self.verdict.side == "calibrated" and self.advice in ("leave", "avoid")

    @property
    def verdict(self) -> Evaluation:
        """The evaluation of the model as it is."""
        assert self.before.evaluation is not None
        return self.before.evaluation

    @property
    def error(self) -> str:
        """The calibration error that counts: of P(class 1) for two classes."""
        return "positive_ece" if self.verdict.n_classes == 2 else "ece"

    def gain(self, metric: str) -> str:
        """``better``, ``worse`` or ``not distinguishable``: the method against the model itself."""
        return self.differences["error_rate" if metric == "accuracy" else metric].verdict

    @property
    def action(self) -> str:
        """What to do, in a sentence."""
        if self.verdict.side == "undecided":
            return "Log more alternatives and measure again: the missing options decide."
        name = self.after.name
        chosen = getattr(self.after.calibrator, "chosen_", name)
        called = name if chosen == name else f"{name} (it selected {chosen})"
        if self.advice == "calibrate":
            return f"Calibrate it with {called}."
        if self.advice == "look":
            raised = self.gain(self.error) == "worse"
            words = (
                "raises the calibration error here, though it lowers the log-loss"
                if raised
                else "lowers the calibration error here, but raises the log-loss"
            )
            return f"{called} {words}. See the table of methods before you use it."
        if self.trusted:
            return f"Leave it as it is. These samples show no gain from {called}."
        if self.advice == "avoid":
            return f"{name} makes it worse here: do not use it. See the table of methods."
        return (
            f"{called} shows no significant gain on these samples. "
            "See the table of methods, or collect more samples."
        )

    @property
    def cost(self) -> str:
        """What the method does to the predicted class and the accuracy, in a sentence."""
        changed, n = self.after.changed, self.verdict.n
        if self.of_answers:
            return "It changes how sure the model is of its answers, and no answer."
        if not changed:
            return "It keeps every predicted class."
        wrong = self.differences["error_rate"]
        words = f"It changes {changed} of {n} predictions ({changed / n:.1%}); accuracy "
        words += f"{1.0 - wrong.b:.1%} to {1.0 - wrong.a:.1%}"
        if wrong.low is None or wrong.high is None:
            return f"{words}."
        level = f"{100 * self.differences.level:g}%"
        ends = f"{-100 * wrong.high:+.1f} to {-100 * wrong.low:+.1f} points"
        return f"{words} ({level} interval of the change: {ends})."

    def __str__(self) -> str:
        words = f"As it is ({self.before.name}): {self.verdict.verdict()}\n{self.action}"
        if self.advice != "calibrate":
            return words
        nll = self.differences["nll"]
        told = "not significant" if nll.verdict == "not distinguishable" else "significant"
        words += f" Log-loss {nll.b:.4f} to {nll.a:.4f} ({told}). {self.cost}"
        if self.after.changed and not self.of_answers:
            words += " To keep the predicted class: auto with --keep-class (keep_class=True)."
        return words

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "method": self.after.name,
            "advice": self.advice,
            "trusted": self.trusted,
            "side": self.verdict.side,
            "changed": self.after.changed,
            "differences": self.differences.to_dict()["differences"],
            "rival": self.rival,
            "text": str(self),
        }


def recommend(
    comparison: MethodComparison, measured: Mapping[str, ResampledMetrics]
) -> Recommendation | None:
    """The recommendation; None if the model as it is or every other method is missing.

    It is the first of ``PREFERRED``. If that gains nothing, it is the method with the smallest
    log-loss, if that is significantly smaller with as many methods to choose from.
    """
    rows = {row.name: row for row in comparison.rows if row.evaluation is not None}
    before = next((row for row in rows.values() if isinstance(row.calibrator, Identity)), None)
    wanted = [name for name in (*PREFERRED, *measured) if name in rows]
    first = next((name for name in wanted if before and name != before.name), None)
    if before is None or first is None:
        return None

    def difference(a: str, b: str, level: float | None = None) -> Comparison:
        names = paired_metrics(comparison.n_classes)
        return difference_of_resampled(measured[a], measured[b], names, level)

    def recommendation(name: str, rival: str | None) -> Recommendation:
        return Recommendation(
            before=before,
            after=rows[name],
            differences=difference(name, before.name),
            rival=rival,
            of_answers=measured[name].samples.classes == CORRECTNESS,
        )

    group, _ = comparison.best_and_others("nll")
    strict = 1.0 - (1.0 - comparison.level) / len(rows)
    rival: str | None = group[0]
    if {first, before.name} & {*group} or any(
        difference(group[0], other, strict)["nll"].verdict != "better"
        for other in (first, before.name)
    ):
        rival = None
    found = recommendation(first, rival)
    return found if rival is None or found.advice == "calibrate" else recommendation(rival, None)
