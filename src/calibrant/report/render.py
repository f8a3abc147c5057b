"""Render plain data as one HTML page, with the files in ``template/``.

Jinja escapes all text. The page allows the browser only its own script, by its hash: no network
and no other script.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant._tables import score_text
from calibrant.calibrators.comparison import PERCENT
from calibrant.focal.simplex import CORNERS
from calibrant.metrics.binning import BinTable, width_edges
from calibrant.metrics.evaluation import Measured
from calibrant.metrics.reliability import ReliabilityCurve, reliability_of_table
from calibrant.report.simplex import arrows
from calibrant.report.summary import Summary

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATE = Path(__file__).parent / "template"
METRICS = {
    "ece": "ECE",
    "ada_ece": "AdaECE",
    "nll": "NLL",
    "brier": "Brier score",
    "accuracy": "accuracy",
}
"""Columns of the table of methods and their titles."""
POSITIVE_METRICS = {"positive_ece": "ECE of {}", "positive_ada_ece": "AdaECE of {}"}
"""Columns before them for two classes; the braces stand for the probability of class 1."""
UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""Characters that could end a script element or a line in it, as JSON escapes."""


def render(summary: Summary) -> str:
    """The page, as text."""
    script = (TEMPLATE / "script.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    gamma, temperature = summary.explorer.start
    return render_template(
        "page.html",
        summary=summary,
        metrics=_columns(summary),
        script=_trusted(script),
        script_hash=digest,
        data=_trusted(safe_json(summary.to_dict())),
        explored=explored_curve(summary, gamma, temperature),
        arrows=arrows(
            summary.explorer.gammas[gamma], summary.explorer.temperatures[temperature]
        ).tolist(),
        corners=CORNERS.tolist(),
        corner_names=_corner_names(summary),
    )


def render_template(name: str, **values: Any) -> str:
    """Render a file of ``template/`` with these values and the style sheet."""
    style = _trusted((TEMPLATE / "style.css").read_text(encoding="utf-8"))
    return _environment().get_template(name).render(style=style, **values)


def safe_json(values: Any) -> str:
    """JSON that is safe inside a script element, for any strings.

    Examples:
        >>> safe_json({"name": "</script>"})
        '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(values, allow_nan=False, separators=(",", ":"))
    for character, escaped in UNSAFE.items():
        text = text.replace(character, escaped)
    return text


def explored_curve(summary: Summary, gamma: int, temperature: int) -> ReliabilityCurve:
    """The reliability curve at one point of the explorer's grid."""
    explorer = summary.explorer
    at = gamma, temperature
    edges = width_edges(explorer.count.shape[-1])
    none = np.zeros(len(edges) - 1)  # sums that the curve does not need
    sums = explorer.count[at], explorer.confidence[at], explorer.correct[at], none, none
    table = BinTable(edges[:-1], edges[1:], *sums)
    return reliability_of_table(table, binning="width", level=summary.comparison.level)


def _columns(summary: Summary) -> dict[str, str]:
    titles = METRICS | {name: name for name in summary.comparison.metrics}
    if summary.comparison.n_classes != 2:
        return titles
    probability, _ = summary.axes
    positive = {name: title.format(probability) for name, title in POSITIVE_METRICS.items()}
    return positive | titles


def _corner_names(summary: Summary) -> list[str]:
    test = summary.test
    return [test.class_name(k) if test.n_classes == 3 else f"class {k + 1}" for k in range(3)]


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        autoescape=True,
        loader=FileSystemLoader(TEMPLATE),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": percent,
        "figure": figure,
        "count": lambda n: f"{n:,.0f}",
        "samples": lambda n: f"{n:,.0f} sample{'' if n == 1 else 's'}",
        "capitalised": lambda sentence: sentence[:1].upper() + sentence[1:],
        "interval": interval,
        "brief": lambda measured: (
            interval(measured).replace("% to ", "\u2013").replace(" to ", "\u2013")
        ),
        "sort_key": sort_key,
        "four_round_steps": four_round_steps,
    }
    return environment


def _trusted(text: str) -> Any:
    """Text of calibrant itself, which is not escaped."""
    from markupsafe import Markup

    return Markup(text)


def percent(value: float) -> str:
    """A share as a percentage.

    Examples:
        >>> percent(0.0441), percent(0.962), percent(0.9987), percent(0.999999), percent(1.0)
        ('4.41%', '96.2%', '99.87%', '>99.99%', '100%')
    """
    points = 100.0 * value
    if points >= 99.995:
        return "100%" if points >= 100.0 else ">99.99%"
    return f"{points:.1f}%" if 9.995 <= abs(points) < 98.95 else f"{points:.2f}%"


def figure(measured: Measured) -> str:
    """The value of a metric, in percent where it is a share.

    Examples:
        >>> figure(Measured("nll", 0.25, None, None)), figure(Measured("ece", 0.25, None, None))
        ('0.2500', '25.0%')
    """
    return _shown(measured.name, measured.value)


def interval(measured: Measured) -> str:
    """The interval in words, or nothing.

    Examples:
        >>> interval(Measured("ece", 0.02, 0.01, 0.03))
        '1.00% to 3.00%'
    """
    if measured.low is None or measured.high is None:
        return ""
    return f"{_shown(measured.name, measured.low)} to {_shown(measured.name, measured.high)}"


def _shown(name: str, value: float) -> str:
    if not math.isfinite(value):
        return "none" if math.isnan(value) else "infinite"
    return percent(value) if name in PERCENT else score_text(value)


def sort_key(value: float) -> str:
    """A number for the script, with all digits; infinity is the largest number."""
    return repr(float(value)) if math.isfinite(value) else "1e308"


def four_round_steps(share: float) -> float:
    """The end of an axis for shares up to this; a quarter of it is a round number.

    Examples:
        >>> four_round_steps(0.31), four_round_steps(0.0711), four_round_steps(0.9)
        (0.4, 0.08, 1.0)
    """
    size = 10.0 ** math.floor(math.log10(share / 4.0))
    ends = (4.0 * size * step for step in (1.0, 2.0, 2.5, 5.0, 10.0))
    return min(1.0, round(next(end for end in ends if end >= share - 1e-12), 12))
