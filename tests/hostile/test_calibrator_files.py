"""Calibrator files: what is written, and that anything else gets one line."""

from __future__ import annotations

import copy
import functools
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import calibrant
from calibrant import CALIBRATORS, FocalCalibration, Identity, TemperatureScaling
from calibrant.errors import CalibrantError
from tests.builders import build, draw_samples

pytestmark = pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")

LOGITS = np.array([[2.0, 0.0, -1.0], [1e4, 0.0, -math.inf], [0.0, 0.0, 0.0], [3e-5, 40.0, 1.0]])


@functools.cache
def saved_text(name, folder):
    file = folder / f"{name}.json"
    build(name).fit(*draw_samples()).save(file)
    return file.read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("saved")


@pytest.fixture
def content(folder):
    """What a saved temperature looks like."""
    return json.loads(saved_text("temperature", folder))


def refused(tmp_path, written, match="cannot be read as a calibrator"):
    """One line, that names the file."""
    file = tmp_path / "cal.json"
    if isinstance(written, bytes):
        file.write_bytes(written)
    else:
        file.write_text(written if isinstance(written, str) else json.dumps(written))
    with pytest.raises(ValueError, match=match) as caught:
        calibrant.load(file)
    assert type(caught.value) is CalibrantError
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 500 + len(str(file))
    assert str(file) in text
    assert "cannot be read as a calibrator" in text


# --- what is written -----------------------------------------------------------------------------


def test_the_file_is_plain(content):
    assert list(content) == [
        "format",
        "version",
        "method",
        "created",
        "calibrant",
        "plugin",
        "n_classes",
        "classes",
        "input",
        "data",
        "metadata",
        "params",
        "state",
        "report",
    ]
    assert content["format"] == "calibrant-calibrator"
    assert content["version"] == 2
    assert content["method"] == "temperature"
    assert content["n_classes"] == 3
    assert set(content["state"]) == {"temperature"}
    assert content["report"]["n_samples"] == 400


@pytest.mark.parametrize("name", sorted(CALIBRATORS))
def test_a_file_holds_the_state_that_the_method_states(name, folder):
    content = json.loads(saved_text(name, folder))
    assert set(content["state"]) == set(CALIBRATORS[name].STATE)
    assert set(content["params"]) == set(build(name).get_params())


def test_numbers_of_numpy_are_saved_as_numbers(tmp_path):
    for gamma in (np.float32(2.0), np.float64(2.0), np.int64(2)):
        FocalCalibration(gamma=gamma).fit(*draw_samples()).save(tmp_path / "cal.json")
        assert calibrant.load(tmp_path / "cal.json").gamma == 2.0


def test_what_cannot_be_saved_leaves_the_file_as_it_was(tmp_path):
    file = tmp_path / "cal.json"
    calibrator = Identity().fit(*draw_samples())
    calibrator.save(file)
    before = file.read_bytes()
    calibrator.state_ = {"temperature": math.nan}
    with pytest.raises(ValueError, match="saved as finite numbers"):
        calibrator.save(file)
    calibrator.state_ = {"temperature": object()}
    with pytest.raises(ValueError, match=r"plain numbers and text; found object"):
        calibrator.save(file)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path):
    wrote = "Pass the path of a .json file written by calibrant fit or by save"
    with pytest.raises(FileNotFoundError, match=rf"there is no file .*none.json\. {wrote}"):
        calibrant.load(tmp_path / "none.json")
    with pytest.raises(IsADirectoryError, match=rf"is a folder\. {wrote}"):
        calibrant.load(tmp_path)
    with pytest.raises(ValueError, match=r"must be the name of a file or folder; found ''"):
        calibrant.load("")
    with pytest.raises(FileNotFoundError, match="no folder"):
        Identity().fit(*draw_samples()).save(tmp_path / "none" / "cal.json")


def test_strings_name_files_too(tmp_path):
    file = str(tmp_path / "cal.json")
    fitted = TemperatureScaling().fit(*draw_samples())
    fitted.save(file)
    assert calibrant.load(file).temperature_ == fitted.temperature_


