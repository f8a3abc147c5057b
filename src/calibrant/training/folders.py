"""The folder of a run: refused before training if it cannot hold it, whole at any moment after."""

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
from calibrant.training import checkpoints
from calibrant.training.datasets import DataSet
from calibrant.training.observations import NORM_EXPONENTS, Predicted
from calibrant.training.recipes import Recipe

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

RECORD_BYTES = 8_192
"""Of one epoch in the metrics, generously."""
DECIDES_BITS = ("torch", "numpy", "machine", "cpu", "threads", "devices", "nodes", "accelerator")
"""Parts of the environment that may change the last bits of a result."""


class RunFolder:
    """Where a run writes, and what is in it.

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
        """A new run needs a folder of its own."""
        if self.path.exists() and not self.path.is_dir():
            raise FileExistsError(f"{self.path} must be a folder; found a file. Choose another")
        self.sweep()
        if self.path.is_dir() and any(self.path.iterdir()):
            what = "a run" if self.config.exists() else "other files"
            raise FileExistsError(
                f"{self.path} must be new or empty; found {what} in it. "
                "Go on with the run with --resume, or choose another folder"
            )

    def stored(self) -> dict[str, Any]:
        """What ``config.json`` says."""
        if not self.config.is_file():
            raise FileNotFoundError(
                f"{self.path} holds no run to resume; found no {self.config.name} there. "
                "Begin it without --resume"
            )
        plain: dict[str, Any] = self._read(self.config, dict, "Begin the run anew elsewhere")
        with _inputs.refusing(f"{self.config} cannot be used", "Begin the run anew elsewhere"):
            for name in ("recipe", "files", "data"):
                check_entry(plain, name)
                _inputs.instance(plain[name], dict, name)
        return plain

    def recipe(self, own_model: str | None = None) -> Recipe:
        """The recipe of the run; ``own_model`` is the network of one's own that it may name."""
        plain = self.stored()["recipe"]
        model = plain.get("model")
        _inputs.registered_network(
            model, own_model, str(self.config), f"If you trust it, pass --model {model!r} again"
        )
        with _inputs.refusing(f"{self.config} cannot be used", "Begin the run anew elsewhere"):
            return Recipe.from_dict(plain, own_model=own_model)

    def refuse_other(self, recipe: Recipe) -> None:
        """A run is resumed with the recipe it was begun with."""
        old = self.recipe(own_model=recipe.model)
        if old.hash == recipe.hash:
            return
        before, now = old.to_dict(), recipe.to_dict()
        differing = [n for n in now if n != "source" and before[n] != now[n]]
        first = differing[0]
        raise CalibrantError(
            f"{self.path} was begun with another recipe: {', '.join(differing)} differ "
            f"({first}: {before[first]!r} there, {now[first]!r} here). "
            "Resume it with the same options, or choose another folder"
        )

    def refuse_other_data(self, data: DataSet) -> None:
        """A run is resumed on the data it was begun with."""
        before, now = self.stored()["data"], _plain(data.record)
        if before != now:
            differing = [n for n in {**before, **now} if before.get(n) != now.get(n)]
            raise CalibrantError(
                f"{self.path} was begun on other data: {', '.join(differing)} differ. "
                "Give the files it was begun with, or choose another folder"
            )

    def prepare(self, needed: int) -> None:
        """Make the folder, and refuse one that cannot be written or has no room."""
        make_folder(self.path)
        self.sweep()
        free = shutil.disk_usage(self.path).free
        if free < needed:
            raise OSError(
                f"{self.path} has too little room: the run writes up to {_size(needed)}, and "
                f"{_size(free)} are free. Make room, or choose another disk"
            )

    def sweep(self) -> None:
        """Remove what a kill has left half written."""
        sweep(self.path)
        sweep(self.checkpoints)

    def begin(self, recipe: Recipe, data: DataSet, files: Mapping[str, str | None]) -> None:
        """Write what the run is."""
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
        """Add where the run goes on; returns what differs from where it began."""
        starts: list[Any] = []
        if self.environment.exists():
            remedy = "Delete it and resume: the run itself does not need it"
            starts = self._read(self.environment, list, remedy)
        self._write(self.environment, [*starts, dict(start)])
        if not starts:
            return []
        begun = starts[0] if isinstance(starts[0], dict) else {}
        return [name for name in DECIDES_BITS if begun.get(name) != start.get(name)]

    def records(self, before: int | None = None) -> list[dict[str, Any]]:
        """The epochs that were measured; ``before`` leaves out those that will be run again."""
        return [r for r in self._lines() if before is None or r["epoch"] < before]

    def rewrite_records(self, records: list[dict[str, Any]]) -> None:
        """The metrics as they were when the checkpoint was written."""
        text = "".join(_line(record) for record in records)
        write_whole(self.metrics, text.encode())

    def add_record(self, record: dict[str, Any]) -> None:
        """One epoch more."""
        with self.metrics.open("a") as file:
            file.write(_line(record))
            file.flush()
            os.fsync(file.fileno())

    def write_table(self, records: list[dict[str, Any]]) -> None:
        """The same as columns, without lists."""
        rows = [flat(record) for record in records]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_whole(self.table, text.getvalue().encode())

    def write_predictions(self, data: DataSet, predicted: Mapping[str, Predicted]) -> None:
        """Logits, labels and ids of the validation and of the test part, in one file."""
        arrays: dict[str, Any] = {"class_names": np.array(data.class_names, dtype=str)}
        for name, part in predicted.items():
            arrays[f"{name}_logits"] = part.logits
            arrays[f"{name}_labels"] = part.labels
            arrays[f"{name}_ids"] = getattr(data, name).ids
        with written_whole(self.predictions) as temporary:
            np.savez(temporary, allow_pickle=False, **arrays)

    def write_result(self, result: Mapping[str, Any]) -> None:
        """The last file of a run: where it is, the run is finished."""
        self._write(self.result, result)

    def read_result(self) -> dict[str, Any] | None:
        """What a finished run has found; None where it is not finished."""
        if not self.result.is_file():
            return None
        plain: dict[str, Any] = self._read(self.result, dict, "Delete it and resume the run")
        return plain

    def is_finished(self) -> bool:
        """Whether all is there that a run leaves; checkpoints may have been removed."""
        return self.result.is_file() and self.predictions.is_file()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes out, who would write the same files; a kill lets go of the folder.

        Where the system has no such lock, or the disk is of another machine, nothing is kept out.
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
                    f"{self.path} must be free; found another process at work in it. Let it "
                    "finish, or stop it, or choose another folder"
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
            except ValueError:  # the line that a kill has cut short
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
    """Versions and machine, without names of hosts or people."""
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
    """What a run writes at most: checkpoints, predictions, metrics."""
    weights: int = sum(t.nbytes for t in network.state_dict().values())
    copies = {"sgd": 1, "adam": 2, "adagrad": 1}[recipe.optimizer] + 1
    copies += recipe.choice == "best"
    rows = len(data.val) + len(data.test)
    longest = max(int(part.ids.dtype.itemsize) for part in (data.val, data.test))
    predictions = rows * (4 * data.n_classes + 8 + longest)
    kept = checkpoints.KEPT + 1  # and the one that is being written
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
    """The commit of the checkout this package runs from, if it runs from one."""
    here = Path(__file__).resolve().parent
    if here.parents[1].name != "src":  # installed, perhaps within the checkout of something else
        return None
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip() if asked.returncode == 0 else None


def check_entry(values: Mapping[str, Any], name: str) -> None:
    """Something of this name."""
    if name not in values:
        raise CalibrantError(
            f"it must have {name}; found {', '.join(map(str, values)) or 'nothing'}"
        )
