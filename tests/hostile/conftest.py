"""A test that hangs ends its process with a traceback."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator

import pytest

MOST_SECONDS = 600
"""Far beyond what a case takes on a busy machine."""


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    faulthandler.dump_traceback_later(MOST_SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
