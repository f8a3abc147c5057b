"""The commands with --where: the same numbers as on a file of only these rows."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import calibrant
from calibrant import TemperatureScaling, scale
from tests.processes import run_calibrant

OCTOBER = "month == '2026-10'"


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """A partitioned folder, and a file of the rows of October."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.1, 0.9, 1200)
    table = pd.DataFrame({"prob": p, "label": (rng.random(1200) < p**2).astype(int)})
    table["sex"] = rng.choice(["f", "m"], 1200)
    table["month"] = np.repeat(["2026-09", "2026-10", "2026-11"], 400)
    root = tmp_path_factory.mktemp("data")
    table.to_parquet(root / "logs", partition_cols=["month", "sex"])
    table[table.month == "2026-10"].to_parquet(root / "october.parquet")
    return root


def printed(*arguments):
    result = run_calibrant(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_fit(logs, tmp_path):
    """The method auto, in memory, on a nested folder."""
    for source, options in ((logs / "logs", ("--where", OCTOBER)), (logs / "october.parquet", ())):
        printed("fit", source, *options, "-o", tmp_path / f"{source.stem}.json")
    found, expected = (calibrant.load(tmp_path / f"{n}.json") for n in ("logs", "october"))
    assert found.report_.n_samples == 400
    probs = np.linspace(0.01, 0.99, 99)
    np.testing.assert_allclose(
        found.predict_proba(probs=probs), expected.predict_proba(probs=probs), rtol=1e-6
    )


@pytest.mark.parametrize("options", [(), ("--skip-bad",)])
def test_evaluate(options, logs):
    """In memory and in parts, also by the columns of the path."""
    by = ("--by", "month,sex", "--json", *options)
    (found,) = json.loads(printed("evaluate", logs / "logs", "--where", OCTOBER, *by)).values()
    (expected,) = json.loads(printed("evaluate", logs / "october.parquet", *by)).values()
    assert found["n"] == 400
    nll, expected_nll = (each["metrics"]["nll"]["value"] for each in (found, expected))
    assert nll == pytest.approx(expected_nll)
    names = [group["by"] for group in found["by_group"]["groups"]]
    assert names == [group["by"] for group in expected["by_group"]["groups"]]
    assert {"month": "2026-10", "sex": "f"} in names


def test_compare_and_report(logs, tmp_path):
    both = (logs / "logs", logs / "logs", "--method", "identity,platt")
    found = printed("compare", *both, "--where", OCTOBER)
    assert "400" in found
    assert "--where 'month == '\"'\"'2026-10'\"'\"''" in found  # quoted for a shell
    page = tmp_path / "page.html"
    printed("report", *both, "--where", OCTOBER, "--by", "sex", "-o", page)
    assert "sex=f" in page.read_text()
    assert 'apply cal.json FILE <span class="nowrap">-o' in page.read_text()


def test_files_in_parts(logs):
    folder, october = logs / "logs", logs / "october.parquet"
    condition = f"{OCTOBER} and sex in ('f', 'm')"
    found = scale.fit(TemperatureScaling(), folder, where=condition)
    expected = scale.fit(TemperatureScaling(), october)
    assert found.report_.n_samples == 400
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-9)
    for use in (scale.evaluate, lambda *a, **k: scale.fit(TemperatureScaling(), *a, **k)):
        with pytest.raises(ValueError, match=r"\(rows where prob == 2\) has no"):
            use(folder, where="prob == 2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--where", "month = 10"), "expected a condition such as"),
        (("--where", "moth == '2026-10'"), "no column moth; found prob, label, month, sex"),
        (("--where", "month == '2027-10'"), "has no rows"),
    ],
)
def test_refusals_are_one_line(options, message, logs, tmp_path):
    result = run_calibrant("fit", logs / "logs", *options, "-o", tmp_path / "cal.json")
    assert result.exit_code == 2
    assert message in result.output
    assert len(result.stderr.strip().splitlines()) == 1
