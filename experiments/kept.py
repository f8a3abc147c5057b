"""Finished runs in the checkout: all that the experiments read of them, packed small.

``python -m experiments keep out/trained`` packs the runs of a folder. An experiment unpacks those
that its own folder lacks, so that it needs no training to be repeated.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from calibrant.training.folders import RunFolder
from calibrant.training.grid import Job, folder_of

KEPT = Path(__file__).parent / "trained" / "kept"
MOST_BYTES = 10_000_000
"""Of all kept runs together: they are part of every clone."""


def keep(folder: Path, kept: Path = KEPT) -> list[Path]:
    """Pack every finished run of a folder; refuse if all kept runs would be too large."""
    runs = [RunFolder(path) for path in sorted(folder.iterdir()) if path.is_dir()]
    packed = {kept / f"{run.path.name}.zip": pack(run) for run in runs if run.is_finished()}
    if not packed:
        raise FileNotFoundError(f"{folder} must hold finished runs; found none")
    others = [path.stat().st_size for path in kept.glob("*.zip") if path not in packed]
    total = sum(others) + sum(map(len, packed.values()))
    if total > MOST_BYTES:
        raise ValueError(
            f"the kept runs must have at most {MOST_BYTES:,} bytes together; found {total:,} with "
            f"the {len(packed)} of {folder}. Keep fewer"
        )
    kept.mkdir(exist_ok=True)
    for path, content in packed.items():
        path.write_bytes(content)
    return list(packed)


def pack(run: RunFolder) -> bytes:
    """A run without its checkpoints; logits in half precision, relative to the largest of a row."""
    arrays = {}
    with np.load(run.predictions, allow_pickle=False) as stored:
        for name, array in stored.items():
            if name.endswith("_logits"):
                arrays[name] = (array - array.max(axis=1, keepdims=True)).astype(np.float16)
            else:
                arrays[name] = array.astype(np.uint8) if name.endswith("_labels") else array
    predictions, packed = io.BytesIO(), io.BytesIO()
    np.savez(predictions, allow_pickle=False, **arrays)
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for path in (run.config, run.metrics, run.result):
            file.write(path, path.name)
        file.writestr(run.predictions.name, predictions.getvalue())
    return packed.getvalue()


def unpack(jobs: Iterable[Job], folder: Path, kept: Path = KEPT) -> None:
    """Put the kept runs of a grid into its folder, unless they are there."""
    for job in jobs:
        place = folder_of(job, folder)
        packed = kept / f"{place.name}.zip"
        if packed.exists() and not RunFolder(place).is_finished():
            with zipfile.ZipFile(packed) as file:
                file.extractall(place)