# --- what is not JSON ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(CALIBRATORS))
def test_a_file_cut_short_anywhere(name, folder, tmp_path):
    text = saved_text(name, folder).rstrip()
    # Every place in a file of a few hundred bytes, and a thousand of them in a longer one.
    for length in range(0, len(text), max(1, len(text) // 1000)):
        refused(tmp_path, text[:length], "not valid JSON, or is truncated")


@pytest.mark.parametrize(
    ("written", "match"),
    [
        ("", "not valid JSON"),
        ("\n\n", "not valid JSON"),
        ("{}", "'format' is missing"),
        ("[]", "it holds list"),
        ("[1, 2]", "it holds list"),
        ("null", "it holds NoneType"),
        ("3", "it holds int"),
        ('"text"', "it holds str"),
        ("\ufeff{}", "not valid JSON"),
        ("{'format': 1}", "not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        (b"\xff\xfe{\x00}\x00", "it is not text"),
        (b"\x80\x04\x95\x10\x00", "it is not text"),
        (b"PK\x03\x04" + bytes(30), "not valid JSON"),
        (bytes(100), "not valid JSON"),
        ("1" * 5000, "not valid JSON"),
    ],
)
def test_what_is_no_object(written, match, tmp_path):
    refused(tmp_path, written, match)


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
@pytest.mark.parametrize("place", ["state", "report"])
def test_numbers_that_are_none(token, place, content, tmp_path):
    key = "temperature" if place == "state" else "before"
    content[place][key] = "HERE"
    refused(tmp_path, json.dumps(content).replace('"HERE"', token))


def test_a_name_that_occurs_twice(content, tmp_path):
    text = json.dumps(content)
    refused(tmp_path, text.replace('"version"', '"version": 1, "version"', 1), "occurs twice")
    twice = text.replace('"temperature":', '"temperature": 1.0, "temperature":', 1)
    refused(tmp_path, twice, "occurs twice")


@pytest.mark.parametrize("depth", [21, 60, 70, 200, 900, 960, 980, 985, 990, 995])
@pytest.mark.parametrize(
    "path",
    [
        ("format",),
        ("state",),
        ("state", "temperature"),
        ("params", "criterion"),
        ("metadata", "model"),
        ("classes",),
        ("plugin",),
        ("report", "warnings"),
        ("report", "at_bound"),
    ],
)
def test_deep_nesting_anywhere(path, depth, content, tmp_path):
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = "HERE"
    refused(tmp_path, json.dumps(content).replace('"HERE"', "[" * depth + "]" * depth))


# --- what is JSON, but no calibrator -------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"format": "other"}, "its format is 'other', not 'calibrant-calibrator'"),
        ({"format": None}, "'format' is None, not str"),
        ({"version": 3}, "its version is 3 and this calibrant reads 1 to 2. Upgrade calibrant"),
        ({"version": 3, "new": 1}, "its version is 3 and this calibrant reads 1 to 2. Upgrade"),
        ({"version": 1}, "unknown entry 'calibrant'"),
        ({"version": 0}, "its version is 0"),
        ({"version": "1"}, "'version' is '1', not int"),
        ({"version": True}, "'version' is True, not int"),
        ({"version": 1.0}, r"'version' is 1\.0, not int"),
        ({"version": 10**400}, "its version is 1000"),
        ({"method": "sorcery"}, "there is no method 'sorcery'"),
        ({"method": "Temperature"}, "there is no method 'Temperature'"),
        ({"method": ["temperature"]}, "'method' is .*, not str"),
        ({"method": {"temperature": 1}}, "'method' is .*, not str"),
        ({"method": None}, "'method' is None"),
        ({"method": "__class__"}, "there is no method"),
        ({"n_classes": 1}, "n_classes is 1"),
        ({"n_classes": 0}, "n_classes is 0"),
        ({"n_classes": -3}, "n_classes is -3"),
        ({"n_classes": 3.0}, "'n_classes' is 3.0, not int"),
        ({"n_classes": 10**30}, "n_classes is 1000"),
        ({"n_classes": 4}, "its report has a different n_classes"),
        ({"params": []}, "'params' is .*, not dict"),
        ({"params": {"sorcery": 1}}, "its params do not fit temperature.*sorcery"),
        ({"params": {"a\nb\u2028c\ud800": 1}}, "its params do not fit temperature"),
        ({"params": {"self": 1}}, "its params do not fit temperature"),
        ({"params": {"criterion": "sorcery"}}, "its params do not fit temperature"),
        ({"params": {"criterion": ["nll"]}}, "its params do not fit temperature"),
        ({"params": {"criterion": {}}}, "its params do not fit temperature"),
        ({"params": {"criterion": None}}, "its params do not fit temperature"),
        ({"params": {"criterion": 10**400}}, "its params do not fit temperature"),
        ({"state": {}}, r"its state has \[\], not \['temperature'\]"),
        ({"state": []}, "'state' is .*, not dict"),
        ({"state": {"temperature": 1.0, "gamma": 1.0}}, "its state has"),
        ({"state": {"Temperature": 1.0}}, "its state has"),
        ({"state": {"temperature": 0.0}}, "temperature is 0, not between"),
        ({"state": {"temperature": -1.5}}, r"temperature is -1\.5, not between"),
        ({"state": {"temperature": "1.5"}}, "not an array of finite numbers"),
        ({"state": {"temperature": True}}, "not an array of finite numbers"),
        ({"state": {"temperature": None}}, "not an array of finite numbers"),
        ({"state": {"temperature": {}}}, "not an array of finite numbers"),
        ({"state": {"temperature": 10**30}}, "not an array of finite numbers"),
        ({"state": {"temperature": []}}, "not an array of finite numbers"),
        ({"state": {"temperature": [1.0]}}, r"has shape \(1,\), not a number"),
        ({"state": {"temperature": [[1.0, 2.0]]}}, r"has shape \(1, 2\), not a number"),
        ({"state": {"temperature": [[1.0], [1.0, 2.0]]}}, "not an array of finite numbers"),
        ({"extra": 1}, "unknown entry 'extra'"),
        ({"": None}, "unknown entry ''"),
        ({"a\nb\ud800": None}, r"unknown entry 'a\\nb\\ud800'"),
        ({"created": 3}, "'created' is 3, not str"),
        ({"created": "yesterday"}, "'created' is 'yesterday', not a date"),
        ({"created": "2026-01-31"}, "'created' is '2026-01-31', not a date"),
        ({"calibrant": 1}, "'calibrant' is 1, not str"),
        ({"plugin": "os"}, "'plugin' is 'os', not dict"),
        ({"plugin": {"module": "os"}}, "plugin cannot .* 'package' is missing"),
        ({"plugin": {"module": 1, "package": None}}, "'module' is 1, not str"),
        ({"classes": ["a", "b"]}, "'classes' is .*, not 3 names"),
        ({"classes": ["a", "b", None]}, "'classes' is .*, not 3 names"),
        ({"classes": ["a", "b", ["c"]]}, "'classes' is .*, not 3 names"),
        ({"input": "scores"}, "'input' is 'scores', not logits or probs"),
        ({"data": {"n": 400}}, "data cannot .* 'sha256' is missing"),
        ({"data": {"n": 400.5, "sha256": None}}, "'n' is 400.5, not int"),
        ({"metadata": []}, "'metadata' is .*, not dict"),
        ({"metadata": {"a": 1e999}}, "not a JSON number"),
        ({"metadata": {"a": 2**70}}, "metadata must be a dict of JSON values"),
        ({"report": {}}, "report cannot .* 'method' is missing"),
        ({"report": None}, "'report' is None, not dict"),
    ],
)
def test_wrong_entries(changes, match, content, tmp_path):
    refused(tmp_path, {**content, **changes}, match)


@pytest.mark.parametrize("key", ["format", "version", "method", "n_classes", "params", "state"])
def test_missing_entries(key, content, tmp_path):
    del content[key]
    refused(tmp_path, content, f"'{key}' is missing")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"method": "focal"}, "its report has a different method, 'focal'"),
        ({"method": None}, "'method' is None"),
        ({"n_classes": 7}, "its report has a different n_classes, 7"),
        ({"n_samples": "400"}, "'n_samples' is '400', not int"),
        ({"n_samples": 4.5}, "'n_samples' is 4.5, not int"),
        ({"before": None}, "'before' is None, not float"),
        ({"before": [1.0]}, "'before' is .*, not float"),
        ({"after": 10**400}, "'after' is 1000.*, not float"),
        ({"after": True}, "'after' is True, not float"),
        ({"gradient": "0"}, "'gradient' is '0', not float"),
        ({"at_bound": 1}, "'at_bound' is 1, not str"),
        ({"criterion": None}, "'criterion' is None, not str"),
        ({"warnings": "text"}, "'warnings' is 'text', not list"),
        ({"warnings": [1]}, "'warnings' is .*, not a list of text"),
        ({"warnings": [["a"]]}, "'warnings' is .*, not a list of text"),
        ({"extra": 1}, "unknown entry 'extra'"),
    ],
)
def test_wrong_reports(changes, match, content, tmp_path):
    content["report"].update(changes)
    refused(tmp_path, content, match)


