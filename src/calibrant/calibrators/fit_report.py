"""The report of a fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from calibrant._inputs.skipped import Skipped
from calibrant._tables import html_table

LIMITS = {
    "T -> 0": (
        "the criterion falls all the way to T = 0, because nearly every sample is classified "
        "correctly; fit on more samples, with mistakes among them."
    ),
    "T -> infinity": (
        "the criterion falls all the way to T = infinity, because the log-loss is worse than "
        "chance; check that labels and classes have the same order, and look for mistakes with "
        "huge logits, which outweigh everything else (histogram and isotonic are robust to them)."
    ),
}
"""What a best temperature at a limit means, by the name of the limit in ``at_bound``."""
NOT_SAVED = ("passes", "skipped", "search_bounds", "tail_bounds", "compared_on")
"""Fields of a report that the file of a calibrator does not keep; they are None after loading."""


class CalibrationWarning(UserWarning):
    """A reason not to trust a fitted calibrator."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Results of one of the compared methods on samples it was not fitted on."""

    method: str
    nll: float
    gain: float | None
    """NLL of the best simpler method minus its own; None for the simplest method."""
    gain_error: float | None
    """Standard error of ``gain`` over samples."""
    ada_ece: float
    ada_ece_error: float
    """Standard error of ``ada_ece``."""
    moved_confidence: float
    """Mean change of the confidence that keeping the predicted class causes."""
    changed: float = 0.0
    """Share of the predictions that it changes."""
    accuracy_gain: float = 0.0
    """What that adds to the accuracy."""
    accuracy_gain_error: float = 0.0
    """Standard error of ``accuracy_gain`` over samples."""
    chosen: bool = False

    def __str__(self) -> str:
        known = self.gain is not None and self.gain_error is not None
        gain = f", gains {self.gain:.4f} +- {self.gain_error:.4f}" if known else ""
        text = f"{self.method}: nll {self.nll:.4f}{gain}; ada_ece {self.ada_ece:.2%}"
        if self.changed:
            text += (
                f"; changes {self.changed:.1%} of the predictions, accuracy "
                f"{self.accuracy_gain:+.2%} +- {self.accuracy_gain_error:.2%}"
            )
        return f"{text}; chosen" if self.chosen else text


@dataclass(frozen=True, kw_only=True)
class SearchBounds:
    """How exact a search by an equal-mass calibration error over files is."""

    off_by: float
    """Bound on the error of the calibration error at the chosen point."""
    better_by: float
    """Bound on how much smaller the calibration error of another point can be."""

    def __str__(self) -> str:
        return (
            f"ada_ece is off by at most {self.off_by:.2g}; no point of the search is better by "
            f"more than {self.better_by:.2g}."
        )


@dataclass(frozen=True)
class TailBounds:
    """Bounds on a fit on truncated rows that hold whatever the unknown classes are."""

    criterion: str
    low: float
    """Lower bound of the criterion at the chosen point, on these samples."""
    high: float
    """Upper bound of the criterion there."""
    lowest: float | None
    """All temperatures below this are worse, at the same gamma; None if unknown."""
    highest: float | None
    """All temperatures above this are worse, at the same gamma; None if unknown."""
    everywhere: bool
    """Whether this holds for all such temperatures, or only for those that were evaluated."""

    def __str__(self) -> str:
        text = (
            f"Whatever the unknown classes are, {self.criterion} is between {self.low:.6g} and "
            f"{self.high:.6g} on these samples"
        )
        ends = [
            f"{side} {value:.4g}"
            for side, value in (("below", self.lowest), ("above", self.highest))
            if value is not None
        ]
        if not ends:
            return f"{text}; no other temperature can be ruled out."
        among = "Temperatures" if self.everywhere else "The evaluated temperatures"
        return f"{text}. {among} {' and '.join(ends)} are worse."


