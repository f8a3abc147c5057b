"""Recipes, batches and what is measured after an epoch; every kind of data takes a step."""

from __future__ import annotations

import json
import math
import platform
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from calibrant.files import read_predictions
from calibrant.losses import LOSSES
from calibrant.training import CPU, OTHERS, RECIPES, Recipe, observe, predict, recipe, train
from calibrant.training.datasets import DATASETS, DataSet, Split, TreeBatch
from calibrant.training.loaders import EpochBatches, World, random_subset
from calibrant.training.models import MODELS
from calibrant.training.module import optimizer_of
from calibrant.training.observations import NORM_EXPONENTS, last_layer, norm_histogram, weight_norm
from calibrant.training.run import fixed_gamma
from tests.processes import run_python

# ---------------------------------------------------------------- recipes: the papers' own words


def schedule(made: Recipe) -> list[tuple[int, float]]:
    """(epochs, learning rate) one after the other."""
    ends = [0, *made.steps, made.epochs]
    rates = [made.learning_rate_at(start) for start in ends[:-1]]
    lengths = [b - a for a, b in pairwise(ends)]
    return [(n, round(rate, 9)) for n, rate in zip(lengths, rates, strict=True)]


@pytest.mark.parametrize("data", ["cifar10", "cifar100"])
@pytest.mark.parametrize(
    "model", ["resnet50", "resnet110-bottleneck", "wide-resnet-26-10", "densenet121"]
)
def test_paper_1_on_cifar(data, model):
    made = recipe(data, model=model, paper="mukhoti2020")
    assert schedule(made) == [(150, 0.1), (100, 0.01), (100, 0.001)]
    assert (made.optimizer, made.momentum, made.nesterov) == ("sgd", 0.9, False)
    assert (made.epochs, made.batch_size, made.choice) == (350, 128, "last")
    assert made.data_options == {"augment": "crop-flip"}


def test_paper_1_on_20_newsgroups():
    made = recipe("20newsgroups")
    assert (made.model, made.optimizer, made.betas) == ("text-cnn", "adam", (0.9, 0.999))
    assert schedule(made) == [(50, 0.001)]
    assert made.choice == "best"


def test_paper_1_on_sst():
    made = recipe("sst-binary")
    assert (made.model, made.optimizer, made.weight_decay) == ("tree-lstm", "adagrad", 1e-4)
    assert schedule(made) == [(25, 0.05)]
    assert made.choice == "best"


def test_paper_1_has_another_mmce_for_documents():
    assert recipe("cifar10", loss="mmce").loss_options == {"strength": 2.0}
    assert recipe("20newsgroups", loss="mmce-weighted").loss_options == {"strength": 8.0}
    assert recipe("sst-binary", loss="ce").loss_options == {}


@pytest.mark.parametrize("data", ["cifar10", "cifar100"])
def test_paper_2_on_cifar(data):
    made = recipe(data, paper="komisarenko2024")
    assert (made.model, made.optimizer, made.momentum) == ("resnet50", "sgd", 0.9)
    assert made.weight_decay == 5e-4
    assert schedule(made) == [(150, 0.1), (100, 0.01), (100, 0.001)]
    assert (made.batch_size, made.choice) == (128, "last")


def test_paper_2_on_tiny_imagenet():
    made = recipe("tinyimagenet")
    assert schedule(made) == [(40, 0.1), (20, 0.01), (40, 0.001)]
    assert (made.batch_size, made.weight_decay, made.choice) == (64, 5e-4, "last")


@pytest.mark.parametrize("model", ["resnet8", "resnet20", "resnet44", "resnet110"])
def test_paper_3(model):
    cifar, svhn = recipe("cifar10", model=model), recipe("svhn", model=model)
    assert schedule(cifar) == [(80, 0.1), (70, 0.01), (50, 0.001)]
    assert schedule(svhn) == [(25, 0.1), (15, 0.01), (10, 0.001)]
    for made in (cifar, svhn):
        assert (made.optimizer, made.momentum, made.weight_decay) == ("sgd", 0.9, 5e-4)
        assert made.batch_size == 128


def test_every_data_set_has_a_recipe_with_a_network_that_is_there():
    for data in DATASETS:
        for preset in ("paper", "cpu"):
            made = recipe(data, preset=preset)
            assert made.model in MODELS
            assert made.loss in LOSSES
    named = {name for entry in RECIPES for name in entry.data} | set(OTHERS)
    assert named == set(DATASETS) == set(CPU)


