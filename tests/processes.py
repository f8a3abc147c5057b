"""Commands and Python processes that the tests run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from click.testing import CliRunner, Result

from calibrant.cli import main

TIMEOUT = 600
"""Seconds; far more than any process here takes on a busy machine."""


def run_calibrant(*arguments: object) -> Result:
    """The result of a command line, run in this process."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def run_python(
    *arguments: object,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """A Python process that has ended, with what it printed; ``check=True`` expects success."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def run_ranks(*program: object, arguments: Sequence[object] = ()) -> list[str]:
    """What two processes that run together print; each is given its rank, then ``arguments``."""
    started = [
        subprocess.Popen(
            [sys.executable, *map(str, (*program, rank, *arguments))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    printed = [process.communicate(timeout=TIMEOUT) for process in started]
    for process, (_, errors) in zip(started, printed, strict=True):
        assert process.returncode == 0, errors
    return [output for output, _ in printed]
