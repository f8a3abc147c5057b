"""Reading the JSON files that ``saving`` writes: plain numbers, checked; no code is run."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

import numpy as np

from calibrant import _inputs
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.fit_report import NOT_SAVED, Evidence, FitReport
from calibrant.calibrators.grouped.method import GroupedCalibration
from calibrant.calibrators.multilabel.method import MultiLabelCalibration
from calibrant.calibrators.origin import KINDS, Fingerprint, Origin, Plugin, check_metadata
from calibrant.calibrators.parts import InParts
from calibrant.calibrators.registry import CALIBRATORS
from calibrant.calibrators.saving import FORMAT, VERSION, one_line
from calibrant.errors import CalibrantError

FITTED: dict[str, tuple[type, ...]] = {"method": (str,), "params": (dict,), "state": (dict,)}
HEAD: dict[str, tuple[type, ...]] = {"format": (str,), "version": (int,)}
ENTRIES: dict[str, tuple[type, ...]] = {
    **HEAD,
    **FITTED,
    "n_classes": (int,),
    "report": (dict,),
}
NOTHING = type(None)
ORIGIN: dict[str, tuple[type, ...]] = {
    "created": (str, NOTHING),
    "calibrant": (str, NOTHING),
    "plugin": (dict, NOTHING),
    "classes": (list, NOTHING),
    "input": (str, NOTHING),
    "data": (dict, NOTHING),
    "metadata": (dict,),
}
"""Entries since version 2."""
OPTIONAL: dict[str, tuple[type, ...]] = {"parts": (list,), "groups": (dict,), "source": (str,)}
GROUPS: dict[str, tuple[type, ...]] = {"columns": (list,), "values": (list,)}
SPECIAL: dict[str, type[Calibrator]] = {
    special.NAME: special for special in (MultiLabelCalibration, GroupedCalibration)
}
"""Methods whose samples are more than scores and classes."""
MOST_PARTS = 8
MOST_CLASSES = 10_000_000
REMEDY = "Pass the path of a .json file written by calibrant fit or by save"
LARGEST_SINGLE = float(np.finfo(np.float32).max)
"""Larger numbers are infinite in single precision, in which logits may be."""


def load(path: str | os.PathLike[str]) -> Calibrator:
    """Read a calibrator that ``save`` wrote. The file is data: no code in it is run.

    Args:
        path: A JSON file. A file that is truncated, of another kind or version, or whose numbers
            do not have the shapes of its method is refused.

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
    where = str(path)
    content = _parsed(_inputs.path(path, "a calibrator file"), where)
    head = isinstance(content, dict) and {n: each for n, each in content.items() if n in HEAD}
    _check_entries(head or content, HEAD, where)
    if content["format"] != FORMAT:
        _refuse(where, f"its format is {_shown(content['format'])}, not {FORMAT!r}")
    if content["version"] not in (1, VERSION):
        _refuse(
            where,
            f"its version is {_shown(content['version'])} and this calibrant reads 1 to {VERSION}",
            "Upgrade calibrant, or fit again",
        )
    expected = ENTRIES if content["version"] == 1 else ENTRIES | ORIGIN
    there = {name: kinds for name, kinds in OPTIONAL.items() if name in content}
    _check_entries(content, expected | there, where)
    fewest = 1 if content["method"] == MultiLabelCalibration.NAME else 2
    if not fewest <= content["n_classes"] <= MOST_CLASSES:
        _refuse(where, f"n_classes is {_shown(content['n_classes'])}")
    origin = Origin() if content["version"] == 1 else _origin(content, where)
    calibrator = _fitted(content, content["n_classes"], where, origin.plugin)
    calibrator.origin_ = origin
    calibrator.classes_ = _classes(content, where)
    calibrator.parts_ = _parts(calibrator, content.get("parts", []), where)
    if isinstance(calibrator, GroupedCalibration) or "groups" in content:
        calibrator.group_columns_, calibrator.group_keys_ = _groups(calibrator, content, where)
    calibrator.report_ = _report(content, where, chooses=calibrator.CHOOSES)
    return calibrator


