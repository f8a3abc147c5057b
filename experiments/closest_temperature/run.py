"""The linear fits of 1/T on gamma for 2, 3 and 4 classes, beside the paper's."""

from __future__ import annotations

import argparse

import numpy as np

from calibrant.focal import closest_temperature

GAMMAS = np.arange(1, 19) / 2.0
PRINTED = {2: (0.95, 0.85), 3: (0.64, 0.91), 4: (0.47, 0.85)}


def main(argv: list[str] | None = None) -> None:
    """Fit and print."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    print("1/T = slope * gamma + offset, gamma = 0.5, 1, ..., 9")
    print("classes   paper               here")
    for n_classes, (slope, offset) in PRINTED.items():
        inverse = [1.0 / closest_temperature(gamma=g, n_classes=n_classes) for g in GAMMAS]
        ours = np.polyfit(GAMMAS, inverse, deg=1)
        print(
            f"{n_classes:<10}{slope:.2f} g + {offset:.2f}       {ours[0]:.3f} g + {ours[1]:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
