"""The folder of a run: checked before training, consistent at any moment after."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calibrant import __version__, _inputs
from calibrant._writing import make_folder, sweep, write_whole, written_whole
from calibrant.errors import CalibrantError
from calibrant.training import checkpoints, checks
from calibrant.training.datasets import DataSet
from calibrant.training.observations import NORM_EXPONENTS, SplitPredictions
from calibrant.training.recipes import Recipe

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

RECORD_BYTES = 8_192
"""Generous size of one epoch in the metrics."""
DECIDES_BITS = ("torch", "numpy", "machine", "cpu", "threads", "devices", "nodes", "accelerator")
"""Entries of the environment that may change the last bits of a result."""
RESTART = "Start the run again in another folder"


class RunFolder:
    """The folder of a run and its files.

    ``config.json``, ``environment.json``, ``metrics.jsonl`` (and ``.csv``), ``checkpoints/``,
    ``predictions.npz``, ``result.json``.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = _inputs.path(path, "the folder of a run")
        self.config = self.path / "config.json"
        self.environment = self.path / "environment.json"
        self.metrics = self.path / "metrics.jsonl"
        self.table = self.path / "metrics.csv"
        self.checkpoints = self.path / "checkpoints"
        self.predictions = self.path / "predictions.npz"
        self.result = self.path / "result.json"

    def refuse_unless_new(self) -> None:
        """Refuse a folder that exists and is not empty."""
        if self.path.exists() and not self.path.is_dir():
            raise FileExistsError(f"{self.path} must be a folder; found a file. Choose another")
        self.sweep()
        if self.path.is_dir() and any(self.path.iterdir()):
            what = "a run" if self.config.exists() else "other files"
            raise FileExistsError(
                f"{self.path} must be new or empty; found {what} in it. "
                "Continue the run with --resume, or choose another folder"
            )

    def stored(self) -> dict[str, Any]:
        """The content of ``config.json``."""
        if not self.config.is_file():
            raise FileNotFoundError(
                f"{self.path} holds no run to resume; found no {self.config.name} there. "
                "Start it without --resume"
            )
        plain: dict[str, Any] = self._read(self.config, dict, RESTART)
        with _inputs.refusing(f"{self.config} cannot be used", RESTART):
            for name in ("recipe", "files", "data"):
                if name not in plain:
                    raise CalibrantError(f"it must have {name}; found {', '.join(plain)}")
                _inputs.instance(plain[name], dict, name)
        return plain

    def recipe(self, own_model: str | None = None) -> Recipe:
        """The recipe of the run; ``own_model`` is the user's network that it may name."""
        plain = self.stored()["recipe"]
        model = plain.get("model")
        checks.registered_network(
            model, own_model, str(self.config), f"If you trust it, pass --model {model!r} again"
        )
        with _inputs.refusing(f"{self.config} cannot be used", RESTART):
            return Recipe.from_dict(plain, own_model=own_model)

    def refuse_other(self, recipe: Recipe) -> None:
        """Refuse to resume with another recipe."""
        old = self.recipe(own_model=recipe.model)
        if old.hash == recipe.hash:
            return
        before, now = old.to_dict(), recipe.to_dict()
        differing = [n for n in now if n != "source" and before[n] != now[n]]
        first = differing[0]
        raise CalibrantError(
            f"{self.path} was started with another recipe: {', '.join(differing)} differ "
            f"({first}: {before[first]!r} there, {now[first]!r} here). "
            "Resume it with the same options, or choose another folder"
        )

    def refuse_other_data(self, data: DataSet) -> None:
        """Refuse to resume on other data."""
        before, now = self.stored()["data"], _plain(data.record)
        if before != now:
            differing = [n for n in {**before, **now} if before.get(n) != now.get(n)]
            raise CalibrantError(
                f"{self.path} was started on other data: {', '.join(differing)} differ. "
                "Pass the files it was started with, or choose another folder"
            )

    def prepare(self, needed: int) -> None:
        """Create the folder; refuse one that cannot be written or lacks space."""
        make_folder(self.path)
        self.sweep()
        free = shutil.disk_usage(self.path).free
        if free < needed:
            raise OSError(
                f"{self.path} has too little space: the run writes up to {_size(needed)}, and "
                f"{_size(free)} are free. Free some, or choose another disk"
            )

    def sweep(self) -> None:
        """Remove files that a killed run has left half written."""
        sweep(self.path)
        sweep(self.checkpoints)

    def begin(self, recipe: Recipe, data: DataSet, files: Mapping[str, str | None]) -> None:
        """Write ``config.json``."""
        self._write(
            self.config,
            {
                "hash": recipe.hash,
                "recipe": recipe.to_dict(),
                "files": dict(files),
                "data": _plain(data.record),
                "class_names": list(data.class_names),
                "gradient_norm_exponents": NORM_EXPONENTS.tolist(),
            },
        )

    def note_environment(self, start: Mapping[str, Any]) -> list[str]:
        """Record the environment of this start; return what differs from the first start."""
        starts: list[Any] = []
        if self.environment.exists():
            remedy = "Delete it and resume: the run does not need it"
            starts = self._read(self.environment, list, remedy)
        self._write(self.environment, [*starts, dict(start)])
        if not starts:
            return []
        first = starts[0] if isinstance(starts[0], dict) else {}
        return [name for name in DECIDES_BITS if first.get(name) != start.get(name)]

    def records(self, before: int | None = None) -> list[dict[str, Any]]:
        """Records of the measured epochs, or of those ``before`` an epoch."""
        return [r for r in self._lines() if before is None or r["epoch"] < before]

    def rewrite_records(self, records: list[dict[str, Any]]) -> None:
        """Replace the metrics, to match the checkpoint that a run resumes from."""
        text = "".join(_line(record) for record in records)
        write_whole(self.metrics, text.encode())

    def add_record(self, record: dict[str, Any]) -> None:
        """Append the record of an epoch."""
        with self.metrics.open("a") as file:
            file.write(_line(record))
            file.flush()
            os.fsync(file.fileno())

    def write_table(self, records: list[dict[str, Any]]) -> None:
        """Write the records as CSV, without their lists."""
        rows = [flat(record) for record in records]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_whole(self.table, text.getvalue().encode())

    def write_predictions(self, data: DataSet, predicted: Mapping[str, SplitPredictions]) -> None:
        """Write logits, labels and ids of the validation and test splits to one file."""
        arrays: dict[str, Any] = {"class_names": np.array(data.class_names, dtype=str)}
        for name, split in predicted.items():
            arrays[f"{name}_logits"] = split.logits
            arrays[f"{name}_labels"] = split.labels
            arrays[f"{name}_ids"] = getattr(data, name).ids
        with written_whole(self.predictions) as temporary:
            np.savez(temporary, allow_pickle=False, **arrays)

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write the last file of a run, which marks it as finished."""
        self._write(self.result, result)

    def read_result(self) -> dict[str, Any] | None:
        """The result of a finished run, or None."""
        if not self.result.is_file():
            return None
        plain: dict[str, Any] = self._read(self.result, dict, "Delete it and resume the run")
        return plain

    def is_finished(self) -> bool:
        """Whether the run is finished; its checkpoints may have been deleted."""
        return self.result.is_file() and self.predictions.is_file()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder against other processes; the lock ends with the process.

        Systems and network disks without such locks give no protection.
        """
        if fcntl is None:
            yield
            return
        handle = os.open(self.path, os.O_RDONLY)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise CalibrantError(
                    f"{self.path} must be free; found another process writing to it. Let it "
                    "finish, stop it, or choose another folder"
                ) from error
            except OSError:  # a network disk without locks
                pass
            yield
        finally:
            os.close(handle)

    def _lines(self) -> Iterator[dict[str, Any]]:
        if not self.metrics.exists():
            return
        for line in self.metrics.read_text(errors="replace").splitlines():
            try:
                record = json.loads(line)
            except ValueError:  # the last line of a killed run may be incomplete
                return
            if not isinstance(record, dict) or "epoch" not in record:
                return
            yield record

    def _read(self, path: Path, kind: type, remedy: str) -> Any:
        with _inputs.refusing(f"{path} cannot be read", remedy):
            plain = json.loads(path.read_text())
        with _inputs.refusing(f"{path} cannot be used", remedy):
            _inputs.instance(plain, kind, "it")
        return plain

    def _write(self, path: Path, plain: Any) -> None:
        text = json.dumps(plain, indent=2, allow_nan=False)
        write_whole(path, f"{text}\n".encode())


