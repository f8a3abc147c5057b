"""The Lightning callback: epochs, AdaFocal, metrics by epoch, resuming, several processes."""

from __future__ import annotations

import logging
from pathlib import Path

import lightning
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import calibrant
from calibrant.integrations.lightning import CalibrationCallback
from calibrant.losses import LOSSES, AdaFocal, FocalLoss, ScheduledGamma
from tests.processes import run_python

# Lightning's own advice and deprecations, which are not about this package.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:The dirpath has changed"),
]
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

N_VAL, N_CLASSES = 60, 3


class Module(lightning.LightningModule):
    def __init__(self, loss=None):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.2), nn.Linear(16, N_CLASSES))
        self.loss = loss if loss is not None else nn.CrossEntropyLoss()

    def training_step(self, batch, batch_idx):
        return self.loss(self.network(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        return {"logits": self.network(batch[0]), "labels": batch[1]}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


def samples(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    y = (x[:, :3] + rng.gumbel(size=(n, 3))).argmax(axis=1)
    return torch.tensor(x).float(), torch.tensor(y)


def loader(n, seed, batch_size=25):
    return DataLoader(TensorDataset(*samples(n, seed)), batch_size=batch_size)


def trainer_of(tmp_path, *callbacks, **options):
    options = {"max_epochs": 3, "enable_checkpointing": False, "logger": False} | options
    return lightning.Trainer(
        accelerator="cpu",
        default_root_dir=tmp_path,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
        **options,
    )


def fitted(tmp_path, module, *callbacks, **options):
    trainer = trainer_of(tmp_path, CalibrationCallback(), *callbacks, **options)
    trainer.fit(module, loader(100, 0), loader(N_VAL, 1))
    return trainer


class Told(FocalLoss):
    """Writes down the epochs it is told."""

    def __init__(self, gamma=2.0, **options):
        super().__init__(gamma=gamma, **options)
        self.epochs = []

    def start_epoch(self, epoch, n_epochs=None):
        super().start_epoch(epoch, n_epochs)
        self.epochs.append((epoch, n_epochs))


class Shown(AdaFocal):
    """Writes down the validation sets it is shown."""

    def __init__(self, **options):
        super().__init__(**options)
        self.seen = []

    def update(self, confidence, correct):
        super().update(confidence, correct)
        self.seen.append((confidence, correct))


def test_the_loss_is_told_epochs_and_shown_the_whole_validation_set(tmp_path):
    torch.manual_seed(0)
    module = Module(Told(Shown(n_bins=5)))
    fitted(tmp_path, module)
    assert module.loss.epochs == [(0, 3), (1, 3), (2, 3)]
    policy = module.loss.gamma
    assert len(policy.seen) == 3 == int(policy.n_updates)  # no sanity check
    confidence, correct = policy.seen[-1]
    x, y = samples(N_VAL, 1)
    module.network.eval()
    with torch.no_grad():
        expected, top = torch.softmax(module.network(x), -1).max(dim=1)
    assert torch.allclose(confidence, expected.double(), atol=1e-6)
    assert torch.equal(correct.bool(), top == y)


def test_images_of_several_sizes_and_no_logits_kept(tmp_path):
    class Images(Module):
        def validation_step(self, batch, batch_idx):
            size = 2 + batch_idx  # another height in each batch
            logits = self.network(batch[0])[:, :, None, None].expand(-1, -1, size, 3)
            return {"logits": logits, "labels": batch[1][:, None, None].expand(-1, size, 3)}

    class Sizes(Callback):
        def on_validation_batch_end(self, *_):
            self.kept = sum(t.numel() for pair in callback._kept[module.loss] for t in pair)

    module, sizes, callback = Images(FocalLoss(gamma=Shown())), Sizes(), CalibrationCallback()
    trainer = trainer_of(tmp_path, callback, sizes, max_epochs=1, num_sanity_val_steps=0)
    trainer.fit(module, loader(100, 0), loader(N_VAL, 1))
    n_pixels = 25 * 2 * 3 + 25 * 3 * 3 + 10 * 4 * 3
    assert [len(confidence) for confidence, _ in module.loss.gamma.seen] == [n_pixels]
    assert sizes.kept == 2 * n_pixels
    assert not callback._kept


@pytest.mark.parametrize("loss", ["adafocal", "flsd-53"])
@pytest.mark.parametrize(
    "options", [{"limit_val_batches": 0}, {"check_val_every_n_epoch": 9}, {"loader": None}]
)
def test_a_loss_that_is_shown_no_validation_set_is_warned_of_once(tmp_path, recwarn, loss, options):
    options = {"max_epochs": 2} | options
    val = options.pop("loader", loader(N_VAL, 1))
    # Lightning says itself that a validation_step has no data.
    trainer = trainer_of(tmp_path, CalibrationCallback(), **options)
    trainer.fit(Module(LOSSES[loss]()), loader(100, 0), val)
    ours = [w for w in recwarn if "must see a validation set" in str(w.message)]
    assert len(ours) == (loss == "adafocal")
    assert all(w.category is UserWarning for w in ours)


def test_a_validation_set_without_a_label_that_counts_is_warned_of(tmp_path):
    class Unlabelled(Module):
        def validation_step(self, batch, batch_idx):
            labels = torch.full_like(batch[1], -100)
            return {"logits": self.network(batch[0]), "labels": labels}

    module = Unlabelled(LOSSES["adafocal"]())
    with pytest.warns(UserWarning, match="must see a validation set.*all labels are ignored"):
        fitted(tmp_path, module)
    assert int(module.loss.gamma.n_updates) == 0


@pytest.mark.parametrize("put", [lambda loss: [loss], lambda loss: {"main": loss}])
@pytest.mark.parametrize(("loss", "said"), [("fls-531", 1), ("adafocal", 1), ("flsd-53", 0)])
def test_a_loss_in_a_plain_container_is_warned_of(tmp_path, recwarn, put, loss, said):
    module = Module()
    module.others = put(LOSSES[loss]())
    fitted(tmp_path, module)
    messages = [str(w.message) for w in recwarn if "losses must be submodules" in str(w.message)]
    assert len(messages) == said
    assert all("found some in others" in message for message in messages)


def test_a_loss_that_does_not_ask_is_told_epochs_alone(tmp_path):
    module = Module(Told())
    fitted(tmp_path, module)
    assert len(module.loss.epochs) == 3


@pytest.mark.parametrize("loss", [None, "flsd-53", "adafocal"])
def test_logged_metrics_are_those_of_the_validation_set(tmp_path, loss):
    torch.manual_seed(0)
    module = Module(None if loss is None else LOSSES[loss]())
    logged = fitted(tmp_path, module).callback_metrics
    x, y = samples(N_VAL, 1)
    module.network.eval()
    with torch.no_grad():
        probs = torch.softmax(module.network(x), -1)
    assert sorted(logged) == ["val_ada_ece", "val_ece", "val_nll"]
    for name, tolerance in (("ece", 1e-6), ("nll", 1e-6), ("ada_ece", 2e-3)):
        assert float(logged[f"val_{name}"]) == pytest.approx(
            calibrant.METRICS[name](probs, y), abs=tolerance
        )


def test_metrics_by_epoch_reach_a_logger(tmp_path):
    from lightning.pytorch.loggers import CSVLogger

    logger = CSVLogger(tmp_path, name="", version="")
    fitted(tmp_path, Module(), logger=logger, log_every_n_steps=1)
    rows = (tmp_path / "metrics.csv").read_text().splitlines()
    head = rows[0].split(",")
    errors = [row.split(",")[head.index("val_ece")] for row in rows[1:]]
    assert len(errors) == 3
    assert all(0 <= float(error) <= 1 for error in errors)


class Modes(Callback):
    def __init__(self):
        self.modes = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.modes.append((pl_module.training, pl_module.network[0].training))


@pytest.mark.filterwarnings("ignore:Found 1 module.* in eval mode")
def test_modes_are_left_as_found(tmp_path):
    modes, module = Modes(), Module(LOSSES["adafocal"]())
    module.network[0].eval()  # a frozen layer
    fitted(tmp_path, module, modes)
    assert set(modes.modes) == {(True, False)}


def test_a_module_may_hold_the_loss_anywhere(tmp_path):
    module = Module()
    module.losses = nn.ModuleDict({"main": FocalLoss(gamma=AdaFocal())})
    fitted(tmp_path, module)
    assert int(module.losses["main"].gamma.n_updates) == 3


def test_validating_alone_logs_and_moves_nothing(tmp_path):
    module = Module(LOSSES["adafocal"]())
    trainer = trainer_of(tmp_path, CalibrationCallback(metrics=("brier",), prefix="honest/"))
    (logged,) = trainer.validate(module, loader(N_VAL, 1), verbose=False)
    assert list(logged) == ["honest/brier"]
    assert int(module.loss.gamma.n_updates) == 0


def test_one_of_several_validation_sets(tmp_path):
    module = Module(FocalLoss(gamma=Shown()))
    trainer = trainer_of(tmp_path, CalibrationCallback(dataloader_idx=1), max_epochs=1)
    trainer.fit(module, loader(100, 0), [loader(N_VAL, 1), loader(20, 2)])
    assert [len(correct) for _, correct in module.loss.gamma.seen] == [20]


def test_ignored_labels_and_pixels(tmp_path):
    class Pixels(Module):
        def validation_step(self, batch, batch_idx):
            logits = self.network(batch[0])
            labels = torch.stack([batch[1], torch.full_like(batch[1], -100)], dim=-1)
            return {"logits": torch.stack([logits, -logits], dim=-1), "labels": labels}

    torch.manual_seed(0)
    pixels, plain = Pixels(), Module()
    plain.load_state_dict(pixels.state_dict())
    logged = [
        trainer_of(tmp_path, CalibrationCallback()).validate(m, loader(N_VAL, 1), verbose=False)
        for m in (pixels, plain)
    ]
    assert logged[0] == logged[1]


class Marked(Module):
    """The first label of a validation batch is 255."""

    def validation_step(self, batch, batch_idx):
        labels = torch.where(torch.arange(len(batch[1])) == 0, 255, batch[1])
        return {"logits": self.network(batch[0]), "labels": labels}


def test_the_ignored_label_is_that_of_the_loss(tmp_path):
    module = Marked(Told(Shown(), ignore_index=255))
    trainer = fitted(tmp_path, module, max_epochs=1)
    assert [len(correct) for _, correct in module.loss.gamma.seen] == [N_VAL - 3]  # 3 batches
    assert "val_ece" in trainer.callback_metrics


def test_losses_that_ignore_different_labels_need_a_word(tmp_path):
    module = Marked(LOSSES["ce"](ignore_index=255))
    module.other = LOSSES["ce"]()
    with pytest.raises(ValueError, match=r"same ignore_index; found -100 and 255\. Pass ignore_l"):
        trainer_of(tmp_path, CalibrationCallback()).validate(module, loader(N_VAL, 1))
    callback = CalibrationCallback(ignore_label=255)
    (logged,) = trainer_of(tmp_path, callback).validate(module, loader(N_VAL, 1), verbose=False)
    assert "val_ece" in logged


@pytest.mark.parametrize("returned", [None, {"loss": 1.0, "logits": 0.0}])
def test_a_validation_step_without_logits_gets_one_clear_line(tmp_path, returned):
    class Silent(Module):
        def validation_step(self, batch, batch_idx):
            return returned

    trainer = trainer_of(tmp_path, CalibrationCallback())
    with pytest.raises(ValueError, match=r"needs the logits and labels.*validation_step"):
        trainer.validate(Silent(), loader(N_VAL, 1), verbose=False)


def test_unknown_metrics_are_refused():
    with pytest.raises(ValueError, match="metrics must be one of"):
        CalibrationCallback(metrics=("eec",))
    with pytest.raises(ValueError, match=r"sequence of names; found the string 'ece'"):
        CalibrationCallback(metrics="ece")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"max_epochs": 2}, [(0, 2), (1, 2)]),
        ({"max_epochs": -1, "max_steps": 10}, [(0, 3), (1, 3), (2, 3)]),  # 4 steps an epoch
        ({"max_epochs": 9, "max_steps": 4, "accumulate_grad_batches": 2}, [(0, 2), (1, 2)]),
    ],
)
def test_the_length_of_the_run_by_epochs_or_steps(tmp_path, options, expected):
    module = Module(Told())
    fitted(tmp_path, module, **options)
    assert module.loss.epochs == expected


