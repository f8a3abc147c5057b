"""Every module can be imported first, and all of them in any order: there is no hidden cycle."""

from __future__ import annotations

import pytest

from tests.processes import run_python


def run(code: str) -> None:
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    run_python("-c", code, environment=environment, check=True)


NAMES = """
import sys
from pathlib import Path
root = next(p for p in (Path(entry, "calibrant") for entry in sys.path) if p.is_dir())
names = sorted(
    ".".join(("calibrant", *file.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
    for file in root.rglob("*.py")
    if file.name != "__main__.py"
)
assert len(names) > 150
"""


@pytest.mark.slow
def test_every_module_can_be_imported_first() -> None:
    run(
        NAMES
        + """
import importlib, os, sys
import lightning, matplotlib, numba, pyarrow.parquet, scipy.optimize, sklearn, torch, transformers
failed = []
for name in names:
    assert "calibrant" not in sys.modules
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except BaseException as error:
            print(name, repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        failed.append(name)
sys.exit(len(failed) > 0)
"""
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_all_modules_in_a_random_order(seed: int) -> None:
    run(
        NAMES
        + f"""
import importlib, random
random.Random({seed}).shuffle(names)
for name in names:
    importlib.import_module(name)
"""
    )
