"""What compiled passes leave as they found it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FITTING = """
import numpy as np
import calibrant
labels = np.arange(400) % 3
logits = np.random.default_rng(0).normal(size=(400, 3)) + 2.0 * np.eye(3)[labels]
calibrant.TemperatureScaling().fit(logits, labels)
"""


def printed(code: str, **environment: str) -> str:
    """What a new process prints: threads are started once in each."""
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()


@pytest.mark.parametrize("numba_first", [False, True])
def test_a_fit_leaves_the_threads_of_torch(numba_first: bool) -> None:
    first = "import numba.np.ufunc.omppool\n" if numba_first else ""
    # The first call of get_num_threads sets them anew, so that it would hide a change before it.
    start = f"{first}import torch\ntorch.set_num_threads(1)\ntorch.get_num_threads()\n"
    assert printed(f"{start}{FITTING}print(torch.get_num_threads())", NUMBA_NUM_THREADS="2") == "1"


def test_a_fit_leaves_the_threads_of_a_torch_that_comes_later() -> None:
    code = f"{FITTING}import torch\nprint(torch.get_num_threads())"
    assert printed(code, NUMBA_NUM_THREADS="2", OMP_NUM_THREADS="1") == "1"


def test_passes_still_have_the_threads_of_numba() -> None:
    code = f"{FITTING}from calibrant._compiled import n_threads\nprint(n_threads())"
    assert printed(code, NUMBA_NUM_THREADS="2", OMP_NUM_THREADS="1") == "2"
