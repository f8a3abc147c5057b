"""Every test here is marked ``hostile``; one that hangs ends its process with a traceback."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MOST_SECONDS = 600
"""Far beyond what a case takes on a busy machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("hostile")


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    faulthandler.dump_traceback_later(MOST_SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
