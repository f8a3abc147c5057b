"""What the experiments on trained networks compute, checked on runs that are made up."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import calibrant
from calibrant.training.folders import RunFolder
from calibrant.training.grid import folder_of, jobs_of, read_grid
from experiments import kept
from experiments.__main__ import main
from experiments.catalogue import Experiment, catalogue
from experiments.composed_temperature.run import run as composed
from experiments.digits_losses.run import mean_and_half
from experiments.dynamics.networks import networks, pairs
from experiments.dynamics.run import Rise, rise_cells, run as dynamics
from experiments.fitted_images.run import run as fitted_images
from experiments.focal_temperature_trained.networks import complete, trained_networks
from experiments.kept import epoch_at, keep, unpack
from experiments.loss_tables import paper
from experiments.loss_tables.measuring import (
    best_temperature,
    has_learned,
    measure,
    significantly_more_sure,
    top,
)
from experiments.loss_tables.run import COLUMNS, run as loss_tables
from experiments.newsgroups_losses.run import of_other_messages, run as newsgroups_losses
from experiments.results import changed_verdicts, reproduce
from experiments.single_images.run import drawn
from experiments.trained.runs import (
    StoredPredictions,
    TrainedRun,
    finished,
    jobs,
    missing,
    test_logits as logits_of_two,
)

GRIDS = ["grid.toml"]
EPOCHS = 4


def made_up(n, n_classes, sharpness, seed):
    """Logits that are right about their labels where they are divided by ``sharpness``."""
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(n, n_classes))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return (sharpness * logits).astype(np.float32), labels


def record(epoch, *, error, right, wrong, norm):
    part = {
        "n": 100,
        "error": error,
        "nll": (1 - error) * right + error * wrong,
        "nll_correct": right,
        "nll_wrong": wrong,
        "ece": 0.1,
    }
    for name in ("entropy", "true_prob"):
        part |= {name: 0.5, f"{name}_correct": 1 - right, f"{name}_wrong": 1 / norm}
    bins = {"count": [0.0] * 24 + [100.0], "confidence": [None] * 25, "accuracy": [None] * 25}
    gradients = {"mean": norm, "median": norm, "count": [1] * 46}
    train = {**part, "reliability": bins, "gradient_norm": gradients}
    return {"epoch": epoch, "weight_norm": norm, "train": train, "val": part, "test": part}


@pytest.fixture(scope="module", autouse=True)
def nothing_kept(tmp_path_factory):
    """Only the runs that the tests make, whatever is kept in the checkout."""
    with pytest.MonkeyPatch.context() as patched:
        nothing = tmp_path_factory.mktemp("nothing")
        patched.setattr("experiments.kept.unpack.__defaults__", (nothing,))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two losses on two data sets of the first grid, as folders of finished runs.

    Cross-entropy is twice as sure as it should be, and its mistakes become worse; FL-3 is honest.
    """
    root = tmp_path_factory.mktemp("trained")
    for job in jobs(GRIDS):
        recipe = job.recipe
        if recipe.data not in ("digits", "sst-binary") or recipe.loss not in ("ce", "fl-3"):
            continue
        sharpness = 2.0 if recipe.loss == "ce" else 1.0
        place = folder_of(job, root)
        place.mkdir()
        (place / "result.json").write_text(
            json.dumps({"hash": recipe.hash, "test": {"error": 0.4}})
        )
        stored = {
            "hash": recipe.hash,
            "recipe": recipe.to_dict(),
            "files": {},
            "class_names": [str(i) for i in range(10)],
            "data": {"sizes": {"train": 100, "val": 2000, "test": 3000}},
            "gradient_norm_exponents": np.linspace(-8.0, 3.0, 45).tolist(),
        }
        (place / "config.json").write_text(json.dumps(stored))
        arrays = {}
        for seed, (part, n) in enumerate((("val", 2000), ("test", 3000))):
            logits, labels = made_up(n, 10, sharpness, seed)
            arrays |= {f"{part}_logits": logits, f"{part}_labels": labels}
            arrays[f"{part}_ids"] = np.array([f"{part}/{i}" for i in range(n)])
        np.savez(place / "predictions.npz", **arrays)
        lines = [
            record(
                epoch,
                error=0.2,
                right=0.3 - 0.05 * epoch,
                wrong=1.0 + sharpness * (sharpness - 1) * epoch,
                norm=1.0 + 0.5 * sharpness * epoch if sharpness > 1 else 1.2,
            )
            for epoch in range(EPOCHS)
        ]
        (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(root)


@pytest.fixture(scope="module")
def parameters(folder):
    return {
        "grids": GRIDS,
        "folder": folder,
        "tenths": [1, 100],
        "near_one": [0.9, 1.1],
        "learned_below": 0.9,
        "about": "Two made-up networks.",
    }


@pytest.fixture(scope="module")
def tables(parameters):
    return loss_tables(parameters)


def test_the_paper_s_cells_stand_as_they_are_printed():
    cells = paper.cells()
    assert len(cells) == 110 + 8
    assert cells["ece", "before", "CIFAR-100", "ResNet 50"]["ce"] == "17.52"
    assert cells["ece", "T", "20 Newsgroups", "Global Pooling CNN"]["ce"] == "3.40"
    assert cells["ada_ece", "after", "CIFAR-10", "ResNet 110"]["fls-532"] == "1.91"
    assert cells["error", "before", "SST Binary", "Tree LSTM"]["mmce"] == "11.86"
    assert cells["nll", "after", "CIFAR-10", "DenseNet 121"]["fla-532"] == "19.27"
    assert cells["mce", "before", "CIFAR-10", "Wide ResNet 26-10"]["brier"] == "77.15"
    assert cells["s99", "after", "CIFAR-10", "ResNet 110"]["ce"] == "11.5"


def test_the_paper_s_cells_do_not_change_where_its_temperature_is_one():
    cells = paper.cells()
    unscaled = [
        (place, loss)
        for place in paper.networks(cells)
        for loss in paper.LOSSES
        if cells["ece", "T", *place][loss] == "1.00"
    ]
    assert len(unscaled) == 5
    for place, loss in unscaled:
        for quantity in ("ece", "nll", "mce"):
            before, after = (cells[quantity, stage, *place][loss] for stage in ("before", "after"))
            assert before == after, (quantity, place, loss)


def test_counts_of_the_paper_s_cells():
    cells = paper.cells()
    assert paper.smaller(cells, "before", "fla-53", "ce") == 9  # all but SST: 9.19 against 7.37
    assert paper.temperatures_within(cells, "fla-53", 0.9, 1.1) == 7  # 1.20, 1.50 and 0.70 are not


@pytest.mark.parametrize("sharpness", [0.5, 2.0])
def test_the_grid_search_finds_the_temperature(sharpness):
    logits, labels = made_up(8_000, 3, sharpness, seed=5)
    found = best_temperature(logits.astype(float), labels, calibrant.ece, [1, 100])
    assert found == pytest.approx(sharpness, abs=0.1 + 0.05 * sharpness)
    assert round(10 * found) / 10 == found


def test_the_grid_search_takes_the_first_of_equals():
    assert best_temperature(np.zeros((4, 2)), np.array([0, 1, 0, 1]), calibrant.ece, [3, 9]) == 0.3


def test_runs_are_found_by_data_network_and_loss(folder):
    found = finished(GRIDS, folder)
    assert list(found) == [("digits", "mlp"), ("sst-binary", "tree-lstm")]
    assert list(found["digits", "mlp"]) == ["ce", "fl-3"]
    (line,) = missing(GRIDS, found)
    others = "brier, mmce, fl-1, fl-2, fls-531, fls-532, fla-532, fla-53, adafocal"
    assert f"digits mlp: {others}; sst-binary tree-lstm: {others};" in line


def test_a_folder_without_runs_says_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"found none\. Make them with"):
        finished(GRIDS, str(tmp_path))


