"""``python -m experiments TARGET``: regenerate one result of the papers."""

from __future__ import annotations

import argparse

from experiments.auto_elsewhere import run as auto_elsewhere
from experiments.closest_temperature import run as closest_temperature
from experiments.focal_digits import run as focal_digits
from experiments.gradient_factor import run as gradient_factor
from experiments.interval_coverage import run as interval_coverage
from experiments.learning_curves import run as learning_curves
from experiments.line_search import run as line_search
from experiments.linear_model import run as linear_model
from experiments.scoreboard import run as scoreboard
from experiments.shrinkage import run as shrinkage

TARGETS = {
    "auto-elsewhere": (
        auto_elsewhere.main,
        "auto on forests, boosting, tabular data, text and a shifted network; 3 min",
    ),
    "closest-temperature": (
        closest_temperature.main,
        "Komisarenko and Kull (2024), Figs 2 and 6; 10 s",
    ),
    "focal-digits": (
        focal_digits.main,
        "what a focal-trained model should use at prediction time, on digits; 4 min",
    ),
    "gradient-factor": (
        gradient_factor.main,
        "Mukhoti et al. (2020), Figs 4a and 7: phi, and the optimum of the focal loss; 2 s",
    ),
    "interval-coverage": (
        interval_coverage.main,
        "do the intervals of calibration errors cover the truth; 8 min",
    ),
    "learning-curves": (
        learning_curves.main,
        "how many validation samples auto needs to beat temperature scaling; 5 min",
    ),
    "line-search": (
        line_search.main,
        "Komisarenko and Kull (2024), Sec. 5.2: what the line search loses against the grid; 3 min",
    ),
    "linear-model": (
        linear_model.main,
        "Mukhoti et al. (2020), App. G, Figs 5 and 6: norms and the confidence of mistakes; 10 s",
    ),
    "one-vs-rest-constants": (
        shrinkage.main,
        "how the constants of Platt, beta, isotonic and histogram were chosen; 5 min",
    ),
    "scoreboard": (
        scoreboard.main,
        "every calibrator, and those of other packages, on real networks; 20 min (make scoreboard)",
    ),
}


def main() -> None:
    """Run the target named on the command line, or list all of them."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("target", nargs="?", choices=sorted(TARGETS), help="what to regenerate")
    parser.add_argument("--list", action="store_true", help="show every target")
    parser.add_argument(
        "options", nargs=argparse.REMAINDER, help="those of the target; TARGET --help lists them"
    )
    arguments = parser.parse_args()
    if arguments.list or arguments.target is None:
        for name, (_, what) in sorted(TARGETS.items()):
            print(f"{name:<24}{what}")
    else:
        TARGETS[arguments.target][0](arguments.options)


if __name__ == "__main__":
    main()
