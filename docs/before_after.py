"""The first picture: a network as trained, and after ``auto``.

python docs/before_after.py NETWORK.npz docs/pictures/before-after.svg
"""

from __future__ import annotations

import sys

from matplotlib import rc_context
from matplotlib.figure import Figure

import calibrant
from calibrant.files import read_predictions
from calibrant.plots import plot_reliability


def main(network: str, picture: str) -> None:
    """Fit on the part val, draw the part test."""
    val, test = (read_predictions(f"{network}::{part}") for part in ("val", "test"))
    after = calibrant.AutoCalibration().fit(val.logits, val.labels)
    scores = {
        "as trained": {"logits": test.logits},
        "after calibrant fit": {"probs": after.predict_proba(test.logits)},
    }
    figure = Figure(figsize=(7.6, 3.7), layout="constrained")
    for ax, (title, given) in zip(figure.subplots(1, 2), scores.items(), strict=True):
        curve = calibrant.reliability_curve(**given, labels=test.labels)
        plot_reliability(curve, ax, counts=False)
        ax.set_title(f"{title}: error {curve.ece:.1%}", fontsize=11)
        print(title, f"{curve.ece:.4f}")
    # The same bytes whenever the same numbers are drawn.
    with rc_context({"svg.hashsalt": "calibrant"}):
        figure.savefig(picture, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
