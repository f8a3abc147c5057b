"""Files with one column of scores, columns named after classes, and labels of any type."""

import csv
import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from calibrant import CalibrantError
from calibrant.cli import main
from calibrant.files import iter_predictions, read_predictions, write_predictions

N = 200
RNG = np.random.default_rng(0)
P = RNG.random(N)
Y = (RNG.random(N) < P).astype(np.int64)
TEXT = np.array(["no", "yes"])[Y].tolist()
L = RNG.normal(size=(N, 3))
P3 = np.exp(L) / np.exp(L).sum(axis=1, keepdims=True)
Y3 = (L + RNG.gumbel(size=L.shape)).argmax(axis=1)
TEXT3 = np.array(["cat", "dog", "owl"])[Y3].tolist()
YES = {"positive": "yes"}


def write(path, columns):
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(columns)
            rows.writerows(zip(*[list(column) for column in columns.values()], strict=True))
    elif path.suffix == ".parquet":
        pq.write_table(pa.table({name: pa.array(list(c)) for name, c in columns.items()}), path)
    else:
        np.savez(path, **{name: np.asarray(column) for name, column in columns.items()})
    return path


ONE_COLUMN = {
    "y_true, y_score": ({"y_true": Y, "y_score": P}, {}, None),
    "target, prob": ({"target": Y, "prob": P}, {}, None),
    "logit": ({"label": Y, "logit": np.log(P) - np.log1p(-P)}, {}, None),
    "score outside 0 to 1": ({"label": Y, "score": np.log(P) - np.log1p(-P)}, {}, None),
    "signs": ({"label": 2 * Y - 1, "prob": P}, {}, ("-1", "1")),
    "booleans": ({"label": Y.astype(bool), "prob": P}, {}, None),
    "text": ({"label": TEXT, "prob": P}, YES, ("no", "yes")),
    "names of their own": (
        {"outcome": TEXT, "risk": P},
        {"label": "outcome", "score": "risk", **YES},
        ("no", "yes"),
    ),
}


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
@pytest.mark.parametrize("what", ONE_COLUMN)
def test_one_column(tmp_path, ending, what):
    columns, named, classes = ONE_COLUMN[what]
    file = write(tmp_path / f"file{ending}", columns)
    read = read_predictions(file, **named)
    assert read.single
    assert read.class_names == classes
    np.testing.assert_array_equal(read.labels, Y)
    if read.probs is None:
        np.testing.assert_allclose(read.logits[:, 1] - read.logits[:, 0], np.log(P / (1 - P)))
    else:
        np.testing.assert_allclose(read.probs, np.stack([1 - P, P], axis=-1), rtol=1e-14)
    batches = list(iter_predictions(file, batch_rows=64, **named))
    np.testing.assert_array_equal(np.concatenate([batch.labels for batch in batches]), Y)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_columns_named_after_classes(tmp_path, ending):
    turned = {f"prob_{name}": P3[:, k] for k, name in ((2, "owl"), (0, "cat"), (1, "dog"))}
    read = read_predictions(write(tmp_path / f"a{ending}", {"label": TEXT3, **turned}))
    assert read.class_names == ("owl", "cat", "dog")
    np.testing.assert_allclose(read.probs[np.arange(N), read.labels], P3[np.arange(N), Y3])
    bare = {name.removeprefix("prob_"): column for name, column in turned.items()}
    file = write(tmp_path / f"b{ending}", {"label": TEXT3, **bare})
    again = read_predictions(file, score=["owl", "cat", "dog"])
    assert again.class_names == read.class_names
    np.testing.assert_array_equal(again.labels, read.labels)
    numbered = {f"prob_{k}": P3[:, k] for k in range(3)}
    sorted_names = read_predictions(write(tmp_path / f"c{ending}", {"label": TEXT3, **numbered}))
    assert sorted_names.class_names == ("cat", "dog", "owl")
    np.testing.assert_array_equal(sorted_names.labels, Y3)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
