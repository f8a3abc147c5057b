"""Checkpoints that a kill at any moment leaves usable."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from calibrant._writing import write_whole

KEPT = 2
"""How many checkpoints stay: the last, and one before it should that be damaged."""
PARTS = frozenset({"epoch", "module", "optimizer", "best"})
"""What a checkpoint holds."""


def save(folder: Path, state: dict[str, Any]) -> None:
    """Write ``folder/epoch_N.pt``; older ones go only when it is on the disk."""
    folder.mkdir(exist_ok=True)
    content = io.BytesIO()  # in memory, because torch does not say that a disk is full
    torch.save(state, content)
    write_whole(folder / f"epoch_{state['epoch']:05d}.pt", content.getbuffer())
    for old in found(folder)[:-KEPT]:
        old.unlink()


def newest(folder: Path) -> dict[str, Any] | None:
    """The state of the last checkpoint that can be read; None where there is none.

    Nothing but tensors and plain data is read from it.
    """
    for path in reversed(found(folder)):
        try:
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except Exception:  # whatever a damaged file makes torch raise: the one before it serves
            continue
        if isinstance(state, dict) and state.keys() >= PARTS:
            return state
    return None


def found(folder: Path) -> list[Path]:
    """The checkpoints there are, oldest first."""
    return sorted(folder.glob("epoch_*.pt"))