def method_called(name: str) -> type[Calibrator] | None:
    """The class of this name, of calibrant or of a plug-in; None if there is none."""
    if name in SPECIAL:
        return SPECIAL[name]
    return CALIBRATORS[name] if CALIBRATORS.has(name) else None


def _origin(content: dict[str, Any], where: str) -> Origin:
    created, kind, plugin, data = (content[n] for n in ("created", "input", "plugin", "data"))
    if created is not None and not _is_date(created):
        _refuse(where, f"'created' is {_shown(created)}, not a date")
    if kind not in (*KINDS, None):
        _refuse(where, f"'input' is {_shown(kind)}, not {' or '.join(KINDS)}")
    if plugin is not None:
        _check_entries(plugin, _fields_of(Plugin), f"{where}, plugin")
    if data is not None:
        _check_entries(data, _fields_of(Fingerprint), f"{where}, data")
    try:
        metadata = check_metadata(content["metadata"])
    except CalibrantError as error:
        _refuse(where, one_line(error))
    return Origin(
        created=created,
        calibrant=content["calibrant"],
        plugin=plugin and Plugin(**plugin),
        input=kind,
        source=content.get("source"),
        data=data and Fingerprint(**data),
        metadata=metadata,
    )


def _is_date(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _classes(content: dict[str, Any], where: str) -> tuple[Any, ...]:
    names: list[Any] | None = content.get("classes")
    if names is None:
        return tuple(range(content["n_classes"]))
    plain = all(type(name) in (str, int, bool, float) for name in names)
    if not plain or not len(names) == len(set(names)) == content["n_classes"]:
        _refuse(where, f"'classes' is {_shown(names)}, not {content['n_classes']} names")
    return tuple(names)


def _fitted(
    content: dict[str, Any], n_classes: int, where: str, plugin: Plugin | None = None
) -> Calibrator:
    cls = method_called(content["method"])
    if cls is None:
        reason = f"there is no method {_shown(content['method'])}"
        if plugin is None:
            _refuse(where, reason, "Upgrade calibrant")
        # A file only names a plug-in: it is not imported.
        wrote = _shown(plugin.package or plugin.module)
        _refuse(
            where,
            f"{reason}; the file says that the plug-in {wrote} wrote it",
            f"If you trust it, install it, or add --plugin {_shown(plugin.module)}",
        )
    calibrator = _constructed(cls, content["params"], where)
    calibrator.n_classes_ = n_classes
    calibrator.state_ = _state(calibrator, content["state"], where)
    return calibrator


def _parts(whole: Calibrator, given: list[Any], where: str) -> tuple[Calibrator, ...]:
    labels = isinstance(whole, MultiLabelCalibration)
    several = labels or isinstance(whole, InParts | GroupedCalibration)
    expected = range(1, MOST_PARTS + 1) if several else range(1)
    if len(given) not in expected:
        _refuse(where, f"{whole.NAME} cannot have {len(given)} parts")
    parts = []
    for each in given:
        _check_entries(each, FITTED, f"{where}, parts")
        n_classes = 2 if labels else whole.n_classes_
        parts.append(_fitted(each, n_classes, f"{where}, parts", whole.origin_.plugin))
        if isinstance(parts[-1], InParts | MultiLabelCalibration | GroupedCalibration):
            _refuse(where, f"a part is {_shown(each['method'])}, which is made of parts itself")
    return tuple(parts)


def _groups(
    calibrator: Calibrator, content: dict[str, Any], where: str
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The columns of a grouped calibrator, and their values for each row of its state."""
    given = content.get("groups")
    _check_entries(given, GROUPS, f"{where}, groups")
    assert isinstance(given, dict)
    columns, values = given["columns"], given["values"]
    lists = [columns, *(key if isinstance(key, list) else [None] for key in values)]
    known = calibrator.state_.get("inverse_temperature", ())
    if (
        not columns
        or len(values) != len(known)
        or any(len(each) != len(columns) for each in lists)
        or any(type(text) is not str for each in lists for text in each)
    ):
        _refuse(where, f"'groups' is {_shown(given)}, not one text per column for each group")
    return tuple(columns), tuple(map(tuple, values))


def _parsed(path: Path, where: str) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"there is no file {where}. {REMEDY}") from None
    except IsADirectoryError:
        raise IsADirectoryError(f"{where} is a folder. {REMEDY}") from None
    except UnicodeDecodeError:
        _refuse(where, "it is not text")
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique_names)
    except (ValueError, RecursionError) as error:
        _refuse(where, f"it is not valid JSON, or is truncated: {one_line(error)}")


def _no_constant(name: str) -> NoReturn:
    raise CalibrantError(f"{name} is not a JSON number")


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise CalibrantError("a name occurs twice in one object")
    return entries


def _fields_of(cls: type) -> dict[str, tuple[type, ...]]:
    """The possible types of each field of a dataclass in JSON, where tuples are lists."""
    hints = get_type_hints(cls)
    return {
        name: (list,) if get_origin(hint) is tuple else get_args(hint) or (hint,)
        for name, hint in hints.items()
    }


def _check_entries(content: Any, expected: Mapping[str, tuple[type, ...]], where: str) -> None:
    if not isinstance(content, dict):
        _refuse(where, f"it holds {type(content).__name__}, not an object")
    for name, kinds in expected.items():
        if name not in content:
            _refuse(where, f"{name!r} is missing")
        value = content[name]
        if float in kinds and type(value) is int and abs(value) < 2**53:
            value = float(value)
        if type(value) not in kinds or (isinstance(value, float) and not math.isfinite(value)):
            _refuse(where, f"{name!r} is {_shown(value)}, not {kinds[0].__name__}")
    unknown = sorted(set(content) - set(expected))
    if unknown:
        _refuse(where, f"unknown entry {_shown(unknown[0])}")


def _constructed(cls: type[Calibrator], params: dict[str, Any], where: str) -> Calibrator:
    try:
        calibrator = cls(**params)
        calibrator._check_params()
    except (TypeError, ValueError, RecursionError) as error:
        _refuse(where, f"its params do not fit {cls.NAME}: {one_line(error)}")
    return calibrator


def _state(calibrator: Calibrator, given: dict[str, Any], where: str) -> dict[str, Any]:
    expected = calibrator.STATE
    if set(given) != set(expected):
        _refuse(where, f"its state has {_shown(sorted(given))}, not {sorted(expected)}")
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
    except (ValueError, OverflowError):  # ragged, or a number too large for any dtype
        array = np.empty(0, dtype=object)
    numeric = array.dtype.kind in "if" and array.size > 0 and not _has_booleans(values)
    largest = LARGEST_SINGLE if array.ndim else np.finfo(np.float64).max
    if not numeric or not (np.abs(array) <= largest).all():
        _refuse(where, f"{name!r} is {_shown(values)}, not an array of finite numbers")
    return array.astype(np.float64)


def _has_booleans(values: Any) -> bool:
    """Whether a boolean is among the numbers, which NumPy would read as 1 or 0."""
    if isinstance(values, list):
        return any(_has_booleans(value) for value in values)
    return isinstance(values, bool)


def _report(content: dict[str, Any], where: str, *, chooses: bool) -> FitReport:
    given = content["report"]
    saved = {name: kinds for name, kinds in _fields_of(FitReport).items() if name not in NOT_SAVED}
    _check_entries(given, saved, f"{where}, report")
    for name in ("method", "n_classes"):
        if given[name] != content[name]:
            _refuse(where, f"its report has a different {name}, {_shown(given[name])}")
    if not all(isinstance(warning, str) for warning in given["warnings"]):
        _refuse(where, f"'warnings' is {_shown(given['warnings'])}, not a list of text")
    for each in given["evidence"]:
        _check_entries(each, _fields_of(Evidence), f"{where}, evidence")
    chosen, expected = sum(each["chosen"] for each in given["evidence"]), int(chooses)
    if chosen != expected:
        _refuse(where, f"'evidence' says that {chosen} methods were chosen, not {expected}")
    return FitReport.from_dict(given)


def _shown(value: Any) -> str:
    try:
        text = ascii(value)
    except RecursionError:
        text = "nested too deeply"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refuse(where: str, reason: str, remedy: str = "Save the calibrator again") -> NoReturn:
    raise CalibrantError(f"{where} cannot be read as a calibrator: {reason}. {remedy}")