def test_what_is_written_is_read(tmp_path, ending):
    write_predictions(tmp_path / f"one{ending}", probs=P, labels=Y)
    one = read_predictions(tmp_path / f"one{ending}")
    assert one.single
    np.testing.assert_array_equal(one.probs[:, 1], P)
    write_predictions(tmp_path / f"all{ending}", probs=P3, labels=Y3, class_names=("a", "b c", "d"))
    named = read_predictions(tmp_path / f"all{ending}")
    assert named.class_names == ("a", "b c", "d")
    np.testing.assert_array_equal(named.probs, P3)


REFUSED = {
    "the positive class is not known": ({"label": TEXT, "prob": P}, {}),
    "positive must be one of the labels": ({"label": TEXT, "prob": P}, {"positive": "maybe"}),
    "has no column risk": ({"label": TEXT, "prob": P}, {"score": "risk"}),
    "--positive is for one column": (
        {"label": TEXT3, "prob_cat": P3[:, 0], "prob_dog": P3[:, 1], "prob_owl": P3[:, 2]},
        {"positive": "cat"},
    ),
    "among the classes 'cat', 'dog', 'emu'; found 'owl'": (
        {"label": TEXT3, "prob_cat": P3[:, 0], "prob_dog": P3[:, 1], "prob_emu": P3[:, 2]},
        {},
    ),
    "among the classes '1', '2', '3'; found '0'": (
        {"label": [i % 3 for i in range(N)], **{f"prob_{k + 1}": P3[:, k] for k in range(3)}},
        {},
    ),
    "needs labels of two classes": ({"label": TEXT3, "prob": P}, {}),
    "mean the same": ({"label": Y, "y_true": Y, "prob": P}, {}),
    "'No', 'Yes', 'yes'. Correct the labels": (
        {"label": [["No", "Yes", "yes"][i % 3] for i in range(N)], "prob": P},
        {},
    ),
    "has the columns label, ' risk'": ({"label": Y, " risk": P}, {}),
    "score must hold probabilities from 0 to 1, or log-odds of both signs; found 0.": (
        {"label": Y, "score": 100 * P},
        {},
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused_in_one_line(tmp_path, message):
    columns, named = REFUSED[message]
    file = write(tmp_path / "file.csv", columns)
    with pytest.raises(CalibrantError) as refusal:
        read_predictions(file, **named)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_log_odds_of_one_sign_need_a_name_that_says_so(tmp_path):
    file = write(tmp_path / "file.csv", {"label": Y, "logit": 3 * P})
    np.testing.assert_allclose(read_predictions(file).logits[:, 1], 3 * P, rtol=1e-12)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_columns_of_the_same_name_are_not_copied_as_one(tmp_path, ending):
    file = tmp_path / f"twice{ending}"
    if ending == ".csv":
        lines = (f"{y},a,b,{p:.6f}" for y, p in zip(Y, P, strict=True))
        file.write_text("\n".join(["label,g,g,prob", *lines]) + "\n")
    else:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        columns = [pa.array(each) for each in (Y, Y, Y, P)]
        pq.write_table(pa.table(columns, names=["label", "g", "g", "prob"]), file)
    run("fit", file, "--method", "platt", "-o", tmp_path / "cal.json")
    run("evaluate", file)  # reads neither of them
    out = tmp_path / f"out{ending}"
    for arguments in (
        ["apply", str(tmp_path / "cal.json"), str(file), "-o", str(out)],
        ["evaluate", str(file), "--by", "g"],
    ):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 2
        assert "the column g occurs 2 times. Keep one of them" in result.output
    assert not out.exists()


def test_a_column_of_a_class_that_occurs_twice(tmp_path):
    (tmp_path / "file.csv").write_text("label,prob_cat,prob_cat\ncat,0.5,0.5\n")
    with pytest.raises(CalibrantError, match="the column prob_cat occurs 2 times"):
        read_predictions(tmp_path / "file.csv")


def test_percentages_are_shown_as_they_are(tmp_path):
    file = write(tmp_path / "file.csv", {"label": Y, "prob": 100 * P})
    result = CliRunner().invoke(main, ["evaluate", str(file)])
    assert result.exit_code == 2
    assert f"between 0 and 1; found {100 * P[0]:.4g} in row 0 (" in result.output
    assert "in all). Divide percentages" in result.output


def test_the_positive_class_of_a_file_may_be_named_again(tmp_path):
    names = np.array(["no", "yes"])
    np.savez(tmp_path / "file.npz", probs=P, labels=Y, class_names=names)
    again = read_predictions(tmp_path / "file.npz", positive="yes")
    assert again.class_names == ("no", "yes")
    np.testing.assert_array_equal(again.labels, Y)
    with pytest.raises(CalibrantError, match="positive must be one of the labels"):
        read_predictions(tmp_path / "file.npz", positive="no")


def run(*arguments):
    result = CliRunner().invoke(main, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_from_a_table_to_calibrated_probabilities(tmp_path, ending):
    extra = {"customer": [f"c,{i}" for i in range(N)], "outcome": TEXT, "risk": P**2}
    file = write(tmp_path / f"loans{ending}", extra)
    named = ("--label", "outcome", "--score", "risk", "--positive", "yes")
    assert "P(yes)" in run("evaluate", file, *named)
    run("fit", file, *named, "--method", "platt", "-o", tmp_path / "cal.json")
    run("apply", tmp_path / "cal.json", file, *named, "-o", tmp_path / f"out{ending}")
    out = read_predictions(tmp_path / f"out{ending}", label="outcome", positive="yes")
    assert abs(out.probs[:, 1].mean() - Y.mean()) < 0.01
    if ending == ".parquet":
        table = pq.read_table(tmp_path / "out.parquet")
        assert table.column_names == ["customer", "outcome", "prob"]
        assert table["customer"].to_pylist() == extra["customer"]
    else:
        with (tmp_path / "out.csv").open() as opened:
            rows = list(csv.DictReader(opened))
        assert [row["customer"] for row in rows] == extra["customer"]
        digest = hashlib.sha256((tmp_path / "cal.json").read_bytes()).hexdigest()
        assert {row["calibrator"] for row in rows} == {digest}
        again = (tmp_path / "cal.json", tmp_path / "out.csv", "--label", "outcome")
        run("apply", *again, "-o", tmp_path / "twice.csv")  # a hash is replaced
    assert "P(yes)" in run("compare", file, file, *named, "--methods", "identity,platt")


def test_another_column_called_calibrator_is_not_lost(tmp_path):
    file = write(tmp_path / "file.csv", {"label": Y, "prob": P, "calibrator": TEXT})
    run("fit", file, "--method", "platt", "-o", tmp_path / "cal.json")
    out = tmp_path / "out.csv"
    arguments = ["apply", str(tmp_path / "cal.json"), str(file), "-o", str(out)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "Rename or drop that column" in result.output
    assert not out.exists()


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz", ".jsonl"])
def test_confidence_and_correct_everywhere(tmp_path, ending):
    if ending == ".jsonl":
        file = tmp_path / "stated.jsonl"
        lines = zip((P**0.5).tolist(), (Y == 1).tolist(), strict=True)
        file.write_text("".join(f'{{"confidence": {p}, "correct": {y:d}}}\n' for p, y in lines))
    else:
        file = write(tmp_path / f"stated{ending}", {"confidence": P**0.5, "correct": Y})
    said = run("fit", file, "--method", "platt", "-o", tmp_path / "cal.json")
    assert "No answer changes, only how sure of it the model is: predictions and accuracy" in said
    said = run("apply", tmp_path / "cal.json", file, "-o", tmp_path / f"out{ending}")
    out = read_predictions(tmp_path / f"out{ending}")
    assert abs(out.confidence.mean() - Y.mean()) < 0.01
    assert f"confidence {(P**0.5).mean():.2%} before, {out.confidence.mean():.2%} after" in said
    assert "predicted classes changed" not in said
    np.testing.assert_array_equal(out.correct, Y == 1)
    said = run("compare", file, file, "--methods", "identity,platt")
    words = " ".join(said.split())
    assert "Over-confident: the mean confidence is" in words
    assert f"{Y.mean():.1%} of the answers are correct" in words
    assert "and no answer" in words
    assert "Over-confident" in run("evaluate", file)
    run("report", file, file, "--methods", "identity,platt", "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "P(correct)" in page
    gained = page.partition("What do I gain?")[2].partition("</dl>")[0]
    assert "log-loss" in gained
    assert "accuracy" not in gained  # no answer changes
    run("export", tmp_path / "cal.json", "-o", tmp_path / "cal.py")


def test_a_calibrator_finds_its_classes_by_name(tmp_path):
    columns = {f"logit_{name}": L[:, k] for k, name in enumerate(["cat", "dog", "owl"])}
    file = write(tmp_path / "a.csv", {"label": TEXT3, **columns})
    turned = {name: columns[name] for name in ("logit_owl", "logit_cat", "logit_dog")}
    other = write(tmp_path / "b.csv", {"label": TEXT3, **turned})
    run("fit", file, "--method", "vector", "-o", tmp_path / "cal.json")
    run("apply", tmp_path / "cal.json", file, "-o", tmp_path / "x.csv")
    run("apply", tmp_path / "cal.json", other, "-o", tmp_path / "y.csv")
    x, y = read_predictions(tmp_path / "x.csv"), read_predictions(tmp_path / "y.csv")
    np.testing.assert_allclose(x.probs, y.probs[:, [1, 2, 0]], rtol=1e-12)
    wrong = {f"logit_{name}": L[:, k] for k, name in enumerate(["cat", "dog", "emu"])}
    third = write(tmp_path / "c.csv", wrong)
    result = CliRunner().invoke(
        main, ["apply", str(tmp_path / "cal.json"), str(third), "-o", str(tmp_path / "z.csv")]
    )
    assert result.exit_code == 2
    assert "must be the classes 'cat', 'dog', 'owl'" in result.output
    assert not (tmp_path / "z.csv").exists()


def test_one_numbered_column_is_no_positive_class(tmp_path):
    file = write(tmp_path / "one.csv", {"label": Y, "prob_0": 1.0 - P})
    for command in (["evaluate", file], ["fit", file, "-o", tmp_path / "cal.json"]):
        result = CliRunner().invoke(main, [str(each) for each in command])
        assert result.exit_code == 2
        assert "found prob_0 alone" in result.output
        assert "Traceback" not in result.output


@pytest.mark.parametrize("total", [100.0, 10.0])
def test_percentages_and_counts_of_classes_are_not_logits(tmp_path, total):
    shares = np.round(total * np.exp(L) / np.exp(L).sum(axis=1, keepdims=True), 1)
    names = ("cat", "dog", "owl")
    columns = {name: shares[:, k] for k, name in enumerate(names)}
    file = write(tmp_path / "shares.csv", {"label": TEXT3, **columns})
    result = CliRunner().invoke(main, ["evaluate", str(file), "--score", ",".join(names)])
    assert result.exit_code == 2
    assert f"without negative numbers that sum to {total:g}" in result.output
    shifted = {name: np.abs(L).max() + L[:, k] for k, name in enumerate(names)}
    logits = write(tmp_path / "logits.csv", {"label": TEXT3, **shifted})
    assert "ece" in run("evaluate", logits, "--score", ",".join(names))


def test_of_stated_confidences_all_commands_say_the_same(tmp_path):
    # Too close to 0 and 1, and too low on the whole: the mean decides.
    rates = {0.02: 0.2, 0.1: 0.34, 0.3: 0.5, 0.7: 0.66, 0.9: 0.8, 0.98: 0.9}
    stated = np.repeat(list(rates), 50)
    correct = np.concatenate([np.arange(50) < 50 * rate for rate in rates.values()])
    file = write(tmp_path / "stated.csv", {"confidence": stated, "correct": correct.astype(int)})
    assert "Under-confident: ECE 14.00%" in run("evaluate", file)
    said = " ".join(run("compare", file, file, "--methods", "identity,temperature").split())
    assert "Under-confident: the mean confidence is 50.0%, where 56.7% of the answers" in said
    run("report", file, file, "--methods", "identity,temperature", "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "have a slope of" not in page
    assert "mean P(correct) 50.0%" in page
