"""What there is to reproduce: every folder here that has a ``config.toml``."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import ge, gt, le, lt
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
BOUNDS = {"below": lt, "above": gt, "at least": ge, "at most": le}
PICTURES = HERE.parent / "docs" / "pictures" / "reproduction"
PRINTED = re.compile(rf"(?P<bound>{'|'.join(BOUNDS)})? ?(?P<low>-?[0-9.]+)(-(?P<high>[0-9.]+))?")
"""What of a paper's words can be compared with a number."""


class NothingToReadError(FileNotFoundError):
    """What an experiment is to look at has not been made yet."""


@dataclass(frozen=True)
class Expected:
    """What one number should be.

    Attributes:
        here: What this code finds.
        tolerance: By how much it may differ in another run, on another machine.
        paper: What the paper prints, as it prints it; empty where it prints nothing.
        within: How far from ``paper`` a number may be to count as the same: half a unit of its
            last decimal where nothing is said, the tolerance where it has none; more where it was
            read off a picture, or rounded to a whole number.
        why: The reason of a difference from the paper.
    """

    here: float
    tolerance: float = 0.0
    paper: str = ""
    within: float | None = None
    why: str = ""

    def holds(self, value: float) -> bool:
        """Whether a run has found what is expected."""
        return abs(value - self.here) <= self.tolerance

    def same_as_paper(self, value: float) -> bool | None:
        """Whether a value is what the paper prints; None where that cannot be told.

        Printed are a number, a bound ("below 0.1", "at least 2"), a range ("0.4-0.5") or "none". A
        number with decimals is that number to half a unit of its last digit; one without is exact,
        for most of these are counts.
        """
        printed = PRINTED.fullmatch(self.paper.replace("none", "0"))
        if printed is None:
            return None
        low = float(printed["low"])
        if printed["high"]:
            return low <= value <= float(printed["high"])
        if printed["bound"]:
            return bool(BOUNDS[printed["bound"]](value, low))
        decimals = len(printed["low"].partition(".")[2])
        # A digit's half, and a hair for the rounding of decimals in binary.
        half = 0.5 * 10.0**-decimals * (1 + 1e-9) if decimals else self.tolerance
        return abs(value - low) <= (half if self.within is None else self.within)


@dataclass(frozen=True)
class Experiment:
    """One folder: what it reproduces, with which numbers, and how long it takes.

    ``config.toml`` has ``title``, ``source`` (paper and place; empty for a question of our own),
    ``needs`` (files that do not come with the checkout; empty for nothing), ``minutes`` (on two
    cores), and the table ``parameters``. ``reads`` names files of this folder that belong to the
    parameters, ``shows`` a table and ``draws`` a picture that the page is to have. ``study = true``
    marks a question of our own whose ``run.py`` has a command line of its own and no expected
    values; ``pending`` says why a result has not been published yet.
    """

    folder: Path

    @property
    def name(self) -> str:
        """As the command line has it."""
        return self.folder.name.replace("_", "-")

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """Everything that ``config.toml`` says."""
        return tomllib.loads((self.folder / "config.toml").read_text())

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The numbers of the run."""
        found: Mapping[str, Any] = self.config.get("parameters", {})
        return found

    @property
    def is_study(self) -> bool:
        """Whether it is a question of our own, with a command line of its own."""
        return bool(self.config.get("study", False))

    @property
    def pending(self) -> str:
        """Why it has not been published, or nothing."""
        return str(self.config.get("pending", ""))

    @property
    def picture(self) -> Path | None:
        """Where the picture is that the page has."""
        return PICTURES / f"{self.name}.svg" if "draws" in self.config else None

    @property
    def is_quick(self) -> bool:
        """Whether ``make reproduce-quick`` runs it: under ten minutes, with expected values."""
        return not self.is_study and self.config["minutes"] < 10

    @property
    def hash(self) -> str:
        """Of name and parameters: a result with another hash is that of another run."""
        read = [tomllib.loads((HERE / path).read_text()) for path in self.config.get("reads", [])]
        text = json.dumps([self.name, self.parameters, *read], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def missing(self) -> str:
        """The first of the files it needs that is not there, or nothing."""
        needs = self.config.get("needs", [])
        return next((path for path in needs if not Path(path).exists()), "")

    @property
    def module(self) -> ModuleType:
        """``run.py``, imported when it is needed: most of them bring large packages along."""
        return importlib.import_module(f"experiments.{self.folder.name}.run")

    def expected(self) -> dict[str, Expected]:
        """The values of ``expected.toml``, by name."""
        path = self.folder / "expected.toml"
        if not path.exists():
            return {}
        return {name: Expected(**each) for name, each in tomllib.loads(path.read_text()).items()}

    def published(self) -> dict[str, Any] | None:
        """``result.json``: the run whose numbers the documentation has."""
        path = self.folder / "result.json"
        return json.loads(path.read_text()) if path.exists() else None


def catalogue() -> dict[str, Experiment]:
    """Every experiment by its name."""
    found = [Experiment(path.parent) for path in sorted(HERE.glob("*/config.toml"))]
    return {experiment.name: experiment for experiment in found}
