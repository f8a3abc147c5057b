"""Gains on the public networks, with intervals over images and over data sets."""

from __future__ import annotations

from experiments.claims.claim import Values

FROM_TO = ("from", "to")
OF_IMAGES, OF_DATA = "95%", "data sets resampled,"
CHOICE = "gain in ECE of choosing by ECE over NLL, {}, %"
GAIN_UNITS = "first interval of resampled test images, second of resampled data sets and networks"
PUBLIC = "95% intervals of resampled images and of resampled data sets (9) and networks (43)"


def ends(values: Values, name: str, of: str) -> tuple[float, float]:
    """The ends of an interval: ``of`` images or of data sets."""
    low, high = (values[f"{name}: {of} {end}"] for end in FROM_TO)
    return low, high


def gain(values: Values, name: str) -> str:
    """A gain in percent with both intervals."""
    images, data = (ends(values, name, of) for of in (OF_IMAGES, OF_DATA))
    return (
        f"{values[name]:.0f}% ({images[0]:.0f} to {images[1]:.0f}; {data[0]:.0f} to {data[1]:.0f})"
    )
