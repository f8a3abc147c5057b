"""The Hugging Face Trainer with our losses: the size of a step, schedules, AdaFocal, resuming."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    EvalPrediction,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

import calibrant
from calibrant.integrations.hugging_face import TrainerLoss
from calibrant.losses import (
    LOSSES,
    AdaFocal,
    CrossEntropyLoss,
    FocalLoss,
    MMCELoss,
    SigmoidFocalLoss,
)
from tests.processes import run_ranks

# Advice of transformers and accelerate that is not about this package.
pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory")

N_CLASSES, LENGTH = 3, 5


def model_of(kind=BertForSequenceClassification):
    set_seed(0)
    config = BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=LENGTH,
        num_labels=N_CLASSES,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return kind(config)


def dataset(n, seed, tokens=False):
    rng = np.random.default_rng(seed)
    ids = torch.tensor(rng.integers(0, 20, size=(n, LENGTH)))
    if tokens:
        labels = torch.where(torch.tensor(rng.random((n, LENGTH))) < 0.4, -100, ids % N_CLASSES)
        labels[:, 0] = ids[:, 0] % N_CLASSES  # no row without a label
    else:
        labels = ids[:, 0] % N_CLASSES
    return [{"input_ids": i, "labels": label} for i, label in zip(ids, labels, strict=True)]


def trainer_of(
    tmp_path, loss=None, model=None, data=None, callbacks=(), left_out=(), eval_data=None, **options
):
    options = {"num_train_epochs": 2, "eval_strategy": "no", "save_strategy": "no"} | options
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=options.pop("batch_size", 8),
        learning_rate=0.01,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        **options,
    )
    ours = {}
    if loss is not None:
        ours = {
            "compute_loss_func": loss,
            "compute_metrics": loss.metrics,
            "callbacks": [loss, *callbacks],
        }
    ours = {"callbacks": list(callbacks)} | {k: v for k, v in ours.items() if k not in left_out}
    return Trainer(
        model_of() if model is None else model,
        arguments,
        train_dataset=dataset(24, 0) if data is None else data,
        eval_dataset=dataset(40, 1) if eval_data is None else eval_data,
        **ours,
    )


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def test_the_number_of_items_replaces_the_mean():
    logits, labels = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, -100, 0])
    for plain in (FocalLoss(gamma=3.0), FocalLoss(gamma=3.0, reduction="sum"), MMCELoss()):
        loss = TrainerLoss(plain)
        mean, shared = loss({"logits": logits}, labels), loss((logits,), labels, torch.tensor(10))
        assert float(shared) == pytest.approx(float(mean) * 5 / 10, rel=1e-6)
        assert plain.reduction == loss.reduction


def test_token_logits_have_the_classes_last():
    logits, labels = torch.randn(2, 5, 3), torch.randint(0, 3, (2, 5))
    expected = FocalLoss(gamma=2.0)(logits.reshape(10, 3), labels.reshape(10))
    assert torch.allclose(TrainerLoss(FocalLoss(gamma=2.0))({"logits": logits}, labels), expected)


def test_bad_arguments_get_one_clear_line():
    with pytest.raises(ValueError, match="loss must be a Loss"):
        TrainerLoss(torch.nn.CrossEntropyLoss())
    with pytest.raises(ValueError, match="reduction must be one of"):
        TrainerLoss(FocalLoss(gamma=1.0, reduction="none"))
    with pytest.raises(ValueError, match="needs labels; found none"):
        TrainerLoss(FocalLoss(gamma=1.0))({"logits": torch.zeros(1, 2)}, None)
    with pytest.raises(ValueError, match="must return logits; found dict"):
        TrainerLoss(FocalLoss(gamma=1.0))({"scores": torch.zeros(1, 2)}, torch.tensor([0]))


def test_an_ignored_index_that_the_trainer_counts_is_refused():
    with pytest.raises(ValueError, match=r"must be -100.*found 99\. Mark ignored labels"):
        TrainerLoss(CrossEntropyLoss(ignore_index=99))


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 3)])
def test_labels_that_are_probabilities_are_refused(shape):
    logits = torch.randn(*shape)
    with pytest.raises(ValueError, match=r"labels must be class indices; found torch\.float32"):
        TrainerLoss(CrossEntropyLoss())({"logits": logits}, torch.softmax(logits, -1))


def test_a_loss_of_one_logit_is_refused():
    with pytest.raises(ValueError, match="a loss of class indices; found SigmoidFocalLoss"):
        TrainerLoss(SigmoidFocalLoss(gamma=2.0))


def test_smoothing_that_the_trainer_would_leave_out_is_refused(tmp_path):
    trainer = trainer_of(tmp_path, TrainerLoss(CrossEntropyLoss()), label_smoothing_factor=0.1)
    with pytest.raises(ValueError, match=r"Pass label_smoothing=0\.1 to the loss"):
        trainer.train()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "said"), [("adafocal", 1), ("fls-531", 1), ("flsd-53", 0)])
def test_a_missing_callback_is_warned_of_once(tmp_path, recwarn, name, said):
    loss = TrainerLoss(LOSSES[name]())
    trainer_of(tmp_path, loss, left_out=["callbacks"], eval_strategy="epoch").train()
    messages = [str(w.message) for w in recwarn if "callbacks=[loss]" in str(w.message)]
    assert len(messages) == said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "found"),
    [
        ("adafocal", {}, "found eval_strategy='no'"),
        (
            "adafocal",
            {"eval_strategy": "epoch", "left_out": ["compute_metrics"]},
            "found an evaluation without",
        ),
        (
            "adafocal",
            {"eval_strategy": "epoch", "eval_delay": 9},
            "found no evaluation in the whole run",
        ),
        ("adafocal", {"eval_strategy": "epoch"}, None),
        ("fls-531", {}, None),
    ],
)
def test_a_loss_that_is_shown_no_validation_set_is_warned_of_once(
    tmp_path, recwarn, name, options, found
):
    trainer_of(tmp_path, TrainerLoss(LOSSES[name]()), **options).train()
    messages = [str(w.message) for w in recwarn if "must see the validation" in str(w.message)]
    assert len(messages) == (found is not None)
    assert all(found in message for message in messages)


def test_cross_entropy_trains_as_the_trainer_does_without_us(tmp_path):
    ours = trainer_of(tmp_path, TrainerLoss(CrossEntropyLoss()))
    theirs = trainer_of(tmp_path)
    for trainer in (ours, theirs):
        trainer.train()
    assert torch.allclose(weights(ours), weights(theirs), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [False, True])
def test_accumulated_batches_make_the_step_of_one_large_batch(tmp_path, tokens):
    found = []
    for options in ({"batch_size": 8}, {"batch_size": 2, "gradient_accumulation_steps": 4}):
        kind = BertForTokenClassification if tokens else BertForSequenceClassification
        trainer = trainer_of(
            tmp_path,
            TrainerLoss(LOSSES["flsd-53"]()),
            model=model_of(kind),
            data=dataset(24, 0, tokens),
            optim="sgd",
            max_steps=2,
            **options,
        )
        trainer.train()
        found.append(weights(trainer))
    start = weights(trainer_of(tmp_path, model=model_of(kind)))
    assert torch.allclose(*found, atol=1e-6)
    assert not torch.allclose(found[0], start, atol=1e-5)


class Epochs(TrainerCallback):
    def __init__(self, loss):
        self.loss, self.gammas = loss, []

    def on_step_begin(self, args, state, control, **_):
        self.gammas.append(self.loss.gamma.gamma.item())


def test_a_schedule_hears_of_the_epochs(tmp_path):
    loss = TrainerLoss(LOSSES["fls-531"]())
    seen = Epochs(loss.loss)
    trainer_of(tmp_path, loss, callbacks=[seen], num_train_epochs=7).train()
    assert seen.gammas == [g for g in (5, 5, 3, 3, 3, 1, 1) for _ in range(3)]


def test_evaluation_in_training_moves_adafocal_and_logs(tmp_path):
    loss = TrainerLoss(LOSSES["adafocal"]())
    trainer = trainer_of(tmp_path, loss, eval_strategy="epoch")
    trainer.train()
    assert int(loss.loss.gamma.n_updates) == 2
    logged = [row for row in trainer.state.log_history if "eval_ece" in row]
    assert len(logged) == 2
    after = loss.loss.gamma.gammas.clone()
    metrics = trainer.evaluate()
    assert torch.equal(loss.loss.gamma.gammas, after)
    output = trainer.predict(dataset(40, 1))
    expected = calibrant.ece(logits=output.predictions, labels=output.label_ids)
    assert metrics["eval_ece"] == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
def test_adafocal_moves_once_for_each_of_several_validation_sets(tmp_path):
    loss = TrainerLoss(LOSSES["adafocal"]())
    sets = {"first": dataset(40, 1), "second": dataset(40, 2)}
    trainer_of(tmp_path, loss, eval_data=sets, eval_strategy="epoch", eval_on_start=True).train()
    assert int(loss.loss.gamma.n_updates) == 2 * (1 + 2)  # before training, and after each epoch


TWO_PROCESSES = """
import sys
sys.path.insert(0, {folder!r})
from {module} import *

