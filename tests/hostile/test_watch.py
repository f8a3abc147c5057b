"""Logs and states that a watch refuses in one line, and a state that is killed in mid-write."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import TemperatureScaling
from calibrant.errors import CalibrantError
from calibrant.monitoring import watch
from tests.processes import run_calibrant

DAYS = ["2026-10-01", "2026-10-02"]


def write(name: str, **columns: object) -> None:
    """A log of 200 predictions; ``columns`` replace some or, if None, leave them out."""
    rng = np.random.default_rng(0)
    prob = rng.random(200)
    label = (rng.random(200) < prob).astype(int)
    table = {"day": DAYS * 100, "prob": prob, "label": label} | columns
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({k: v for k, v in table.items() if v is not None}), name)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("logs/a.parquet")


def refused(*arguments: object) -> str:
    """The one line in which a command refuses its input."""
    done = run_calibrant("watch", *arguments)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"day": None}, "has no column day; found label"),
        ({"day": ["soon", "later"] * 100}, "found 'soon'. Write dates as 2026-10-31"),
        ({"day": [None, *DAYS * 99, DAYS[0]]}, "found a row without one"),
        ({"day": np.full(200, "NaT", dtype="datetime64[s]")}, "found a row without one"),
        ({"day": np.full(200, 0.5)}, "found the type double"),
        ({"label": None}, "labels are needed; found none"),
        ({"label": np.full(200, 2)}, "labels must be"),
        ({"label": np.full(200, 0.5)}, "must be whole numbers"),
        ({"prob": np.full(200, 1.5)}, "probs"),
        ({"prob": np.full(200, np.nan)}, "NaN"),
        ({"prob": None, "score": np.zeros(200)}, "must say what their scores are"),
        ({"prob": None, "top_logits": [[1.0]] * 200, "top_classes": [[1]] * 200}, "normaliser"),
    ],
)
def test_bad_logs_are_refused_in_one_line(columns, message):
    write("logs/a.parquet", **columns)
    found = refused("logs", "--time", "day")
    assert message in found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--time", "date"], "has no column date; found day, label"),
        (["--time", "day", "--by", "country"], "has no column country"),
        (["--time", "day", "--level", "5"], "found 5. For 5% pass 0.05"),
        (["--time", "day", "--every", "fortnight"], "fortnight"),
        (["--time", "day", "--calibrator", "none.json"], "there is no file none.json"),
        (["--time", "day", "-o", "page.txt"], "written as .html"),
        (["--time", "day", "--state", "none/state.json"], "there is no folder none"),
        (["--time", "day", "--since", "soon"], "since: the column of times must"),
        (["--time", "day", "--since", "2026"], "like those of the column, such as 2026-10-01"),
        (["--time", "day", "--by", "label"], "found label, the column of labels"),
        (["--time", "label"], "found label, the column of labels"),
        (["--time", "day", "--score", "risk"], "has no column risk"),
        (["--time", ""], "time must be a name"),
    ],
)
def test_bad_options_are_refused_in_one_line(options, message):
    assert message in refused("logs", *options)


def test_paths_that_are_no_logs():
    assert "there is no file or folder" in refused("nowhere", "--time", "day")
    Path("empty").mkdir()
    assert "found none" in refused("empty", "--time", "day")
    Path("a.csv").write_text("day,prob,label\n")
    assert "expected a .parquet file" in refused("a.csv", "--time", "day")


def test_bad_rows_and_files_can_be_skipped():
    write("logs/b.parquet", day=["soon", *DAYS * 99, DAYS[0]])
    Path("logs/c.parquet").write_bytes(b"PAR1 damaged")
    found = watch("logs", time="day", skip_bad=True, state="state.json")
    assert found.n == 399
    assert "Skipped: 1 rows, 1 whole files" in found.notes[0]
    write("logs/c.parquet")  # now it is complete, and read
    assert watch("logs", time="day", skip_bad=True, state="state.json").n == 599


def test_a_broken_link_is_refused_or_skipped():
    Path("logs/b.parquet").symlink_to("nowhere.parquet")
    assert "logs/b.parquet is a link to nowhere.parquet" in refused("logs", "--time", "day")
    assert watch("logs", time="day", skip_bad=True).n == 200


def test_a_calibrator_of_other_classes():
    logits = np.random.default_rng(0).normal(size=(300, 3))
    TemperatureScaling().fit(logits, np.arange(300) % 3).save("cal.json")
    assert "fitted on 3 classes" in refused("logs", "--time", "day", "--calibrator", "cal.json")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"every": "week"}, "every = 'day'; found 'week'"),
        ({"by": ["label"]}, "by = (); found ('label',)"),
        ({"time": "when"}, "time = 'day'; found 'when'"),
        ({"label": "label"}, "label = None; found 'label'"),
    ],
)
def test_a_state_of_other_settings(changed, message):
    watch("logs", time="day", state="state.json")
    before = Path("state.json").read_bytes()
    with pytest.raises(CalibrantError, match="state of a watch with") as refusal:
        watch("logs", state="state.json", **{"time": "day", **changed})
    assert message in str(refusal.value)
    assert Path("state.json").read_bytes() == before


def test_a_state_that_lacks_a_period():
    watch("logs", time="day", state="state.json")
    content = json.loads(Path("state.json").read_text())
    del content["steps"][0]
    Path("state.json").write_text(json.dumps(content))
    with pytest.raises(CalibrantError, match="its sums have a period without a step"):
        watch("logs", time="day", state="state.json")


@pytest.mark.parametrize("wrong", [TemperatureScaling, 1])
def test_something_else_as_a_calibrator(wrong):
    with pytest.raises(CalibrantError, match="calibrator must be a Calibrator; found"):
        watch("logs", time="day", calibrator=wrong)


def test_a_state_of_other_classes():
    watch("logs", time="day", state="state.json")
    probs = np.full((200, 3), 1 / 3)
    columns = {f"prob_{k}": probs[:, k] for k in range(3)}
    write("logs/a.parquet", prob=None, **columns)
    with pytest.raises(CalibrantError, match="over 2 classes; found 3 classes"):
        watch("logs", time="day", state="state.json")


def test_rows_that_were_counted_must_stay():
    watch("logs", time="day", state="state.json")
    table = pq.read_table("logs/a.parquet")
    pq.write_table(table.slice(0, 150), "logs/a.parquet")
    with pytest.raises(CalibrantError, match="rows of 2026-10-01 that were counted are gone"):
        watch("logs", time="day", state="state.json")
    flipped = table.set_column(2, "label", pa.array(1 - table["label"].to_numpy()))
    pq.write_table(flipped, "logs/a.parquet")
    with pytest.raises(CalibrantError, match="or have other values"):
        watch("logs", time="day", state="state.json")
    pq.write_table(table, "logs/a.parquet", row_group_size=7)  # the same rows
    assert len(watch("logs", time="day", state="state.json").steps) == 2


def test_files_that_are_gone():
    watch("logs", time="day", state="state.json")
    write("logs/b.parquet", day=["2026-10-03"] * 200)
    os.rename("logs/a.parquet", "a.parquet")  # logs are kept for a while only
    assert watch("logs", time="day", state="state.json").n == 400
    os.rename("a.parquet", "logs/renamed.parquet")
    with pytest.raises(CalibrantError, match="would count twice"):
        watch("logs", time="day", state="state.json")


def test_a_day_without_rows_changes_nothing():
    before = watch("logs", time="day", state="state.json")
    pq.write_table(pq.read_table("logs/a.parquet").slice(0, 0), "logs/b.parquet")
    assert watch("logs", time="day", state="state.json") == before
    assert watch("logs", time="day") == before


def damaged(text: str) -> list[str]:
    """Files that are no states."""
    content = json.loads(text)
    file = content["files"]["a.parquet"]

    def changed(**entries: object) -> str:
        return json.dumps({**content, **entries})

    def with_sums(values: object) -> str:
        sums = {"2026-10-01": {"": values}}
        return changed(files={"a.parquet": {**file, "sums": sums}})

    vector = file["sums"]["2026-10-01"][""]
    return [
        "",
        text[: len(text) // 2],
        "[]",
        "[" * 100_000,
        '{"format": "calibrant-calibrator"}',
        changed(format="other"),
        changed(version=2),
        changed(settings={}),
        changed(settings={**content["settings"], "time": 7}),
        changed(settings={**content["settings"], "by": [7]}),
        changed(n_classes=0),
        changed(n_classes=10**9),
        changed(n_classes=True),
        changed(class_names=["a"]),
        changed(files=[]),
        changed(files={"a.parquet": {}}),
        changed(files={"a.parquet": {**file, "bytes": -1}}),
        with_sums(vector[:-1]),
        with_sums(["1", *vector[1:]]),
        with_sums([1e999, *vector[1:]]).replace("Infinity", "NaN"),
        with_sums([None, *vector[1:]]),
        changed(steps=[["2026-10-01", 1]]),
        changed(steps=[["2026-10-01", 1, "x"]]),
        changed(wealth={}),
        changed(wealth={"": [0.0]}),
        changed(wealth={**content["wealth"], "other": [0.0] * 10}),
    ]


def test_damaged_states_are_refused_in_one_line():
    watch("logs", time="day", state="state.json")
    for text in damaged(Path("state.json").read_text()):
        Path("state.json").write_text(text)
        found = refused("logs", "--time", "day", "--state", "state.json")
        assert "cannot be read as the state of a watch" in found, text[:80]
        assert Path("state.json").read_text() == text


WRITES_SLOWLY = """
import os, sys
at_once = os.replace

def slowly(source, target):
    if str(target).endswith("state.json"):
        if sys.argv[1] == "before":
            print("begun", flush=True)
            sys.stdin.readline()
        at_once(source, target)
        print("begun", flush=True)
        sys.stdin.readline()
    else:
        at_once(source, target)

os.replace = slowly
import calibrant.cli
calibrant.cli.main(sys.argv[2:])
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_state_that_is_killed_in_mid_write_is_the_old_or_the_new_one(moment):
    command = ["watch", "logs", "--time", "day", "--state", "state.json"]
    assert run_calibrant(*command).exit_code == 0
    old = Path("state.json").read_bytes()
    write("logs/b.parquet", day=["2026-10-03"] * 200)
    with subprocess.Popen(
        [sys.executable, "-c", WRITES_SLOWLY, moment, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGKILL)
    found = Path("state.json").read_bytes()
    assert (found == old) == (moment == "before")
    assert run_calibrant(*command).exit_code == 0
    new = json.loads(Path("state.json").read_bytes())
    assert len(new["steps"]) == 3
    if moment == "after":
        assert json.loads(found) == new
