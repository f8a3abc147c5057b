"""The result of a watch: plain data, as text and as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from calibrant._inputs import CORRECTNESS
from calibrant._tables import count_text, json_value, score_text, text_table
from calibrant.monitoring.diagnosis import LEVEL, Diagnosis, Gap
from calibrant.monitoring.e_process import ALL
from calibrant.monitoring.periods import shared_of
from calibrant.monitoring.repair import Repair
from calibrant.monitoring.state import State, Step

MOST_LINES = 30
"""Periods in the text, the last ones."""
MOST_NAMED = 8
"""Gaps and factors in the text."""


@dataclass(frozen=True)
class Period:
    """The calibration of one period, and the evidence after it."""

    name: str
    gap: Gap
    nll: float
    log_e: float
    """When its first samples were counted."""


@dataclass(frozen=True)
class Watch:
    """Calibration over time, and whether the evidence against it has ever reached the alarm."""

    where: str
    level: float
    """Probability of a false alarm, ever."""
    probability: str
    """What the event's stated probability is called."""
    rate: str
    class_names: tuple[str, ...]
    periods: tuple[Period, ...]
    """In order of time."""
    steps: tuple[Step, ...]
    """The evidence, in the order in which samples were counted."""
    waiting: int
    """Samples without a label."""
    diagnosis: Diagnosis | None = None
    """After an alarm."""
    notes: tuple[str, ...] = ()

    @property
    def alarm(self) -> Step | None:
        """The first step at which the evidence reached 1 / level."""
        line = self.log_alarm
        return next((step for step in self.steps if step.log_e >= line), None)

    @property
    def log_alarm(self) -> float:
        """The logarithm of the evidence that is an alarm."""
        return -math.log(self.level)

    @property
    def log_e(self) -> float:
        """The logarithm of the evidence now."""
        return self.steps[-1].log_e if self.steps else 0.0

    @property
    def n(self) -> int:
        """Samples with a label."""
        return sum(period.gap.n for period in self.periods)

    def verdict(self) -> list[str]:
        """Sentences: whether there is an alarm, since when, what is off, and the repair."""
        line = f"{1.0 / self.level:.4g} (level {100 * self.level:g}%)"
        alarm, found = self.alarm, self.diagnosis
        if not self.n:
            return ["No verdict: no sample that counts has a label yet."]
        if alarm is None or found is None:
            return [f"No alarm: the evidence is {evidence_text(self.log_e)}, below {line}."]
        said = [
            f"ALARM in {alarm.period}: the evidence reached {evidence_text(alarm.log_e)}, above "
            f"{line}; it is {evidence_text(self.log_e)} now.",
            f"Since {found.since} ({100 * LEVEL:g}% interval {found.earliest} to {found.latest}): "
            f"{count_text(found.n)} samples.",
            "The evidence is about "
            + ", ".join(f"{what} ({share:.0%})" for what, share in found.evidence.items())
            + ".",
        ]
        for gap in found.off[:MOST_NAMED]:
            said.append(f"Off since then: {self.gap_text(gap)}.")
        if not found.off:
            said.append(
                f"None of the {len(found.gaps)} mean probabilities since then is off by itself."
            )
        if found.repair is not None:
            said.append(repair_text(found.repair, self.class_names))
        return said

    def gap_text(self, gap: Gap) -> str:
        """A gap in words."""
        probability, rate = self.probability, self.rate
        if len(self.class_names) > 2 and gap.what in self.class_names:
            probability, rate = "mean probability", "rate"
        return (
            f"{gap.what}: {probability} {gap.stated:.2%}, {rate} {gap.happened:.2%}, gap "
            f"{points(gap.gap)} ({points(gap.low)} to {points(gap.high)} points)"
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "where": self.where,
            "level": self.level,
            "alarm": None if self.alarm is None else self.alarm._asdict(),
            "log_e": self.log_e,
            "n": self.n,
            "waiting": self.waiting,
            "periods": [
                {
                    "period": each.name,
                    **_gap_dict(each.gap),
                    "nll": json_value(each.nll),
                    "log_e": each.log_e,
                }
                for each in self.periods
            ],
            "steps": [step._asdict() for step in self.steps],
            "diagnosis": self.diagnosis and _diagnosis_dict(self.diagnosis),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        waiting = f"; {count_text(self.waiting)} wait for labels" if self.waiting else ""
        shown = self.periods[-MOST_LINES:]
        left_out = len(self.periods) - len(shown)
        heads = ["period", "n", self.probability, self.rate, "gap", "", "NLL", "evidence"]
        rows = [heads, *([["...", f"{left_out} earlier"]] if left_out else [])]
        for each in shown:
            gap = each.gap
            rows.append(
                [
                    each.name,
                    count_text(gap.n),
                    f"{gap.stated:.2%}",
                    f"{gap.happened:.2%}",
                    points(gap.gap),
                    f"({points(gap.low)} to {points(gap.high)})",
                    score_text(each.nll),
                    evidence_text(each.log_e),
                ]
            )
        n = len(self.periods)
        head = f"{self.where}: {n} period{'' if n == 1 else 's'}, {count_text(self.n)} samples"
        table = [
            *text_table(rows, "<>>>>>>>"),
            f"gap: {self.probability} minus {self.rate} in points, with its {100 * LEVEL:g}% "
            "interval; evidence: against calibration, after this period",
            "",
        ]
        return "\n".join(
            [f"{head}{waiting}", *(table if shown else []), *self.verdict(), *self.notes]
        )


def result_of(state: State, where: str, level: float, notes: tuple[str, ...]) -> Watch:
    """The result of a state, without a diagnosis."""
    first = {step.period: step.log_e for step in reversed(state.steps)}
    periods = []
    for name, groups in state.sums.by_period().items():
        shared = shared_of(groups[ALL])
        gap = Gap.of(name, *shared[:4], 1.0 - LEVEL)
        periods.append(Period(name, gap, shared.nll / shared.n, first[name]))
    names = state.class_names or tuple(f"class {k}" for k in range(state.n_classes))
    if state.n_classes > 2 or names == CORRECTNESS:
        probability, rate = "confidence", "accuracy"
    else:
        probability, rate = f"P({names[1]})", "rate"
    waiting = sum(state.sums.waiting.values())
    steps = tuple(state.steps)
    return Watch(
        where, level, probability, rate, names, tuple(periods), steps, waiting, notes=notes
    )


def repair_text(repair: Repair, class_names: tuple[str, ...]) -> str:
    """A repair in a sentence."""
    on = f"on {count_text(repair.n)} samples"
    if repair.name == "nothing":
        return f"Repair: none. No repair lowers the NLL significantly ({on}). Wait for more labels."
    how = f"{on}: NLL lower by {repair.gain:.4f} +- {repair.error:.4f} where it was not fitted"
    if repair.temperature is not None:
        return (
            f"Repair: a new temperature. Divide the log-probabilities by {repair.temperature:.3f} "
            f"({how})."
        )
    if repair.factors is not None:
        pairs = sorted(
            zip(class_names, repair.factors, strict=True), key=lambda each: -abs(math.log(each[1]))
        )
        factors = ", ".join(f"{name} {factor:.3f}" for name, factor in pairs[:MOST_NAMED])
        more = f" and {len(pairs) - MOST_NAMED} more" if len(pairs) > MOST_NAMED else ""
        return (
            "Repair: a new offset. Multiply the probabilities by class, and normalise: "
            f"{factors}{more} ({how})."
        )
    return (
        f"Repair: a new fit (calibrant fit) on the samples since then; auto chose {repair.method} "
        f"({how})."
    )


def evidence_text(log_e: float) -> str:
    """An e-value, also where it overflows.

    Examples:
        >>> evidence_text(0.0), evidence_text(3000.0)
        ('1', '1e+1302')
    """
    if log_e < 600.0:
        return f"{math.exp(log_e):.3g}"
    return f"1e+{math.floor(log_e / math.log(10.0))}"


def points(share: float) -> str:
    """A share in points, with its sign."""
    return f"{100.0 * share:+.2f}"


def _gap_dict(gap: Gap) -> dict[str, Any]:
    return {**{k: v for k, v in asdict(gap).items() if k != "what"}, "gap": gap.gap}


def _diagnosis_dict(found: Diagnosis) -> dict[str, Any]:
    return {
        **{name: getattr(found, name) for name in ("since", "earliest", "latest", "n", "evidence")},
        "off": [{"what": gap.what, **_gap_dict(gap)} for gap in found.off],
        "looked_at": len(found.gaps),
        "repair": found.repair and asdict(found.repair),
    }
