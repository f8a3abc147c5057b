"""Grids of runs: data sets x networks x losses x seeds, one process per core."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from calibrant import _inputs
from calibrant._writing import make_folder, write_whole
from calibrant.errors import CalibrantError
from calibrant.training import checks
from calibrant.training.folders import RunFolder
from calibrant.training.models import MODELS
from calibrant.training.papers import recipe
from calibrant.training.recipes import Recipe
from calibrant.training.run import loss_of

AXES = ("data", "model", "loss", "seed")
DEFAULTS = {"data": None, "model": None, "loss": "ce", "seed": 0}
OTHERS = ("preset", "paper", "files", "settings")
FILES = ("data", "embeddings")
LOG = "log.txt"
POLL = 0.2
COLUMNS = (
    ("test error %", "test", "error"),
    ("ECE %", "identity", "ece"),
    ("ECE % temperature", "temperature", "ece"),
    ("ECE % focal map", "focal", "ece"),
    ("ECE % focal temperature", "focal-temperature", "ece"),
    ("ECE % auto", "auto", "ece"),
    ("NLL", "identity", "nll"),
    ("NLL auto", "auto", "nll"),
)


@dataclass(frozen=True)
class Job:
    """One run of a grid, and the location of its files."""

    recipe: Recipe
    data_folder: str | None = None
    embeddings: str | None = None


@dataclass(frozen=True)
class GridResult:
    """Results of a grid; ``str`` gives a table in Markdown.

    Attributes:
        n_runs: Number of runs.
        results: Results of the finished runs, in the order of the grid.
        failures: Runs that failed, each with the last line of its log.
    """

    n_runs: int
    results: tuple[Mapping[str, Any], ...]
    failures: Mapping[str, str]

    def rows(self) -> list[dict[str, Any]]:
        """One row per data set, network and loss: mean and standard deviation over the seeds."""
        groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
        for result in self.results:
            key = tuple(str(result["recipe"][axis]) for axis in AXES[:-1])
            groups.setdefault(key, []).append(result)
        return [
            {
                **dict(zip(AXES, key, strict=False)),
                "seeds": [result["recipe"]["seed"] for result in results],
                "seconds": round(mean(result["seconds"] for result in results), 1),
                **{name: _spread(results, *source) for name, *source in COLUMNS},
            }
            for key, results in groups.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """The rows and the single runs as plain data."""
        runs = [
            {
                "hash": result["hash"],
                **{axis: result["recipe"][axis] for axis in AXES},
                "seconds": result["seconds"],
                "cpu_seconds": result.get("cpu_seconds"),
                **{name: _figure(result, *source) for name, *source in COLUMNS},
            }
            for result in self.results
        ]
        return {"rows": self.rows(), "runs": runs, "failures": dict(self.failures)}

    def __str__(self) -> str:
        head = [*AXES[:-1], "seeds", *(name for name, *_ in COLUMNS)]
        lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        for row in self.rows():
            cells = [row["data"], row["model"], row["loss"], str(len(row["seeds"]))]
            cells += [_shown(name, row[name]) for name, *_ in COLUMNS]
            lines.append("| " + " | ".join(cells) + " |")
        lines += [f"\nFailed: {name}: {said}" for name, said in self.failures.items()]
        return "\n".join(lines)


def read_grid(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a grid from a ``.json`` or ``.toml`` file, which may only name calibrant's networks."""
    source = _inputs.path(path, "a grid")
    _inputs.choice(source.suffix.lower(), "the extension of a grid", (".json", ".toml"))
    with _inputs.refusing(f"{source} cannot be read", "Correct it there"):
        text = source.read_text(encoding="utf-8")
        parsed = json.loads(text) if source.suffix.lower() == ".json" else tomllib.loads(text)
    _inputs.instance(parsed, dict, f"what {source} holds")
    plain: dict[str, Any] = parsed
    for model in _listed(plain.get("model")):
        checks.registered_network(
            model, None, str(source), "If you trust it, pass the grid to run_grid in Python"
        )
    return plain


def jobs_of(grid: Mapping[str, Any]) -> list[Job]:
    """Expand a grid into its runs.

    Args:
        grid: ``data``, ``model``, ``loss`` and ``seed``, each a value or a list. Only ``data`` is
            required; ``model`` may be your own function, ``package.module:function``. ``preset``
            and ``paper`` as in :func:`recipe`; ``settings``, fields of the recipe for all runs;
            ``files``, ``data`` and ``embeddings`` of each data set.

    Examples:
        >>> from calibrant.training.grid import jobs_of
        >>> jobs = jobs_of({"data": "digits", "loss": ["ce", "fl-3"], "seed": [0, 1]})
        >>> [job.recipe.name for job in jobs]
        ['digits/mlp/ce/0', 'digits/mlp/ce/1', 'digits/mlp/fl-3/0', 'digits/mlp/fl-3/1']
    """
    for name in grid:
        _inputs.parameter(name, "a grid", (*AXES, *OTHERS))
    axes = [_listed({**DEFAULTS, **grid}[axis]) for axis in AXES]
    for axis, values in zip(AXES, axes, strict=True):
        if not values:
            raise CalibrantError(
                f"{axis} of a grid must have an entry; found an empty list. Name what to run"
            )
    settings, files = (_section(grid, name) for name in ("settings", "files"))
    for name in settings:
        place = f"Write {name} = ... above [settings]" if name in (*AXES, *OTHERS) else None
        checks.field_without_option(name, place)
    for name, entries in files.items():
        _inputs.choice(name, "files of a grid", axes[0])
        for kind in _section(files, name):
            _inputs.parameter(kind, f"files.{name} of a grid", FILES)
            _inputs.text(entries[kind], f"files.{name}.{kind}")
    common = {name: grid[name] for name in ("preset", "paper") if name in grid}
    jobs = {}
    for data, model, loss, seed in itertools.product(*axes):
        made = recipe(data, model=model, loss=loss, **common, **{**settings, "seed": seed})
        # Now, rather than in each of the processes.
        if not checks.is_own_code(made.model):
            _inputs.choice(made.model, "model", tuple(MODELS))
        loss_of(made)
        jobs[made.hash] = Job(made, *(files.get(data, {}).get(kind) for kind in FILES))
    return list(jobs.values())