class ByHand(Module):
    """Two optimisers, each of which makes a step for every batch."""

    automatic_optimization = False

    def training_step(self, batch, batch_idx):
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            self.manual_backward(super().training_step(batch, batch_idx))
            optimizer.step()

    def configure_optimizers(self):
        return [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in self.network[::2]]


@pytest.mark.parametrize(
    ("options", "length"), [({"max_epochs": 2}, 2), ({"max_epochs": -1, "max_steps": 16}, None)]
)
def test_steps_by_hand_do_not_tell_the_length_of_the_run(tmp_path, options, length):
    module = ByHand(Told())
    fitted(tmp_path, module, **options)
    assert module.loss.epochs == [(0, length), (1, length)]


def test_a_schedule_in_fractions_and_steps_by_hand_is_refused(tmp_path):
    options = {"max_epochs": -1, "max_steps": 16}
    with pytest.raises(ValueError, match=r"needs n_epochs.*max_epochs.*epochs="):
        fitted(tmp_path, ByHand(LOSSES["fls-531"]()), **options)
    in_epochs = ByHand(FocalLoss(gamma=ScheduledGamma((5.0, 1.0), epochs=(1,))))
    fitted(tmp_path, in_epochs, **options)
    assert in_epochs.loss.gamma.gamma.item() == 1.0


