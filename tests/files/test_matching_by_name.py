"""Classes are matched by name, whatever the order of columns and the type of labels."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrant
from calibrant import CalibrantError
from calibrant.files import read_predictions
from tests.files.test_named_columns import write
from tests.processes import run_calibrant

N = 300
RNG = np.random.default_rng(1)
P = RNG.random(N)
Y = (RNG.random(N) < P).astype(np.int64)
ERROR = float(((P > 0.5) != Y).mean())


def run(*arguments):
    result = run_calibrant(*[str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"True": P, "False": 1 - P}),
        pd.DataFrame({True: P, False: 1 - P}),
        pl.DataFrame({"prob_true": P, "prob_false": 1 - P}),
    ],
)
def test_booleans_are_named_in_a_frame(frame):
    assert calibrant.error_rate(frame, Y == 1) == pytest.approx(ERROR)


def test_numbered_columns_of_a_frame_in_any_order():
    frame = pd.DataFrame({"prob_1": P**2, "prob_0": 1 - P**2})
    fitted = calibrant.PlattScaling().fit(probs=frame, labels=Y)
    turned = fitted.predict_proba(probs=frame[["prob_0", "prob_1"]])
    np.testing.assert_array_equal(turned["prob_1"], fitted.predict_proba(probs=frame)["prob_1"])


NAMED = {
    "true.csv": {"label": np.where(Y == 1, "true", "false"), "prob_true": P, "prob_false": 1 - P},
    "true.parquet": {"label": Y == 1, "prob_True": P, "prob_False": 1 - P},
    "true.npz": {
        "probs": np.stack([P, 1 - P], axis=1),
        "labels": Y == 1,
        "class_names": ["True", "False"],
    },
    "one.npz": {"probs": np.stack([P, 1 - P], axis=1), "labels": Y, "class_names": ["1", "0"]},
}


@pytest.mark.parametrize("name", NAMED)
def test_labels_are_matched_in_files(tmp_path, name):
    read = read_predictions(write(tmp_path / name, NAMED[name]))
    assert (read.probs.argmax(axis=1) != read.labels).mean() == pytest.approx(ERROR)


def test_numbers_from_1_are_matched_to_columns(tmp_path):
    columns = {"y": Y + 1, "p_1": 0.9 * (1 - P), "p_2": 0.9 * P, "p_3": np.full(N, 0.1)}
    file = write(tmp_path / "a.csv", columns)
    read = read_predictions(file, label="y", score=["p_1", "p_2", "p_3"])
    np.testing.assert_array_equal(read.labels, Y)


def test_both_files_of_a_comparison_have_one_order(tmp_path):
    animals = np.array(["cat", "dog"])[Y]
    val = write(tmp_path / "v.csv", {"label": animals, "prob_cat": 1 - P**2, "prob_dog": P**2})
    test = write(tmp_path / "t.csv", {"label": animals, "prob_dog": P**2, "prob_cat": 1 - P**2})
    methods = ("--methods", "identity,auto")
    assert "Calibrate it with auto" in run("compare", val, test, *methods)
    said = run("report", val, test, *methods, "-o", tmp_path / "page.html")
    assert "Calibrate it with auto" in said


def test_a_score_is_what_it_was_in_the_fit(tmp_path):
    logits = np.log(P / (1 - P))
    fit_on = write(tmp_path / "fit.csv", {"y_true": Y, "y_score": logits})
    run("fit", fit_on, "--method", "platt", "-o", tmp_path / "cal.json")
    for name, scores in (("a", [0.7, 0.2]), ("b", [0.7, 0.2, -3.0])):
        file = write(tmp_path / f"{name}.csv", {"y_score": scores})
        run("apply", tmp_path / "cal.json", file, "-o", tmp_path / f"{name}_out.csv")
    a, b = (read_predictions(tmp_path / f"{name}_out.csv").probs for name in "ab")
    np.testing.assert_array_equal(a, b[:2])


def test_the_positive_class_is_that_of_the_fit(tmp_path):
    file = write(tmp_path / "a.csv", {"label": Y, "prob": 1 - P**2})
    run("fit", file, "--positive", "0", "--method", "platt", "-o", tmp_path / "cal.json")
    run("apply", tmp_path / "cal.json", file, "-o", tmp_path / "out.npz")
    out = read_predictions(tmp_path / "out.npz")
    assert out.class_names == ("1", "0")
    np.testing.assert_array_equal(out.labels, 1 - Y)


def test_confidences_need_not_be_judged_to_be_calibrated(tmp_path):
    file = write(tmp_path / "a.csv", {"confidence": P, "correct": Y})
    run("fit", file, "--method", "platt", "-o", tmp_path / "cal.json")
    alone = write(tmp_path / "b.csv", {"confidence": [0.5, 0.6]})
    run("apply", tmp_path / "cal.json", alone, "-o", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().startswith('"confidence"')


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "lost.csv", "--label", "y", "--score", "risk"), "written as prob, which the file"),
        (("evaluate", "missing.csv", "--positive", "yes"), "found"),
    ],
)
def test_nothing_is_lost_or_made_up(tmp_path, arguments, message):
    write(tmp_path / "lost.csv", {"y": Y, "prob": P, "risk": P**2})
    write(tmp_path / "missing.csv", {"label": ["", "yes", "no"], "prob": P[:3]})
    command, file, *named = arguments
    output = ()
    if command == "fit":
        cal = tmp_path / "cal.json"
        run("fit", tmp_path / file, *named, "--method", "platt", "-o", cal)
        command, output = "apply", (cal,)
        named = [*named, "-o", str(tmp_path / "out.csv")]
    result = run_calibrant(command, *map(str, output), str(tmp_path / file), *named)
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "out.csv").exists()


REFUSED = {
    "row index of the scores": lambda: calibrant.nll(
        pd.Series(P), pd.Series(Y).sample(frac=1.0, random_state=0)
    ),
    "must not be missing": lambda: calibrant.nll(P, pd.Series([None, *Y[1:]], dtype="Int64")),
    "found complex128": lambda: calibrant.nll(P, Y + 0j),
    "a column for each class; found none": lambda: calibrant.nll(pd.DataFrame(), Y),
    "classes must be one different label": lambda: calibrant.nll(P, Y, classes=5),
    "positive must be one of the labels": lambda: calibrant.nll(
        P, np.array(["no", "yes"])[Y], classes=["a", "b"], positive="yes"
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_surely_wrong_is_refused(message):
    with pytest.raises(CalibrantError, match=message):
        REFUSED[message]()


def test_a_table_of_another_kind_of_labels_is_not_saved(tmp_path):
    fitted = calibrant.TemperatureScaling().fit(
        probs=P, labels=[("a", y) for y in Y.tolist()], positive=("a", 1)
    )
    with pytest.raises(CalibrantError, match="labels of text or numbers"):
        fitted.save(tmp_path / "cal.json")


def test_a_dictionary_of_labels_is_read(tmp_path):
    table = pa.table({"label": pa.array(["b", "a", "b"]).dictionary_encode(), "prob": P[:3]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert read_predictions(tmp_path / "a.parquet", positive="b").labels.tolist() == [1, 0, 1]