torch.set_num_threads(1)
rank = int(sys.argv[1])
torch.distributed.init_process_group(
    "gloo", init_method="file://" + {out!r} + "/meet", rank=rank, world_size=2
)
loss = shown()
torch.save(loss.loss.state_dict(), {out!r} + f"/found{{rank}}.pt")
torch.distributed.destroy_process_group()
"""


def shown():
    """A loss that has seen a validation set of 41 rows, whatever the number of processes."""
    rng = np.random.default_rng(0)
    loss = TrainerLoss(FocalLoss(gamma=AdaFocal(n_bins=4)))
    loss.training = True
    logits, labels = 3 * rng.normal(size=(41, 5, 3)), rng.integers(0, 3, size=(41, 5))
    labels[rng.random(labels.shape) < 0.3] = -100
    loss.metrics(EvalPrediction(predictions=logits, label_ids=labels))
    return loss


@pytest.mark.slow
def test_two_processes_that_both_have_the_whole_set_find_what_one_finds(tmp_path):
    here, script = Path(__file__), tmp_path / "run.py"
    script.write_text(
        TWO_PROCESSES.format(
            folder=str(here.parents[2]), module=f"tests.integrations.{here.stem}", out=str(tmp_path)
        )
    )
    run_ranks("-W", "ignore", script)
    one = shown().loss.state_dict()
    for rank in range(2):
        two = torch.load(tmp_path / f"found{rank}.pt", weights_only=True)
        assert all(torch.equal(value, two[name]) for name, value in one.items())


def test_metrics_leave_out_ignored_tokens_and_other_outputs():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(4, 5, 3)), rng.integers(0, 3, size=(4, 5))
    labels[:, 3:] = -100
    loss = TrainerLoss(FocalLoss(gamma=AdaFocal()))
    loss.training = True
    found = loss.metrics(EvalPrediction(predictions=(logits, "states"), label_ids=labels))
    kept = logits[:, :3].reshape(-1, 3), labels[:, :3].reshape(-1)
    assert found["nll"] == pytest.approx(calibrant.nll(logits=kept[0], labels=kept[1]))
    other = FocalLoss(gamma=AdaFocal())
    other.update(torch.tensor(kept[0]), torch.tensor(kept[1]))
    assert torch.equal(loss.loss.gamma.gammas, other.gamma.gammas)


class StopAfter(TrainerCallback):
    def __init__(self, n_epochs):
        self.n_epochs = n_epochs

    def on_epoch_end(self, args, state, control, **_):
        control.should_training_stop = state.epoch >= self.n_epochs


def run(folder, n_epochs, resume=None):
    loss = TrainerLoss(LOSSES["adafocal"]())
    options = {"num_train_epochs": 4, "eval_strategy": "epoch", "save_strategy": "epoch"}
    trainer = trainer_of(folder, loss, callbacks=[StopAfter(n_epochs)], **options)
    trainer.train(resume_from_checkpoint=resume)
    return loss.loss.state_dict(), weights(trainer)


@pytest.mark.slow
def test_a_resumed_run_goes_on_with_the_state_of_adafocal(tmp_path):
    whole, trained = run(tmp_path / "whole", 4)
    run(tmp_path / "half", 2)
    resumed, again = run(tmp_path / "half", 4, resume=True)
    for name, value in whole.items():
        assert torch.equal(value, resumed[name]), name
    assert torch.equal(trained, again)


@pytest.mark.slow
def test_a_state_that_is_missing_is_said(tmp_path):
    run(tmp_path / "half", 2)
    (tmp_path / "half" / "checkpoint-6" / "calibrant_loss.pt").unlink()
    with pytest.warns(UserWarning, match="the loss keeps its current state"):
        run(tmp_path / "half", 3, resume=True)