def test_other_test_samples_are_not_compared(folder):
    runs = finished(GRIDS, folder)["digits", "mlp"]
    a, b = runs["ce"], runs["fl-3"]
    b.__dict__["test"] = b.test._replace(ids=b.test.ids[::-1])
    with pytest.raises(ValueError, match="must have the same test samples"):
        logits_of_two(a, b)


@pytest.mark.slow
def test_a_loss_that_is_honest_wins_before_scaling_alone(tables):
    values = tables.values
    pair = "FL-3 against cross-entropy, ECE"
    assert values[f"{pair} before T: significantly smaller"] == 2
    assert values[f"{pair} after T: noise"] == 2
    assert values["cross-entropy: T by ECE from 0.9 to 1.1"] == 0
    assert values["FL-3: T by ECE from 0.9 to 1.1"] == 2
    assert values["digits, mlp, cross-entropy: T by ECE"] == pytest.approx(2.0, abs=0.2)
    difference = values["digits, mlp: ECE % before T, FL-3 minus cross-entropy"]
    runs = [made_up(3000, 10, sharpness, seed=1) for sharpness in (1.0, 2.0)]
    honest, bold = (100 * calibrant.ece(logits=x.astype(float), labels=y) for x, y in runs)
    assert difference == pytest.approx(honest - bold)


