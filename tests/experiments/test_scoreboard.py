"""The scoreboard: what a file becomes, which sets are averaged, and what is called significant."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.learning_curves.measuring import Fits
from experiments.learning_curves.run import error_over_draws, groups
from experiments.scoreboard import measuring, tables
from experiments.scoreboard.measuring import Result
from experiments.scoreboard.methods import AUTO, Fitted, Method
from experiments.scoreboard.networks import NETWORKS, Network, families, of_group
from experiments.scoreboard.run import changes

CONFIDENCES = "Stated confidences"


def saved(path: Path, **columns: list[float]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = {
        f"{part}_{name}": values for part in ("val", "test") for name, values in columns.items()
    }
    np.savez(path, **parts)
    return path


@pytest.fixture
def stated(tmp_path: Path) -> Network:
    saved(tmp_path / "confidence" / "model.npz", confidence=[0.9, 1.0, 0.2], correct=[1, 0, 0])
    (found,) = of_group(CONFIDENCES, tmp_path / "logits", tmp_path / "out")
    return found


def test_a_stated_confidence_is_two_columns_and_the_label_whether_it_was_correct(stated):
    logits, labels = stated.part("test")
    odds = np.exp(logits[:, 1] - logits[:, 0])
    np.testing.assert_allclose(odds[[0, 2]], [9.0, 0.25])
    assert np.isfinite(logits).all()  # also of a stated 1
    np.testing.assert_array_equal(labels, [1, 0, 0])


def test_sets_of_paper_1_are_no_members_of_the_public_families(tmp_path):
    columns = {"logits": [[1.0, 0.0]], "labels": [0]}
    public = Network.of(saved(tmp_path / "logits" / "c10_a.npz", **columns))
    saved(tmp_path / "mukhoti" / "c10_b.npz", **columns)
    saved(tmp_path / "mukhoti" / "cifar10h.npz", counts=[1])
    (paper,) = of_group("Networks of paper 1", tmp_path / "logits", tmp_path / "out")
    found = families([public, paper])
    assert found["CIFAR-10"] == found["All"] == [public]
    assert found["Networks of paper 1"] == [paper]
    assert public.group == NETWORKS


def test_a_changed_prediction_counts_and_a_tie_does_not(stated):
    swapped = Method("swapped", "calibrant", lambda logits, labels: Fitted(swap, {}))
    values = measuring.measure(stated, swapped).values
    assert values["changed"] == 1.0
    assert values["accuracy"] == pytest.approx(1 / 3)
    assert values["positive_ada_ece"] > 0.5


def swap(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits)[:, ::-1]


def results(method: str, nll: list[float], changed: float = 0.0) -> list[Result]:
    values = {"nll": 0.0, "ada_ece": 0.01, "accuracy": 0.9, "changed": changed}
    floors = {"ada_ece": 0.01, "ece": 0.01}
    resampled = {
        "nll": np.zeros(200),
        "ada_ece": np.full(200, 0.01),
        "ada_ece_noise": np.zeros(200),
    }
    return [
        Result(
            f"s{i}", method, values | {"nll": x}, floors, resampled | {"nll": np.full(200, x)}, {}
        )
        for i, x in enumerate(nll)
    ]


def test_a_lower_mean_is_named_with_whether_it_is_significant():
    rows = {
        AUTO: results(AUTO, [0.5, 0.6, 0.7]),
        "alike": results("alike", [0.4, 0.501, 0.599]),
        "mixed": results("mixed", [0.2, 0.7, 0.8]),
        "worse": results("worse", [0.6, 0.7, 0.8]),
    }
    family = tables.summarise("f", rows, [("nll", AUTO), ("ada_ece", AUTO)])
    assert [row.method for row in family.rows] == ["alike", "mixed", AUTO, "worse"]
    said = tables.lower(family, "nll", AUTO)
    assert "alike -0.1000 [-0.1000, -0.1000] (over samples significant, over sets signif" in said
    assert "(over samples significant, over sets not significant)" in said
    assert "worse" not in said
    assert tables.lower(family, "ada_ece", AUTO) == "Lower ada_ece than auto: none."


def test_columns_that_no_set_has_are_left_out():
    found = [replace(r, values=r.values | {"brier": 0.1}) for r in results(AUTO, [0.5, 0.6])]
    family = tables.summarise("f", {AUTO: found}, [("nll", AUTO)])
    head, cells = tables.head_and_cells(family, [("nll", AUTO)])
    assert "positive_ada_ece %" not in head
    assert {len(line) for line in cells} == {len(head)}


def test_what_changing_the_class_gains_is_over_the_sets_where_it_changes(tmp_path):
    columns = {"logits": [[1.0, 0.0]], "labels": [0]}
    networks = [Network.of(saved(tmp_path / f"s{i}.npz", **columns)) for i in range(2)]
    free, kept = results(AUTO, [0.5, 0.6]), results("auto, keep_class=True", [0.7, 0.6])
    free[0] = replace(free[0], values=free[0].values | {"changed": 0.25})
    assert "| All | 2 | 1 | 25.00 | 0.00 | -0.2000 | 0.00 |" in changes(networks, [*free, *kept])


def test_the_groups_of_the_learning_curves_are_disjoint(tmp_path):
    columns = {"logits": [[1.0, 0.0]], "labels": [0]}
    names = ("c100_0", "c10_0", "c10_1", "other")
    networks = [Network.of(saved(tmp_path / f"{name}.npz", **columns)) for name in names]
    found = [n.name for members in groups(networks).values() for n in members]
    assert sorted(found) == sorted(names)


def test_the_error_over_draws_is_of_the_mean_over_sets_that_share_them(tmp_path):
    def fits(auto: list[float]) -> Fits:
        values = {"nll": {"auto": np.array(auto), "temperature": np.zeros(len(auto))}}
        network = Network("s", tmp_path, 2, 1, "0", "0")
        return Fits(network, 20, values, np.zeros((len(auto), 1)), ("auto",) * len(auto), {})

    together = [fits([0.1, 0.3]), fits([0.1, 0.3])]
    assert error_over_draws(together) == pytest.approx(0.1)
    assert error_over_draws([fits([0.1, 0.3]), fits([0.3, 0.1])]) == pytest.approx(0.0)
    assert np.isnan(error_over_draws([fits([0.1])]))
