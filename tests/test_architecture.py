"""What the layout promises: light imports, and public names only outside the library."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.processes import run_python

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "matplotlib", "sklearn", "scipy", "numba", "dask", "lightning")


def loaded_by(statement: str) -> set[str]:
    """Top-level modules in memory after ``statement``, in a fresh interpreter."""
    code = f"{statement}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    done = run_python("-c", code, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("statement", ["import calibrant", "import calibrant.cli"])
def test_importing_loads_nothing_heavy(statement):
    assert loaded_by(statement).isdisjoint(HEAVY)


def test_the_numpy_core_works_without_torch():
    used = (
        "import numpy, calibrant\n"
        "calibrant.focal.focal_loss(numpy.zeros((1, 2)), numpy.array([0]), gamma=2.0)"
    )
    assert loaded_by(used).isdisjoint(HEAVY)


@pytest.mark.parametrize("folder", ["benchmarks", "examples", "experiments"])
def test_public_names_only(folder):
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            private = [n for n in names if n.startswith("calibrant") and "._" in n]
            assert not private, f"{file} uses {private}"


def test_the_experiments_are_listed():
    done = run_python("-m", "experiments", "--list", cwd=ROOT, check=True)
    assert "closest-temperature" in done.stdout
