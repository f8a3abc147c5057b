"""What to look for in the lines of a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calibrant.errors import CalibrantError


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Where the answers of a language model are in a ``.jsonl`` log.

    Args:
        options: texts of the possible answers, such as ``("A", "B", "C", "D")``: the classes, in
            this order. None if the lines name them: plain lines and those of
            lm-evaluation-harness.
        label: field of the correct option, such as ``"meta.key"``; None is ``label``, ``answer`` or
            ``target``.
        source: the lines to read, by their field ``source``; None if all have the same.

    Examples:
        >>> import pathlib, tempfile
        >>> from calibrant.files import Answers, read_predictions
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "log.jsonl"
        >>> _ = file.write_text('{"logprobs": {"A": -0.5, " B": -1.5}, "answer": {"key": "B"}}')
        >>> answers = Answers(options=("A", "B"), label="answer.key")
        >>> found = read_predictions(file, answers=answers)
        >>> found.logits.tolist(), found.labels.tolist()
        ([[-0.5, -1.5]], [1])
    """

    options: Sequence[str] | None = None
    label: str | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        texts = self.options
        if texts is not None and (
            isinstance(texts, str)
            or len(texts) < 2
            or len(set(texts)) < len(texts)
            or any(not isinstance(text, str) or not text or text != text.strip() for text in texts)
        ):
            raise CalibrantError(
                "options must be two or more different texts without outer spaces; found "
                f"{texts!r}. Write for example A,B,C,D"
            )

    def as_arguments(self) -> list[str]:
        """The same on the command line."""
        given = {
            "--options": None if self.options is None else ",".join(self.options),
            "--label": self.label,
            "--source": self.source,
        }
        return [word for name, text in given.items() if text is not None for word in (name, text)]
