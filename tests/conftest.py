"""What the tests share: their tiers, the array libraries, and how hypothesis searches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import settings

# The same examples in every run: a red build means a change, never a lucky draw.
settings.register_profile("few", deadline=None, derandomize=True, max_examples=20)
settings.register_profile("many", settings.get_profile("few"), max_examples=60)
settings.load_profile("few")

HERE = Path(__file__).resolve().parent
SHARED_DATA = HERE.parents[1] / "shared" / "data"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test belongs to the tier of its folder; one that reads the data folder is slow.

    So is the page on production: it exports to ONNX, whose exporter takes eight seconds to load.
    """
    for item in items:
        if item.path == HERE.parent / "docs" / "production.md":
            item.add_marker("slow")
        for tier in ("browser", "hostile"):
            if item.path.is_relative_to(HERE / tier):
                item.add_marker(tier)
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")


class Library:
    """One array library: ``make`` builds its arrays, ``numpy`` brings results back."""

    def __init__(self, name: str, namespace: Any) -> None:
        self.name = name
        self.namespace = namespace

    def make(self, values: Any, dtype: str | None = None) -> Any:
        array = np.asarray(values, dtype=dtype)
        return array if self.name == "numpy" else self.namespace.asarray(array)

    def numpy(self, array: Any) -> np.ndarray:
        assert self.owns(array), f"expected an array of {self.name}, got {type(array)}"
        return np.asarray(array.detach() if self.name == "torch" else array)

    def owns(self, array: Any) -> bool:
        kinds = {
            "numpy": (np.ndarray, np.generic),
            "torch": torch.Tensor,
            "array-api-strict": array_api_strict._array_object.Array,
        }
        return isinstance(array, kinds[self.name])


LIBRARIES = {
    "numpy": np,
    "torch": torch,
    "array-api-strict": array_api_strict,
}


@pytest.fixture(params=sorted(LIBRARIES))
def library(request: pytest.FixtureRequest) -> Library:
    return Library(request.param, LIBRARIES[request.param])


@pytest.fixture(scope="session")
def shared_data() -> Path:
    if not SHARED_DATA.is_dir():
        pytest.skip("the data folder ../shared/data is not on this machine")
    return SHARED_DATA
