"""Checkpoints that a kill at any moment leaves usable."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

KEPT = 2
"""How many checkpoints stay: the last, and one before it should that be damaged."""
PARTIAL = ".partial"
PARTS = frozenset({"epoch", "module", "optimizer", "best"})
"""What a checkpoint holds."""


def write_synced(path: Path, content: bytes) -> None:
    """A small file that appears whole or not at all, on the disk when this returns."""
    with _Beside(path) as temporary:
        temporary.write_bytes(content)


def save(folder: Path, state: dict[str, Any]) -> None:
    """Write ``folder/epoch_N.pt`` beside its place, have it on the disk, and rename it.

    Older ones go only when it is there.
    """
    folder.mkdir(exist_ok=True)
    with _Beside(folder / f"epoch_{state['epoch']:05d}.pt") as temporary:
        torch.save(state, temporary)
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


def try_writing(folder: Path) -> None:
    """Raise now what writing to the folder would raise later."""
    temporary = _partial(folder / "nothing")
    temporary.write_bytes(b"")
    _sync(temporary)
    temporary.unlink()


def sweep(folder: Path) -> None:
    """Remove what a kill has left half written."""
    for left in folder.glob(f".*{PARTIAL}"):
        left.unlink()


def is_partial(path: Path) -> bool:
    """Whether a file is one that was being written."""
    return path.name.startswith(".") and path.name.endswith(PARTIAL)


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}{PARTIAL}")


class _Beside:
    """A path beside ``path``; when the block ends, synced to the disk and renamed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = _partial(path)

    def __enter__(self) -> Path:
        return self.temporary

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.temporary.unlink(missing_ok=True)
            return
        _sync(self.temporary)
        os.replace(self.temporary, self.path)
        _sync(self.path.parent)


def _sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
