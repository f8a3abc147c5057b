"""Evaluation by group: the same numbers as for the rows of each group alone."""

from __future__ import annotations

import json

import numpy as np
import pytest

import calibrant
from calibrant.errors import CalibrantError
from calibrant.metrics import StreamedEvaluation
from calibrant.metrics.groups import holm

MEASURES = ["nll", "positive_ece", "prevalence_gap"]


def draw(n=3000, seed=0):
    """P(class 1), which is 12 points too high for m, the labels and two columns."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.15, 0.85, n)
    columns = {"sex": rng.choice(["f", "m"], n), "year": rng.choice([2015, 2016], n)}
    labels = (rng.random(n) < p - 0.12 * (columns["sex"] == "m")).astype(int)
    return p, labels, columns


def test_each_group_is_evaluated_like_its_rows_alone():
    p, labels, columns = draw()
    found = calibrant.evaluate(p, labels, groups=columns, metrics=MEASURES, n_resamples=100)
    by = found.by_group
    assert by.names == (
        "sex=f",
        "sex=m",
        "year=2015",
        "year=2016",
        "sex=f, year=2015",
        "sex=f, year=2016",
        "sex=m, year=2015",
        "sex=m, year=2016",
    )
    rows = (columns["sex"] == "m") & (columns["year"] == 2016)
    alone = calibrant.evaluate(p[rows], labels[rows], metrics=MEASURES, n_resamples=100)
    assert by["m", "2016"].evaluation.measured == alone.measured
    assert {group.name for group in by.off} >= {"sex=m", "sex=m, year=2015", "sex=m, year=2016"}
    assert not by["f"].off
    assert by["m"].side == "prevalence off"


def test_all_forms_of_the_result_agree():
    p, labels, columns = draw(800)
    by = calibrant.evaluate(
        p, labels, groups={"sex": columns["sex"]}, metrics=MEASURES, n_resamples=100
    ).by_group
    frame, data = by.to_frame(), json.loads(by.to_json())
    assert frame.sex.tolist() == [group["by"]["sex"] for group in data["groups"]] == ["f", "m"]
    assert frame.nll.tolist() == [
        group["evaluation"]["metrics"]["nll"]["value"] for group in data["groups"]
    ]
    assert {"nll_low", "positive_ece_high", "positive_ece_noise_floor"} <= set(frame.columns)
    assert "sex=m" in str(by)
    assert "sex=m" in by._repr_html_()
    with pytest.raises(KeyError, match="x is no group"):
        by["x"]


def test_groups_lose_the_rows_that_the_samples_lose():
    p, labels, columns = draw(300)
    weight = np.where(np.arange(300) % 3 == 0, 0.0, 1.0)
    ignored = np.where(np.arange(300) % 5 == 0, -1, labels)
    found = calibrant.evaluate(
        p,
        ignored,
        groups={"sex": columns["sex"]},
        metrics=["nll"],
        sample_weight=weight,
        ignore_label=-1,
        n_resamples=20,
    )
    kept = (weight > 0) & (ignored >= 0)
    counts = [group.evaluation.n for group in found.by_group.groups]
    assert counts == [int((kept & (columns["sex"] == sex)).sum()) for sex in "fm"]


def test_several_classes_are_tested_too():
    rng = np.random.default_rng(0)
    truth = 2.0 * rng.normal(size=(1500, 4))
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    group = rng.integers(0, 3, 1500)
    logits = truth * np.where(group == 2, 3.0, 1.0)[:, None]
    by = calibrant.evaluate(
        logits=logits, labels=labels, groups=group, metrics=["ece"], n_resamples=100
    ).by_group
    assert [each.side for each in by.groups] == ["calibrated", "calibrated", "over-confident"]


def test_sums_that_merge_find_the_same():
    p, labels, columns = draw(4000)
    streams = [StreamedEvaluation(), StreamedEvaluation()]
    for i, start in enumerate(range(0, 4000, 500)):
        part = slice(start, start + 500)
        groups = {name: values[part] for name, values in columns.items()}
        streams[i % 2].update(p[part], labels[part], groups=groups)
    streams[0].merge(streams[1])
    streamed = streams[0].result(n_resamples=200).by_group
    whole = calibrant.evaluate(
        p, labels, groups=columns, metrics=MEASURES, n_resamples=200
    ).by_group
    assert streamed.names == whole.names
    for ours, theirs in zip(streamed.groups, whole.groups, strict=True):
        assert ours.evaluation.n == theirs.evaluation.n
        assert ours.side == theirs.side
        for name in MEASURES:
            there = theirs.evaluation[name].value
            assert ours.evaluation[name].value == pytest.approx(there, abs=1e-12)


def test_too_many_groups_are_refused():
    with pytest.raises(CalibrantError, match="at most 500 groups; found 600"):
        calibrant.evaluate(np.full(600, 0.5), np.arange(600) % 2, groups=np.arange(600))


def test_holm_is_bonferroni_for_the_smallest_and_nothing_for_the_largest():
    p_values = [0.04, 0.001, 0.5, 0.02]
    assert holm(p_values) == pytest.approx([0.08, 0.004, 0.5, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@pytest.mark.slow
def test_a_calibrated_model_has_no_group_off():
    alarms = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        p = rng.uniform(0.05, 0.95, 400)
        labels = (rng.random(400) < p).astype(int)
        found = calibrant.evaluate(
            p,
            labels,
            groups=rng.integers(0, 6, 400),
            metrics=["error_rate"],
            n_resamples=20,
            random_state=seed,
        )
        alarms += bool(found.by_group.off)
    assert alarms <= 6  # at 5%, seven or more of 40 have a probability of 0.3%
