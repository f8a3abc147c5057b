"""A claim of a paper and how it is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from experiments.catalogue import Experiment
from experiments.verdicts import UNTESTED, Verdict

MUKHOTI = "Mukhoti et al. (2020)"
KOMISARENKO = "Komisarenko and Kull (2024)"
CHAROENPHAKDEE = "Charoenphakdee et al. (2021)"


@dataclass(frozen=True)
class Rule:
    """What decides several claims, and what is counted.

    Attributes:
        name: Its name on the page.
        says: The rule.
    """

    name: str
    says: str


@dataclass(frozen=True)
class Claim:
    """A paper's claim about networks, and the results that judge it.

    Attributes:
        says: The claim in a few words.
        source: Paper and place.
        experiments: Experiments whose published values are used.
        judge: Function of their values that returns a verdict.
        rule: What decides, and what is counted; beside ``shared``, what is special here.
        shared: The rule that it has in common with others.
        changed: The verdict before the last change of its rule, and why it changed.
    """

    says: str
    source: str
    experiments: tuple[str, ...]
    judge: Callable[..., Verdict]
    rule: str = ""
    changed: str = ""
    shared: Rule | None = None

    def judged(self, published: Mapping[str, Experiment]) -> Verdict:
        """The verdict by the published runs."""
        values = []
        for name in self.experiments:
            result = published[name].published() if name in published else None
            if result is None:
                return UNTESTED, f"`python -m experiments {name}` has not been published"
            values.append(result["values"])
        verdict, evidence = self.by(values)
        by = ", ".join(f"`{name}`" for name in self.experiments)
        return verdict, f"{evidence} ({by})"

    def by(self, values: Sequence[Mapping[str, float]]) -> Verdict:
        """The verdict by some values, of which runs may be missing or older than the claim."""
        try:
            return self.judge(*values)
        except KeyError as absent:
            return UNTESTED, f"the results lack {absent}"


Values = Mapping[str, float]
"""Published values of an experiment, by name."""
FITS = 5.0
"""Training error in percent below which a network fits its training set, as those of the papers."""
