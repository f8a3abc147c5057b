"""The comparison over many data sets: networks side by side, ranks, tables with odd classes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from experiments.many_data_sets.picture import draw_changes, draw_ranks
from experiments.many_data_sets.ranking import critical_difference, ranking, resampled_mean

torch = pytest.importorskip("torch")

from calibrant.losses import CrossEntropyLoss, FocalLoss  # noqa: E402 (after importorskip)
from calibrant.training.models import MLP  # noqa: E402
from experiments.catalogue import catalogue  # noqa: E402
from experiments.many_data_sets.measuring import METRICS, calibrated, measure  # noqa: E402
from experiments.many_data_sets.run import grouped, means  # noqa: E402
from experiments.many_data_sets.training import Plan, epoch, first_networks, train  # noqa: E402

PARAMETERS = catalogue()["many-data-sets"].parameters


@pytest.fixture(autouse=True)
def one_thread():
    """As in the run: threads that wait for each other are slower than one with so little to do."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def plan(**changes):
    usual = {"hidden": [5], "gammas": (0.0, 2.0), "steps": 12, "batch_size": 16}
    return Plan(**{**usual, "learning_rate": 0.01, "look_every": 3, **changes})


def some_rows(n_divisions=2, n=50, columns=4, n_classes=3):
    source = torch.Generator().manual_seed(8)
    rows = torch.randn((n_divisions, n, columns), generator=source)
    labels = torch.randint(0, n_classes, (n_divisions, n), generator=source)
    return rows, labels


def alone(rows, labels, seed, gamma, of):
    """One network by itself, with the library's modules and the loop everybody writes."""
    source = torch.Generator().manual_seed(seed)
    network = MLP(3, n_features=rows.shape[1], hidden=of.hidden)
    first = first_networks((rows.shape[1], *of.hidden, 3), 1, [source])
    layers = [each for each in network.modules() if isinstance(each, torch.nn.Linear)]
    with torch.no_grad():
        for layer, weight, offset in zip(layers, first.weights, first.offsets, strict=True):
            layer.weight.copy_(weight[0].T)
            layer.bias.copy_(offset[0, 0])
    loss = FocalLoss(gamma=gamma) if gamma else CrossEntropyLoss()
    adam = torch.optim.Adam(network.parameters(), lr=of.learning_rate)
    waiting = []
    for _ in range(of.steps):
        waiting = waiting or epoch(len(rows), of.batch_size, [source])
        (places,) = waiting.pop()
        adam.zero_grad()
        loss(network(rows[places]), labels[places]).backward()
        adam.step()
        yield network


def test_networks_side_by_side_are_what_each_is_alone():
    (rows, labels), of = some_rows(), plan()
    trained = train(rows, labels, rows, labels, n_classes=3, plan=of, seeds=[4, 9])
    together = trained.last.logits(rows)
    for d, seed in enumerate([4, 9]):
        for g, gamma in enumerate(of.gammas):
            *_, network = alone(rows[d], labels[d], seed, gamma, of)
            torch.testing.assert_close(
                together[2 * d + g], network(rows[d]).detach(), rtol=1e-4, atol=1e-5
            )


def test_a_network_is_stopped_where_its_own_validation_loss_is_smallest():
    (rows, labels), of = some_rows(n_divisions=1), plan(gammas=(2.0,), learning_rate=0.3, steps=30)
    val, val_labels = some_rows(n_divisions=1, n=20)
    trained = train(rows, labels, val, val_labels, n_classes=3, plan=of, seeds=[4])
    loss = FocalLoss(gamma=2.0)
    seen = [
        loss(network(val[0]), val_labels[0]).item()
        for step, network in enumerate(alone(rows[0], labels[0], 4, 2.0, of), start=1)
        if step % of.look_every == 0
    ]
    stopped, last = (
        loss(each.logits(val)[0], val_labels[0]).item() for each in (trained.stopped, trained.last)
    )
    assert stopped == pytest.approx(min(seen), rel=1e-3)
    assert last == pytest.approx(seen[-1], rel=1e-3)
    assert stopped < last


def test_the_critical_values_are_those_of_the_tables():
    # Demsar (2006), Table 5 (a): of 2 to 10 methods, at 0.05 and at 0.10.
    of_005 = [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164]
    of_010 = [1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920]
    for alpha, printed in ((0.05, of_005), (0.10, of_010)):
        for k, q in enumerate(printed, start=2):
            found = critical_difference(k, 14, alpha=alpha) / np.sqrt(k * (k + 1) / (6 * 14))
            assert found == pytest.approx(q, abs=1.1e-3)


def test_ranks_and_their_tests_agree_with_the_formulas():
    rng = np.random.default_rng(3)
    errors = rng.normal(size=(20, 4)) + np.array([0.0, 0.1, 1.0, 3.0])
    found = ranking(["a", "b", "c", "d"], errors)
    # The place of each in its row, by counting those below.
    counted = 1.0 + (errors[:, :, None] > errors[:, None, :]).sum(axis=2)
    assert found.average == pytest.approx(counted.mean(axis=0))
    by_hand = 12 * 20 / (4 * 5) * ((found.average**2).sum() - 4 * 5**2 / 4)
    assert found.chi_square == pytest.approx(by_hand)
    f = 19 * by_hand / (20 * 3 - by_hand)
    assert found.p_value == pytest.approx(1.0 - stats.f.cdf(f, 3, 57), abs=1e-12)
    assert [found.methods[place] for place in found.order()] == ["a", "b", "c", "d"]