def test_a_cpu_preset_says_so_and_is_shorter():
    for data in DATASETS:
        short, whole = recipe(data, preset="cpu"), recipe(data)
        assert short.source.startswith("cpu preset")
        assert short.epochs < whole.epochs
        assert short.hash != whole.hash


def test_a_network_that_the_paper_has_not_is_said():
    assert "where the networks are" in recipe("cifar10", model="mlp").source


def test_other_epochs_move_the_steps():
    assert recipe("cifar10", model="resnet50", epochs=35).steps == (15, 25)
    assert recipe("cifar10", model="resnet50", epochs=1).steps == ()


def test_none_undoes_what_a_preset_sets():
    assert recipe("cifar10", preset="cpu").limit is not None
    assert recipe("cifar10", preset="cpu", limit=None).limit is None


def test_hashes_stay():
    """Results are kept by them: a recipe of before must be found again."""
    known = {
        "7a52bddfc1fb05dc": recipe("cifar10"),
        "c2e268a86f3e1d79": recipe("sst-binary"),
        "0dec14a27f0d30d6": recipe("tinyimagenet"),
    }
    assert {made.hash[:16]: made for made in known.values()} == known


def test_the_hash_is_that_of_what_decides_the_run():
    one = recipe("digits", loss="fl-3")
    assert one.hash == Recipe.from_dict(json.loads(json.dumps(one.to_dict()))).hash
    assert one.hash == Recipe.from_dict({**one.to_dict(), "source": "elsewhere"}).hash
    assert len({recipe("digits", loss=loss, seed=s).hash for loss in LOSSES for s in (0, 1)}) == 36


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "epochs must be"),
        ({"steps": (5, 5)}, "steps must increase and stay below the 9 epochs"),
        ({"steps": (9,)}, "steps must increase and stay below the 9 epochs"),
        ({"optimizer": "lbfgs"}, "optimizer must be one of sgd, adam, adagrad"),
        ({"learning_rate": -1.0}, "learning_rate must be"),
        ({"choice": "first"}, "choice must be one of last, best"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1"),
        ({"clip_norm": 0.0}, "clip_norm must be"),
        ({"batchsize": 3}, "a recipe has no parameter 'batchsize'"),
    ],
)
def test_a_wrong_recipe_is_refused(wrong, message):
    plain = Recipe(data="digits", model="mlp", epochs=9).to_dict()
    with pytest.raises((ValueError, TypeError), match=message):
        Recipe.from_dict({**plain, **wrong})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": "cifar"}, "data must be one of .* Did you mean 'cifar10'"),
        ({"data": "svhn", "paper": "mukhoti2020"}, "data of mukhoti2020 must be one of 20news"),
        ({"data": "cifar10", "paper": "guo2017"}, "paper must be one of mukhoti2020"),
        ({"data": "cifar10", "preset": "gpu"}, "preset must be one of paper, cpu"),
        ({"data": "cifar10", "batchsize": 1}, "a recipe has no parameter 'batchsize'"),
    ],
)
def test_a_recipe_that_is_not_there(options, message):
    with pytest.raises(ValueError, match=message):
        recipe(**options)


# ------------------------------------------------------------------------------------- optimiser


def test_word_vectors_have_their_own_learning_rate():
    network = MODELS["tree-lstm"](2, n_words=10, n_dimensions=4, memory=3)
    optimizer = optimizer_of(recipe("sst-binary"), network)
    assert isinstance(optimizer, torch.optim.Adagrad)
    rest, words = optimizer.param_groups
    assert (rest["lr"], rest["weight_decay"]) == (0.05, 1e-4)
    assert (words["lr"], words["weight_decay"]) == (0.1, 0.0)
    assert words["params"] == [network.words.weight]
    total = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
    assert total == sum(p.numel() for p in network.parameters())


def test_adagrad_takes_the_steps_of_its_formula():
    network = MODELS["tree-lstm"](2, n_words=10, n_dimensions=4, memory=3)
    optimizer = optimizer_of(recipe("sst-binary"), network)
    rng = np.random.default_rng(0)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            value, squares = parameter.detach().double(), 0.0
            for _ in range(3):
                gradient = torch.from_numpy(rng.normal(size=parameter.shape)).float()
                gradient[0] = 0.0  # a word that is not in the batch
                parameter.grad = gradient
                optimizer.step()
                decayed = gradient + group["weight_decay"] * value
                squares = squares + decayed**2
                value = value - group["lr"] * decayed / (squares.sqrt() + 1e-10)
            parameter.grad = None
            np.testing.assert_allclose(parameter.detach(), value, rtol=0, atol=1e-6)


