"""What it means that the best temperature lies at a limit, in words for the report."""

from __future__ import annotations

LIMITS = {
    "T -> 0": (
        "the criterion falls all the way to T = 0, because hardly a label lies below the largest "
        "logit of its row; fit on more samples, with mistakes among them."
    ),
    "T -> infinity": (
        "the criterion falls all the way to T = infinity, because the log-loss is worse than "
        "chance; check that labels and classes have the same order, and look for mistakes of huge "
        "logits, which outweigh all else in it (histogram and isotonic do not mind them)."
    ),
}
"""By the name of the limit, as it stands in ``at_bound``."""
