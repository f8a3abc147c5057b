"""``calibrant watch``: output and exit status."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.processes import run_calibrant


@pytest.fixture(autouse=True)
def logs(tmp_path, monkeypatch):
    """A model that is calibrated in 2024, and states a class too often in 2025."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    prob, n = rng.random(4000), 2000
    label = (rng.random(4000) < prob).astype(int)
    odds = prob / (1 - prob) * np.where(np.arange(4000) < n, 1.0, 2.0)
    years = np.repeat([2024, 2025], n)
    table = pa.table({"year": years, "risk_prob": odds / (1 + odds), "ill": label})
    pq.write_table(table, "all.parquet")
    pq.write_table(table.slice(0, n), "good.parquet")


NAMED = ("--time", "year", "--label", "ill", "--score", "risk_prob")


def test_no_alarm_is_status_0():
    done = run_calibrant("watch", "good.parquet", *NAMED)
    assert done.exit_code == 0, done.output
    assert "good.parquet: 1 period, 2,000 samples" in done.output
    assert "No alarm" in done.output


def test_an_alarm_is_status_1():
    done = run_calibrant("watch", "all.parquet", *NAMED, "-o", "page.html", "--state", "s.json")
    assert done.exit_code == 1, done.output
    assert "ALARM in 2025" in done.output
    assert "Since 2025 (95% interval 2025 to 2025): 2,000 samples." in done.output
    assert "Repair: a new offset" in done.output
    assert "Page written to page.html" in done.output
    again = run_calibrant("watch", "all.parquet", *NAMED, "--state", "s.json")
    assert again.exit_code == 1
    assert again.output == done.output.replace("Page written to page.html\n", "")


def test_json_is_complete():
    done = run_calibrant("watch", "all.parquet", *NAMED, "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["alarm"]["period"] == "2025"
    assert [period["n"] for period in found["periods"]] == [2000, 2000]
    assert found["diagnosis"]["since"] == "2025"
    assert found["diagnosis"]["repair"]["name"] == "offset"
    assert found["periods"][1]["low"] < found["periods"][1]["gap"] < found["periods"][1]["high"]


def test_the_help_teaches():
    done = run_calibrant("watch", "--help")
    assert "Exit status: 0 without an alarm, 1 with one" in done.output
    assert "calibrant watch logs/ --time day --state watch.json" in done.output
