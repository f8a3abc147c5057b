"""Columns of times as periods, and columns of groups."""

from __future__ import annotations

from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pytest

from calibrant.errors import CalibrantError
from calibrant.monitoring.periods import Coded, PeriodSums, in_order, periods_of

DAYS = [date(2026, 10, 31), date(2026, 11, 1), date(2026, 11, 2)]
TIMES = [datetime(d.year, d.month, d.day, 23, 59) for d in DAYS]
ISO = [d.isoformat() for d in DAYS]


def texts(column: pa.Array, every: str = "day") -> list[str]:
    """The period of each row."""
    coded = periods_of(column, every)
    return [coded.values[code] for code in coded.codes]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(DAYS),
        pa.array(DAYS, pa.date64()),
        pa.array(TIMES),
        pa.array(TIMES, pa.timestamp("ns")),
        pa.array(TIMES, pa.timestamp("us", tz="UTC")),
        pa.array(ISO),
        pa.array(ISO, pa.large_string()),
        pa.array(ISO).dictionary_encode(),
        pa.array([f"{day}T12:00:00Z" for day in ISO]),
        pa.array([f"{day} 12:00:00.5+02:00" for day in ISO]),
    ],
    ids=lambda column: str(column.type),
)
def test_dates_of_every_type(column):
    assert texts(column) == ISO
    assert texts(column, "week") == ["2026-10-26", "2026-10-26", "2026-11-02"]  # Mondays
    assert texts(column, "month") == ["2026-10", "2026-11", "2026-11"]
    assert texts(column, "year") == ["2026"] * 3


def test_a_time_with_an_offset_is_the_same_day_as_text_and_as_a_timestamp():
    text = pa.array(["2026-01-01T23:00:00-05:00"])
    assert texts(text) == ["2026-01-02"]
    moment = pa.array([datetime.fromisoformat(text[0].as_py())])
    assert texts(moment.cast(pa.timestamp("us", tz="America/New_York"))) == ["2026-01-02"]


@pytest.mark.parametrize(
    "column", [pa.array([2026, 9]), pa.array([2026.0, 9.0]), pa.array(["2026", "9"])]
)
def test_whole_numbers_are_periods(column):
    assert texts(column) == ["2026", "9"]
    assert sorted(texts(column), key=in_order) == ["9", "2026"]


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (pa.array([*DAYS, None]), "a row without one"),
        (pa.array(["2026-10-31", None]), "a row without one"),
        (pa.array(["2026-10-31", "soon"]), "'soon'"),
        (pa.array(["2026-13-31"]), "'2026-13-31'"),
        (pa.array(["31.10.2026"]), "'31.10.2026'"),
        (pa.array([""]), "''"),
        (pa.array([0.5, 1.0]), "the type double"),
        (pa.array([float("nan"), 1.0]), "the type double"),
        (pa.array([float("inf"), 1.0]), "the type double"),
        (pa.array([True]), "the type bool"),
        (pa.array([[1]]), "the type list"),
        (pa.array([2**62], pa.timestamp("s")), "a time outside the years 1 to 9999"),
    ],
)
def test_what_is_not_a_time_is_refused(column, found):
    with pytest.raises(CalibrantError, match="a date, a time or a whole number") as refusal:
        periods_of(column, "day")
    assert f"found {found}" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_too_many_periods_or_groups_are_refused():
    many, one = Coded([str(i) for i in range(10_001)], np.arange(1)), Coded(["1"], np.arange(1))
    sample = np.log(np.full((1, 2), 0.5)), np.array([0])
    with pytest.raises(CalibrantError, match="at most 10000 periods at a time; found 10001"):
        PeriodSums(2).count("f", many, [], *sample)
    with pytest.raises(CalibrantError, match="at most 1000 groups"):
        PeriodSums(2).count("f", one, [many], *sample)
