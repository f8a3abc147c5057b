"""Searches that go side by side, so that each round of them is one look at the samples."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import islice
from typing import TypeAlias, TypeVar

Place = TypeVar("Place")
Answer = TypeVar("Answer")
End = TypeVar("End")

Walk: TypeAlias = Generator[list[Place], list[Answer], End]
"""Yields places, is sent the answer of each, and returns where it ends."""


def side_by_side(
    walks: Sequence[Walk[Place, Answer, End]],
    answers_of: Callable[[list[Place]], Sequence[Answer]],
) -> list[End]:
    """Where the walks end; ``answers_of`` is asked for the places of all of them together."""
    ends: dict[int, End] = {}
    answers: dict[int, list[Answer] | None] = dict.fromkeys(range(len(walks)))
    while answers:
        asked: dict[int, list[Place]] = {}
        for number, answer in answers.items():
            try:
                walk = walks[number]
                asked[number] = next(walk) if answer is None else walk.send(answer)
            except StopIteration as end:
                ends[number] = end.value
        found = iter(answers_of([place for places in asked.values() for place in places]))
        answers = {number: list(islice(found, len(asked[number]))) for number in asked}
    return [ends[number] for number in range(len(walks))]
