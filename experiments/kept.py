"""Finished runs in the checkout: all that the experiments read of them, packed small.

``python -m experiments keep out/trained`` packs the runs of a folder, one archive for each data set
and network, and lists what is kept. An experiment unpacks those that its own folder lacks, so that
it needs no training to be repeated; ``python -m experiments unpack GRID -o FOLDER`` does the same
before ``calibrant train --grid GRID -o FOLDER``, which then trains the others.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.training.folders import RunFolder
from calibrant.training.grid import Job, folder_of

KEPT = Path(__file__).parent / "trained" / "kept"
MOST_BYTES = 10_000_000
"""Of all kept runs together: they are part of every clone."""
MOST_ROWS = {"val": 1_500, "test": 2_000}
"""Of each run; the same rows in all runs on the same data."""
STEP, BEND = 1 / 32, 4.0
"""A logit is rounded to steps below the largest of its row, which grow with the distance from it:
STEP * (1 + distance / BEND). The predicted class is exact."""
DIGITS, DIGITS_OF_EPOCHS = 7, 5
"""Of the numbers that are not whole; of those after each epoch, which are many."""
HISTOGRAMS = ("reliability", "gradient_norm")
HISTOGRAMS_AT = (0.0, 0.029, 0.286, 0.571, 0.857, 1.0)
"""Parts of a run after which its histograms are kept: those that ``dynamics`` shows."""
UNREAD = {
    "train": ("entropy", "true_prob", "true_prob_correct", "true_prob_wrong", "ece", "ada_ece"),
    "test": ("ada_ece",),
}
"""What is measured after each epoch and read by no experiment."""
COMPRESSION = [
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}
]
"""Most of the content are single bytes, whose place in a word of four says nothing."""
ABOUT = """# Kept runs

Finished runs, packed by `python -m experiments keep FOLDER` (`experiments/kept.py` has the format).

| file | runs |
|---|---|
"""


def keep(folder: Path, kept: Path = KEPT, *, epochs: bool = True) -> int:
    """Pack every finished run of a folder; refuse if all kept runs would be too large.

    Args:
        folder: The runs.
        kept: The archives.
        epochs: Keep what was measured after every epoch, not only after the one that is stored.
    """
    runs = [RunFolder(path) for path in sorted(folder.iterdir()) if path.is_dir()]
    archives: dict[str, dict[str, bytes]] = {}
    finished = [run for run in runs if run.is_finished()]
    for run in finished:
        stored = run.stored()
        name = archive_name(stored["recipe"]["data"], stored["recipe"]["model"])
        files = archives.setdefault(name, members(kept / name))
        if f"{run.path.name}/{run.config.name}" in files and not stored.get("files"):
            continue  # it was unpacked: its logits are not rounded twice
        parts = packed(run, epochs=epochs)
        files.update({f"{run.path.name}/{file}": data for file, data in parts.items()})
    if not archives:
        raise FileNotFoundError(f"{folder} must hold finished runs; found none")
    written = {kept / name: archive(thinned(files)) for name, files in archives.items()}
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
    (kept / "README.md").write_text(ABOUT + "".join(listed(kept)))
    return len(finished)


def listed(kept: Path) -> Iterable[str]:
    """A line for each archive: how many runs of which epochs and training samples, by loss."""
    for path in sorted(kept.glob("*.tar.xz")):
        configs = [data for name, data in members(path).items() if name.endswith("/config.json")]
        groups: dict[str, Counter[str]] = {}
        for recipe in (json.loads(data)["recipe"] for data in configs):
            samples = f" of {recipe['limit']} samples" if recipe["limit"] else ""
            options = {**recipe["data_options"], **recipe["loss_options"]}
            others = "".join(f", {name} {options[name]}" for name in sorted(options))
            kind = f"{recipe['epochs']} epochs{samples}{others}"
            groups.setdefault(kind, Counter())[recipe["loss"]] += 1
        said = []
        for kind, losses in sorted(groups.items()):
            seeds = (f"{loss} ({n} seeds)" if n > 1 else loss for loss, n in sorted(losses.items()))
            said.append(f"{', '.join(seeds)}; {kind}")
        yield f"| `{path.name}` | {len(configs)}: {'. '.join(said)} |\n"


def unpack(jobs: Iterable[Job], folder: Path, kept: Path = KEPT) -> None:
    """Put the kept runs of a grid into its folder, unless they are there.

    Several processes may do so at once: ``result.json``, which tells that a run is finished, is the
    last file of a run in its archive.
    """
    wanted = [job for job in jobs if not RunFolder(folder_of(job, folder)).is_finished()]
    for name in {archive_name(job.recipe.data, job.recipe.model) for job in wanted}:
        files = members(kept / name)
        for place in (folder_of(job, folder) for job in wanted):
            for path, data in files.items():
                run, file = path.split("/")
                if run == place.name:
                    content = readable(data) if file.endswith(".npz") else data
                    write_whole(place / file, content)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that other processes may be reading or writing: it is whole at any time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mine = path.with_name(f"{path.name}.{os.getpid()}")
    mine.write_bytes(content)
    mine.replace(path)


def finished(jobs: Iterable[Job], folder: Path) -> int:
    """How many runs of a grid are finished."""
    return sum(RunFolder(folder_of(job, folder)).is_finished() for job in jobs)


def archive_name(data: str, model: str) -> str:
    """The file with the runs of a network on a data set."""
    return f"{data}_{model}.tar.xz"


def packed(run: RunFolder, *, epochs: bool) -> dict[str, bytes]:
    """The files of a run, without checkpoints and without where its data were."""
    stored = rounded(run.config.read_text())
    stored["files"] = {}
    lines = run.metrics.read_text().splitlines()
    records = [rounded(line, DIGITS_OF_EPOCHS) for line in lines]
    if not epochs:
        records = [stored_epoch(records, stored["recipe"]["choice"])]
    return {
        run.config.name: json.dumps(stored).encode(),
        run.metrics.name: "".join(json.dumps(record) + "\n" for record in records).encode(),
        run.result.name: json.dumps(rounded(run.result.read_text())).encode(),
        run.predictions.name: predictions(run),
    }


def thinned(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of runs with what is read of their epochs and results."""
    thin = {"metrics.jsonl": with_what_is_read, "result.json": measurements}
    return {
        path: thin[name](data) if (name := path.split("/")[1]) in thin else data
        for path, data in files.items()
    }