def _section(plain: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = plain.get(name, {})
    if not isinstance(found, Mapping):
        raise CalibrantError(
            f"{name} of a grid must be names with values; found {_inputs.described(found)}. "
            f"Write a section [{name}]"
        )
    return found


def run_grid(
    grid: Mapping[str, Any] | Sequence[Job],
    folder: str | os.PathLike[str],
    *,
    processes: int | None = None,
    say: Callable[[str], None] | None = None,
) -> GridResult:
    """Run the unfinished runs of a grid, and tabulate all of them.

    Each run has its own single-threaded process, and a folder named by the hash of its recipe.
    Finished runs are not repeated; interrupted ones are resumed. A run that fails or is killed does
    not stop the others and is listed at the end; its output is in ``HASH.log.txt``. After an
    interruption the same call continues the grid.

    Args:
        grid: As in :func:`jobs_of`, or a list of jobs.
        folder: Folder of all runs; ``table.md`` and ``table.json`` are written there.
        processes: Number of simultaneous runs; None is one per core.
        say: Called with a line for each run that starts or ends.

    Returns:
        GridResult: the results of all runs.
    """
    jobs = jobs_of(grid) if isinstance(grid, Mapping) else list(grid)
    at_once = _inputs.whole_number(
        os.cpu_count() if processes is None else processes, "processes", allowed=range(1, 1025)
    )
    root = _inputs.path(folder, "the folder of a grid")
    with _inputs.refusing(f"cannot write to {root}", "Choose another folder"):
        root.mkdir(parents=True, exist_ok=True)
    make_folder(root)
    say = say or (lambda _: None)
    waiting = [job for job in jobs if _result_of(root, job) is None]
    say(f"{len(jobs)} runs: {len(jobs) - len(waiting)} finished, {len(waiting)} to run")
    running: dict[subprocess.Popen[bytes], Job] = {}
    failures: dict[str, str] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                job = waiting.pop(0)
                running[_start(job, root)] = job
                say(f"started: {job.recipe.name} in {folder_of(job, root).name}")
            for process in [process for process in running if process.poll() is not None]:
                job = running.pop(process)
                if process.returncode:
                    failures[job.recipe.name] = _failure(job, root, process.returncode)
                outcome = "failed" if process.returncode else "done"
                say(f"{outcome}: {job.recipe.name}; {len(waiting) + len(running)} left")
            time.sleep(POLL)
    finally:
        for process in running:
            process.terminate()
        for process in running:  # nothing is written after this returns
            process.wait()
    found = (_result_of(root, job) for job in jobs)
    result = GridResult(len(jobs), tuple(entry for entry in found if entry is not None), failures)
    write_whole(root / "table.md", f"{result}\n".encode())
    write_whole(root / "table.json", (json.dumps(result.to_dict(), indent=2) + "\n").encode())
    return result


def folder_of(job: Job, root: Path) -> Path:
    """Folder of a run of a grid."""
    return root / job.recipe.hash[:16]


def _start(job: Job, root: Path) -> subprocess.Popen[bytes]:
    """Start the process of a run."""
    place = folder_of(job, root)
    request = {
        "recipe": job.recipe.to_dict(),
        "own_model": job.recipe.model,  # passed in Python: read_grid refuses it in files
        "folder": str(place),
        "data_folder": job.data_folder,
        "embeddings": job.embeddings,
        "resume": RunFolder(place).config.exists(),
    }
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    # It imports from the same places as this process; -P leaves out the working folder.
    import_path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    with (root / f"{place.name}.{LOG}").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "calibrant.training.one_run", json.dumps(request)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **one_thread, **import_path},
        )


def _failure(job: Job, root: Path, status: int) -> str:
    """The reason for a failure, in one line."""
    if status < 0:
        return f"killed by signal {-status}"
    said = (root / f"{folder_of(job, root).name}.{LOG}").read_text(errors="replace").split("\n")
    return next((line for line in reversed(said) if line.strip()), f"exit status {status}")


def _result_of(root: Path, job: Job) -> dict[str, Any] | None:
    result = RunFolder(folder_of(job, root)).read_result()
    return result if result is not None and result["hash"] == job.recipe.hash else None


def _figure(result: Mapping[str, Any], method: str, metric: str) -> float | None:
    if method == "test":
        return float(result["test"][metric])
    found = result["comparison"]["methods"].get(method)
    measured = found and found["metrics"]
    return None if not measured else float(measured[metric]["value"])


def _spread(
    results: Sequence[Mapping[str, Any]], method: str, metric: str
) -> dict[str, float] | None:
    figures = [f for result in results if (f := _figure(result, method, metric)) is not None]
    if not figures:
        return None
    spread = {"mean": mean(figures)}
    return {**spread, "sd": stdev(figures)} if len(figures) > 1 else spread


def _shown(name: str, spread: Mapping[str, float] | None) -> str:
    if spread is None:
        return ""
    scale, digits = (100.0, 2) if "%" in name else (1.0, 4)
    text = f"{scale * spread['mean']:.{digits}f}"
    return f"{text} ± {scale * spread['sd']:.{digits}f}" if "sd" in spread else text


def _listed(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list | tuple) else [values]