def test_a_network_that_names_the_commonest_class_has_learned_nothing(folder):
    run = finished(GRIDS, folder)["digits", "mlp"]["ce"]
    share = np.bincount(run.test.labels).max() / len(run.test.labels)
    idle = replace(run, result={"test": {"error": 1.0 - share}})
    assert has_learned(run, 0.9)
    assert not has_learned(idle, 0.9)


def test_the_training_error_is_that_of_the_stored_epoch(folder):
    runs = finished(GRIDS, folder)
    for place, expected in ((("digits", "mlp"), 0.3), (("sst-binary", "tree-lstm"), 0.2)):
        run = runs[place]["ce"]
        assert run.recipe.choice == ("last" if place[0] == "digits" else "best")
        # Training errors 0.4, 0.2, 0.1 and 0.3; the second epoch is the first of the two best.
        errors = zip((0.4, 0.2, 0.1, 0.3), (0.5, 0.1, 0.1, 0.2), strict=True)
        records = [{"train": {"error": a}, "val": {"error": b}} for a, b in errors]
        run.__dict__["records"] = records
        assert run.training_error == expected


@pytest.mark.slow
def test_one_data_set_is_shown_without_the_others(parameters):
    found = newsgroups_losses(parameters)
    assert {row[0] for row in found.tables["ece"].rows} == {"20 Newsgroups"}
    assert found.tables["differences"].rows
    assert not [name for name in found.values if name.startswith("the paper's ten")]


@pytest.mark.slow
def test_losses_of_no_printed_cell_are_shown_without_the_paper_s_rows(parameters):
    found = fitted_images(parameters)
    table = found.tables["ece"]
    assert [row[:2] for row in table.rows] == [["sst-binary", "tree-lstm"], ["digits", "mlp"]]
    assert table.head[2:] == ["cross-entropy", "FL-3"]
    assert not [name for name in found.values if name.startswith("the paper's ten")]


def test_a_range_holds_what_was_seen_and_is_narrower_for_more_messages(folder):
    one = measure(finished(GRIDS, folder)["digits", "mlp"]["ce"], [5, 40])
    n = {"test_messages": len(one.run.test.labels), "val_messages": len(one.run.val.labels)}
    widths = []
    for times in (1, 30):
        theirs = {name: times * size for name, size in n.items()}
        ranges = of_other_messages(one, {"tenths": [5, 40], "draws": 60, "seed": 0} | theirs)
        assert set(ranges) == set(paper.QUANTITIES)
        low, high = ranges["nll", "before"]
        widths.append(high - low)
        if times == 1:
            for (quantity, stage), (low, high) in ranges.items():
                seen = one.temperature[quantity] if stage == "T" else one.cells[quantity, stage]
                assert 0 <= low <= seen <= high
    assert widths[1] / widths[0] == pytest.approx(((1 + 1 / 30) / 2) ** 0.5, rel=0.15)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:temperature. the best point is at a bound")
def test_a_range_holds_the_calibration_error_of_another_sample():
    """Also where the network is calibrated, and all that is printed is noise."""
    rng = np.random.default_rng(0)

    def sample(n):
        logits = 1.5 * rng.normal(size=(n, 3))
        labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        return StoredPredictions(logits, labels, np.arange(n).astype(str))

    parameters = {"tenths": [3, 40], "draws": 40, "seed": 1}
    parameters |= {"test_messages": 600, "val_messages": 200}
    inside, times = 0, 40
    for _ in range(times):
        run = TrainedRun(None, None, {})
        run.__dict__.update(val=sample(200), test=sample(300))
        low, high = of_other_messages(measure(run, [3, 40]), parameters)["ece", "before"]
        other = sample(600)
        inside += low <= 100 * calibrant.ece(logits=other.logits, labels=other.labels) <= high
    assert inside >= 34  # of 95% in truth, fewer have a probability of 1%


