"""Searches that run together, so that each round of them is one pass over the samples."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import islice
from typing import TypeAlias, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Result = TypeVar("Result")

Search: TypeAlias = Generator[list[Question], list[Answer], Result]
"""Yields a list of questions, is sent the answer to each, and returns its result."""


def run_together(
    searches: Sequence[Search[Question, Answer, Result]],
    answers_to: Callable[[list[Question]], Sequence[Answer]],
) -> list[Result]:
    """The results of the searches; ``answers_to`` gets the questions of all of them at once."""
    results: dict[int, Result] = {}
    answers: dict[int, list[Answer] | None] = dict.fromkeys(range(len(searches)))
    while answers:
        asked: dict[int, list[Question]] = {}
        for number, answer in answers.items():
            try:
                search = searches[number]
                asked[number] = next(search) if answer is None else search.send(answer)
            except StopIteration as end:
                results[number] = end.value
        found = iter(answers_to([question for batch in asked.values() for question in batch]))
        answers = {number: list(islice(found, len(batch))) for number, batch in asked.items()}
    return [results[number] for number in range(len(searches))]