def test_frozen_word_vectors_are_not_trained():
    network = MODELS["text-cnn"](2, embeddings=np.ones((9, 4), np.float32))
    optimizer = optimizer_of(recipe("20newsgroups"), network)
    (group,) = optimizer.param_groups
    assert all(p is not network.words.weight for p in group["params"])


# --------------------------------------------------------------------------------------- batches


class Numbers(Split):
    """Item i is the number i."""

    def __init__(self, n):
        self.labels = torch.zeros(n, dtype=torch.int64)
        self.ids = np.array([str(i) for i in range(n)], dtype=np.str_)

    def batch(self, indices):
        return indices.float(), indices


@given(
    n=st.integers(1, 300),
    batch_size=st.integers(1, 64),
    size=st.integers(1, 4),
    epoch=st.integers(0, 5),
)
def test_each_sample_once_and_as_many_steps_for_all(n, batch_size, size, epoch):
    part = Numbers(n)
    batches = [
        EpochBatches(part, None, batch_size=batch_size, seed=1, epoch=epoch, world=World(r, size))
        for r in range(size)
    ]
    seen = torch.cat([places for one in batches for places in one.own_indices()])
    assert sorted(seen.tolist()) == list(range(n))
    assert len({len(one) for one in batches}) == 1
    if batch_size >= 2 * size and n >= 2 * size:
        assert min(len(places) for one in batches for places in one.own_indices()) >= 1
    shares = [[batch.share for batch in one] for one in batches]
    np.testing.assert_allclose(np.sum(shares, axis=0), size)


def test_an_epoch_run_again_is_the_same_and_another_is_not():
    def run(epoch, seed=0, rank=0):
        def augment(inputs, generator):
            return inputs + torch.rand(len(inputs), generator=generator)

        world = World(rank, 2)
        made = EpochBatches(Numbers(50), augment, batch_size=8, seed=seed, epoch=epoch, world=world)
        return torch.cat([batch.inputs for batch in made])

    assert torch.equal(run(3), run(3))
    for other in (run(4), run(3, seed=1), run(3, rank=1)):
        assert not torch.equal(run(3), other)
    # Augmentation differs too, not the order alone.
    assert not set((run(3) % 1).tolist()) & set((run(4) % 1).tolist())


def test_a_lone_sample_joins_the_batch_before_it():
    sizes = [len(b) for b in EpochBatches(Numbers(9), None, batch_size=4, seed=0, epoch=0).batches]
    assert sizes == [4, 5]


class Groups(Split):
    """Items with as many targets as their label says, and one more."""

    def __init__(self, labels):
        self.labels = torch.tensor(labels)
        self.ids = np.array([str(i) for i in range(len(labels))], dtype=np.str_)

    def batch(self, indices):
        return indices, self.labels[indices].repeat_interleave(self.labels[indices] + 1)

    def n_targets(self, indices):
        return int((self.labels[indices] + 1).sum())


def test_processes_share_targets_and_not_items():
    """A tree has many targets: the mean over a batch is that over all of its nodes."""
    part = Groups([0, 7, 1, 2, 9, 4, 0, 3, 5])
    options = {"batch_size": 4, "seed": 5, "epoch": 1}
    whole = list(EpochBatches(part, None, **options))
    halves = zip(
        *(EpochBatches(part, None, **options, world=World(rank, 2)) for rank in (0, 1)), strict=True
    )
    for batch, own in zip(whole, halves, strict=True):
        assert batch.share == 1.0
        together = sum(half.targets.double().mean() * half.share for half in own) / 2
        assert together == pytest.approx(batch.targets.double().mean().item())


def test_what_is_observed_is_drawn_once():
    places = random_subset(1000, 10, seed=3)
    assert torch.equal(places, random_subset(1000, 10, seed=3))
    assert len(set(places.tolist())) == 10
    assert places.max() > 20  # not the first
    assert torch.equal(random_subset(5, None, 0), torch.arange(5))
    assert torch.equal(random_subset(5, 9, 0), torch.arange(5))