def test_tables_have_the_paper_s_rows_and_ours(tables):
    rows = tables.tables["ece"].rows
    assert all(len(row) == 3 + len(COLUMNS) for row in rows)
    assert [row[:3] for row in rows[-3:]] == [
        ["SST Binary", "Tree LSTM", "paper"],
        ["sst-binary", "tree-lstm", "here"],
        ["digits", "mlp", "here"],
    ]
    assert rows[0][3] == "17.52 / 3.42 (2.10)"
    assert rows[-1][4] == "not run here"


def test_the_rise_of_the_nll_is_divided_into_right_and_wrong():
    rise = Rise.of(
        [
            record(0, error=0.5, right=1.0, wrong=2.0, norm=1.0),
            record(1, error=0.25, right=0.4, wrong=2.0, norm=1.0),
            record(2, error=0.2, right=0.25, wrong=4.0, norm=1.0),
        ]
    )
    assert rise.epoch == 2
    assert rise.total == pytest.approx(0.2 * 4.0 + 0.8 * 0.25 - (0.25 * 2.0 + 0.75 * 0.4))
    assert rise.from_wrong == pytest.approx(0.2 * 4.0 - 0.25 * 2.0)
    assert rise.mean_correct == pytest.approx(-0.15)


def test_the_rise_over_seeds_is_a_mean_with_its_range():
    [job] = [job for job in jobs(GRIDS) if (job.recipe.data, job.recipe.loss) == ("digits", "ce")]
    runs = []
    for last in (3.0, 4.0):
        run = TrainedRun(job, None, {})
        first = record(0, error=0.5, right=0.4, wrong=1.0, norm=1.0)
        run.__dict__["records"] = [first, record(1, error=0.5, right=0.2, wrong=last, norm=1.0)]
        runs.append(run)
    values = {}
    cells = rise_cells(values, "digits, mlp", runs)
    assert cells == ["2", "1", "2", "1.1500 (0.9000 to 1.4000)", "109 %", "-0.2000", "+2.5000"]
    assert values == {
        f"digits, mlp, cross-entropy: {name}": pytest.approx(value)
        for name, value in {
            "rise of the test NLL after its lowest epoch": 1.15,
            "part of that rise from mistakes": 1.25 / 1.15,
            "rise of the mean NLL of correct samples": -0.2,
            "rise of the mean NLL of wrong samples": 2.5,
        }.items()
    }


def test_long_runs_of_several_seeds_take_the_place_of_a_short_one(folder, tmp_path):
    [short] = [
        folder_of(job, Path(folder))
        for job in jobs(GRIDS)
        if (job.recipe.data, job.recipe.loss) == ("sst-binary", "ce")
    ]
    made = {("ce", 0), ("ce", 1), ("fl-3", 1)}
    for job in jobs(["sst.toml"]):
        if (job.recipe.loss, job.recipe.seed) in made:
            place = folder_of(job, tmp_path)
            shutil.copytree(short, place)
            (place / "result.json").write_text(json.dumps({"hash": job.recipe.hash}))
    found, (absent,) = networks({"grids": GRIDS, "folder": folder, "long": {"sst.toml": tmp_path}})
    assert set(found) == {("digits", "mlp"), ("sst-binary", "tree-lstm")}
    runs = found["sst-binary", "tree-lstm"]
    assert {(loss, run.recipe.seed) for loss in runs for run in runs[loss]} == made
    assert {run.recipe.epochs for loss in runs for run in runs[loss]} == {25}
    assert [len(each) for each in found["digits", "mlp"].values()] == [1, 1]
    # Only runs with the same seed are compared.
    [(focal, plain)] = pairs(runs, "fl-3", "ce")
    assert (focal.recipe.loss, plain.recipe.loss) == ("fl-3", "ce")
    assert focal.recipe.seed == plain.recipe.seed == 1
    assert "sst-binary tree-lstm: ce (3 runs), label-smoothing (5 runs), brier" in absent
    # The short run is not read, also where no long one is there.
    found, (absent,) = networks(
        {"grids": GRIDS, "folder": folder, "long": {"sst.toml": tmp_path / "none"}}
    )
    assert set(found) == {("digits", "mlp")}
    assert "sst-binary tree-lstm: ce (5 runs)" in absent


