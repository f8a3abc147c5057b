"""The networks: files, families, and which of them saw the same images."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "logits"


@dataclass(frozen=True)
class Network:
    """One file of logits: a validation set to fit on, a test set to measure on."""

    name: str
    path: Path
    n_classes: int
    n_test: int
    images: str
    """Digest of the test labels: networks that share it saw the same images in the same rows."""
    digest: str
    """Digest of the file."""

    @classmethod
    def of(cls, path: Path) -> Network:
        """Read the properties of a file that are needed before fitting."""
        with np.load(path) as file:
            labels = file["test_labels"].astype(np.int64)
            n_classes = int(file["test_logits"].shape[1])
        return cls(
            name=path.stem,
            path=path,
            n_classes=n_classes,
            n_test=len(labels),
            images=_digest(labels.tobytes()),
            digest=_digest(path.read_bytes()),
        )

    def part(self, which: str) -> tuple[Floats, Labels]:
        """Logits and labels of ``"val"`` or ``"test"``."""
        with np.load(self.path) as file:
            logits: npt.NDArray[Any] = file[f"{which}_logits"]
            return logits.astype(np.float64), file[f"{which}_labels"].astype(np.int64)


def all_networks(folder: Path = DATA) -> list[Network]:
    """Every file of the folder, sorted by name."""
    paths = sorted(folder.glob("*.npz"))
    if not paths:
        raise SystemExit(f"no networks in {folder}; pass --data with a folder of .npz files")
    return [Network.of(path) for path in paths]


def families(networks: Iterable[Network]) -> dict[str, list[Network]]:
    """Groups of networks to average over, by their title in the tables."""
    networks = list(networks)
    # Top-rest scaling and auto were designed on the validation sets of every second network.
    others = networks[1::2]
    parts = {
        "CIFAR-10": _starting("c10_", networks),
        "CIFAR-100": _starting("c100_", networks),
        "All": networks,
        "CIFAR-10, auto designed on others": _starting("c10_", others),
        "CIFAR-100, auto designed on others": _starting("c100_", others),
    }
    return {title: members for title, members in parts.items() if members}


def _starting(prefix: str, networks: Iterable[Network]) -> list[Network]:
    return [network for network in networks if network.name.startswith(prefix)]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