# ---------------------------------------------------------------------------------- observations


def test_the_quantities_by_hand():
    probs = np.array([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.1, 0.3, 0.6]])
    labels = np.array([0, 1, 2])  # right, wrong, right
    found = observe(np.log(probs).astype(np.float64), labels, bins=True)
    log = math.log
    assert found["n"] == 3
    assert found["error"] == pytest.approx(1 / 3)
    assert found["nll"] == pytest.approx(-(log(0.7) + log(0.3) + log(0.6)) / 3)
    assert found["nll_correct"] == pytest.approx(-(log(0.7) + log(0.6)) / 2)
    assert found["nll_wrong"] == pytest.approx(-log(0.3))
    assert found["true_prob"] == pytest.approx((0.7 + 0.3 + 0.6) / 3)
    assert found["true_prob_correct"] == pytest.approx(0.65)
    assert found["true_prob_wrong"] == pytest.approx(0.3)
    assert found["entropy_wrong"] == pytest.approx(
        -(0.5 * log(0.5) + 0.3 * log(0.3) + 0.2 * log(0.2))
    )
    # 0.7, 0.5 and 0.6 are alone in their bins.
    assert found["ece"] == pytest.approx((0.3 + 0.5 + 0.4) / 3)
    bins = found["reliability"]
    assert len(bins["count"]) == 25
    assert sum(bins["count"]) == 3
    assert bins["count"][17] == 1  # 0.68 < 0.7 <= 0.72
    assert bins["accuracy"][17] == 1.0
    assert bins["confidence"][17] == pytest.approx(0.7)
    assert bins["accuracy"][0] is None


def test_extreme_logits_stay_finite():
    logits = np.array([[1e30, -1e30], [-1e4, 1e4], [0.0, -np.inf]])
    found = observe(logits, np.array([0, 1, 0]), bins=True)
    json.dumps(found, allow_nan=False)
    assert found["nll"] == 0.0
    assert found["entropy"] == 0.0
    assert found["nll_wrong"] is None


@given(st.integers(1, 40), st.integers(2, 6), st.integers(0, 1000))
def test_the_parts_add_up(n, n_classes, seed):
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(size=(n, n_classes)) * 3, rng.integers(0, n_classes, n)
    found = observe(logits, labels)
    for name in ("nll", "entropy", "true_prob"):
        right, wrong = found[f"{name}_correct"] or 0.0, found[f"{name}_wrong"] or 0.0
        error = found["error"]
        assert found[name] == pytest.approx((1 - error) * right + error * wrong)


def test_the_histogram_has_open_ends():
    found = norm_histogram(np.array([0.0, 1e-9, 1.0, 1.0, 1e5]))
    assert len(found["count"]) == len(NORM_EXPONENTS) + 1
    assert (found["count"][0], found["count"][-1], sum(found["count"])) == (2, 1, 5)
    assert found["median"] == 1.0


class Table(Split):
    """Random features."""

    def __init__(self, n, columns=4, n_classes=3, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, columns, generator=generator)
        self.labels = torch.randint(n_classes, (n,), generator=generator)
        self.ids = np.array([f"{seed}/{i}" for i in range(n)], dtype=np.str_)

    def batch(self, indices):
        return self.x[indices], self.labels[indices]