@pytest.mark.slow
def test_the_paper_s_sentences_are_counted(folder):
    moments = {"reliability_at": [0.3, 1.0], "gradients_at": [0.03, 0.3, 0.6]}
    result = dynamics({"grids": GRIDS, "folder": folder, "long": {}, "sure": 0.8, **moments})
    values = result.values
    assert values["test NLL rises after its lowest epoch, cross-entropy"] == 2
    assert values["of these: all of the rise is of mistakes"] == 2
    assert values["test NLL rises less with FL-3 than with cross-entropy"] == 2
    for when in ("after the first epoch", "in any epoch"):
        name = f"last-layer norm larger with FL-3 {when}, smaller after the last"
        assert values[name] == 2
    assert values["digits, mlp: epochs in which FL-3 has the larger last-layer norm"] == 1
    assert set(result.pictures) == {
        f"{place}-{what}"
        for place in ("digits-mlp", "sst-binary-tree-lstm")
        for what in ("overfitting", "reliability", "losses", "gradients")
    }


@pytest.mark.parametrize(
    ("moment", "epochs", "place"), [(1.0, 12, 11), (0.029, 10, 0), (0.571, 350, 199)]
)
def test_moments_of_the_paper_s_runs_in_ours(moment, epochs, place):
    assert epoch_at(moment, epochs) == place


