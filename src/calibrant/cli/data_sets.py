"""Data sets larger than memory: their options, and where a command processes them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from calibrant import _inputs, _thresholds
from calibrant._inputs.skipped import Skipped
from calibrant.errors import CalibrantError
from calibrant.files.condition import Condition
from calibrant.files.parquet import count_rows_in, is_truncated

LOCAL = "local"
"""All cores of this machine, as in `scale`."""
OF_COLUMNS = ("label", "score", "positive", "where")
"""Options that name columns of Parquet files."""

scheduler_option = click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Where to process Parquet files and folders: 'local' for all cores of this machine (the "
    "default for large folders), or the address of a Dask scheduler.",
)
skip_bad_option = click.option(
    "--skip-bad",
    is_flag=True,
    help="Skip files and rows of a Parquet data set, or lines of a .jsonl file, that cannot be "
    "used, and count them.",
)


@dataclass(frozen=True)
class DataSetOptions:
    """What a command is told about data sets that may be larger than memory."""

    scheduler: str | None = None
    skip_bad: bool = False
    classes: int | None = None

    def skipped(self) -> Skipped | None:
        """What counts the lines of a log that cannot be used; None refuses them."""
        return Skipped() if self.skip_bad else None

    def check_classes(self, where: str, found: int) -> None:
        """Refuse ``--classes`` that differs from what the file shows."""
        if self.classes is not None:
            _inputs.number_of_classes(found, self.classes, where)

    def in_parts(
        self, file: str, columns: Mapping[str, Any], *, rows_in_memory: int = -1
    ) -> dict[str, Any] | None:
        """The arguments of ``scale`` for ``file``; None where it is read like any other file.

        Only rows that may meet the condition in ``columns`` count.
        """
        scheduler, path = self.scheduler, Path(file)
        if scheduler is None:
            always = (self.skip_bad and not is_log(file)) or is_truncated(path)
            if not always and not path.is_dir():
                return None
            where = columns.get("where")
            rows = count_rows_in(path, None if where is None else Condition.parsed(where))
            if not always and rows <= rows_in_memory:
                return None
            scheduler = LOCAL if rows > _thresholds.ROWS_IN_ONE_PROCESS else None
        elif is_log(file):
            raise CalibrantError(
                f"--scheduler is for Parquet files and folders; found {file}, the log of a "
                "language model. Leave it out"
            )
        given = [f"--{name}" for name in columns if name not in OF_COLUMNS and columns[name]]
        if given:
            raise CalibrantError(
                f"{' and '.join(given)} are for .jsonl files, the logs of language models; found a "
                "Parquet data set. Leave them out"
            )
        named = {name: columns[name] for name in OF_COLUMNS if name in columns}
        own = {"scheduler": scheduler, "skip_bad": self.skip_bad, "n_classes": self.classes}
        return own | named


def data_set_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of data sets larger than memory; the command gets them as ``data_set``."""

    @scheduler_option
    @skip_bad_option
    @click.option(
        "--classes",
        type=click.IntRange(min=2),
        metavar="K",
        help="Number of classes, if Parquet files hold only the largest logits of each row "
        "(top_logits, top_classes, normaliser) and do not state it.",
    )
    @functools.wraps(command)
    def with_data_set(
        *args: Any, scheduler: str | None, skip_bad: bool, classes: int | None, **others: Any
    ) -> Any:
        return command(*args, data_set=DataSetOptions(scheduler, skip_bad, classes), **others)

    return with_data_set


def is_log(file: str) -> bool:
    """Whether a file is the log of a language model, which is never read in parts."""
    return Path(file).suffix.lower() == ".jsonl"
