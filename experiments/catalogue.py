"""The experiments: every folder here with a ``config.toml``."""

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
"""Printed texts that can be compared with a number."""


class NothingToReadError(FileNotFoundError):
    """The runs that an experiment reads do not exist yet."""


@dataclass(frozen=True)
class Expected:
    """An expected value.

    Attributes:
        here: The value that this code finds.
        tolerance: Allowed difference in another run or on another machine.
        paper: The value as the paper prints it; empty if it prints none.
        within: Largest difference from ``paper`` that counts as the same. Default: half a unit of
            its last decimal, or the tolerance if it has none. Larger for a value that was read off
            a picture or rounded to an integer.
        why: The reason for a difference from the paper.
        again: Whether ``paper`` is compared in another row already, and is not counted twice.
    """

    here: float
    tolerance: float = 0.0
    paper: str = ""
    within: float | None = None
    why: str = ""
    again: bool = False

    @property
    def is_of_all_cases(self) -> bool:
        """Whether the paper makes a statement about all cases, and the value is its exceptions."""
        return self.paper in ("0", "none")

    def holds(self, value: float) -> bool:
        """Whether a value is as expected."""
        return abs(value - self.here) <= self.tolerance

    def same_as_paper(self, value: float) -> bool | None:
        """Whether a value agrees with the paper; None if they cannot be compared.

        The paper prints a number, a bound ("below 0.1", "at least 2"), a range ("0.4-0.5") or
        "none". A number with decimals holds to half a unit of its last digit; one without, mostly a
        count, to the tolerance.
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
        # Half a digit, with a margin for binary rounding.
        half = 0.5 * 10.0**-decimals * (1 + 1e-9) if decimals else self.tolerance
        return abs(value - low) <= (half if self.within is None else self.within)


@dataclass(frozen=True)
class Experiment:
    """One experiment: a folder with a ``config.toml``.

    ``config.toml`` has ``title``, ``source`` (paper and place; empty for our own questions),
    ``needs`` (files that do not come with the checkout), ``minutes`` (on two cores), and the table
    ``parameters``. ``reads`` names files of this folder that belong to the parameters, ``shows`` a
    table and ``draws`` a picture for the page. ``study = true`` marks our own question whose
    ``run.py`` has its own command line and no expected values; ``pending`` is the reason why a
    result is not published yet.
    """

    folder: Path

    @property
    def name(self) -> str:
        """The name on the command line."""
        return self.folder.name.replace("_", "-")

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The content of ``config.toml``."""
        return tomllib.loads((self.folder / "config.toml").read_text())

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters of the run."""
        found: Mapping[str, Any] = self.config.get("parameters", {})
        return found

    @property
    def is_study(self) -> bool:
        """Whether it is our own question, with its own command line."""
        return bool(self.config.get("study", False))

    @property
    def pending(self) -> str:
        """The reason why it is not published, or an empty string."""
        return str(self.config.get("pending", ""))

    @property
    def picture(self) -> Path | None:
        """The path of the picture on the page, if any."""
        return PICTURES / f"{self.name}.svg" if "draws" in self.config else None

    @property
    def is_quick(self) -> bool:
        """Whether ``make reproduce-quick`` runs it: under ten minutes, with expected values."""
        return not self.is_study and self.config["minutes"] < 10

    @property
    def hash(self) -> str:
        """Hash of name and parameters; a result with another hash comes from another run."""
        read = [tomllib.loads((HERE / path).read_text()) for path in self.config.get("reads", [])]
        text = json.dumps([self.name, self.parameters, *read], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def missing(self) -> str:
        """The first missing file that it needs, or an empty string."""
        needs = self.config.get("needs", [])
        return next((path for path in needs if not Path(path).exists()), "")

    @property
    def module(self) -> ModuleType:
        """``run.py``, imported on demand: most of them import large packages."""
        return importlib.import_module(f"experiments.{self.folder.name}.run")

    def expected(self) -> dict[str, Expected]:
        """The values of ``expected.toml``, by name."""
        path = self.folder / "expected.toml"
        if not path.exists():
            return {}
        return {name: Expected(**each) for name, each in tomllib.loads(path.read_text()).items()}

    def published(self) -> dict[str, Any] | None:
        """``result.json``: the run whose numbers are in the documentation."""
        path = self.folder / "result.json"
        return json.loads(path.read_text()) if path.exists() else None


def catalogue() -> dict[str, Experiment]:
    """Every experiment by its name."""
    found = [Experiment(path.parent) for path in sorted(HERE.glob("*/config.toml"))]
    return {experiment.name: experiment for experiment in found}
