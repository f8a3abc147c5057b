"""The focal map and its inverse against a softmax and against the textbook formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks.timing import print_ratios, side_by_side
from calibrant import focal

GAMMA = 3.0
SHAPES = ((50_000, 10), (5_000, 100), (5_000, 1000))


def textbook(logits: Any) -> Any:
    """The map as printed in the papers, from probabilities: NaN for nearly one-hot rows."""
    q = torch.softmax(logits, dim=-1)
    h = q / ((1 - q) ** GAMMA - GAMMA * (1 - q) ** (GAMMA - 1) * q * torch.log(q))
    return h / h.sum(dim=-1, keepdim=True)


def main() -> None:
    """Print the ratios."""
    rng = np.random.default_rng(0)
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, gamma = {GAMMA:g}, seed 0"
    )
    for shape in SHAPES:
        array = (4.0 * rng.standard_normal(shape)).astype(np.float32)
        tensor = torch.from_numpy(array)
        probs = torch.softmax(tensor.double(), dim=-1).numpy()
        candidates = {
            "torch.softmax": lambda t=tensor: torch.softmax(t, dim=-1),
            "textbook map, torch": lambda t=tensor: textbook(t),
            "focal_log_probs, torch": lambda t=tensor: focal.focal_log_probs(t, gamma=GAMMA),
            "focal_log_probs, NumPy": lambda a=array: focal.focal_log_probs(a, gamma=GAMMA),
        }
        print_ratios(
            f"map, {shape[0]} x {shape[1]}, float32",
            side_by_side(candidates),
            against="torch.softmax",
        )
        inverse = {
            "focal_map": lambda p=probs: focal.focal_map(p, gamma=GAMMA),
            "inverse_focal_map": lambda p=probs: focal.inverse_focal_map(p, gamma=GAMMA),
        }
        print_ratios(
            f"inverse, {shape[0]} x {shape[1]}, float64, NumPy",
            side_by_side(inverse, rounds=3),
            against="focal_map",
        )
    wide = torch.tensor([[20.0, 0.0], [200.0, 0.0]])
    print("\nat logit gaps of 20 and 200 (float32)")
    print(f"  textbook map     {textbook(wide)[:, 0].tolist()}")
    print(f"  focal_log_probs  {focal.focal_log_probs(wide, gamma=GAMMA)[:, 1].tolist()} (class 1)")


if __name__ == "__main__":
    main()