def test_a_schedule_in_fractions_without_an_end_is_refused(tmp_path):
    class Stop(Callback):
        def on_train_batch_end(self, trainer, *_):
            trainer.should_stop = True

    with pytest.raises(ValueError, match="needs n_epochs"):
        fitted(tmp_path, Module(FocalLoss(gamma=ScheduledGamma())), Stop(), max_epochs=-1)


class Seeded(Callback):
    """The same dropout in a step whether or not the run was resumed before it."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        torch.manual_seed(trainer.global_step)


@pytest.mark.parametrize("loss", ["adafocal", pytest.param("fls-531", marks=pytest.mark.slow)])
@pytest.mark.parametrize("after", ["training", pytest.param("validation", marks=pytest.mark.slow)])
def test_a_resumed_run_goes_on_bit_for_bit(tmp_path, loss, after):
    def run(folder, n_epochs, ckpt_path=None):
        torch.manual_seed(0)
        module = Module(LOSSES[loss]())
        saving = ModelCheckpoint(
            dirpath=folder, save_last=True, save_on_train_epoch_end=after == "training"
        )
        callbacks = (CalibrationCallback(), Seeded(), StopAfter(n_epochs), saving)
        trainer = trainer_of(folder, *callbacks, max_epochs=6, enable_checkpointing=True)
        trainer.fit(module, loader(100, 0), loader(N_VAL, 1), ckpt_path=ckpt_path)
        return module, trainer

    whole, trainer = run(tmp_path / "whole", 6)
    half, _ = run(tmp_path / "half", 3)
    resumed, again = run(tmp_path / "rest", 6, ckpt_path=tmp_path / "half" / "last.ckpt")
    saved = torch.load(tmp_path / "half" / "last.ckpt", weights_only=True)["state_dict"]
    for name, value in half.state_dict().items():
        assert torch.equal(saved[name], value), name
    expected = whole.state_dict()
    assert any(name.startswith("loss.gamma") for name in expected)
    for name, value in resumed.state_dict().items():
        assert torch.equal(value, expected[name]), name
    assert again.callback_metrics == trainer.callback_metrics


class StopAfter(Callback):
    def __init__(self, n_epochs):
        self.n_epochs = n_epochs

    def on_train_epoch_end(self, trainer, pl_module):
        trainer.should_stop = trainer.current_epoch + 1 >= self.n_epochs


def quiet(loss):
    """Without dropout, which would differ between processes."""
    torch.manual_seed(0)
    module = Module(LOSSES[loss]())
    module.network[1].p = 0.0
    return module


TWO_PROCESSES = """
import sys
from datetime import timedelta

