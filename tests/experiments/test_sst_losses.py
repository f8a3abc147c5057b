"""Printed cells of SST against the spread over seeds."""

import numpy as np
import pytest

from experiments.catalogue import NothingToReadError, catalogue
from experiments.sst_losses import run as sst


def test_the_range_holds_a_further_run_as_often_as_it_says():
    rng = np.random.default_rng(0)
    draws = np.exp(0.4 * rng.normal(size=(4000, 6)))
    inside = [
        low <= further <= high
        for *seeds, further in draws
        for low, high in [sst.further_run(np.array(seeds), 0.95)]
    ]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)


def test_a_constant_quantity_has_no_range():
    assert sst.further_run(np.full(5, 2.0), 0.95) == pytest.approx((2.0, 2.0))


@pytest.mark.slow
def test_the_kept_runs_are_compared_with_the_paper(tmp_path, monkeypatch):
    few = [job for job in sst.jobs(["sst.toml"]) if job.recipe.loss in ("ce", "fl-3")]
    monkeypatch.setattr(sst, "jobs", lambda grids: few)
    parameters = catalogue()["sst-losses"].parameters | {"folder": str(tmp_path)}
    result = sst.run(parameters)
    assert result.values["printed cells"] == 22
    errors = [each.cells["error", "before"] for each in sst.by_title(parameters)["FL-3"]]
    assert result.values["FL-3: error %"] == pytest.approx(np.mean(errors))
    ce, fl = (result.values[f"{loss}: ECE %"] for loss in ("cross-entropy", "FL-3"))
    difference = result.values["FL-3 minus cross-entropy: ECE %"]
    assert len(errors) == 5
    assert difference == pytest.approx(fl - ce)
    # The verdicts read the same difference, with the interval over the seeds.
    name = "sst-binary, tree-lstm: ECE % before T, FL-3 minus cross-entropy"
    half = result.values["FL-3 minus cross-entropy: ECE %, half interval"]
    assert result.values[name] == pytest.approx(difference)
    assert result.values[f"{name}, low"] == pytest.approx(difference - half)
    assert result.values[f"{name}, high"] == pytest.approx(difference + half)
    errors_printed = {row[2] for row in result.tables["cells"].rows if row[1] == "error %"}
    assert errors_printed == {"12.85", "12.19"}


def test_runs_of_one_seed_are_not_enough(tmp_path, monkeypatch):
    monkeypatch.setattr(sst, "unpack", lambda jobs, folder: None)
    with pytest.raises(NothingToReadError, match="two or more seeds; found none"):
        sst.run(catalogue()["sst-losses"].parameters | {"folder": str(tmp_path)})
