"""The verdict on a language model's log that leaves out options, at both ends of what they can be.

The k most probable tokens that a server logs need not include every option. With the missing ones
at probability 0 the confidence is largest, with as much as they can have it is smallest. Where the
verdicts differ, the log cannot tell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibrant.metrics.samples import ScoredSamples, samples_from_scores
from calibrant.metrics.verdict import Verdict, judge


@dataclass(frozen=True)
class Ends:
    """The verdicts at both ends, beside the one between them."""

    n: int
    """Samples of which an option is missing."""
    between: Verdict
    """With a missing option at half of the largest probability that it can have."""
    at_zero: Verdict
    at_most: Verdict

    @property
    def differ(self) -> bool:
        """Whether the verdict depends on the missing options."""
        return len({self.between.side, self.at_zero.side, self.at_most.side}) > 1

    @property
    def verdict(self) -> Verdict:
        """The verdict that holds at both ends, or that there is none."""
        if not self.differ:
            return self.between
        sentence = (
            f"Undecided: in {self.n} samples an option is not among the logged tokens. With these "
            f"options at 0 the verdict is {self.at_zero.side}, with as much as they can have it is "
            f"{self.at_most.side}. Log more alternatives, such as top_logprobs=20."
        )
        p_value = max(each.p_value for each in (self.between, self.at_zero, self.at_most))
        return Verdict("undecided", p_value, sentence)

    def __str__(self) -> str:
        return (
            f"In {self.n} samples an option is not among the logged tokens; the figures give it "
            "half of what it can have.\n"
            f"With these options at 0: {self.at_zero.sentence}\n"
            f"With as much as they can have: {self.at_most.sentence}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        verdicts = {"between": self.between, "at_zero": self.at_zero, "at_most": self.at_most}
        return {
            "n": self.n,
            "differ": self.differ,
            **{
                name: {"side": each.side, "p_value": each.p_value, "verdict": each.sentence}
                for name, each in verdicts.items()
            },
        }


def judge_ends(
    samples: ScoredSamples, between: Verdict, n_bins: int, n_resamples: int, seed: int, level: float
) -> Ends | None:
    """The verdicts at both ends; None if no option is missing."""
    if samples.upper is None:
        return None
    logits = samples.need_scores()
    missing = samples.upper > logits
    at_zero, at_most = (
        judge(
            replace(
                samples_from_scores(
                    logits=end, labels=samples.labels, sample_weight=samples.weight
                ),
                classes=samples.classes,
            ),
            n_bins,
            n_resamples,
            seed,
            level,
        )[0]
        for end in (np.where(missing, -np.inf, logits), samples.upper)
    )
    return Ends(int(missing.any(axis=1).sum()), between, at_zero, at_most)
