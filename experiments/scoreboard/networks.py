"""The networks and other models: files, groups, and which of them saw the same samples."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from calibrant.calibrators.data import PROBS_FLOOR
from experiments.auto_elsewhere.sources import TABULAR, Scores, Source, all_sources

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "logits"
NETWORKS = "Networks"
FOLDERS = {
    "Networks of paper 1": "mukhoti",
    "Language models": "llm",
    "Stated confidences": "confidence",
}
"""Groups of files beside ``DATA``, and their folders."""
TABLES = "Tabular"
GROUPS = (NETWORKS, *FOLDERS, TABLES)


@dataclass(frozen=True)
class Network:
    """One file of scores: a validation set to fit on, a test set to measure on."""

    name: str
    path: Path
    n_classes: int
    n_test: int
    images: str
    """Digest of the test labels: networks that share it saw the same images in the same rows."""
    digest: str
    """Digest of the file."""
    group: str = NETWORKS

    @classmethod
    def of(cls, path: Path, group: str = NETWORKS) -> Network:
        """Read the properties of a file that are needed before fitting."""
        logits, labels = _part(path, "test")
        return cls(
            name=path.stem,
            path=path,
            n_classes=logits.shape[1],
            n_test=len(labels),
            images=_digest(labels.tobytes()),
            digest=_digest(path.read_bytes()),
            group=group,
        )

    def part(self, which: str) -> tuple[Floats, Labels]:
        """Logits and labels of ``"val"`` or ``"test"``."""
        return _part(self.path, which)


def data_of(name: str) -> str:
    """The data set in the name of a public network; that of compressed images is the same."""
    return name.partition("_")[0].removesuffix("jpeg")


def _part(path: Path, which: str) -> tuple[Floats, Labels]:
    """Logits and labels; a stated confidence c that an answer is correct is log (1 - c, c)."""
    with np.load(path) as file:
        if f"{which}_logits" in file:
            logits = file[f"{which}_logits"].astype(np.float64)
            return logits, file[f"{which}_labels"].astype(np.int64)
        confidence = file[f"{which}_confidence"].astype(np.float64)
        probs = np.stack([1.0 - confidence, confidence], axis=1)
        return _log(probs), file[f"{which}_correct"].astype(np.int64)


def _log(probs: Floats) -> Floats:
    """Logits of probabilities, for all methods the same: those below 6e-8 are raised to it."""
    return np.log(np.maximum(probs, PROBS_FLOOR))


def all_networks(folder: Path = DATA) -> list[Network]:
    """Every file of the folder, sorted by name."""
    paths = sorted(folder.glob("*.npz"))
    if not paths:
        raise SystemExit(f"no networks in {folder}; pass --data with a folder of .npz files")
    return [Network.of(path) for path in paths]


def of_group(group: str, folder: Path, out: Path) -> list[Network]:
    """The members of a group, sorted by name; ``folder`` is that of the networks.

    Tabular models are trained if their scores are not yet in ``out``. A group without files is
    empty.
    """
    if group == NETWORKS:
        return all_networks(folder)
    if group == TABLES:
        paths = [tabular_scores(source, folder.parent, out) for source in _tables(folder.parent)]
    else:
        files = (folder.parent / FOLDERS[group]).glob("*.npz")
        paths = [path for path in files if path.stem != PEOPLE]
    return [Network.of(path, group) for path in sorted(paths)]


PEOPLE = "cifar10h"
"""Labels of people, beside the networks of paper 1."""


def _tables(data: Path) -> list[Source]:
    return [source for source in all_sources(data) if source.group == TABULAR]


def tabular_scores(source: Source, data: Path, out: Path) -> Path:
    """The file with the scores of a tabular model, which is trained unless the file is there."""
    path = out / f"{source.name}-{source.model.replace(' ', '_')}.npz"
    if not path.exists():
        scores = source.scores(data)
        out.mkdir(parents=True, exist_ok=True)
        np.savez(
            path,
            val_logits=_logits(scores, scores.val),
            val_labels=scores.val_labels,
            test_logits=_logits(scores, scores.test),
            test_labels=scores.test_labels,
        )
    return path


def _logits(scores: Scores, values: Floats) -> Floats:
    return values if scores.kind == "logits" else _log(values)


def families(networks: Iterable[Network]) -> dict[str, list[Network]]:
    """Groups of networks to average over, by their title in the tables."""
    by_group: dict[str, list[Network]] = {}
    for network in networks:
        by_group.setdefault(network.group, []).append(network)
    public = by_group.pop(NETWORKS, [])
    # Top-rest scaling and auto were designed on the validation sets of every second network.
    others = public[1::2]
    cifar = ("c10_", "c100_")
    parts = {
        "CIFAR-10": _starting("c10_", public),
        "CIFAR-100": _starting("c100_", public),
        "Other networks": [n for n in public if not n.name.startswith(cifar)],
        "All": public,
        "CIFAR-10, auto designed on others": _starting("c10_", others),
        "CIFAR-100, auto designed on others": _starting("c100_", others),
        **by_group,
    }
    return {title: members for title, members in parts.items() if members}


def _starting(prefix: str, networks: Iterable[Network]) -> list[Network]:
    return [network for network in networks if network.name.startswith(prefix)]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