@pytest.mark.parametrize("name", ["ce", "fl-3", "brier", "fla-53", "adafocal", "label-smoothing"])
def test_gradient_norms_are_those_of_autograd(name):
    """One sample at a time, by the gradient of the weights themselves."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    loss, part = LOSSES[name](), Table(300)  # more than a batch
    found = predict(network, part, loss=loss)
    assert found.gradient_norms.shape == (300,)
    for i in (0, 1, 255, 256, 299):
        x, y = part.batch(torch.tensor([i]))
        (slope,) = torch.autograd.grad(loss(network(x), y), network[2].weight)
        assert found.gradient_norms[i] == pytest.approx(slope.norm().item(), rel=1e-4)
    np.testing.assert_allclose(found.logits, network(part.x).detach().numpy(), atol=1e-6)
    assert network.training


@pytest.mark.parametrize("name", ["ce", "fl-3"])
def test_gradient_norms_are_of_the_sample_where_losses_are_added(name):
    torch.manual_seed(0)
    network, part = nn.Linear(4, 3), Table(20)
    mean, added = (
        predict(network, part, loss=LOSSES[name](reduction=how)).gradient_norms
        for how in ("mean", "sum")
    )
    np.testing.assert_allclose(added, mean, rtol=1e-5)


def test_a_network_without_a_linear_layer_has_no_norms():
    network = nn.Sequential(nn.Unflatten(1, (4, 1)), nn.Conv1d(4, 3, 1), nn.Flatten())
    assert last_layer(network) is None
    assert weight_norm(network) is None
    assert predict(network, Table(5), loss=LOSSES["ce"]()).gradient_norms is None


def test_a_layer_that_sees_other_rows_has_no_norms():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 3)

        def forward(self, x):
            return self.layer(x.reshape(len(x), 2, 2)).mean(1)

    assert predict(Odd(), Table(5), loss=LOSSES["ce"]()).gradient_norms is None


# ----------------------------------------------------------------- every kind of data, any network


class Some(Split):
    """Items that a test makes."""

    def __init__(self, name, labels, make, judged=None):
        self.labels = torch.tensor(labels)
        self.ids = np.array([f"{name}/{i}" for i in range(len(labels))], dtype=np.str_)
        self.make, self.judged = make, judged

    def batch(self, indices):
        return self.make(indices, self.labels[indices])

    def evaluation(self):
        return self if self.judged is None else self.judged


def data_of(kind, shape, make, judge=None, **more):
    labels = [0, 1] * 8

    def part(name):
        judged = None if judge is None else Some(name, labels, judge)
        return Some(name, labels, make, judged)

    return DataSet(
        name="made",
        kind=kind,
        input_shape=shape,
        class_names=("no", "yes"),
        train=part("train"),
        val=part("val"),
        test=part("test"),
        record={"seed": 0},
        **more,
    )


def images(indices, labels):
    return labels.float().reshape(-1, 1, 1, 1).expand(-1, 1, 8, 8).clone(), labels


def features(indices, labels):
    return labels.float().reshape(-1, 1).expand(-1, 5).clone(), labels


def tokens(indices, labels):
    return torch.stack([labels + 2, labels * 0 + 1, labels * 0], dim=1), labels


def trees(rows_of):
    """Each tree is (word word): two leaves and a root."""

    def make(indices, labels):
        n = len(indices)
        leaves = torch.arange(2 * n)
        roots = torch.arange(2 * n, 3 * n)
        inner = torch.stack([leaves[0::2], leaves[1::2]], dim=1)
        children = torch.cat([torch.full((2 * n, 2), -1), inner])
        rows = rows_of(leaves, roots)
        batch = TreeBatch(
            tokens=labels.repeat_interleave(2) + 1,
            children=children,
            levels=(leaves, roots),
            roots=roots,
            rows=rows,
        )
        every = torch.cat([labels.repeat_interleave(2), labels])
        return batch, every[rows]

    return make


WORDS = ("", "?", "bad", "good")
KINDS = {
    "images": ("resnet8", data_of("images", (1, 8, 8), images)),
    "features": ("mlp", data_of("features", (5,), features)),
    "tokens": ("text-cnn", data_of("tokens", (3,), tokens, vocabulary=WORDS)),
    "tokens with vectors": (
        "text-cnn",
        data_of("tokens", (3,), tokens, vocabulary=WORDS, embeddings=torch.eye(4)),
    ),
    "trees": (
        "tree-lstm",
        data_of(
            "trees",
            (),
            trees(lambda leaves, roots: torch.cat([leaves, roots])),
            trees(lambda leaves, roots: roots),
            vocabulary=WORDS,
        ),
    ),
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.slow) if kind in ("tokens", "trees") else kind
        for kind in KINDS
    ],
)
def test_every_kind_of_data_is_trained_on(kind, tmp_path):
    model, data = KINDS[kind]
    made = Recipe(
        data="made",
        model=model,
        loss="fl-3",
        epochs=3,
        batch_size=6,
        optimizer="adam",
        learning_rate=0.01,
        words_learning_rate=0.1,
        clip_norm=1.0,
    )
    run = train(made, tmp_path / "run", data=data, accelerator="cpu", threads=1)
    first, last = run.records[0], run.records[-1]
    assert last["loss"] < first["loss"]
    assert last["train"]["n"] == last["test"]["n"] == 16
    assert sum(last["train"]["gradient_norm"]["count"]) == 16
    assert last["weight_norm"] > 0


def test_any_module_plugs_in_and_the_folder_holds_what_it_should(tmp_path):
    torch.manual_seed(0)
    _, data = KINDS["features"]
    network = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 2))
    made = Recipe(data="made", model="my network", loss="fl-2", epochs=2, batch_size=4, steps=(1,))
    before = torch.get_rng_state()
    run = train(made, tmp_path / "run", data=data, network=network, accelerator="cpu")
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.are_deterministic_algorithms_enabled()
    assert [r["learning_rate"] for r in run.records] == pytest.approx([0.1, 0.01])
    folder = tmp_path / "run"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "checkpoints",
        "config.json",
        "environment.json",
        "metrics.csv",
        "metrics.jsonl",
        "predictions.npz",
        "result.json",
    }
    for part in ("val", "test"):
        read = read_predictions(f"{folder}/predictions.npz::{part}")
        assert read.logits.shape == (16, 2)
        assert read.class_names == ("no", "yes")
        np.testing.assert_array_equal(read.labels, data.val.labels)
        assert list(read.ids) == [f"{part}/{i}" for i in range(16)]
    lines = (folder / "metrics.csv").read_text().splitlines()
    assert len(lines) == 3
    assert {"epoch", "train_nll_correct", "val_ece", "test_error"} < set(lines[0].split(","))
    config = json.loads((folder / "config.json").read_text())
    assert config["hash"] == made.hash
    result = json.loads((folder / "result.json").read_text())
    assert result["comparison"]["methods"]["focal"]["params"] == {"gamma": 2.0}
    assert set(result["comparison"]["methods"]) == {
        *("identity", "temperature", "focal", "focal-temperature", "auto")
    }


def test_another_logger_gets_the_numbers_of_each_epoch(tmp_path, monkeypatch):
    """TensorBoard's place is taken by a list."""
    logged = []

    class Logger:
        def log_metrics(self, numbers, step):
            logged.append((step, numbers))

    monkeypatch.setattr("calibrant.training.run._tensorboard", lambda _: Logger())
    _, data = KINDS["features"]
    made = Recipe(data="made", model="mlp", epochs=2, batch_size=4)
    run = train(made, tmp_path / "run", data=data, accelerator="cpu", logger="tensorboard")
    assert [step for step, _ in logged] == [0, 1]
    assert logged[1][1]["val_nll"] == run.records[1]["val"]["nll"]
    assert not (tmp_path / "run" / "metrics.csv").exists()


