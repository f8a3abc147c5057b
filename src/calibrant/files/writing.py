"""Reading and writing files; whatever is written appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside ``path``, renamed to it when the block ends without an error.

    A reader never sees half a file, and an error leaves what stood there before untouched.

    Examples:
        >>> import tempfile, pathlib
        >>> target = pathlib.Path(tempfile.mkdtemp()) / "result.txt"
        >>> with written_whole(target) as temporary:
        ...     _ = temporary.write_text("done")
        >>> target.read_text()
        'done'
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"cannot write to {target}: it is a folder. Name a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"cannot write {target}: there is no folder {target.parent}. Make it first"
        )
    # The ending stays, because plotting libraries choose the format by it.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
        temporary = Path(folder) / target.name
        yield temporary
        os.replace(temporary, target)
