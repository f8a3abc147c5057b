"""Gains on the public networks, with intervals over images and over data sets."""

from __future__ import annotations

from experiments.claims.claim import Rule, Values
from experiments.verdicts import by_interval

FROM_TO = ("from", "to")
OF_IMAGES, OF_DATA = "95%", "data sets resampled,"
CHOICE = "gain in ECE of choosing by ECE over NLL, {}, %"
GAIN_UNITS = "first interval of resampled test images, second of resampled data sets and networks"
PUBLIC = Rule(
    "public networks",
    "The gain is above 0 by both of two 95% intervals: one resamples the test images, the other "
    "the data sets (9) and their networks (43).",
)


def ends(values: Values, name: str, of: str) -> tuple[float, float]:
    """The ends of an interval: ``of`` images or of data sets."""
    low, high = (values[f"{name}: {of} {end}"] for end in FROM_TO)
    return low, high


def gain(values: Values, name: str, digits: int = 0) -> str:
    """A gain in percent with both intervals."""
    spans = [
        " to ".join(f"{end:.{digits}f}" for end in ends(values, name, of))
        for of in (OF_IMAGES, OF_DATA)
    ]
    return f"{values[name]:.{digits}f}% ({'; '.join(spans)})"


def over_both(values: Values, name: str) -> list[str]:
    """The verdicts on a gain above 0 by its interval over images and by that over data sets."""
    return [by_interval(*ends(values, name, of)) for of in (OF_IMAGES, OF_DATA)]