def test_equal_errors_share_their_ranks():
    errors = np.array([[0.1, 0.1, 0.3], [0.2, 0.2, 0.1], [0.3, 0.1, 0.2]])
    found = ranking(["a", "b", "c"], errors)
    assert found.average == pytest.approx([(1.5 + 2.5 + 3) / 3, (1.5 + 2.5 + 1) / 3, 2.0])


def test_runs_that_cannot_be_told_apart_are_the_longest_ones():
    ranks = np.tile([1.0, 2.0, 3.0, 4.0, 5.0], (60, 1))
    ranks[:20, :2] = ranks[:20, 1::-1]
    ranks[:, 2:4] = np.where(np.arange(60)[:, None] % 2, ranks[:, 2:4], ranks[:, 3:1:-1])
    found = ranking(list("abcde"), ranks)
    assert 0.7 < found.critical_difference < 0.8
    assert found.average == pytest.approx([1 + 1 / 3, 2 - 1 / 3, 3.5, 3.5, 5.0])
    assert found.alike() == [(0, 1), (2, 3)]


def test_related_sets_are_drawn_together():
    names = ["a", "m-1", "b", "m-2"]
    groups = grouped(names, [["m-1", "m-2"]])
    assert groups == [0, 1, 2, 1]
    values = np.array([0.0, 9.0, 0.0, 9.0])
    found = resampled_mean(values, groups, level=0.95, resamples=4000)
    apart = resampled_mean(values, range(4), level=0.5, resamples=4000)
    together = resampled_mean(values, groups, level=0.5, resamples=4000)
    assert found.value == 4.5
    assert (found.low, found.high) == (0.0, 9.0)
    assert together.high - together.low > apart.high - apart.low


def test_the_interval_of_a_mean_has_the_width_of_theory():
    values = np.random.default_rng(1).normal(size=400)
    found = resampled_mean(values, range(400), level=0.95, resamples=4000)
    assert found.high - found.low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.08)


@pytest.fixture
def odd_table(tmp_path):
    """60 rows: a class of one row, a class of three, a column that never changes."""
    rng = np.random.default_rng(0)
    labels = np.array([0] * 30 + [1] * 26 + [2] * 3 + [3])
    features = rng.normal(size=(60, 3)) + labels[:, None]
    features[:, 2] = 7.0
    np.savez(tmp_path / "odd.npz", X=features, y=labels, classes=np.array(["a", "b", "c", "d"]))
    return tmp_path / "odd.npz"


def test_a_table_with_odd_classes_is_measured_and_said_to_be_odd(odd_table):
    short = {**PARAMETERS["training"], "steps": 5, "look_every": 2}
    few = {"train": 20, "val": 100, "test": 100}
    found = measure(odd_table, {**PARAMETERS, "training": short, "most_rows": few, "seeds": [0, 1]})
    assert (found.name, found.n_classes, found.sizes) == ("odd", 4, (20, 12, 12))
    assert found.absent >= 2  # the one row of class d is to be learned from
    assert found.changed == 0
    assert found.fits == 2 * 4 * 2  # moments, gammas, divisions
    assert list(found.scores) == PARAMETERS["settings"]
    for of in found.scores.values():
        assert len(of) == 2 + 3 * 3
        assert all(scores.shape == (len(METRICS), 2) for scores in of.values())
        assert all(np.isfinite(scores).all() for scores in of.values())
        # Neither a temperature nor the map changes a prediction.
        assert all(np.array_equal(of[name][-1], of[name.split(",")[0]][-1]) for name in of)
    averaged = means([found], "MLP, stopped", "nll")["CE"]
    assert averaged == pytest.approx([found.scores["MLP, stopped"]["CE"][1].mean()])


def test_the_map_of_a_network_is_that_of_its_gamma():
    rng = np.random.default_rng(5)
    val, test, labels = rng.normal(size=(80, 3)), rng.normal(size=(40, 3)), rng.integers(0, 3, 80)
    found = calibrated(val, labels, test, 2.0).log_probs
    assert list(found) == ["FL-2", "FL-2, T", "FL-2, map"]
    q = np.exp(test) / np.exp(test).sum(axis=1, keepdims=True)
    h = q / ((1 - q) ** 2 - 2 * (1 - q) * q * np.log(q))  # Eq. 13
    assert np.exp(found["FL-2, map"]) == pytest.approx(h / h.sum(axis=1, keepdims=True))
    assert list(calibrated(val, labels, test, 0.0).log_probs) == ["CE", "CE, T"]


def test_the_pictures_name_every_method_and_every_setting():
    errors = np.random.default_rng(2).normal(size=(30, 5)) + np.arange(5)
    of = ranking(["one", "two", "three", "four", "five"], errors)
    drawn = draw_ranks({"first": of, "second": of})
    texts = [text.get_text() for text in drawn.axes[0].texts]
    for name in of.methods:
        assert sum(name in text.split() for text in texts) == 1
    assert [ax.get_title(loc="left") for ax in drawn.axes] == ["first", "second"]
    changes = draw_changes(np.array([10.0, 1000.0]), {"first": np.array([-1.0, 2.0])}, gamma=3.0)
    assert "better on 1 of 2" in changes.axes[0].get_title()
