"""Tables in Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LATEX = {
    "\\": r"\textbackslash{}",
    "%": r"\%",
    "_": r"\_",
    "&": r"\&",
    "#": r"\#",
    "$": r"\$",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
}


@dataclass(frozen=True)
class Table:
    """A table of formatted cells.

    Attributes:
        title: Title.
        head: Names of the columns.
        rows: Cells as text; ``**`` around a cell makes it bold where possible.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """The table in Markdown."""
        return markdown(self.head, self.rows)

    def csv(self) -> str:
        """The table as CSV."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.head)
        writer.writerows([cell.strip("*") for cell in row] for row in self.rows)
        return out.getvalue()

    def latex(self) -> str:
        """The table in LaTeX."""
        return latex(self.title, self.head, self.rows)


def markdown(head: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join(f"| {' | '.join(_plain(cell) for cell in line)} |" for line in lines)


def _plain(cell: str) -> str:
    return cell.replace("|", r"\|")


def latex(title: str, head: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    """A table for LaTeX with the package booktabs."""

    def escaped(cell: str) -> str:
        bold = cell.startswith("**")
        text = "".join(LATEX.get(letter, letter) for letter in cell.strip("*"))
        return rf"\textbf{{{text}}}" if bold else text

    lines = [" & ".join(map(escaped, line)) + r" \\" for line in cells]
    columns = "l" + "r" * (len(head) - 1)
    return "\n".join(
        [
            f"% {title}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            " & ".join(map(escaped, head)) + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )
