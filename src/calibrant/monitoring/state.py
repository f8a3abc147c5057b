"""What a watch remembers between runs, as a versioned JSON file. Loading it runs no code.

    {"format": "calibrant-watch", "version": 1,
     "settings": {"time": "day", "every": "day", "since": null, "by": ["country"],
                  "label": null, "score": [], "calibrator": null, "positive": null},
     "n_classes": 2, "class_names": null,
     "files": {"day=2026-10-01/0.parquet": {"bytes": 51234, "changed": 1790000000000000000,
                  "waiting": 12, "sums": {"2026-10-01": {"": [...], "country=FR": [...]}}}},
     "steps": [["2026-10-01", 5000, 0.31]],
     "wealth": {"": [...], "country=FR": [...]}}

``files`` are those that were read, by their paths below the folder, with the sums of each period
and group (see ``periods``), ``calibrator`` is the SHA-256 of the calibrator's file, and each step
has a period, how many samples were new, and the logarithm of the evidence after it. The file is
replaced as a whole, so that it is always the old one or the new one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from calibrant._writing import write_whole
from calibrant.calibrators.saving import one_line
from calibrant.errors import CalibrantError
from calibrant.metrics.samples import Floats
from calibrant.monitoring.alternatives import BOTH_WAYS, alternatives, log_weights
from calibrant.monitoring.e_process import ALL, EProcess
from calibrant.monitoring.periods import (
    Key,
    PeriodSums,
    length_of,
    ratios_of,
    shared_of,
)

FORMAT, VERSION = "calibrant-watch", 1
MOST_CLASSES = 10_000
ROUNDING = 1e-6
"""Largest difference per sample between sums of the same rows, which may be added in any order."""


@dataclass(frozen=True)
class Settings:
    """What must stay the same from run to run."""

    time: str
    every: str
    since: str | None = None
    """The first period that counts."""
    by: tuple[str, ...] = ()
    label: str | None = None
    score: tuple[str, ...] = ()
    calibrator: str | None = None
    """SHA-256 of its file."""
    positive: str | None = None


class Stamp(NamedTuple):
    """What tells whether a file has changed."""

    bytes: int
    changed: int
    """Nanoseconds since 1970."""

    @classmethod
    def of(cls, file: Path) -> Stamp:
        """The stamp of a file now; of one that is not there, no file's stamp."""
        try:
            status = file.stat()
        except OSError:  # a broken link, which is refused or skipped when it is read
            return cls(-1, -1)
        return cls(status.st_size, status.st_mtime_ns)


class Step(NamedTuple):
    """New samples of a period, and the evidence after them."""

    period: str
    n: int
    log_e: float


@dataclass
class State:
    """Everything that a later run needs."""

    settings: Settings
    n_classes: int
    class_names: tuple[str, ...] | None
    sums: PeriodSums
    evidence: EProcess
    files: dict[str, Stamp] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    @classmethod
    def new(cls, settings: Settings, n_classes: int, names: tuple[str, ...] | None) -> State:
        """The state before any file was read."""
        process = EProcess(log_weights(n_classes), len(BOTH_WAYS), grouped=bool(settings.by))
        return cls(settings, n_classes, names, PeriodSums(n_classes), process)

    def learn(self, read: PeriodSums, stamps: Mapping[str, Stamp], there: set[str]) -> None:
        """Add files that are new or have changed: one step for each period with new samples.

        ``there`` are all files that exist now.
        """
        self._refuse_renamed(read, there)
        new = PeriodSums(self.n_classes)
        before = {key: v for key, v in self.sums.vectors.items() if key.file in stamps}
        for key in sorted(before.keys() | read.vectors.keys()):
            none = np.zeros(length_of(key.group, self.n_classes))
            change = read.vectors.get(key, none) - before.get(key, none)
            _refuse_other_rows(key, change, shared_of(before.get(key, none)).n)
            if change[0] > 0:
                new.add(key, change)
        kept = {key: v for key, v in self.sums.vectors.items() if key.file not in stamps}
        self.sums.vectors = kept | read.vectors
        for file, stamp in stamps.items():
            self.files[file] = stamp
            self.sums.waiting[file] = read.waiting[file]
        for period, groups in new.by_period().items():
            self.evidence.update(
                {group: ratios_of(v, group, self.n_classes) for group, v in groups.items()}
            )
            n = round(shared_of(groups[ALL]).n)
            self.steps.append(Step(period, n, self.evidence.log_e))

    def _refuse_renamed(self, read: PeriodSums, there: set[str]) -> None:
        """Refuse rows that were probably counted under another name."""
        gone = {key.period: key.file for key in self.sums.vectors if key.file not in there}
        for key in read.vectors:
            if key.file not in self.files and key.period in gone:
                raise CalibrantError(
                    f"{key.file} is new and has rows of {key.period}, and {gone[key.period]}, "
                    "which had some too, is gone: if it was renamed or merged, its rows would "
                    "count twice. Name it as before, or start with another state file"
                )

    def check_same(self, settings: Settings, where: Path) -> None:
        """Refuse other settings than those of the state."""
        for name, expected in asdict(self.settings).items():
            found = getattr(settings, name)
            if found != expected:
                raise CalibrantError(
                    f"{where} is the state of a watch with {name} = {_shown(expected)}; found "
                    f"{_shown(found)}. Use the same settings, or another state file"
                )

    def check_same_classes(
        self, n_classes: int, names: tuple[str, ...] | None, where: Path | None
    ) -> None:
        """Refuse predictions of other classes."""
        expected = self.n_classes, self.class_names
        if expected != (n_classes, names):
            raise CalibrantError(
                f"{where} is the state of a watch over {_classes(*expected)}; found "
                f"{_classes(n_classes, names)}. Use another state file"
            )

    def save(self, path: Path) -> None:
        """Write the file: the old one or the new one is there at any time."""
        files: dict[str, Any] = {
            file: {**stamp._asdict(), "waiting": self.sums.waiting[file], "sums": {}}
            for file, stamp in self.files.items()
        }
        for key, vector in self.sums.vectors.items():
            of_file = files[key.file]["sums"]
            of_file.setdefault(key.period, {})[key.group] = vector.tolist()
        content = {
            "format": FORMAT,
            "version": VERSION,
            "settings": asdict(self.settings),
            "n_classes": self.n_classes,
            "class_names": self.class_names,
            "files": files,
            "steps": self.steps,
            "wealth": {group: wealth.tolist() for group, wealth in self.evidence.wealth.items()},
        }
        write_whole(path, json.dumps(content, allow_nan=False).encode())

    @classmethod
    def load(cls, path: Path) -> State:
        """Read the file, and refuse one that is damaged or was not written by :meth:`save`."""
        found = _Checked(_parsed(path), str(path))
        if found.entry("format", str) != FORMAT or found.entry("version", int) != VERSION:
            found.refuse(f"it is not of the format {FORMAT}, version {VERSION}")
        settings = _settings(found.inside("settings"))
        n_classes = found.entry("n_classes", int)
        names = found.texts("class_names") if found.content.get("class_names") else None
        if not 2 <= n_classes <= MOST_CLASSES or (names is not None and len(names) != n_classes):
            found.refuse(f"n_classes is {_shown(n_classes)}")
        state = cls.new(settings, n_classes, names)
        for file, each in found.inside("files").objects():
            state.files[file] = Stamp(each.count("bytes"), each.count("changed"))
            state.sums.waiting[file] = each.count("waiting")
            for period, groups in each.inside("sums").objects():
                for group in groups.content:
                    vector = groups.numbers(group, length_of(group, n_classes))
                    state.sums.vectors[Key(file, period, group)] = vector
        state.steps = found.steps()
        state.evidence.periods = len(state.steps)
        wealth = found.inside("wealth")
        for group in wealth.content:
            n = len(alternatives(n_classes)) if group == ALL else len(BOTH_WAYS)
            state.evidence.wealth[group] = wealth.numbers(group, n)
        if {key.group for key in state.sums.vectors} != set(state.evidence.wealth):
            found.refuse("its sums and its evidence are of different groups")
        if not {key.period for key in state.sums.vectors} <= {step.period for step in state.steps}:
            found.refuse("its sums have a period without a step")
        return state


