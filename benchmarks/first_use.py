"""CPU seconds of commands and of a first prediction, with nothing compiled and with all compiled.

Each run is a new process, whose imports count. What one would do instead, a script of a few lines
with PyTorch, is measured beside them.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROWS, CLASSES = 5000, 100
COMMANDS = {
    "evaluate": ("evaluate", "net.npz::test"),
    "fit": ("fit", "net.npz::val", "-o", "auto.json"),
    "fit temperature": ("fit", "net.npz::val", "--method", "temperature", "-o", "cal.json"),
    "fit focal-temperature": (
        *("fit", "net.npz::val", "--method", "focal-temperature", "-o", "focal.json"),
    ),
    "apply": ("apply", "auto.json", "net.npz::test", "-o", "out.npz"),
    "compare": ("compare", "net.npz::val", "net.npz::test"),
    "report": ("report", "net.npz::val", "net.npz::test", "-o", "page.html"),
}
FIRST_ROW = """
import sys, numpy as np, calibrant
calibrant.load("auto.json").predict_proba(logits=np.zeros((1, int(sys.argv[1]))))
"""
TORCH = """
import numpy as np, torch
with np.load("net.npz") as file:
    logits, labels = torch.tensor(file["val_logits"]), torch.tensor(file["val_labels"])
log_t = torch.zeros(1, requires_grad=True)
optimiser = torch.optim.LBFGS([log_t], max_iter=50)
def closure():
    optimiser.zero_grad()
    loss = torch.nn.functional.cross_entropy(logits / log_t.exp(), labels)
    loss.backward()
    return loss
optimiser.step(closure)
"""


def cpu_seconds(command: list[str], folder: Path, cache: Path) -> float:
    """User and system time of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure every command cold, then twice warm, and print the shorter."""
    rng = np.random.default_rng(0)
    logits = 3.0 * rng.standard_normal((2 * ROWS, CLASSES), dtype=np.float32)
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    program = [sys.executable, "-m", "calibrant"]
    runs = {f"calibrant {name}": [*program, *rest] for name, rest in COMMANDS.items()}
    runs["load and predict one row"] = [sys.executable, "-c", FIRST_ROW, str(CLASSES)]
    runs["PyTorch: temperature by L-BFGS"] = [sys.executable, "-c", TORCH]
    print(f"\nfirst use, {ROWS} x {CLASSES}: CPU s with nothing compiled, and later")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        val, test = slice(0, ROWS), slice(ROWS, None)
        np.savez(
            folder / "net.npz",
            val_logits=logits[val],
            val_labels=labels[val],
            test_logits=logits[test],
            test_labels=labels[test],
        )
        for number, (name, command) in enumerate(runs.items()):
            cache = folder / f"cache-{number}"
            cold = cpu_seconds(command, folder, cache)
            warm = min(cpu_seconds(command, folder, cache) for _ in range(2))
            print(f"  {name:<32}  {cold:6.2f}  {warm:6.2f}")


if __name__ == "__main__":
    main()
