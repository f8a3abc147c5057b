"""Pictures as small, reproducible SVG files."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure


def save(figure: Figure, path: Path) -> None:
    """Write a picture; an SVG keeps its text and has no date."""
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"Date": None} if path.suffix == ".svg" else None
    with mpl.rc_context({"svg.hashsalt": "calibrant", "svg.fonttype": "none"}):
        figure.savefig(path, metadata=metadata)
    print(f"Picture: {path}")
