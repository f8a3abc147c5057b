"""Calibrators as versioned JSON files: plain numbers, checked on loading, nothing executed.

    {"format": "calibrant-calibrator", "version": 1, "method": "temperature",
     "n_classes": 10, "params": {"criterion": "nll"}, "state": {"temperature": 1.35},
     "report": {"n_samples": 5000, ...}}

``method`` is a name in ``CALIBRATORS``, ``params`` are the arguments of its constructor, ``state``
are the fitted numbers in the shapes that the method's ``STATE`` states, and ``report`` is what
``report_.to_dict()`` gives. A reader of version 1 refuses any other version.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.report import FitReport
from calibrant.files import written_whole

FORMAT = "calibrant-calibrator"
VERSION = 1
ENTRIES = {
    "format": str,
    "version": int,
    "method": str,
    "n_classes": int,
    "params": dict,
    "state": dict,
    "report": dict,
}
REPORT_ENTRIES: dict[str, type | tuple[type, ...]] = {
    "n_samples": int,
    "criterion": str,
    "before": float,
    "after": float,
    "gradient": (float, type(None)),
    "at_bound": (str, type(None)),
    "evaluations": int,
    "accuracy_before": float,
    "accuracy_after": float,
    "warnings": list,
}
MOST_CLASSES = 10_000_000


def save(calibrator: Calibrator, path: str | os.PathLike[str]) -> None:
    """Write a fitted calibrator; the file appears whole or not at all."""
    state = {
        name: value if isinstance(value, float) else np.asarray(value).tolist()
        for name, value in calibrator.state_.items()
    }
    content = {
        "format": FORMAT,
        "version": VERSION,
        "method": calibrator.NAME,
        "n_classes": calibrator.n_classes_,
        "params": calibrator.get_params(),
        "state": state,
        "report": calibrator.report_.to_dict(),
    }
    text = json.dumps(content, indent=1, allow_nan=False)
    with written_whole(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def load(path: str | os.PathLike[str]) -> Calibrator:
    """Read a calibrator that ``save`` wrote. The file is data: nothing in it is executed.

    Args:
        path: A JSON file. One that is truncated, of another kind, of a newer version, or whose
            numbers do not have the shapes of its method is refused in one line.

    Examples:
        >>> import numpy as np, tempfile, calibrant
        >>> rng = np.random.default_rng(0)
        >>> logits, labels = rng.normal(size=(500, 3)), rng.integers(0, 3, size=500)
        >>> logits[np.arange(500), labels] += 2.0
        >>> file = tempfile.mkdtemp() + "/cal.json"
        >>> scaling = calibrant.TemperatureScaling().fit(logits, labels)
        >>> scaling.save(file)
        >>> calibrant.load(file).temperature_ == scaling.temperature_
        True
    """
    from calibrant.calibrators import CALIBRATORS

    where = str(path)
    content = _parsed(Path(path), where)
    _check_entries(content, ENTRIES, where)
    if content["format"] != FORMAT:
        _refuse(where, f"its format is {_shown(content['format'])}, not {FORMAT!r}")
    if content["version"] != VERSION:
        _refuse(
            where,
            f"its version is {_shown(content['version'])} and this calibrant reads {VERSION}",
            "Upgrade calibrant, or fit again",
        )
    if content["method"] not in CALIBRATORS:
        _refuse(where, f"there is no method {_shown(content['method'])}", "Upgrade calibrant")
    if not 2 <= content["n_classes"] <= MOST_CLASSES:
        _refuse(where, f"n_classes is {_shown(content['n_classes'])}")
    calibrator = _constructed(CALIBRATORS[content["method"]], content["params"], where)
    calibrator.n_classes_ = content["n_classes"]
    calibrator.state_ = _state(calibrator, content["state"], where)
    _check_entries(content["report"], REPORT_ENTRIES, f"{where}, report")
    calibrator.report_ = FitReport.from_dict(
        {
            **content["report"],
            "method": content["method"],
            "n_classes": content["n_classes"],
            "warnings": [str(warning) for warning in content["report"]["warnings"]],
        }
    )
    return calibrator


def _parsed(path: Path, where: str) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        _refuse(where, "it is not text")
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once_each)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        _refuse(where, f"it is not JSON, or cut short: {' '.join(reason.split())[:160]}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that JSON knows")


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return entries


def _check_entries(
    content: Any, expected: Mapping[str, type | tuple[type, ...]], where: str
) -> None:
    if not isinstance(content, dict):
        _refuse(where, f"it holds {type(content).__name__}, not an object")
    for name, kind in expected.items():
        if name not in content:
            _refuse(where, f"{name!r} is missing")
        value = content[name]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if float in kinds and type(value) is int and abs(value) < 2**53:
            value = float(value)
        if type(value) not in kinds or (isinstance(value, float) and not math.isfinite(value)):
            _refuse(where, f"{name!r} is {_shown(value)}, not {kinds[0].__name__}")
    unknown = sorted(set(content) - set(expected) - {"method", "n_classes"})
    if unknown:
        _refuse(where, f"there is no entry {_shown(unknown[0])} in this format")


def _constructed(cls: type[Calibrator], params: dict[str, Any], where: str) -> Calibrator:
    try:
        calibrator = cls(**params)
        calibrator._check_params()
    except (TypeError, ValueError) as error:
        _refuse(where, f"its params do not fit {cls.NAME}: {str(error)[:160].rstrip('.')}")
    return calibrator


def _state(calibrator: Calibrator, given: dict[str, Any], where: str) -> dict[str, Any]:
    expected = calibrator.STATE
    if set(given) != set(expected):
        _refuse(
            where,
            f"its state has {_shown(sorted(given))}, not {sorted(expected)}",
        )
    sizes: dict[str, int] = {"K": calibrator.n_classes_}
    state: dict[str, Any] = {}
    for name, shape in expected.items():
        array = _numbers(given[name], name, where)
        found = array.shape
        wanted = tuple(
            sizes.setdefault(letter, size) for letter, size in zip(shape, found, strict=False)
        )
        if len(found) != len(shape) or found != wanted:
            _refuse(where, f"{name!r} has shape {found}, not {'x'.join(shape) or 'a number'}")
        state[name] = float(array) if not shape else array
    reason = calibrator._refuse_state(state)
    if reason is not None:
        _refuse(where, reason)
    return state


def _numbers(values: Any, name: str, where: str) -> Any:
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):  # ragged, or a number beyond any type
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "if" or not np.isfinite(array).all():
        _refuse(where, f"{name!r} is {_shown(values)}, not a rectangle of finite numbers")
    return array.astype(np.float64)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refuse(where: str, reason: str, remedy: str = "Save the calibrator again") -> NoReturn:
    raise ValueError(f"{where} is not a calibrator that can be read: {reason}. {remedy}")