def test_which_losses_have_a_map_of_their_own():
    found = {name: fixed_gamma(make()) for name, make in LOSSES.items()}
    assert {name: gamma for name, gamma in found.items() if gamma is not None} == {
        f"fl-{gamma}": float(gamma) for gamma in (1, 2, 3, 5, 7)
    }


def test_a_policy_has_no_map_of_its_own(tmp_path):
    _, data = KINDS["features"]
    made = Recipe(data="made", model="mlp", loss="fls-531", epochs=1, batch_size=4, observed=0)
    run = train(made, tmp_path / "run", data=data, accelerator="cpu", logger="none")
    assert "focal" not in [row.name for row in run.comparison.rows]
    assert "train" not in run.records[0]
    assert not (tmp_path / "run" / "metrics.csv").exists()


def test_a_loss_that_leaves_the_numbers_is_said(tmp_path):
    _, data = KINDS["features"]
    made = Recipe(data="made", model="mlp", epochs=9, batch_size=4, learning_rate=1e30)
    with pytest.raises(ValueError, match=r"training loss must stay finite; found .* epoch"):
        train(made, tmp_path / "run", data=data, accelerator="cpu")


@pytest.mark.slow
def test_freed_memory_is_kept_where_the_c_library_allows_it():
    """In a process of its own: 64 blocks of 8 MB, freed and taken again, cost no new pages."""
    code = (
        "import resource, torch\n"
        "from calibrant.training.run import keep_freed_memory\n"
        "def faults():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    for _ in range(8):\n"
        "        [torch.zeros(2**21) for _ in range(8)]\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "before = faults()\n"
        "keep_freed_memory()\n"
        "faults()\n"
        "print(before, faults())\n"
    )
    before, after = map(int, run_python("-c", code, check=True).stdout.split())
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        assert after < before / 10
