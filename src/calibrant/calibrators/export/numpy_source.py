"""Calibrators as readable Python source: constants and a few functions.

A template is a few functions of a module in ``templates``. They are ordinary code, checked and
tested as such. Their source is written to the file, below the constants of one calibrator.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from calibrant._version import __version__
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.export.templates import (
    linear,
    one_vs_rest,
    shared,
    temperature,
    top_rest,
)
from calibrant.calibrators.export.templates.checked import checked
from calibrant.calibrators.multilabel.method import MultiLabelCalibration
from calibrant.errors import CalibrantError

Function: TypeAlias = Callable[..., Any]

WIDTH = 100
MOST_LITERALS = 10_000
"""Arrays with more numbers than this are written as a string."""


@dataclass(frozen=True)
class Template:
    """The exported file of a family of methods."""

    formula: str
    functions: Mapping[str, Function]
    """Functions written below the constants, in order, by the names that they get there."""
    defaults: Mapping[str, float] = field(default_factory=dict)
    """Constants that not every method of the family fits."""


def _checked(formula: str, predict_proba: Function, **functions: Function) -> Template:
    """A template that checks the logits; ``functions`` are those that ``predict_proba`` calls."""
    return Template(formula, {"checked": checked, **functions, "predict_proba": predict_proba})


def _linear(formula: str, scores: Function) -> Template:
    return _checked(
        f"softmax({formula} + b) of the centred logits s",
        linear.linear,
        centred=linear.centred,
        scores=scores,
    )


def _one_vs_rest(formula: str, calibrated: Function) -> Template:
    return _checked(
        f"{formula} of the log-odds x of each class, divided by the sum",
        one_vs_rest.one_vs_rest,
        log_odds=one_vs_rest.log_odds,
        calibrated=calibrated,
    )


_SOFTMAX = replace(_checked("softmax(s / T)", temperature.tempered), defaults={"temperature": 1.0})
_FOCAL = replace(
    _checked("Psi^gamma(softmax(s / T))", temperature.focal), defaults={"temperature": 1.0}
)

TEMPLATES = {
    "identity": _SOFTMAX,
    "temperature": _SOFTMAX,
    "floored-temperature": _checked("softmax(max(s - max(s), -F) / T)", temperature.floored),
    "focal": _FOCAL,
    "focal-temperature": _FOCAL,
    "top-rest": _checked(
        "the top class by its log-odds, the others by softmax(s / (T T') + b)",
        top_rest.predict_proba,
        curve=top_rest.curve,
        relative=top_rest.relative,
    ),
    "vector": _linear("w s", linear.of_vector),
    "matrix": _linear("W s", linear.of_matrix),
    "bias-corrected-temperature": _checked("softmax(s / T + b)", linear.bias_corrected),
    "dirichlet": _checked(
        "softmax(W log q + b), q = softmax(s)", linear.dirichlet, centred=linear.centred
    ),
    "structured": _checked(
        "softmax(W g + b) of floored log-probabilities g",
        linear.structured,
        centred=linear.centred,
    ),
    "platt": _one_vs_rest("sigmoid(slope x + shift)", one_vs_rest.platt),
    "beta": _one_vs_rest("sigmoid(a log q - b log(1 - q) + c)", one_vs_rest.beta),
    "spline": _one_vs_rest("a piecewise linear curve", one_vs_rest.spline),
    "isotonic": _one_vs_rest("an isotonic curve", one_vs_rest.isotonic),
    "histogram": _one_vs_rest("a curve in steps", one_vs_rest.steps),
    "bbq": _one_vs_rest("a curve in steps", one_vs_rest.steps),
    "venn-abers": _one_vs_rest("a Venn-Abers curve", one_vs_rest.venn_abers),
    "multi-label": Template(
        "sigmoid(slope x + shift) of the log-odds x of each label",
        {"predict_proba": shared.multilabel},
    ),
    "grouped": _checked("softmax(a l + b) of each group", shared.grouped),
}
"""The template of every method that is not made of others."""

HEADER = '''"""Calibrated probabilities from logits; needs NumPy only.

    from this_file import predict_proba

    probs = {call}

{method}: {formula}.
Fitted on {n_samples} samples{date}, written by calibrant {version}.
{logits}
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
'''

CLASSES = "logits: scores before the softmax, {n} classes on the last axis; -inf masks a class."
LABELS = "logits: scores before the sigmoid, {n} labels on the last axis."
OF_PROBS = """
It was fitted on probabilities p: pass {logits}."""
LOG_OF_PROBS = "np.log(np.maximum(p, 2**-24))"
"""The logits that calibrant takes for probabilities: see ``PROBS_FLOOR``."""
LOG_ODDS_OF_PROBS = f"{LOG_OF_PROBS} - np.log(np.maximum(1 - p, 2**-24))"
OF_GROUPS = """
groups: for each row the values of {columns}, as a tuple of text ('missing' if there is none)."""

IN_PARTS = '''PARTS = ({parts},)