def test_the_interval_over_seeds_is_student_s():
    # The t quantile of 4 degrees of freedom is 2.776; the sample deviation of 1..5 is 1.5811.
    mean, half = mean_and_half(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert mean == 3.0
    assert half == pytest.approx(2.7764 * 1.5811 / 5**0.5, rel=1e-4)


def test_confidence_and_choice_of_images():
    logits = np.array([[1000.0, 0.0], [0.0, np.log(3.0)]])
    assert top(logits) == pytest.approx([1.0, 0.75])
    places = np.arange(10, 20)
    chosen = drawn(places, {"seed": 0, "images": 4})
    assert len(chosen) == 4
    assert set(chosen) <= set(places)
    assert (chosen == drawn(places, {"seed": 0, "images": 4})).all()


def test_other_runs_in_the_folder_are_not_mixed_with_those_of_the_grids(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    [job] = [job for job in jobs(GRIDS) if (job.recipe.data, job.recipe.loss) == ("digits", "ce")]
    longer = replace(job, recipe=replace(job.recipe, epochs=1000))
    shutil.copytree(folder_of(job, tmp_path), folder_of(longer, tmp_path))
    found = trained_networks(GRIDS, str(tmp_path))
    assert {place: list(by_loss) for place, by_loss in found.items()} == {
        ("digits", "mlp"): ["ce", "fl-3"],
        ("sst-binary", "tree-lstm"): ["ce", "fl-3"],
    }
    assert found["digits", "mlp"]["ce"].path.parent == folder_of(job, tmp_path)


def test_only_places_with_all_losses_have_numbers(folder):
    found = trained_networks(GRIDS, folder)
    whole = complete({("digits", "mlp"): found["digits", "mlp"], ("b", "c"): {}}, ["fl-3", "ce"])
    assert {place: list(by_loss) for place, by_loss in whole.items()} == {
        ("digits", "mlp"): ["fl-3", "ce"]
    }


@pytest.mark.slow
def test_a_product_of_temperatures_is_compared_with_what_is_found(folder):
    parameters = {"grids": GRIDS, "folder": folder, "long": {}, "n_classes": 3, "gammas": [3.0]}
    result = composed(parameters)
    # T is 2 for cross-entropy and 1 for FL-3, and the map's T on the simplex of 3 classes 0.356.
    assert result.values["pairs trained here"] == 2
    ratio = result.values["found / composed, trained here, map's T on the simplex"]
    assert ratio == pytest.approx(1.0 / (2.0 * 0.3563), rel=0.05)
    assert result.values["networks trained here"] == result.values["data sets trained here"] == 2
    interval = "found / composed, trained here, map's T on the simplex: 95% from"
    assert interval not in result.values  # of two networks it would be useless


def test_sure_predictions_differ_surely_or_not(folder):
    runs = finished(GRIDS, folder)["digits", "mlp"]
    plain, focal = (measure(runs[loss], [1, 100]) for loss in ("ce", "fl-3"))
    assert significantly_more_sure(plain, focal, "before") == 1  # twice as sure as it should be
    assert significantly_more_sure(focal, plain, "before") == -1
    assert significantly_more_sure(focal, focal, "before") == 0
    assert significantly_more_sure(focal, plain, "after") == 0  # both are honest then


def test_a_kept_run_is_read_as_it_was(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.kept.MOST_ROWS", {"val": 5_000, "test": 5_000})
    assert keep(Path(folder), tmp_path / "kept") == 4
    unpack(jobs(GRIDS), tmp_path / "out", tmp_path / "kept")
    before, after = finished(GRIDS, folder), finished(GRIDS, str(tmp_path / "out"))
    assert {place: list(runs) for place, runs in after.items()} == {
        place: list(runs) for place, runs in before.items()
    }
    for place, runs in before.items():
        for loss, run in runs.items():
            again = after[place][loss]
            error = [r.result["test"]["error"] for r in (run, again)]
            assert error[0] == pytest.approx(error[1], rel=1e-6)
            assert [sorted(r) for r in again.records] == [sorted(r) for r in run.records]
            wrong = [r.records[-1]["test"]["nll_wrong"] for r in (run, again)]
            assert wrong[0] == pytest.approx(wrong[1], rel=1e-6)
            assert again.sizes == run.sizes
            assert (again.test.labels == run.test.labels).all()
            assert (again.test.ids == run.test.ids).all()
            seen = [calibrant.nll(logits=r.test.logits, labels=r.test.labels) for r in (run, again)]
            assert seen[0] == pytest.approx(seen[1], rel=1e-3)
            predicted = [r.test.logits.argmax(axis=1) for r in (run, again)]
            assert (predicted[0] == predicted[1]).all()
            error = [
                calibrant.ece(logits=r.test.logits, labels=r.test.labels) for r in (run, again)
            ]
            assert error[0] == pytest.approx(error[1], abs=2e-3)


def test_runs_are_kept_without_their_epochs(folder, tmp_path):
    keep(Path(folder), tmp_path / "kept", epochs=False)
    unpack(jobs(GRIDS), tmp_path / "out", tmp_path / "kept")
    runs = finished(GRIDS, str(tmp_path / "out"))["digits", "mlp"]
    whole = finished(GRIDS, folder)["digits", "mlp"]
    assert list(runs) == list(whole)
    assert [len(run.records) for run in runs.values()] == [1] * len(runs)
    assert runs["ce"].training_error == whole["ce"].training_error
    assert set(runs["ce"].test.ids) < set(whole["ce"].test.ids)


@pytest.mark.slow
def test_kept_rows_are_the_same_in_all_runs_and_if_kept_twice(folder, tmp_path):
    """Some runs are packed from their training, others from an archive of fewer or more rows."""
    keep(Path(folder), tmp_path / "kept")
    unpack(jobs(GRIDS), tmp_path / "out", tmp_path / "kept")
    runs = finished(GRIDS, str(tmp_path / "out"))["digits", "mlp"]
    assert len(runs["ce"].test.ids) == kept.MOST_ROWS["test"]
    assert (runs["ce"].test.ids == runs["fl-3"].test.ids).all()
    whole = finished(GRIDS, folder)["digits", "mlp"]["ce"].test
    rows = np.isin(whole.ids, runs["ce"].test.ids)
    assert (whole.labels[rows] == runs["ce"].test.labels).all()
    keep(tmp_path / "out", tmp_path / "again")
    for path in (tmp_path / "kept").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_a_run_that_was_unpacked_is_not_rounded_again(folder, tmp_path):
    keep(Path(folder), tmp_path / "kept")
    before = {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()}
    unpack(jobs(GRIDS), tmp_path / "out", tmp_path / "kept")
    for run in (tmp_path / "out").iterdir():
        with np.load(run / "predictions.npz") as stored:
            arrays = dict(stored.items())
        arrays["test_logits"] = arrays["test_logits"].astype(np.float16) * 1.01
        np.savez(run / "predictions.npz", **arrays)
    keep(tmp_path / "out", tmp_path / "kept")
    assert {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()} == before


@pytest.mark.parametrize("n_epochs", [1, 4, 40, 200])
def test_histograms_are_kept_of_the_epochs_that_are_drawn(n_epochs):
    train = {"error": 0.1, **{name: {"count": [1, 2]} for name in kept.HISTOGRAMS}}
    others = {"val": {"error": 0.2, "nll": 0.3}, "test": {"nll": 0.4}, "seconds": {"train": 5.0}}
    records = [{"epoch": epoch, "train": train, **others} for epoch in range(n_epochs)]
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    once = kept.with_what_is_read(lines)
    assert kept.with_what_is_read(once) == once
    assert json.loads(once.splitlines()[0]).keys() == {"epoch", "train", "val", "test"}
    found = [json.loads(line) for line in once.splitlines()]
    assert [(each["epoch"], each["train"]["error"]) for each in found] == [
        (epoch, 0.1) for epoch in range(n_epochs)
    ]
    shown = catalogue()["dynamics"].config["parameters"]
    drawn = {epoch_at(part, n_epochs) for part in shown["reliability_at"] + shown["gradients_at"]}
    whole = {each["epoch"] for each in found if each["train"] == train}
    assert whole == drawn | {0}


def test_what_is_kept_is_listed(folder, tmp_path):
    keep(Path(folder), tmp_path / "kept")
    lines = (tmp_path / "kept" / "README.md").read_text().splitlines()
    assert lines[-2:] == [
        "| `digits_mlp.tar.xz` | 2: ce, fl-3; 40 epochs |",
        "| `sst-binary_tree-lstm.tar.xz` | 2: ce, fl-3; 10 epochs |",
    ]


def test_the_list_of_kept_runs_is_up_to_date():
    found = kept.ABOUT + "".join(kept.listed(kept.KEPT))
    assert (kept.KEPT / "README.md").read_text() == found, "python -m experiments keep FOLDER"


def test_a_grid_is_not_trained_again_where_it_is_kept(folder, tmp_path, monkeypatch, capsys):
    keep(Path(folder), tmp_path / "kept")
    monkeypatch.setattr("experiments.kept.unpack.__defaults__", (tmp_path / "kept",))
    grid = tmp_path / "grid.toml"
    grid.write_text('data = "digits"\nloss = ["ce", "fl-3"]\npreset = "cpu"\n')
    main(["unpack", str(grid), "-o", str(tmp_path / "out")])
    assert "2 of 2 runs" in capsys.readouterr().out
    for job in jobs_of(read_grid(grid)):  # what calibrant train --grid takes for finished
        result = RunFolder(folder_of(job, tmp_path / "out")).read_result()
        assert result["hash"] == job.recipe.hash


def test_runs_in_the_folder_are_not_replaced(folder, tmp_path):
    keep(Path(folder), tmp_path / "kept")
    shutil.copytree(folder, tmp_path / "out")
    place = next(path for path in (tmp_path / "out").iterdir() if path.is_dir())
    (place / "metrics.jsonl").write_text("")
    unpack(jobs(GRIDS), tmp_path / "out", tmp_path / "kept")
    assert (place / "metrics.jsonl").read_text() == ""


def test_what_is_kept_is_small(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.kept.MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=r"at most 1,000 bytes together; found .* Keep fewer"):
        keep(Path(folder), tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
    with pytest.raises(FileNotFoundError, match="must hold finished runs"):
        keep(tmp_path)


@pytest.mark.parametrize(
    ("name", "runs", "epochs"),
    [
        ("sst.toml", 60, 25),
        ("sst_schedule.toml", 10, 25),
        ("newsgroups_random.toml", 10, 50),
        ("cifar10_s.toml", 8, 200),
        ("more_losses.toml", 24, None),
        ("more_losses_resnet20.toml", 12, 30),
    ],
)
def test_a_long_grid_can_be_started(name, runs, epochs):
    found = jobs([name])
    assert len(found) == runs
    assert all(epochs in (None, job.recipe.epochs) for job in found)


@pytest.mark.slow
def test_runs_that_are_missing_are_named_and_neither_compared_nor_published(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setattr("experiments.trained.runs.unpack", lambda jobs, folder: None)
    for name in ("loss-tables", "dynamics", "composed-temperature"):
        real = catalogue()[name]
        monkeypatch.setitem(real.config["parameters"], "folder", folder)
        before = (real.folder / "result.json").read_bytes()
        (line,) = reproduce(real, tmp_path / name, publish=True)
        assert line.startswith(f"{name}: incomplete, and not compared: Not finished, and left out:")
        assert "digits mlp: brier, mmce" in line
        assert (real.folder / "result.json").read_bytes() == before
        values = json.loads((tmp_path / name / "result.json").read_text())["values"]
        monkeypatch.setattr(Experiment, "hash", real.published()["config_hash"])
        changed_verdicts(real, values)  # says what changes, and does not fail