def measurements(result: bytes) -> bytes:
    """A result with the metrics of every method, without verdicts and differences."""
    plain = json.loads(result)
    methods = plain.pop("comparison", {}).get("methods", {})
    plain["comparison"] = {
        "methods": {name: {"metrics": each["metrics"]} for name, each in methods.items()}
    }
    return json.dumps(plain).encode()


def with_what_is_read(lines: bytes) -> bytes:
    """The records of epochs: histograms at ``HISTOGRAMS_AT``, of validation the error alone."""
    records = [json.loads(line) for line in lines.splitlines()]
    shown = {epoch_at(part, len(records)) for part in HISTOGRAMS_AT}
    for place, record in enumerate(records):
        record["val"] = {"error": record["val"]["error"]}
        for name in ("seconds", "cpu", "loss", "learning_rate"):
            record.pop(name, None)
        for part, names in UNREAD.items():
            for name in names:
                record[part].pop(name, None)
        if place not in shown:
            for name in HISTOGRAMS:
                record["train"].pop(name, None)
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def stored_epoch(records: Sequence[dict[str, Any]], choice: str) -> dict[str, Any]:
    """The record of the epoch whose predictions are stored: the last or the best."""
    if choice == "last":
        return records[-1]
    return min(records, key=lambda record: float(record["val"]["error"]))  # the first of equals


def epoch_at(part: float, epochs: int) -> int:
    """The index of the epoch that ends at this fraction of a run."""
    return max(round(part * epochs), 1) - 1


def rounded(text: str, digits: int = DIGITS) -> dict[str, Any]:
    """JSON with fewer digits of the numbers that are not whole."""
    plain: dict[str, Any] = json.loads(
        text, parse_float=lambda number: float(f"{float(number):.{digits}g}")
    )
    return plain


def predictions(run: RunFolder) -> bytes:
    """Some rows of the predictions; logits as whole numbers of steps."""
    with np.load(run.predictions, allow_pickle=False) as stored:
        arrays = dict(stored.items())
    for part, most in MOST_ROWS.items():
        rows = chosen(arrays[f"{part}_ids"], most)
        for what in ("logits", "labels", "ids"):
            arrays[f"{part}_{what}"] = arrays[f"{part}_{what}"][rows]
        arrays[f"{part}_labels"] = arrays[f"{part}_labels"].astype(np.uint8)
        arrays[f"{part}_logits"] = planes(codes(arrays[f"{part}_logits"]))
    return saved(arrays)


def readable(stored: bytes) -> bytes:
    """The predictions with logits in place of their codes."""
    with np.load(io.BytesIO(stored), allow_pickle=False) as file:
        arrays = dict(file.items())
    for name in (f"{part}_logits" for part in MOST_ROWS):
        if arrays[name].dtype.kind == "u":  # runs kept earlier have logits
            low, high = arrays[name].astype(np.uint16)
            arrays[name] = logits(low + 256 * high)
    return saved(arrays)


def chosen(ids: np.ndarray[Any, Any], most: int) -> np.ndarray[Any, Any]:
    """Rows that depend on their own ids alone: those of a run that was cut already, too."""
    order = np.argsort([zlib.crc32(str(each).encode()) for each in ids], kind="stable")
    return np.sort(order[:most])


def codes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Distances from the largest logit of the row in steps; 0 for the largest alone."""
    distance = array.max(axis=1, keepdims=True) - array.astype(np.float64)
    steps = np.clip(np.rint(BEND / STEP * np.log1p(distance / BEND)), 1, 65_535)
    steps[np.arange(len(array)), array.argmax(axis=1)] = 0
    return np.asarray(steps, dtype=np.uint16)


def planes(steps: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The low bytes of codes, then the high ones: nearly all of these are 0, and cost nothing."""
    return np.stack([steps % 256, steps // 256]).astype(np.uint8)


def logits(steps: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The logits of codes."""
    return np.asarray(-BEND * np.expm1(steps * (STEP / BEND)), dtype=np.float32)


def saved(arrays: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """The content of an ``npz`` file."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def archive(files: Mapping[str, bytes]) -> bytes:
    """A compressed archive that depends on the content alone."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        # By kind: what is alike is side by side, and compresses better.
        for path in sorted(files, key=lambda path: (path.split("/")[1], path)):
            entry = tarfile.TarInfo(path)
            entry.size = len(files[path])
            tar.addfile(entry, io.BytesIO(files[path]))
    return lzma.compress(content.getvalue(), filters=COMPRESSION)


def members(path: Path) -> dict[str, bytes]:
    """The files of an archive; none if there is no archive."""
    if not path.exists():
        return {}
    with tarfile.open(path) as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar}  # type: ignore[union-attr]
