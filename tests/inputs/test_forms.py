"""One column, frames and labels of any type: the same numbers give the same result."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import calibrant
from calibrant import CalibrantError, TemperatureScaling, evaluate

N = 300
RNG = np.random.default_rng(0)
SCORE = 3.0 * RNG.normal(size=N)
Y = (RNG.random(N) < 1 / (1 + np.exp(1 - SCORE / 2))).astype(np.int64)
P = 1 / (1 + np.exp(-SCORE))
TWO = np.stack([1 - P, P], axis=-1)
NAMES = np.array(["no", "yes"])[Y]
LOGITS = 2.0 * RNG.normal(size=(N, 3))
LABELS = (LOGITS / 2 + RNG.gumbel(size=LOGITS.shape)).argmax(axis=1)
ANIMALS = np.array(["cat", "dog", "owl"])
ANIMAL = ANIMALS[LABELS]

COLUMNS = {
    "array": P,
    "list": P.tolist(),
    "(n, 1)": P[:, None],
    "pandas series": pd.Series(P, index=range(7, 7 + N), name="p"),
    "polars series": pl.Series("p", P),
    "pyarrow array": pa.array(P),
    "pandas frame": pd.DataFrame({"p": P}, index=range(7, 7 + N)),
    "polars frame": pl.DataFrame({"p": P}),
    "pyarrow table": pa.table({"p": P}),
    "tensor": torch.tensor(P),
}
TWO_LABELS = {
    "ints": (Y, {}, (0, 1)),
    "floats": (Y.astype(float), {}, (0, 1)),
    "bools": (Y.astype(bool), {}, (False, True)),
    "bools that are named": (Y == 0, {"positive": False}, (True, False)),
    "signs": (2 * Y - 1, {}, (-1, 1)),
    "text": (NAMES, {"positive": "yes"}, ("no", "yes")),
    "list of text": (NAMES.tolist(), {"positive": "yes"}, ("no", "yes")),
    "pandas text": (pd.Series(NAMES), {"positive": "yes"}, ("no", "yes")),
    "pandas category": (pd.Series(NAMES, dtype="category"), {"positive": "yes"}, ("no", "yes")),
    "pandas nullable": (pd.Series(Y, dtype="Int64"), {}, (0, 1)),
    "polars text": (pl.Series(NAMES), {"positive": "yes"}, ("no", "yes")),
    "pyarrow text": (pa.array(NAMES.tolist()), {"positive": "yes"}, ("no", "yes")),
    "tensor": (torch.tensor(Y), {}, (0, 1)),
    "tuples": ([("a", int(y)) for y in Y], {"positive": ("a", 1)}, (("a", 0), ("a", 1))),
}


def as_column(values: object) -> np.ndarray:
    if isinstance(values, pa.Table | pd.DataFrame | pl.DataFrame):
        values = values["p"]
    return np.asarray(values).reshape(-1)


@pytest.mark.parametrize("form", COLUMNS)
def test_one_column_is_the_positive_class(form):
    expected = TemperatureScaling().fit(probs=TWO, labels=Y)
    given = COLUMNS[form]
    calibrator = TemperatureScaling().fit(probs=given, labels=Y)
    calibrated = calibrator.predict_proba(probs=given)
    np.testing.assert_allclose(
        as_column(calibrated), expected.predict_proba(probs=TWO)[:, 1], rtol=1e-12
    )
    same_kind = {"list": np.ndarray, "pyarrow array": pa.ChunkedArray}.get(form, type(given))
    assert isinstance(calibrated, same_kind)
    if form.startswith("pandas"):
        assert calibrated.index.equals(given.index)
    np.testing.assert_allclose(
        evaluate(given, Y, n_resamples=50)["positive_ece"].value,
        calibrant.METRICS["positive_ece"](TWO, Y),
    )


@pytest.mark.parametrize("kind", TWO_LABELS)
def test_labels_of_any_type(kind):
    labels, how, classes = TWO_LABELS[kind]
    calibrator = TemperatureScaling().fit(probs=P, labels=labels, **how)
    assert calibrator.classes_ == classes
    assert [type(each) for each in calibrator.classes_] == [type(each) for each in classes]
    assert calibrator.temperature_ == TemperatureScaling().fit(probs=P, labels=Y).temperature_
    predicted = calibrator.predict(probs=P)
    assert [classes.index(each) for each in map(_plain, predicted)] == (P > 0.5).tolist()
    assert calibrant.brier(P, labels, **how) == calibrant.brier(TWO, Y)


def _plain(label):
    return label.item() if hasattr(label, "item") else label


FRAMES = {
    "pandas": lambda columns: pd.DataFrame(columns, index=range(3, 3 + N)),
    "polars": pl.DataFrame,
    "pyarrow": pa.table,
}


@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.parametrize("prefix", ["", "logit_"])
def test_columns_of_a_frame_are_classes(library, prefix):
    expected = TemperatureScaling().fit(LOGITS, LABELS).predict_proba(LOGITS)
    frame = FRAMES[library]({f"{prefix}{name}": LOGITS[:, k] for k, name in enumerate(ANIMALS)})
    calibrator = TemperatureScaling().fit(frame, ANIMAL)
    assert calibrator.classes_ == ("cat", "dog", "owl")
    turned = FRAMES[library]({f"{prefix}{ANIMALS[k]}": LOGITS[:, k] for k in (2, 0, 1)})
    for given in (frame, turned):
        calibrated = calibrator.predict_proba(given)
        assert type(calibrated) is type(frame)
        for k, name in enumerate(ANIMALS):
            column = np.asarray(calibrated[f"{prefix}{name}"])
            np.testing.assert_allclose(column, expected[:, k], rtol=1e-12)
    assert calibrator.predict(turned)[0] in ANIMALS


def test_names_without_an_order_are_sorted():
    fitted = TemperatureScaling().fit(LOGITS, ANIMAL)
    assert fitted.classes_ == ("cat", "dog", "owl")
    assert fitted.temperature_ == TemperatureScaling().fit(LOGITS, LABELS).temperature_
    some = ANIMAL != "owl"
    assert calibrant.nll(
        logits=LOGITS[some], labels=ANIMAL[some], classes=ANIMALS
    ) == calibrant.nll(logits=LOGITS[some], labels=LABELS[some])


def test_a_verdict_uses_the_names():
    assert "P(yes)" in evaluate(P, NAMES, positive="yes").verdict()
    shifted = LOGITS + np.array([3.0, 0.0, 0.0])
    assert "cat (mean" in evaluate(logits=shifted, labels=ANIMAL).verdict()


def test_numbered_columns_are_no_names():
    frame = pd.DataFrame(LOGITS, columns=["logit_0", "logit_1", "logit_2"])
    assert TemperatureScaling().fit(frame, LABELS).classes_ == (0, 1, 2)


@pytest.mark.parametrize("names", ["123", [1, 2, 3], ["prob_1", "prob_2", "prob_3"], "120", "013"])
def test_columns_called_after_numbers_are_names(names):
    frame = pd.DataFrame(LOGITS, columns=list(names))
    numbers = np.array([int(str(name)[-1]) for name in names])
    expected = calibrant.nll(logits=LOGITS, labels=LABELS)
    for labels in (numbers[LABELS], numbers[LABELS].astype(float)):
        assert calibrant.nll(logits=frame, labels=labels) == expected
    ignored = np.where(np.arange(N) == 5, -100, numbers[LABELS])
    calibrant.nll(logits=frame, labels=ignored, ignore_label=-100)
    stray = np.where(np.arange(N) == 5, 7, numbers[LABELS])
    with pytest.raises(CalibrantError, match=r"classes .*; found '7' in row 5.*classes=range\(3\)"):
        evaluate(logits=frame, labels=stray)
    assert calibrant.nll(logits=frame, labels=LABELS, classes=range(3)) == expected


@pytest.mark.parametrize("names", ["012", [0, 1, 2], ["prob_0", "prob_1", "prob_2"]])
def test_columns_called_0_to_k_are_names_and_positions(names):
    frame = pd.DataFrame(LOGITS, columns=list(names))
    expected = calibrant.nll(logits=LOGITS, labels=LABELS)
    for labels in (LABELS, LABELS.astype(str), LABELS.astype(float)):
        assert calibrant.nll(logits=frame, labels=labels) == expected


def test_generic_names_are_positions():
    frame = pd.DataFrame(LOGITS, columns=["c0", "c1", "c2"])
    assert TemperatureScaling().fit(frame, LABELS).classes_ == ("c0", "c1", "c2")


def test_booleans_are_1_and_0_in_columns_of_that_name():
    frame = pd.DataFrame({"1": P, "0": 1 - P})
    assert calibrant.nll(frame, Y == 1) == calibrant.nll(frame, Y)


def test_booleans_are_no_positions_in_columns_of_other_names():
    named = pd.DataFrame({"True": P, "False": 1 - P})
    assert calibrant.nll(named, Y == 1) == calibrant.nll(named[["False", "True"]], Y == 1)
    other = pd.DataFrame({"yes": P, "no": 1 - P})
    with pytest.raises(CalibrantError, match="names of the columns, 'yes', 'no'; found truth"):
        calibrant.nll(other, Y == 1)


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e300, 2**64 - 1, 2**63])
def test_labels_of_more_than_64_bits_are_refused(value):
    kind = np.uint64 if isinstance(value, int) else float
    labels = np.append(np.zeros(N - 1, dtype=kind), kind(value))
    for scores in (TWO, P):
        with pytest.raises(
            CalibrantError, match=rf"found {float(value):g} in row 299".replace("+", r"\+")
        ):
            calibrant.ece(scores, labels)


def test_probabilities_by_position_are_refused():
    fitted = TemperatureScaling().fit(probs=TWO, labels=Y)
    for refused in (
        lambda: TemperatureScaling().fit(TWO, Y),
        lambda: TemperatureScaling().fit(P, Y),
        lambda: fitted.predict_proba(TWO),
        lambda: fitted.predict(pd.DataFrame(TWO)),
    ):
        with pytest.raises(CalibrantError, match=r"look like probabilities.*probs="):
            refused()
    assert TemperatureScaling().fit(logits=TWO, labels=Y).temperature_ < 1.0
    assert TemperatureScaling().fit(TWO * 3, Y).temperature_ > 0.0


FRAME = pd.DataFrame(LOGITS)
OTHER_ROWS = np.random.default_rng(1).permutation(N)
GROUPED = calibrant.GroupedCalibration(base="temperature").fit(LOGITS, LABELS, groups={"g": ANIMAL})


def shuffled(values: np.ndarray) -> pd.Series:
    return pd.Series(values).iloc[OTHER_ROWS]


OTHER_INDEX = {
    "labels": lambda: evaluate(logits=FRAME, labels=shuffled(LABELS)),
    "sample_weight": lambda: calibrant.nll(
        logits=FRAME, labels=LABELS, sample_weight=shuffled(np.ones(N))
    ),
    "groups": lambda: evaluate(logits=FRAME, labels=LABELS, groups=shuffled(ANIMAL)),
    "groups in a dict": lambda: evaluate(
        logits=FRAME, labels=LABELS, groups={"a": ANIMAL, "b": shuffled(ANIMAL)}
    ),
    "groups in a frame": lambda: calibrant.worst_slices(
        labels=LABELS, logits=FRAME, groups=shuffled(ANIMAL).to_frame("a")
    ),
    "groups beside labels": lambda: evaluate(
        logits=LOGITS, labels=pd.Series(LABELS), groups=shuffled(ANIMAL)
    ),
    "groups of a fit": lambda: calibrant.GroupedCalibration().fit(
        FRAME, LABELS, groups=shuffled(ANIMAL)
    ),
    "groups of a prediction": lambda: GROUPED.predict_proba(FRAME, groups=shuffled(ANIMAL)),
    "sample_weight of a fit": lambda: TemperatureScaling().fit(
        FRAME, LABELS, sample_weight=shuffled(np.ones(N))
    ),
    "calibrated": lambda: calibrant.decide(
        pd.Series(P), costs={"a": [0, 1], "b": [1, 0]}, calibrated=shuffled(P)
    ),
    "probs_b": lambda: calibrant.paired_difference(pd.Series(P), shuffled(P), Y),
    "posterior": lambda: calibrant.metrics.kl_to_posterior(
        pd.DataFrame(TWO), pd.DataFrame(TWO).iloc[OTHER_ROWS]
    ),
}


@pytest.mark.parametrize("what", OTHER_INDEX)
def test_another_row_index_is_refused(what):
    name = what.split()[0]
    with pytest.raises(CalibrantError, match=f"{name} must have the row index of the .*such as"):
        OTHER_INDEX[what]()


def test_the_same_row_index_and_arrays_without_one_are_taken():
    expected = GROUPED.predict_proba(LOGITS, groups=ANIMAL)
    frame = FRAME.iloc[OTHER_ROWS]
    found = GROUPED.predict_proba(frame, groups=shuffled(ANIMAL)).loc[range(N)]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(GROUPED.predict_proba(LOGITS, groups=pd.Series(ANIMAL)), expected)


REFUSED = {
    "positive class is not known": lambda: evaluate(P, NAMES),
    "positive must be one of the labels": lambda: evaluate(P, NAMES, positive="maybe"),
    "of one type; found int and str": lambda: evaluate(P, [1, "a"] * (N // 2)),
    "3 columns need 3 different labels": lambda: evaluate(
        logits=LOGITS, labels=np.where(ANIMAL == "owl", "dog", ANIMAL)
    ),
    "among the classes 'cat', 'dog', 'emu'; found 'owl'": lambda: TemperatureScaling().fit(
        pd.DataFrame(LOGITS, columns=["cat", "dog", "emu"]), ANIMAL
    ),
    "'dog' 2 times": lambda: TemperatureScaling().fit(
        pd.DataFrame(LOGITS, columns=["cat", "dog", "dog"]), ANIMAL
    ),
    "must not be missing; found None in row 0": lambda: evaluate(
        P, [None, *NAMES[1:].tolist()], positive="yes"
    ),
    "labels of two classes; found 0, 1, 2": lambda: evaluate(P, LABELS),
    "between 0 and 1; found": lambda: evaluate(1.5 * P, Y),
    "whole numbers or names; found 0.5": lambda: evaluate(P, Y + 0.5),
    "found the column 't' of String": lambda: evaluate(pd.DataFrame({"a": P, "t": NAMES}), Y),
    "frame in memory; found LazyFrame": lambda: evaluate(pl.LazyFrame({"a": P}), Y),
    "labels must be one column; found 2": lambda: evaluate(P, pd.DataFrame({"a": Y, "b": Y})),
    "positive= is for one column": lambda: evaluate(logits=LOGITS, labels=LABELS, positive=1),
    "classes must be one different label": lambda: evaluate(
        logits=LOGITS, labels=ANIMAL, classes=["cat", "dog"]
    ),
    "must be hashable; found dict": lambda: evaluate(P, [{}] * N),
    "must be hashable; found": lambda: evaluate(P, [np.array([1, 2]), *[np.array([3])] * (N - 1)]),
    "one value for each row; found shape (300, 2) in a": lambda: evaluate(
        P, Y, groups={"a": np.zeros((N, 2))}
    ),
    "probs must be real numbers": lambda: evaluate(pd.Series(["a"] * N), Y),
    "the columns must be the classes": lambda: (
        TemperatureScaling()
        .fit(pd.DataFrame(LOGITS, columns=ANIMALS), ANIMAL)
        .predict_proba(pd.DataFrame(LOGITS, columns=["cat", "dog", "emu"]))
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused_in_one_line(message):
    with pytest.raises(CalibrantError) as refusal:
        REFUSED[message]()
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