sys.path.insert(0, {folder!r})
from {module} import *
from lightning.pytorch.strategies import DDPStrategy

if __name__ == "__main__":
    torch.set_num_threads(1)
    module = quiet("adafocal")
    strategy = DDPStrategy(process_group_backend="gloo", timeout=timedelta(seconds=60))
    trainer = trainer_of(
        {out!r}, CalibrationCallback(), devices=2, strategy=strategy, use_distributed_sampler=False
    )
    rank = trainer.global_rank
    trainer.fit(module, part_of(rank, 100, 0, batch_size=10), part_of(rank, N_VAL, 1, batch_size=7))
    if trainer.global_rank == 0:
        torch.save(found_by(module, trainer), {out!r} + "/found.pt")
"""


def part_of(rank, n, seed, batch_size):
    """Every second row, so that a step of both processes is a step on rows in their order."""
    rows = [part[rank::2] for part in samples(n, seed)]
    return DataLoader(TensorDataset(*rows), batch_size=batch_size)


def found_by(module, trainer):
    return dict(module.loss.gamma.state_dict(), **trainer.callback_metrics)


@pytest.mark.slow
def test_two_processes_find_what_one_finds(tmp_path):
    here = Path(__file__)
    script = tmp_path / "run.py"
    script.write_text(
        TWO_PROCESSES.format(
            folder=str(here.parents[2]), module=f"tests.integrations.{here.stem}", out=str(tmp_path)
        )
    )
    run_python("-W", "ignore", script, check=True, cwd=tmp_path)
    two = torch.load(tmp_path / "found.pt", weights_only=True)
    module = quiet("adafocal")
    trainer = trainer_of(tmp_path, CalibrationCallback())
    # A batch of two processes, 10 rows each, is a batch of 20.
    trainer.fit(module, loader(100, 0, batch_size=20), loader(N_VAL, 1))
    one = found_by(module, trainer)
    assert int(one["n_updates"]) == 3
    assert sorted(one) == sorted(two)
    for name, value in one.items():
        assert torch.allclose(value, two[name], atol=1e-5), name
