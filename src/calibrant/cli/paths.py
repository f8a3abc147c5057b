"""Files and folders as arguments of the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from calibrant import _inputs


class PathType(click.Path):
    """The name of a file or folder. An empty one is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The name as it was given, of the type that was asked for."""
        _inputs.path(value, param.get_error_hint(ctx) if param else "a path")
        return self.coerce_path_result(value)


INPUT = PathType(path_type=str)
"""Something to read, as text: ``FILE::part`` is a name too."""
OUTPUT = PathType(path_type=Path)
"""Something to write."""

force_option = click.option(
    "--force", is_flag=True, help="Replace an existing file that calibrant did not write."
)