@pytest.mark.parametrize("name", [name for name in sorted(CALIBRATORS) if CALIBRATORS[name].STATE])
def test_wrong_shapes_of_every_state(name, folder, tmp_path):
    content = json.loads(saved_text(name, folder))
    for key, shape in CALIBRATORS[name].STATE.items():
        good = content["state"][key]
        wrong = [[good], {"0": good}, [], str(good), None, 10**400]
        if shape:
            head, last = good[:-1], good[-1]
            wrong += [last, [*head, [last]], [*head, "1"], [*head, None], [*head, True]]
            wrong += [head, [*good, last]] if shape[0] == "K" else []
        for value in wrong:
            refused(tmp_path, {**content, "state": {**content["state"], key: value}})
        without = {k: v for k, v in content["state"].items() if k != key}
        refused(tmp_path, {**content, "state": without}, "its state has")


# --- anything, anywhere --------------------------------------------------------------------------

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0, 1, -1, 2**53, 2**63, 2**64, -(2**63), 10**310, 10**4000])
    | st.floats()
    | st.sampled_from([1e-320, 5e-324, 1.7e308, -0.0, 1e-40, 1e40, 1e300])
    | st.text(st.characters(exclude_categories=()), max_size=5)
    | st.sampled_from(["nll", "temperature", "focal", "identity", "K"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def places(value, path=()):
    """Paths to every entry, however deep."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in entries:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


def read_or_refused(file):
    """The calibrator, or None where one line refuses it; any other error is a failed test."""
    refusal = None
    try:
        return calibrant.load(file)
    except ValueError as error:
        refusal = error
    assert type(refusal) is CalibrantError
    assert str(refusal).isprintable()
    return None


EXTREMES = [5e-324, 1e-320, 1e-300, 1e-39, 1e30, 3e38, 1e39, 1e300, 1.7e308]


@pytest.mark.parametrize("number", [*EXTREMES, *(-x for x in EXTREMES), 0.0, -1.0, -1, 1])
@pytest.mark.parametrize("name", [name for name in sorted(CALIBRATORS) if CALIBRATORS[name].STATE])
def test_extreme_numbers_give_probabilities_or_are_refused(name, number, folder):
    content = json.loads(saved_text(name, folder))
    for key, shape in CALIBRATORS[name].STATE.items():
        state = copy.deepcopy(content["state"])
        inner, last = state, key
        for _ in shape:
            inner, last = inner[last], -1
        inner[last] = number
        file = folder / "extreme.json"
        file.write_text(json.dumps({**content, "state": state}))
        loaded = read_or_refused(file)
        if loaded is None:
            continue
        for rows in (LOGITS, LOGITS.astype(np.float32), torch.from_numpy(LOGITS).float()):
            probs = np.asarray(loaded.predict_proba(rows))
            assert np.isfinite(probs).all(), (key, type(rows))
            assert probs.sum(axis=1) == pytest.approx(np.ones(4), abs=1e-5)
            assert not np.isnan(np.asarray(loaded.predict_log_proba(rows))).any()


@pytest.mark.parametrize("name", sorted(CALIBRATORS))
@given(data=st.data())
@settings(max_examples=25)
def test_whatever_is_changed_the_file_is_read_or_refused_in_one_line(name, folder, data):
    content = json.loads(saved_text(name, folder))
    for _ in range(data.draw(st.integers(1, 2))):
        *path, last = data.draw(st.sampled_from(list(places(content))))
        inner = content
        for key in path:
            inner = inner[key]
        action = data.draw(st.sampled_from(["replace", "replace", "replace", "delete", "add"]))
        if action == "replace":
            inner[last] = data.draw(ANYTHING)
        elif action == "delete":
            del inner[last]
        elif isinstance(inner, dict):
            inner[data.draw(st.text(max_size=4))] = data.draw(ANYTHING)
        else:
            inner.append(data.draw(ANYTHING))
        if not content:
            return
    file = folder / f"changed-{name}.json"
    file.write_text(json.dumps(content))
    loaded = read_or_refused(file)
    if loaded is None:
        return
    rows = np.resize(LOGITS, (4, loaded.n_classes_)) if loaded.n_classes_ < 1000 else None
    if rows is not None:
        for given_rows in (rows, rows.astype(np.float32)):
            probs = loaded.predict_proba(given_rows)
            assert np.isfinite(probs).all()
            assert probs.sum(axis=1) == pytest.approx(np.ones(4), abs=1e-5)
    assert str(loaded.report_)
    assert repr(loaded)


@given(data=st.data())
def test_whatever_byte_is_changed(folder, data):
    text = bytearray(saved_text("temperature", folder).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    file = folder / "changed.json"
    file.write_bytes(text)
    loaded = read_or_refused(file)
    assert loaded is None or loaded.n_classes_ >= 2
