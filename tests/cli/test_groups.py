"""The commands with --by and --slices: the same numbers as in Python."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

import calibrant
from tests.processes import run_calibrant


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    p, sex = rng.uniform(0.15, 0.85, 1500), rng.choice(["f", "m", None], 1500)
    labels = (rng.random(1500) < p - 0.12 * (sex == "m")).astype(int)
    return pd.DataFrame({"prob": p, "label": labels, "sex": sex, "year": 2015 + labels[::-1]})


@pytest.fixture
def files(table, tmp_path):
    table.to_parquet(tmp_path / "p.parquet")
    table.to_csv(tmp_path / "p.csv", index=False)
    arrays = {"val_prob": table.prob, "val_label": table.label, "val_year": table.year}
    np.savez(tmp_path / "p.npz", **arrays, val_sex=table.sex.fillna("").to_numpy(dtype=str))
    with (tmp_path / "p.jsonl").open("w") as log:
        for row in table.itertuples():
            person = {} if row.sex is None else {"sex": row.sex}
            line = {"probs": {"0": 1 - row.prob, "1": row.prob}, "label": str(row.label), **person}
            log.write(json.dumps({**line, "year": row.year}) + "\n")
    for part in range(3):  # by year, which only the path says
        rows = table.iloc[part::3]
        rows.to_parquet(tmp_path / "nested" / str(part), partition_cols=["year"])
    return tmp_path


NAMES = ["p.parquet", "p.csv", "p.npz::val", "p.jsonl", "nested"]


@pytest.mark.parametrize("name", NAMES)
def test_evaluate_by_columns(files, table, name):
    options = ("--by", "sex", "--metric", "nll", "--slices", "sex,year")
    result = run_calibrant("evaluate", files / name, *options, "--json")
    assert result.exit_code == 0, result.output
    (data,) = json.loads(result.stdout).values()
    groups = {group["by"]["sex"]: group["evaluation"] for group in data["by_group"]["groups"]}
    assert list(groups) == ["f", "m", "missing"]
    rows = table.sex == "m"
    expected = calibrant.nll(table.prob[rows].to_numpy(), table.label[rows].to_numpy())
    assert groups["m"]["metrics"]["nll"]["value"] == pytest.approx(expected)
    assert data["slices"]["slices"][0]["by"] == {"sex": "m"}


def test_evaluate_in_parts_counts_the_same_groups(files):
    result = run_calibrant("evaluate", files / "p.parquet", "--by", "sex", "--skip-bad", "--json")
    assert result.exit_code == 0, result.output
    (data,) = json.loads(result.stdout).values()
    found = {group["by"]["sex"]: group["side"] for group in data["by_group"]["groups"]}
    assert found["m"] == "prevalence off"
    assert sum(g["evaluation"]["n"] for g in data["by_group"]["groups"]) == data["n"]


def test_plot_of_groups(files):
    picture = files / "groups.svg"
    result = run_calibrant("evaluate", files / "p.csv", "--by", "sex", "--plot", picture)
    assert result.exit_code == 0, result.output
    assert "sex=missing" in picture.read_text()


def test_fit_by_groups_and_apply(files, table):
    cal, out = files / "cal.json", files / "out.csv"
    fit = run_calibrant("fit", files / "p.parquet", "--by", "sex", "-o", cal)
    assert fit.exit_code == 0, fit.output
    applied = run_calibrant("apply", cal, files / "p.csv", "-o", out)
    assert applied.exit_code == 0, applied.output
    expected = calibrant.load(cal).predict_proba(probs=table.prob.to_numpy(), groups=table[["sex"]])
    assert pd.read_csv(out).prob.to_numpy() == pytest.approx(expected, abs=1e-12)
    folder = files / "folder"
    applied = run_calibrant("apply", cal, files / "p.parquet", "-o", folder, "--skip-bad")
    assert applied.exit_code == 0, applied.output
    written = pd.read_parquet(folder / "p.parquet")
    assert written.prob.to_numpy() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_fit_by_two_columns_of_any_file(files, name):
    cal = files / "cal.json"
    fit = run_calibrant("fit", files / name, "--by", "sex,year", "--method", "platt", "-o", cal)
    assert fit.exit_code == 0, fit.output
    known = calibrant.load(cal).group_keys_
    assert ("m", "2015") in known
    assert ("missing", "2016") in known
    applied = run_calibrant("apply", cal, files / name, "-o", files / "out.csv")
    assert applied.exit_code == 0, applied.output
    assert {"prob", "label", "sex", "year"} <= set(pd.read_csv(files / "out.csv").columns) or (
        name == "p.jsonl"
    )


def test_columns_of_the_path_stay_there(files):
    cal, out = files / "cal.json", files / "calibrated"
    assert not run_calibrant("fit", files / "nested", "--by", "year", "-o", cal).exit_code
    applied = run_calibrant("apply", cal, files / "nested", "-o", out)
    assert applied.exit_code == 0, applied.output
    (first, *_) = sorted((out / "0" / "year=2015").iterdir())
    assert "year" not in pyarrow.parquet.ParquetFile(first).schema_arrow.names
    assert sorted(pd.read_parquet(out / "0").year.unique()) == [2015, 2016]


def test_report_by_groups(files):
    page = files / "page.html"
    options = ("--by", "sex,year", "--method", "platt")
    result = run_calibrant("report", files / "p.parquet", files / "p.csv", *options, "-o", page)
    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert '<section id="groups">' in text
    assert "sex=missing, year=2016" in text


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("evaluate", "p.csv", "--by", "six"), "no column six; found prob, label, sex, year"),
        (("fit", "p.csv", "--by", "sex", "--keep-class", "-o", "c.json"), "--by is for classes"),
        (("evaluate", "net.npz", "--by", "sex"), "no array sex; found probs, labels, age"),
        (("evaluate", "net.npz", "--by", "age"), "age and probs must have one entry per row"),
        (("evaluate", "p.jsonl", "--by", "six"), "no field six; found probs, label"),
        (("evaluate", "p.jsonl", "--by", "probs"), "probs must be text or a number; found dict"),
    ],
)
def test_what_cannot_be_grouped_is_refused_in_one_line(files, command, message):
    np.savez(files / "net.npz", probs=np.full((4, 2), 0.5), labels=[0, 1, 0, 1], age=[3])
    name, file, *options = command
    result = run_calibrant(name, files / file, *(files / o if ".json" in o else o for o in options))
    assert result.exit_code == 2
    assert message in result.output
