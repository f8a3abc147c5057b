"""Two gloo processes train as one: each sample once, the same gammas, the same figures."""

from __future__ import annotations

import json
import textwrap

import numpy as np
import pytest
import torch

from calibrant.training import Recipe, train
from tests.processes import run_python

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
        reason="torch has no gloo here",
    ),
]

RECIPE = Recipe(
    data="digits",
    model="mlp",
    loss="adafocal",
    epochs=3,
    batch_size=37,  # the halves of a batch differ in size
    learning_rate=0.05,
    limit=155,
    observed=101,
    model_options={"hidden": [16]},
)

PROGRAM = textwrap.dedent(
    """
    import json, os, sys
    from calibrant.training import Recipe, loaders, module, train

    recipe, folder = Recipe.from_dict(json.loads(sys.argv[1])), sys.argv[2]
    seen, records = [], []
    ZERO = {"seconds": 0, "cpu": 0}

    class Watched(loaders.EpochBatches):
        def own_indices(self):
            for indices in super().own_indices():
                seen.append([self.epoch, indices.tolist()])
                yield indices

    module.EpochBatches = Watched
    original = module.TrainingModule.on_train_epoch_end
    ended = module.TrainingModule.on_train_end

    def on_train_epoch_end(self):
        write = self.on_epoch
        self.on_epoch = lambda record: (records.append({**record, **ZERO}), write(record))
        original(self)
        self.on_epoch = write

    def on_train_end(self):
        ended(self)
        gammas = self.loss.gamma.gammas.tolist()
        weights = [p.tolist() for p in self.network.parameters()]
        final = {name: part.logits.tolist() for name, part in self.final.items()}
        path = f"{folder}.rank{self.global_rank}.json"
        with open(path, "w") as file:
            json.dump([seen, records, gammas, weights, final], file)

    module.TrainingModule.on_train_epoch_end = on_train_epoch_end
    module.TrainingModule.on_train_end = on_train_end
    run = train(recipe, folder, devices=2, accelerator="cpu", threads=1)
    assert (run is None) == (os.environ.get("LOCAL_RANK", "0") != "0")
    """
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("two")
    (place / "program.py").write_text(PROGRAM)
    recipe = json.dumps(RECIPE.to_dict())
    run_python(place / "program.py", recipe, place / "run", check=True)
    return place / "run"


@pytest.fixture(scope="module")
def ranks(folder):
    paths = [folder.with_name(f"run.rank{rank}.json") for rank in (0, 1)]
    names = ("seen", "records", "gammas", "weights", "final")
    return [dict(zip(names, json.loads(path.read_text()), strict=True)) for path in paths]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one") / "run"
    return train(RECIPE, folder, accelerator="cpu", threads=1)


def test_each_sample_is_seen_once_an_epoch_in_another_order(ranks):
    for epoch in range(RECIPE.epochs):
        mine = [[batch for e, batch in rank["seen"] if e == epoch] for rank in ranks]
        sizes = [[len(batch) for batch in batches] for batches in mine]
        assert sizes == [[19, 19, 19, 19, 4], [18, 18, 18, 18, 3]]
        places = [place for batches in mine for batch in batches for place in batch]
        assert sorted(places) == list(range(155))
    first = [batch for epoch, batch in ranks[0]["seen"] if epoch == 0]
    second = [batch for epoch, batch in ranks[0]["seen"] if epoch == 1]
    assert first != second


def test_both_have_the_same_gammas_figures_and_weights(ranks):
    for name in ("gammas", "records", "weights", "final"):
        assert ranks[0][name] == ranks[1][name], name
    assert len(set(ranks[0]["gammas"])) > 1


def test_evaluation_counts_nobody_twice(ranks, folder):
    sizes = {name: ranks[0]["records"][-1][name]["n"] for name in ("train", "val", "test")}
    assert sizes == {"train": 101, "val": 360, "test": 101}
    with np.load(folder / "predictions.npz") as stored:
        assert stored["val_logits"].shape == (360, 10)
        assert stored["test_logits"].shape == (359, 10)
        assert len(np.unique(stored["test_ids"])) == 359


def test_two_processes_do_what_one_does(ranks, folder, alone):
    """Sums of gradients are rounded in another order; nothing else differs."""
    places = (folder, alone.folder)
    two, one = (np.load(place / "predictions.npz") for place in places)
    with two, one:
        for name in ("val_logits", "test_logits"):
            np.testing.assert_allclose(two[name], one[name], atol=2e-4)
        np.testing.assert_array_equal(two["test_labels"], one["test_labels"])
    for ours, theirs in zip(ranks[0]["records"], alone.records, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
        assert ours["val"]["nll"] == pytest.approx(theirs["val"]["nll"], rel=1e-4)


def test_one_process_writes(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [0, 1, 2]
    assert json.loads((folder / "environment.json").read_text())[0]["devices"] == 2
