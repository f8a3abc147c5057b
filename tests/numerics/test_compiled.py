"""What compiled passes leave as they found it, and how they are compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

import calibrant
from tests.processes import run_python

FITTING = """
import numpy as np
import calibrant
labels = np.arange(400) % 3
logits = np.random.default_rng(0).normal(size=(400, 3)) + 2.0 * np.eye(3)[labels]
calibrant.TemperatureScaling().fit(logits, labels)
"""


def printed(code: str, **environment: str) -> str:
    """What a new process prints: threads are started once in each."""
    run = run_python("-c", code, check=True, environment=environment)
    return run.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("numba_first", [False, True])
def test_a_fit_leaves_the_threads_of_torch(numba_first: bool) -> None:
    first = "import numba.np.ufunc.omppool\n" if numba_first else ""
    # The first call of get_num_threads sets them anew, so that it would hide a change before it.
    start = f"{first}import torch\ntorch.set_num_threads(1)\ntorch.get_num_threads()\n"
    assert printed(f"{start}{FITTING}print(torch.get_num_threads())", NUMBA_NUM_THREADS="2") == "1"


@pytest.mark.slow
def test_a_fit_leaves_the_threads_of_a_torch_that_comes_later() -> None:
    code = f"{FITTING}import torch\nprint(torch.get_num_threads())"
    assert printed(code, NUMBA_NUM_THREADS="2", OMP_NUM_THREADS="1") == "1"


@pytest.mark.slow
def test_passes_still_have_the_threads_of_numba() -> None:
    code = f"{FITTING}from calibrant._numerics.compiled import n_threads\nprint(n_threads())"
    assert printed(code, NUMBA_NUM_THREADS="2", OMP_NUM_THREADS="1") == "2"


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_threads() -> None:
    code = """
import numpy as np
import calibrant
rng = np.random.default_rng(0)
truth = 2.0 * rng.normal(size=(40_000, 30))
labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
logits = (1.7 * truth).astype("f4")
calibrator = calibrant.AutoCalibration().fit(logits, labels)
print(calibrator.report_.after.hex(), float(calibrator.predict_proba(logits).sum()).hex())
print(calibrant.classwise_ece(logits=logits, labels=labels).hex())
"""
    assert printed(code, NUMBA_NUM_THREADS="1") == printed(code, NUMBA_NUM_THREADS="3")


def test_a_pass_without_rows() -> None:
    import numpy as np

    from calibrant.metrics.kernels import write_bins

    write_bins(np.empty(0), np.linspace(0.0, 1.0, 11), np.empty(0, dtype=np.intp))


@pytest.mark.slow
def test_ctrl_c_ends_a_long_pass_between_two_blocks() -> None:
    """The interrupt comes after a tenth of the time that a pass takes."""
    code = """
import signal, time
import numpy as np
from calibrant.calibrators.temperature.kernels import log_odds_of_rows
logits = np.random.default_rng(0).normal(size=(100_000, 100))
out, gammas = np.empty((1, len(logits))), np.array([2.0])
log_odds_of_rows(logits[:10], 1.0, gammas, out)  # compiled now
start = time.perf_counter()
log_odds_of_rows(logits, 1.0, gammas, out)
whole = time.perf_counter() - start
signal.signal(signal.SIGALRM, signal.default_int_handler)
out[:] = np.nan
signal.setitimer(signal.ITIMER_REAL, whole / 10)
try:
    log_odds_of_rows(logits, 1.0, gammas, out)
except KeyboardInterrupt:
    print("interrupted with rows left" if np.isnan(out).any() else "too late")
"""
    for threads in ("1", "2"):
        assert printed(code, NUMBA_NUM_THREADS=threads) == "interrupted with rows left"


def test_every_function_is_compiled_by_the_decorator_that_needs_no_cache() -> None:
    package = Path(calibrant.__file__).parent
    files = [file for file in package.rglob("*.py") if "njit" in file.read_text(encoding="utf-8")]
    assert files == [package / "_numerics" / "compiled.py"]
    assert "cache=True)" not in files[0].read_text(encoding="utf-8")
