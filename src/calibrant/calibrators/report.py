"""What a fit has to say for itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self


class CalibrationWarning(UserWarning):
    """A fitted calibrator that should not be trusted as it is; the message says why."""


@dataclass(frozen=True, kw_only=True)
class FitReport:
    """How a fit went: print it, or take ``to_dict``.

    ``warnings`` has one sentence for each reason not to trust the result.
    """

    method: str
    """Name in ``CALIBRATORS``."""
    n_samples: int
    """Samples that counted: rows of weight 0 do not."""
    n_classes: int
    criterion: str
    """What was minimised on the samples given to ``fit``."""
    before: float
    """Its value for the probabilities as they came in."""
    after: float
    """Its value for the calibrated ones."""
    gradient: float | None
    """Largest slope left at the result, per parameter; None where the criterion has none."""
    at_bound: str | None
    """Which bound or limit the result lies at, if any."""
    evaluations: int
    """How often the criterion was computed on all samples."""
    accuracy_before: float
    accuracy_after: float
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as it is saved in JSON."""
        return {**asdict(self), "warnings": list(self.warnings)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Back from :meth:`to_dict`."""
        known = {field.name for field in fields(cls)}
        kept = {name: value for name, value in values.items() if name in known}
        return cls(**{**kept, "warnings": tuple(kept.get("warnings", ()))})

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
        lines += [f"Warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)