def predict_proba(logits: ArrayLike) -> np.ndarray:
    """The parts in a row: each takes the log-probabilities of the one before."""
    given = np.asarray(logits)
    s = given.astype(np.float64)
    for part in PARTS[:-1]:
        with np.errstate(divide="ignore"):
            s = np.log(part(s))
    single = given.dtype.kind == "f" and given.dtype.itemsize <= 4
    return PARTS[-1](s).astype(np.float32 if single else np.float64)
'''


def source(calibrator: Calibrator) -> str:
    """The source of a module with ``predict_proba(logits)``, which needs NumPy only.

    That of a grouped calibrator takes ``groups`` too.
    """
    parts = calibrator.parts_ or (calibrator,)
    labels = isinstance(calibrator, MultiLabelCalibration)
    by, keys = calibrator.group_columns_, calibrator.group_keys_
    on_top = labels or bool(by)
    arguments = (LABELS if labels else CLASSES).format(n=calibrator.n_classes_)
    if by:
        arguments += OF_GROUPS.format(columns=", ".join(map(repr, by)))
    if calibrator.origin_.input == "probs":
        arguments += OF_PROBS.format(logits=LOG_ODDS_OF_PROBS if labels else LOG_OF_PROBS)
    header = HEADER.format(
        call="predict_proba(logits, groups)" if by else "predict_proba(logits)",
        method=calibrator.NAME,
        formula=", then ".join(
            template_of(each).formula for each in ((*parts, calibrator) if on_top else parts)
        ),
        n_samples=calibrator.report_.n_samples,
        logits=arguments,
        date=f" on {calibrator.origin_.created[:10]}" if calibrator.origin_.created else "",
        version=__version__,
    )
    if len(parts) == 1 and not on_top:
        return f"{header}\n{_body(parts[0])}\n"
    names = [f"part_{i}" for i in range(1, len(parts) + 1)]
    bodies = [_as_function(name, part) for name, part in zip(names, parts, strict=True)]
    made = ", ".join(f"{name}()" for name in names)
    last = IN_PARTS.format(parts=made)
    if labels:
        last = f"CURVE = ({made},)\n{_body(calibrator)}\n"
    elif by:
        last = f"BASE = ({made},)\nGROUPS = {list(keys)!r}\n{_body(calibrator)}\n"
    return "\n\n".join([header, *bodies, last])


def template_of(calibrator: Calibrator) -> Template:
    """The template of a method of calibrant, or of a plug-in that has one."""
    if calibrator.NAME in TEMPLATES:
        return TEMPLATES[calibrator.NAME]
    if not calibrator.NUMPY_SOURCE:
        raise CalibrantError(
            f"the plug-in {calibrator.NAME!r} has no NumPy source. Export it as onnx or torch, or "
            "give its class NUMPY_SOURCE"
        )
    summary = (inspect.getdoc(calibrator) or "").partition("\n")[0]
    functions = {function.__name__: function for function in calibrator.NUMPY_SOURCE}
    return Template(summary.rstrip("."), functions)


def _body(calibrator: Calibrator) -> str:
    """Constants and functions; the last is ``predict_proba``."""
    template = template_of(calibrator)
    constants = {
        "N_CLASSES": calibrator.n_classes_,
        **{name.upper(): value for name, value in template.defaults.items()},
        **{name.upper(): value for name, value in calibrator.state_.items()},
    }
    lines = [f"{name} = {_literal(value)}" for name, value in constants.items()]
    functions = [_renamed(function, name) for name, function in template.functions.items()]
    return "\n\n\n".join(["\n".join(lines), *functions])


def _renamed(function: Function, name: str) -> str:
    """The source of a function, called ``name``."""
    code = inspect.getsource(function).rstrip()
    return code.replace(f"def {function.__name__}(", f"def {name}(", 1)


def _as_function(name: str, calibrator: Calibrator) -> str:
    """A function with constants and functions of its own, which returns ``predict_proba``."""
    about = f'"""{calibrator.NAME}: {template_of(calibrator).formula}."""'
    body = f"{about}\n{_body(calibrator)}\n\nreturn predict_proba"
    return f"def {name}():\n{textwrap.indent(body, '    ')}\n"


def _literal(value: Any) -> str:
    """Python source of exactly these numbers."""
    if isinstance(value, int | float):
        return repr(value)
    array = np.asarray(value)
    if array.size <= MOST_LITERALS:
        return f"np.array(\n{_nested(array.tolist(), 4)}\n)"
    # As a string: to parse a list of a million numbers, Python needs a gigabyte.
    text = _filled(" ".join(map(repr, array.ravel().tolist())), "")
    return f'np.fromstring(\n    """\n{text}\n""",\n    sep=" ",\n).reshape({array.shape})'


def _nested(values: list[Any], indent: int) -> str:
    """A nested list of numbers, wrapped at a readable width."""
    margin = " " * indent
    if values and isinstance(values[0], list):
        rows = ",\n".join(_nested(row, indent + 4) for row in values)
        return f"{margin}[\n{rows},\n{margin}]"
    return _filled(f"[{', '.join(map(repr, values))}]", margin)


def _filled(text: str, margin: str) -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=margin,
        subsequent_indent=margin + " " * text.startswith("["),
        break_on_hyphens=False,
    )
