"""The verdict on logs that leave out options: the truth lies between the ends."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant
from calibrant.errors import CalibrantError
from calibrant.files.jsonl.options import option_scores
from calibrant.files.jsonl.shapes import Logged, Position

OPTIONS = ("A", "B", "C", "D")


def log_of(n: int, stretch: float, top: int, n_options: int = 4, seed: int = 0):
    """Exact log-probabilities of the options, what a log of ``top`` tokens has, and labels."""
    rng = np.random.default_rng(seed)
    truth = 1.5 * rng.normal(size=(n, n_options))
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    words = stretch * truth.max(axis=1, keepdims=True) + rng.normal(-4.0, 1.0, size=(n, 8))
    scores = np.concatenate([stretch * truth, words], axis=1)
    exact = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    names = [*OPTIONS[:n_options], *map(str, range(8))]
    rows = []
    for row in exact:
        logged = [Logged(names[i], row[i]) for i in np.argsort(-row)[:top]]
        position = Position(None, logged, logged[-1].log_prob)
        rows.append(option_scores(position, OPTIONS[:n_options]))
    logits, upper = (np.array(column) for column in zip(*rows, strict=True))
    return exact[:, :n_options], logits, upper, labels


def confidence(logits: np.ndarray) -> np.ndarray:
    return 1.0 / np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)


@pytest.mark.parametrize("top", [1, 2, 3, 5])
@pytest.mark.parametrize("stretch", [0.5, 1.0, 2.0])
def test_the_true_confidence_is_between_the_ends(stretch, top):
    exact, logits, upper, labels = log_of(300, stretch, top)
    truth = confidence(exact)
    largest = confidence(np.where(upper > logits, -np.inf, logits))
    assert (confidence(upper) <= truth + 1e-6).all()
    assert (truth <= largest + 1e-9).all()
    assert ((confidence(upper) <= confidence(logits)) & (confidence(logits) <= largest)).all()
    gaps = [
        calibrant.evaluate(logits=end, labels=labels, metrics=["confidence_gap"])["confidence_gap"]
        for end in (upper, exact, np.where(upper > logits, -np.inf, logits))
    ]
    assert gaps[0].value <= gaps[1].value + 1e-6 <= gaps[2].value + 2e-6


def test_a_verdict_that_holds_at_both_ends():
    _, logits, upper, labels = log_of(500, 2.0, 5)
    result = calibrant.evaluate(logits=logits, labels=labels, upper_logits=upper)
    assert result.side == result.ends.at_zero.side == result.ends.at_most.side == "over-confident"
    assert not result.ends.differ
    assert f"In {result.ends.n} samples an option is not" in str(result)
    assert result.to_dict()["missing_options"]["at_zero"]["side"] == "over-confident"


def test_the_verdicts_at_both_ends_name_the_options():
    _, logits, upper, labels = log_of(500, 2.0, 5)
    labels[:150] = 1  # more often right than the model thinks
    names = dict(enumerate(OPTIONS))
    named = [names[each] for each in labels]
    result = calibrant.evaluate(
        logits=logits, labels=named, upper_logits=upper, classes=list(OPTIONS)
    )
    for verdict in (result.ends.between, result.ends.at_zero, result.ends.at_most):
        assert "B (mean probability" in verdict.sentence
        assert "class 1" not in verdict.sentence


def test_verdicts_that_differ_leave_it_undecided():
    exact, logits, upper, labels = log_of(1000, 1.0, 2)
    assert calibrant.evaluate(logits=exact, labels=labels).side == "calibrated"
    result = calibrant.evaluate(logits=logits, labels=labels, upper_logits=upper)
    assert result.side == "undecided"
    assert result.ends.at_zero.side == "over-confident"
    assert result.verdict().startswith("Undecided: ")
    assert "top_logprobs=20" in result.verdict()
    assert str(result).endswith(result.verdict())
    assert result.to_dict()["missing_options"]["differ"]


def test_two_options_of_which_one_is_missing():
    _, logits, upper, labels = log_of(400, 2.0, 1, n_options=2)
    assert (upper > logits).any(axis=1).all()
    result = calibrant.evaluate(logits=logits, labels=labels, upper_logits=upper)
    assert result.ends.n == 400
    assert result.ends.at_zero.side == "over-confident"


def test_without_missing_options_there_are_no_ends():
    exact, _, _, labels = log_of(100, 1.0, 2)
    result = calibrant.evaluate(logits=exact, labels=labels)
    assert result.ends is None
    assert result.to_dict()["missing_options"] is None


def test_weights_count_at_both_ends():
    """Over-confident samples of no weight change no verdict."""
    logits, upper, labels = log_of(2000, 1.0, 4)[1:]
    bold, bold_upper, bold_labels = log_of(2000, 4.0, 4)[1:]
    weight = np.repeat([1.0, 1e-9], 2000)
    alone = calibrant.evaluate(logits=logits, labels=labels, upper_logits=upper).ends
    found = calibrant.evaluate(
        logits=np.concatenate([logits, bold]),
        labels=np.concatenate([labels, bold_labels]),
        upper_logits=np.concatenate([upper, bold_upper]),
        sample_weight=weight,
    ).ends
    assert (found.at_zero.side, found.at_most.side) == (alone.at_zero.side, alone.at_most.side)


def test_rows_that_do_not_count_leave_their_upper_logits():
    _, logits, upper, labels = log_of(60, 1.0, 2)
    kept = np.arange(60) % 3 > 0
    wanted = calibrant.evaluate(
        logits=logits[kept], labels=labels[kept], upper_logits=upper[kept]
    ).ends
    ignored = np.where(kept, labels, -100)
    for changes in (
        {"labels": ignored, "ignore_label": -100},
        {"labels": labels, "sample_weight": kept.astype(float)},
    ):
        found = calibrant.evaluate(logits=logits, upper_logits=upper, **changes).ends
        assert found.n == wanted.n
        assert found.at_zero == wanted.at_zero
        assert found.at_most == wanted.at_most
    batches = [x.reshape(4, 15, -1) for x in (logits, upper)]
    found = calibrant.evaluate(
        logits=batches[0], labels=labels.reshape(4, 15), upper_logits=batches[1]
    )
    assert (
        found.ends.n == calibrant.evaluate(logits=logits, labels=labels, upper_logits=upper).ends.n
    )


@pytest.mark.parametrize("wrong", [lambda u: u[:5], lambda u: u - 1.0, lambda u: u[:, :3]])
def test_wrong_upper_logits(wrong):
    _, logits, upper, labels = log_of(50, 1.0, 2)
    with pytest.raises(CalibrantError, match="upper_logits must have the shape of logits"):
        calibrant.evaluate(logits=logits, labels=labels, upper_logits=wrong(upper))
