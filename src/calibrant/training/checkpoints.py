"""Checkpoints that stay usable if the run is killed at any moment."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from calibrant._writing import write_whole

KEPT = 2
"""Number of checkpoints to keep: the last, and the one before in case the last is damaged."""
KEYS = frozenset({"epoch", "module", "optimizer", "best"})
"""Entries of a checkpoint."""


def save(folder: Path, state: dict[str, Any]) -> None:
    """Write ``folder/epoch_N.pt``, then delete older ones."""
    folder.mkdir(exist_ok=True)
    content = io.BytesIO()  # in memory: torch does not report a full disk
    torch.save(state, content)
    write_whole(folder / f"epoch_{state['epoch']:05d}.pt", content.getbuffer())
    for old in found(folder)[:-KEPT]:
        old.unlink()


def newest(folder: Path) -> dict[str, Any] | None:
    """The state in the last readable checkpoint, or None.

    Only tensors and plain data are read.
    """
    for path in reversed(found(folder)):
        try:
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except Exception:  # torch raises anything on a damaged file; use the one before
            continue
        if isinstance(state, dict) and state.keys() >= KEYS:
            return state
    return None


def found(folder: Path) -> list[Path]:
    """Existing checkpoints, oldest first."""
    return sorted(folder.glob("epoch_*.pt"))