def environment(**started: Any) -> dict[str, Any]:
    """Versions and machine, without host or user names."""
    return {
        "calibrant": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "lightning", "numpy")},
        "machine": f"{platform.system()} {platform.machine()}",
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        **started,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def bytes_needed(recipe: Recipe, data: DataSet, network: torch.nn.Module) -> int:
    """Upper bound of what a run writes: checkpoints, predictions, metrics."""
    weights: int = sum(t.nbytes for t in network.state_dict().values())
    copies = {"sgd": 1, "adam": 2, "adagrad": 1}[recipe.optimizer] + 1
    copies += recipe.choice == "best"
    rows = len(data.val) + len(data.test)
    longest = max(int(split.ids.dtype.itemsize) for split in (data.val, data.test))
    predictions = rows * (4 * data.n_classes + 8 + longest)
    kept = checkpoints.KEPT + 1  # and the one being written
    return kept * copies * weights + 2 * predictions + 2 * recipe.epochs * RECORD_BYTES + 2**20


def flat(record: Mapping[str, Any], start: str = "") -> dict[str, float]:
    """The numbers of a record by names such as ``train_nll``.

    Examples:
        >>> flat({"epoch": 3, "val": {"nll": 0.5, "reliability": {"count": [1, 2]}, "ece": None}})
        {'epoch': 3, 'val_nll': 0.5}
    """
    found: dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{start}{name}_")
        elif isinstance(value, int | float):
            found[f"{start}{name}"] = value
    return found


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, allow_nan=False) + "\n"


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(record))
    return plain


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def _commit() -> str | None:
    """Commit of the checkout that this package runs from, if any."""
    here = Path(__file__).resolve().parent
    if here.parents[1].name != "src":  # installed, perhaps inside another project's checkout
        return None
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip() if asked.returncode == 0 else None
