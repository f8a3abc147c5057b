"""Losses for the Hugging Face ``Trainer``.

This module needs transformers; nothing else imports it.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

from calibrant import _inputs
from calibrant.errors import CalibrantError, MissingExtraError

_inputs.installed("torch", extra="torch", purpose="calibrant.integrations.hugging_face")
if not _inputs.is_found("transformers"):  # no extra has it
    raise MissingExtraError(
        "calibrant.integrations.hugging_face needs transformers; found none. Run: pip install "
        "transformers"
    )

import torch
from torch import Tensor
from transformers import (
    EvalPrediction,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from calibrant._writing import write_whole
from calibrant.losses.base import Loss, class_axis
from calibrant.losses.focal import FocalLoss, SigmoidFocalLoss
from calibrant.metrics import METRICS

LOGGED = ("ece", "ada_ece", "nll")
STATE = "calibrant_loss.pt"


class TrainerLoss(TrainerCallback):
    """A loss of this package in a Hugging Face ``Trainer``.

    ::

        loss = TrainerLoss(LOSSES["flsd-53"]())
        Trainer(..., compute_loss_func=loss, compute_metrics=loss.metrics, callbacks=[loss])

    A loss that does not change during training needs only ``compute_loss_func``. The callback is
    for schedules, which need the epoch, and for AdaFocal, whose state it writes next to every
    checkpoint and reads when training is resumed from there. ``metrics`` computes calibration
    errors by epoch; with the callback it also shows AdaFocal the validation set at each evaluation
    during training. A missing part that makes a difference is reported by a warning.

    The ``Trainer`` passes the number of targets of an optimiser step, over all accumulation steps
    and all processes. The losses of a batch are summed and divided by that number, so the step is
    that of the mean over all targets, however they are divided into batches (but MMCE is that of
    each batch). With class weights the divisor is the number of targets, not their total weight.

    The model gets no labels, so it computes no loss of its own. Labels are class indices, with
    -100 for ignored ones; logits have the classes last and one row for each label. A causal
    language model, whose logits belong to the next token, needs a function of your own that shifts
    them.

    Args:
        loss: A loss with ``reduction="mean"`` or ``"sum"``, which are the same here. Its
            ``ignore_index`` is -100, which the ``Trainer`` does not count.

    Examples:
        >>> import torch
        >>> from calibrant.losses import FocalLoss
        >>> from calibrant.integrations.hugging_face import TrainerLoss
        >>> loss = TrainerLoss(FocalLoss(gamma=2.0))
        >>> outputs = {"logits": torch.tensor([[2.0, 0.0], [2.0, 0.0]])}
        >>> round(loss(outputs, torch.tensor([0, 1])).item(), 4)
        0.8259
        >>> round(loss(outputs, torch.tensor([0, 1]), num_items_in_batch=4).item(), 4)
        0.413
    """

    def __init__(self, loss: Loss) -> None:
        _inputs.instance(loss, Loss, "loss")
        check_trainer_loss(loss)
        self.loss = loss
        self.reduction = _inputs.choice(loss.reduction, "reduction", ("mean", "sum"))
        self.training = False
        self._warned = False
        self._updated = False

    def __call__(
        self,
        outputs: Any,
        labels: Tensor | None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """The loss of a batch, for ``compute_loss_func``."""
        labels = check_trainer_labels(labels)
        logits = _inputs.logits_of_network(outputs)
        if torch.is_grad_enabled() and not self.training:
            self._warn_without_callback()
        self.loss.to(logits.device)
        rows = torch.movedim(logits, -1, class_axis(logits))
        self.loss.reduction = "mean" if num_items_in_batch is None else "sum"
        try:
            value: Tensor = self.loss(rows, labels)
        finally:
            self.loss.reduction = self.reduction
        return value if num_items_in_batch is None else value / num_items_in_batch

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """Calibration metrics of an evaluation, for ``compute_metrics``."""
        logits, labels = prediction.predictions, prediction.label_ids
        if isinstance(logits, tuple):  # hidden states and others follow the logits
            logits = logits[0]
        if self.training:
            self.loss.update(*_own_part(torch.as_tensor(logits), torch.as_tensor(labels)))
            self._updated = True
        ignored = self.loss.ignore_index
        return {
            name: METRICS[name](logits=logits, labels=labels, ignore_label=ignored)
            for name in LOGGED
        }

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Restore the state of the loss, if training is resumed from a checkpoint."""
        smoothing = args.label_smoothing_factor
        if smoothing != 0.0:
            raise CalibrantError(
                "the Trainer does not smooth labels if it is given a loss; found "
                f"label_smoothing_factor={smoothing:g}. Pass label_smoothing={smoothing:g} to the "
                "loss"
            )
        self.training, self._warned, self._updated = True, False, False
        if args.eval_strategy == "no":
            self._warn_without_validation("eval_strategy='no'")
        saved = _state_path(args, state)
        if state.global_step == 0 or not self.loss.state_dict():
            return
        if saved.is_file():
            with _inputs.refusing(
                f"{saved} cannot be read as the state of the loss",
                "Resume from another checkpoint, or delete the file to continue without it",
            ):
                self.loss.load_state_dict(torch.load(saved, weights_only=True))
        else:
            warnings.warn(
                f"training is resumed, but there is no {saved}; the loss keeps its current state. "
                f"Load the {STATE} of the checkpoint into it, or resume in the same output_dir",
                stacklevel=2,
            )

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Tell the loss which epoch begins."""
        # state.epoch is a float, and an integer up to rounding where an epoch begins.
        self.loss.start_epoch(int((state.epoch or 0.0) + 1e-6), max(1, state.num_train_epochs))

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Warn if the loss did not see this evaluation."""
        if self.training:
            self._warn_without_validation("an evaluation without compute_metrics=loss.metrics")

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Write the state of the loss next to the checkpoint."""
        path = _state_path(args, state)
        if state.is_world_process_zero and self.loss.state_dict() and path.parent.is_dir():
            content = io.BytesIO()
            torch.save(self.loss.state_dict(), content)
            write_whole(path, content.getbuffer())

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Later evaluations do not update the loss."""
        self._warn_without_validation("no evaluation in the whole run")
        self.training = False

    def _warn_without_callback(self) -> None:
        scheduled = isinstance(self.loss, FocalLoss) and self.loss.needs_epochs
        if scheduled or self.loss.needs_validation:
            self._warn_once(
                "the loss changes during training and needs the callback for that; found none, so "
                "gamma does not change. Pass callbacks=[loss] to the Trainer"
            )

    def _warn_without_validation(self, found: str) -> None:
        if self.loss.needs_validation and not self._updated:
            self._warn_once(
                f"the loss must see the validation set; found {found}, so its gammas do not "
                "change. Set eval_strategy='epoch' and pass compute_metrics=loss.metrics"
            )

    def _warn_once(self, message: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(message, stacklevel=3)


def _own_part(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The part of the validation set, which every process has, that this process passes on."""
    rows = torch.movedim(logits, -1, class_axis(logits))
    group = torch.distributed
    if not (group.is_available() and group.is_initialized()):
        return rows, labels
    mine = slice(group.get_rank(), None, group.get_world_size())
    return rows[mine], labels[mine]


def _state_path(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(args.output_dir or ".") / f"checkpoint-{state.global_step}" / STATE


def check_trainer_loss(loss: Loss) -> None:
    """Refuse a loss whose targets are not those that the Trainer counts."""
    if isinstance(loss, SigmoidFocalLoss):
        raise CalibrantError(
            f"expected a loss of class indices; found {type(loss).__name__}. Pass a function that "
            "calls it as compute_loss_func"
        )
    if loss.ignore_index != -100:
        raise CalibrantError(
            "ignore_index must be -100, because the Trainer counts all other labels; found "
            f"{loss.ignore_index}. Mark ignored labels with -100"
        )


def check_trainer_labels(labels: Any) -> Any:
    """Check the labels that the Trainer passes: class indices."""
    if labels is None:
        raise CalibrantError(
            "the loss needs labels; found none among the inputs. Name the column of the data set "
            "'labels'"
        )
    if labels.is_floating_point():
        raise CalibrantError(
            f"labels must be class indices; found {labels.dtype} of shape {tuple(labels.shape)}, "
            "and the Trainer would count every number as a target. Pass integers, or a "
            "function of your own as compute_loss_func"
        )
    return labels
