"""What was skipped of input that is read in parts."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_REASONS = 5
"""Reasons that :class:`Skipped` keeps."""


@dataclass
class Skipped:
    """What was skipped, and the first reasons."""

    files: int = 0
    groups: int = 0
    """Row groups whose remaining rows could not be decoded."""
    rows: int = 0
    """All skipped rows, including those of skipped files and row groups."""
    reasons: list[str] = field(default_factory=list)

    def add(self, reason: str, *, files: int = 0, groups: int = 0, rows: int = 0) -> None:
        """Count one more refusal."""
        self.merge(Skipped(files, groups, rows, [reason]))

    def merge(self, other: Skipped) -> None:
        """Add what was skipped elsewhere."""
        self.files += other.files
        self.groups += other.groups
        self.rows += other.rows
        self.reasons = [*self.reasons, *other.reasons][:MOST_REASONS]

    def __bool__(self) -> bool:
        return self.files + self.groups + self.rows > 0

    def __str__(self) -> str:
        counts = f"{self.rows} rows, {self.files} whole files, {self.groups} damaged row groups"
        reasons = "; ".join(reason.rstrip(".") for reason in self.reasons)
        return f"Skipped: {counts}. {reasons}" if self else "Nothing was skipped"
