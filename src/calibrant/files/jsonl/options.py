"""The options of a multiple-choice answer: which token it is, and what each option has there.

A log has the k most probable tokens. An option that is not among them has at most the smallest
logged probability c, and all missing options together at most what the logged tokens leave, R.
With n of them missing:

    0 <= p <= u = min(c, R / n)    for each, if they are to have as much as they can together

The confidence of the answer is largest with all of them at 0 and smallest with all of them at u.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from calibrant._inputs.values import described
from calibrant.errors import CalibrantError
from calibrant.files.jsonl.shapes import TOO_MUCH, Position
from calibrant.files.layout import listed

HALF = math.log(0.5)
"""A missing option is given half of its largest probability: no other number is as near to both
ends. ``docs/language-models.md`` has what that does to a fit."""
ROUNDING = 2.0**-20
"""R is a difference of rounded numbers and cannot be known to be smaller than about 1e-6."""
SPACES = " \t\r\n▁Ġ"
"""What may surround an option in a token; two tokenizers write a space as a letter."""


class OptionScores(NamedTuple):
    """Log-probabilities of the options, not normalised over them."""

    log_probs: list[float]
    upper: list[float]
    """The largest possible ones; those of a missing option are twice its probability."""


def checked_options(texts: Sequence[str]) -> tuple[str, ...]:
    """Two or more different texts."""
    if (
        isinstance(texts, str)
        or len(texts) < 2
        or len(set(texts)) < len(texts)
        or any(not isinstance(text, str) or not text or text != text_of(text) for text in texts)
    ):
        raise CalibrantError(
            "options must be two or more different texts without outer spaces; found "
            f"{texts!r}. Write for example A,B,C,D"
        )
    return tuple(texts)


def text_of(token: str) -> str:
    """A token without the spaces around it."""
    return token.strip(SPACES)


def answer_position(positions: Sequence[Position], options: Sequence[str]) -> Position:
    """The first token that is an option; of an answer of one token, that one."""
    if len(positions) == 1:
        return positions[0]
    for position in positions:
        if position.sampled is not None and text_of(position.sampled) in options:
            return position
    raise _not_found(options, [str(position.sampled) for position in positions], "the answer")


def option_scores(position: Position, options: Sequence[str]) -> OptionScores:
    """The options at the answer's token: with and without spaces, in sum."""
    total = math.fsum(math.exp(each.log_prob) for each in position.logged)
    if total > 1.0 + TOO_MUCH:
        raise CalibrantError(
            f"the probabilities of one token must have a sum of at most 1; found {total:.4g}. "
            "Write log-probabilities, not logits"
        )
    sums = dict.fromkeys(options, -math.inf)
    for token, log_prob in position.logged:
        option = text_of(token)
        if option in sums:
            sums[option] = float(np.logaddexp(sums[option], log_prob))
    n_missing = sum(value == -math.inf for value in sums.values())
    if n_missing == len(options):
        raise _not_found(options, [each.token for each in position.logged], "its top tokens")
    log_probs = [*sums.values()]
    if not n_missing:
        return OptionScores(log_probs, log_probs)
    bound = min(position.smallest, math.log(max(1.0 - total, ROUNDING) / n_missing))
    return OptionScores(
        [bound + HALF if value == -math.inf else value for value in log_probs],
        [bound if value == -math.inf else value for value in log_probs],
    )


def label_index(label: Any, options: Sequence[str], *, index_first: bool = False) -> int:
    """The option that is correct: its text, or its index from 0.

    A number that is both is the text, unless ``index_first``.
    """
    text = text_of(str(label))
    is_index = text.isdecimal() and len(text) < 10 and int(text) < len(options)
    if text in options and not (index_first and is_index) and not isinstance(label, bool):
        return options.index(text)
    if is_index:
        return int(text)
    raise CalibrantError(
        f"the label must be one of the options {listed(options)}, or an index from 0; found "
        f"{described(label)}. Name all options with --options, and the field with --label"
    )


def _not_found(options: Sequence[str], tokens: list[str], where: str) -> CalibrantError:
    return CalibrantError(
        f"none of the options {listed(options)} is in {where}; found "
        f"{listed([repr(token) for token in tokens])}. Name the options with --options, or remove "
        "the line"
    )
