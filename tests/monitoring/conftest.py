"""Logs of a model in use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

FIRST_DAY = np.datetime64("2026-10-01")


def logs(
    n_days: int, *, rows: int = 400, k: int = 2, change: int | None = None, seed: int = 0
) -> Any:
    """A table of predictions; from the day ``change`` on, class 1 is stated too high."""
    rng = np.random.default_rng(seed)
    n = n_days * rows
    logits = 1.5 * rng.normal(size=(n, k))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    day = np.arange(n) // rows
    if change is not None:
        logits[day >= change, 1] += 1.0
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    columns = {"day": FIRST_DAY + day, "sex": np.where(rng.random(n) < 0.5, "f", "m")}
    columns |= {"prob": probs[:, 1]} if k == 2 else {f"prob_{i}": probs[:, i] for i in range(k)}
    return pa.table({**columns, "label": labels})


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a table as one file per day below ``logs``; returns the folder."""
    folder = tmp_path / "logs"

    def one(table: Any, days: range, *, partitioned: bool = False) -> Path:
        all_days = table["day"].to_numpy().astype("datetime64[D]")
        for number in days:
            day = FIRST_DAY + number
            rows = table.filter(pa.array(all_days == day))
            target = folder / f"{day}.parquet"
            if partitioned:
                rows = rows.drop_columns(["day"])
                target = folder / f"day={day}" / "0.parquet"
            target.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, target)
        return folder

    return one