def _refuse_other_rows(key: Key, change: Floats, counted: float) -> None:
    """Refuse a file without some rows that were counted, or with other labels for them."""
    shared = shared_of(change)
    off = max(abs(shared.stated), abs(shared.happened)) > ROUNDING * (counted + 1.0)
    if shared.n < 0 or (shared.n == 0 and off):
        raise CalibrantError(
            f"{key.file} has changed: rows of {key.period} that were counted are gone or have "
            "other values. Only rows and labels may be added; restore it, or start with another "
            "state file"
        )


@dataclass(frozen=True)
class _Checked:
    """A JSON object whose entries are checked when they are read."""

    content: dict[str, Any]
    where: str

    def entry(self, name: str, kind: type) -> Any:
        value = self.content.get(name)
        if type(value) is not kind:
            self.refuse(f"{_shown(name)} is {_shown(value)}, not {kind.__name__}")
        return value

    def inside(self, name: str) -> _Checked:
        return _Checked(self.entry(name, dict), self.where)

    def objects(self) -> list[tuple[str, _Checked]]:
        return [(name, self.inside(name)) for name in self.content]

    def count(self, name: str) -> int:
        value: int = self.entry(name, int)
        if not 0 <= value < 2**63:
            self.refuse(f"{_shown(name)} is {_shown(value)}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.entry(name, list)
        if not all(type(value) is str for value in values):
            self.refuse(f"{_shown(name)} is {_shown(values)}, not a list of text")
        return tuple(values)

    def numbers(self, name: str, length: int) -> Floats:
        values = self.entry(name, list)
        if len(values) != length or not all(map(_is_number, values)):
            self.refuse(f"{_shown(name)} is {_shown(values)}, not {length} finite numbers")
        return np.array(values, dtype=np.float64)

    def steps(self) -> list[Step]:
        found = []
        for step in self.entry("steps", list):
            known = type(step) is list and len(step) == len(Step._fields)
            if not known or type(step[0]) is not str or type(step[1]) is not int:
                self.refuse(f"a step is {_shown(step)}")
            if not _is_number(step[2]):
                self.refuse(f"the evidence of a step is {_shown(step[2])}")
            found.append(Step(*step))
        return found

    def refuse(self, reason: str) -> NoReturn:
        raise CalibrantError(
            f"{self.where} cannot be read as the state of a watch: {reason}. Restore it from a "
            "copy, or start with another state file"
        )


def _settings(found: _Checked) -> Settings:
    found.content.setdefault("positive", None)  # earlier versions had no such setting
    if set(found.content) != {each.name for each in fields(Settings)}:
        found.refuse(f"its settings are {_shown(sorted(found.content))}")
    texts = ("since", "label", "calibrator", "positive")
    given = (name for name in texts if found.content[name] is not None)
    for name in ("time", "every", *given):
        found.entry(name, str)
    return Settings(**{**found.content, "by": found.texts("by"), "score": found.texts("score")})


def _parsed(path: Path) -> dict[str, Any]:
    nothing = _Checked({}, str(path))
    try:
        content = json.loads(path.read_bytes(), parse_constant=nothing.refuse)
    except (ValueError, RecursionError) as error:
        if isinstance(error, CalibrantError):
            raise
        nothing.refuse(f"it is not valid JSON, or is truncated ({one_line(error)})")
    if type(content) is not dict:
        nothing.refuse(f"it holds {type(content).__name__}, not an object")
    return content


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= 1e300 and math.isfinite(value)


def _classes(n_classes: int, names: tuple[str, ...] | None) -> str:
    return f"{n_classes} classes" if names is None else f"the classes {_shown(names)}"


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