@dataclass(frozen=True, kw_only=True)
class FitReport:
    """The result of a fit in numbers: print it, or use :meth:`to_dict`.

    ``warnings`` has one sentence for each reason not to trust the result.
    """

    method: str
    """Name in ``CALIBRATORS``."""
    n_samples: int
    """Number of samples, without rows of weight 0."""
    n_classes: int
    criterion: str
    """The quantity minimised on the samples given to ``fit``."""
    before: float
    """Its value before calibration."""
    after: float
    """Its value after calibration."""
    gradient: float | None
    """Largest absolute gradient entry at the result; None if the criterion has no gradient."""
    at_bound: str | None
    """The bound or limit that the result lies at, if any."""
    evaluations: int
    """Number of evaluations of the criterion on all samples."""
    accuracy_before: float
    accuracy_after: float
    warnings: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    """The methods compared, simplest first, if the method selects one of several."""
    passes: int | None = None
    """How often the files were read; None for samples in memory."""
    skipped: Skipped | None = None
    """Files and rows that were skipped; None if bad ones were refused."""
    search_bounds: SearchBounds | None = None
    """For files and the criterion ``ada_ece``, how exact the search is."""
    tail_bounds: TailBounds | None = None
    """For truncated rows, what is certain whatever the unknown classes are."""
    compared_on: str | None = None
    """For files and the method ``auto``, the rows on which methods were compared."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data; what a fit in memory does not have is left out."""
        values = asdict(self)
        values |= {"warnings": list(self.warnings), "evidence": list(values["evidence"])}
        return {
            name: value
            for name, value in values.items()
            if value is not None or name not in NOT_SAVED
        }

    def to_saved_dict(self) -> dict[str, Any]:
        """What the file of a calibrator keeps."""
        return {name: each for name, each in self.to_dict().items() if name not in NOT_SAVED}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """A report from the result of :meth:`to_saved_dict`."""
        evidence = tuple(Evidence(**each) for each in values["evidence"])
        return cls(**{**values, "warnings": tuple(values["warnings"]), "evidence": evidence})

    def __str__(self) -> str:
        same = self.accuracy_before == self.accuracy_after
        accuracy = (
            f"accuracy unchanged at {self.accuracy_after:.2%}"
            if same
            else f"accuracy changed from {self.accuracy_before:.2%} to {self.accuracy_after:.2%}"
        )
        gradient = "" if self.gradient is None else f", gradient {self.gradient:.1e}"
        lines = [
            f"{self.method} on {self.n_samples} samples of {self.n_classes} classes: "
            f"{self.criterion} from {self.before:.6f} to {self.after:.6f} "
            f"({self.evaluations} evaluations{gradient}); {accuracy}."
        ]
        if self.at_bound is not None:
            lines.append(f"The result lies at a bound: {self.at_bound}.")
        return "\n".join([*lines, *self._remarks()])

    def _remarks(self) -> list[str]:
        """The lines below the numbers."""
        lines = [f"Held out: {each}." for each in self.evidence]
        if self.passes is not None:
            lines.append(f"The files were read {self.passes} times.")
        if self.compared_on is not None:
            lines.append(self.compared_on)
        lines += [str(each) for each in (self.search_bounds, self.tail_bounds) if each is not None]
        if self.skipped:
            lines.append(f"{self.skipped}.")
        return [*lines, *(f"Warning: {warning}" for warning in self.warnings)]

    def _repr_html_(self) -> str:
        gradient = "" if self.gradient is None else f"{self.gradient:.1e}"
        rows = [
            ("samples", f"{self.n_samples:,}", ""),
            ("classes", f"{self.n_classes:,}", ""),
            (self.criterion, f"{self.before:.6f}", f"{self.after:.6f}"),
            ("accuracy", f"{self.accuracy_before:.2%}", f"{self.accuracy_after:.2%}"),
            ("evaluations", "", f"{self.evaluations:,}"),
            ("gradient", "", gradient),
            ("at a bound", "", self.at_bound or "no"),
        ]
        return html_table([(self.method, "before", "after")], rows, below=self._remarks())
