"""Every module can be imported first, and all of them in any order: there is no hidden cycle."""

from __future__ import annotations

import pytest

from tests.processes import run_python

PROGRAM = """
import importlib, os, random, sys
from pathlib import Path
# Of others, and heavy: imported once, before the forks.
import lightning, matplotlib, numba, pyarrow.parquet, scipy.optimize, sklearn, torch, transformers

root = next(p for p in (Path(entry, "calibrant") for entry in sys.path) if p.is_dir())
names = sorted(
    ".".join(("calibrant", *file.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
    for file in root.rglob("*.py")
    if file.name != "__main__.py"
)
assert len(names) > 150


def can_be_imported(names):
    child = os.fork()
    if child == 0:
        for name in names:
            try:
                importlib.import_module(name)
            except BaseException as error:
                print(name, repr(error), file=sys.stderr)
                os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


assert "calibrant" not in sys.modules
orders = [random.Random(seed).sample(names, len(names)) for seed in range(3)]
done = [can_be_imported(order) for order in orders]
import calibrant  # as Python does before it imports any module in it
done += [can_be_imported([name]) for name in names]
sys.exit(not all(done))
"""


@pytest.mark.slow
def test_modules_can_be_imported_in_any_order() -> None:
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    run_python("-c", PROGRAM, environment=environment, check=True)
