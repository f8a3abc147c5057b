"""Finished runs in the checkout: all that the experiments read of them, packed small.

``python -m experiments keep out/trained`` packs the runs of a folder, one archive for each data set
and network. An experiment unpacks those that its own folder lacks, so that it needs no training to
be repeated.
"""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.training.folders import RunFolder
from calibrant.training.grid import Job, folder_of

KEPT = Path(__file__).parent / "trained" / "kept"
MOST_BYTES = 10_000_000
"""Of all kept runs together: they are part of every clone."""
MOST_ROWS = {"val": 2_000, "test": 5_000}
"""Of each run; the same rows in all runs on the same data."""
DROPPED_BITS = 3
"""Of the ten of a float16's fraction. Seven round a logit by at most 0.4% of its distance to the
largest of its row, which is kept exactly, and so is the predicted class."""


def keep(folder: Path, kept: Path = KEPT) -> int:
    """Pack every finished run of a folder; refuse if all kept runs would be too large."""
    runs = [RunFolder(path) for path in sorted(folder.iterdir()) if path.is_dir()]
    archives: dict[str, dict[str, bytes]] = {}
    finished = [run for run in runs if run.is_finished()]
    for run in finished:
        recipe = run.stored()["recipe"]
        name = archive_name(recipe["data"], recipe["model"])
        files = archives.setdefault(name, members(kept / name))
        files.update({f"{run.path.name}/{file}": data for file, data in packed(run).items()})
    if not archives:
        raise FileNotFoundError(f"{folder} must hold finished runs; found none")
    written = {kept / name: archive(files) for name, files in archives.items()}
    others = [path.stat().st_size for path in kept.glob("*.tar.xz") if path not in written]
    total = sum(others) + sum(map(len, written.values()))
    if total > MOST_BYTES:
        raise ValueError(
            f"the kept runs must have at most {MOST_BYTES:,} bytes together; found {total:,} with "
            f"the {len(finished)} of {folder}. Keep fewer"
        )
    kept.mkdir(exist_ok=True)
    for path, content in written.items():
        path.write_bytes(content)
    return len(finished)


def unpack(jobs: Iterable[Job], folder: Path, kept: Path = KEPT) -> None:
    """Put the kept runs of a grid into its folder, unless they are there."""
    wanted = [job for job in jobs if not RunFolder(folder_of(job, folder)).is_finished()]
    for name in {archive_name(job.recipe.data, job.recipe.model) for job in wanted}:
        files = members(kept / name)
        for place in (folder_of(job, folder) for job in wanted):
            for path, data in files.items():
                run, file = path.split("/")
                if run == place.name:
                    place.mkdir(parents=True, exist_ok=True)
                    (place / file).write_bytes(data)


def archive_name(data: str, model: str) -> str:
    """The file with the runs of a network on a data set."""
    return f"{data}_{model}.tar.xz"


def packed(run: RunFolder) -> dict[str, bytes]:
    """The files of a run, without checkpoints and without where its data were."""
    stored = rounded(run.config.read_text())
    stored["files"] = {}
    records = [rounded(line) for line in run.metrics.read_text().splitlines()]
    return {
        run.config.name: json.dumps(stored).encode(),
        run.metrics.name: "".join(json.dumps(record) + "\n" for record in records).encode(),
        run.result.name: json.dumps(rounded(run.result.read_text())).encode(),
        run.predictions.name: predictions(run),
    }


def rounded(text: str) -> dict[str, Any]:
    """JSON with the numbers that are not whole rounded to seven digits."""
    plain: dict[str, Any] = json.loads(
        text, parse_float=lambda number: float(f"{float(number):.7g}")
    )
    return plain


def predictions(run: RunFolder) -> bytes:
    """Some rows of the predictions; logits as short floats, relative to the largest of the row."""
    arrays = {}
    with np.load(run.predictions, allow_pickle=False) as stored:
        for name, array in stored.items():
            part, _, what = name.partition("_")
            if part in MOST_ROWS:
                order = np.random.default_rng(0).permutation(len(array))
                array = array[np.sort(order[: MOST_ROWS[part]])]
            if what == "logits":
                array = short(array - array.max(axis=1, keepdims=True))
            elif what == "labels":
                array = array.astype(np.uint8)
            arrays[name] = array
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def short(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """float16, its fraction rounded to fewer bits, which makes it smaller when it is compressed."""
    half = 1 << (DROPPED_BITS - 1)
    bits = array.astype(np.float16).view(np.uint16)
    return ((bits + half) >> DROPPED_BITS << DROPPED_BITS).astype(np.uint16).view(np.float16)


def archive(files: Mapping[str, bytes]) -> bytes:
    """A compressed archive that depends on the content alone."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        # By kind: what is alike is side by side, and compresses better.
        for path in sorted(files, key=lambda path: (path.split("/")[1], path)):
            entry = tarfile.TarInfo(path)
            entry.size = len(files[path])
            tar.addfile(entry, io.BytesIO(files[path]))
    return lzma.compress(content.getvalue(), preset=9)


def members(path: Path) -> dict[str, bytes]:
    """The files of an archive; none if there is no archive."""
    if not path.exists():
        return {}
    with tarfile.open(path) as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar}  # type: ignore[union-attr]
