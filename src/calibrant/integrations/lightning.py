"""Calibration during training with Lightning.

This module needs Lightning: ``pip install 'calibrant[lightning]'``. Nothing else imports it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from calibrant import _inputs
from calibrant.errors import CalibrantError

_inputs.installed(
    "torch", "lightning", extra="lightning", purpose="calibrant.integrations.lightning"
)

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from calibrant.losses.base import Loss, class_axis
from calibrant.losses.focal import FocalLoss, SigmoidFocalLoss
from calibrant.metrics.evaluation import DEFAULT_METRICS
from calibrant.metrics.resampling import RESAMPLES
from calibrant.metrics.streaming import StreamedEvaluation

TopLabels = tuple[Tensor, Tensor]
"""Confidences, and whether they were right."""


class CalibrationCallback(Callback):
    """Tells the losses of a module what they want to know, and logs how honest the module is.

    For every loss of :mod:`calibrant.losses` that is an attribute of the module:

    * before each epoch, ``loss.start_epoch(epoch, n_epochs)``, for schedules;
    * after each validation run of a fit, what ``loss.update(val_logits, val_labels)`` does, for
      AdaFocal. Two numbers are kept for each sample, and no logits. A loss that wants to see the
      validation set and never does is warned of.

    After each validation run the metrics are logged by ``pl_module.log``, so that any logger has
    them and ``ModelCheckpoint(monitor="val_ece")`` can choose by them. They need no loss of this
    package. The check before training, ``num_sanity_val_steps``, counts for neither.

    For this ``validation_step`` returns a dictionary with ``"logits"``, of shape (N, C) or
    (N, C, d1, ...), and ``"labels"``, class indices. The module is not run once more, and its mode
    is left alone.

    State is where it belongs: in the buffers of the loss, which Lightning saves with the module. A
    run that is resumed goes on as if it had not stopped.

    In several processes every one sees its part of the validation set, and both metrics and
    AdaFocal are those of the whole. A sampler that repeats samples to give every process as many
    counts them twice. The equal-mass error is counted on a fine grid, in bounded memory; see
    :class:`calibrant.metrics.StreamedEvaluation`.

    Args:
        metrics: What to log: names of the default metrics of :func:`calibrant.evaluate`.
        prefix: Put before the names.
        n_bins: Number of bins of the calibration errors.
        ignore_label: Label of samples that do not count; by default the ``ignore_index`` of the
            losses, or -100 where there is none.
        dataloader_idx: Which of several validation sets to use.

    Examples:
        >>> from calibrant.integrations.lightning import CalibrationCallback
        >>> CalibrationCallback(metrics=("ece", "brier")).names
        ['val_ece', 'val_brier']
    """

    def __init__(
        self,
        *,
        metrics: Sequence[str] = ("ece", "ada_ece", "nll"),
        prefix: str = "val_",
        n_bins: int = 15,
        ignore_label: int | None = None,
        dataloader_idx: int = 0,
    ) -> None:
        super().__init__()
        self.metrics = check_several_of(metrics, "metrics", DEFAULT_METRICS)
        self.prefix = prefix
        self.n_bins = n_bins
        self.ignore_label = _inputs.ignored_label(ignore_label)
        self.dataloader_idx = dataloader_idx
        self._waiting = False
        self._forget()

    @property
    def names(self) -> list[str]:
        """What is logged."""
        return [self.prefix + name for name in self.metrics]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Warn of losses that will hear of nothing."""
        hidden = _losses_out_of_sight(pl_module)
        if hidden:
            rank_zero_warn(
                f"losses must be where PyTorch finds them; found some in {', '.join(hidden)}, a "
                "plain list or dict. They hear of no epoch and see no validation set: use "
                "nn.ModuleList or nn.ModuleDict"
            )
        self._waiting = any(loss.needs_validation for loss in losses_of(pl_module))
        if not trainer.enable_validation:
            self._warn_of_waiting()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Warn of losses that have waited in vain."""
        self._warn_of_waiting()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tell the losses which epoch begins."""
        for loss in losses_of(pl_module):
            loss.start_epoch(trainer.current_epoch, epochs_of(trainer))

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin to count; what an interrupted run has left does not count."""
        self._forget()
        fitting = trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking
        losses = losses_of(pl_module)
        for loss in losses:
            if fitting and loss.needs_validation:
                # Nothing, so that there is something where another process has all batches.
                self._kept[loss] = [(torch.empty(0), torch.empty(0))]
        self._ignored = self.ignore_label
        if self._ignored is None:
            self._ignored = check_one_ignored_index({loss.ignore_index for loss in losses})

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Count one batch."""
        if trainer.sanity_checking or dataloader_idx != self.dataloader_idx:
            return
        logits, labels = check_validation_output(outputs)
        rows = torch.movedim(logits.detach(), class_axis(logits), -1)
        self._stream.update(logits=rows, labels=labels, ignore_label=self._ignored)
        for loss, kept in self._kept.items():
            kept.append(loss.top_labels(logits, labels))

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the metrics, and show the losses the validation set."""
        if trainer.sanity_checking:
            return
        everyone = _merged(self._stream, self.n_bins)
        if everyone.n > 0:
            result = everyone.result(n_resamples=RESAMPLES.start)  # its intervals are not used
            for name, metric in zip(self.names, self.metrics, strict=True):
                # All processes have the same number; to average it keeps Lightning from warning.
                pl_module.log(name, result[metric].value, sync_dist=True)
            for loss, kept in self._kept.items():
                confidence, correct = zip(*kept, strict=True)
                loss.gamma.update(torch.cat(confidence), torch.cat(correct))
                self._waiting = False
        self._forget()

    def _forget(self) -> None:
        self._stream = StreamedEvaluation(n_bins=self.n_bins)
        self._kept: dict[Any, list[TopLabels]] = {}

    def _warn_of_waiting(self) -> None:
        if self._waiting:
            self._waiting = False
            rank_zero_warn(
                "the loss must see a validation set, and there was none, so its gammas stay as "
                "they are. Pass val_dataloaders, let validation run during the fit, and look "
                "whether all labels are ignored"
            )


def losses_of(pl_module: LightningModule) -> list[Loss]:
    """The losses of this package in a module."""
    return [module for module in pl_module.modules() if isinstance(module, Loss)]


def _losses_out_of_sight(pl_module: LightningModule) -> list[str]:
    """Attributes that hold losses where neither PyTorch nor Lightning looks."""
    found = set(losses_of(pl_module))
    names = []
    for name, value in vars(pl_module).items():
        held = value.values() if isinstance(value, dict) else value
        if isinstance(value, list | tuple | dict) and any(
            isinstance(item, FocalLoss | SigmoidFocalLoss)
            and item not in found
            and (item.needs_epochs or item.needs_validation)
            for item in held
        ):
            names.append(name)
    return names


def epochs_of(trainer: Trainer) -> int | None:
    """How many epochs a run will have, by epochs or by steps; None where nothing says it."""
    # How many steps a batch takes, a module that optimises by hand decides: each of several
    # optimisers counts.
    if trainer.max_steps >= 0 and not trainer.lightning_module.automatic_optimization:
        return None
    limits = []
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        limits.append(trainer.max_epochs)
    if trainer.max_steps >= 0 and math.isfinite(trainer.num_training_batches):
        steps = math.ceil(trainer.num_training_batches / trainer.accumulate_grad_batches)
        limits.append(math.ceil(trainer.max_steps / max(1, steps)))
    # A run that is resumed with other settings may be beyond what they say.
    return max(min(limits), trainer.current_epoch + 1) if limits else None


def _merged(stream: StreamedEvaluation, n_bins: int) -> StreamedEvaluation:
    """What all processes have counted."""
    group = torch.distributed
    if not (group.is_available() and group.is_initialized()):
        return stream
    parts: list[Any] = [None] * group.get_world_size()
    group.all_gather_object(parts, stream)
    everyone = StreamedEvaluation(n_bins=n_bins)
    for part in parts:
        everyone.merge(part)
    return everyone


def check_validation_output(outputs: Any) -> tuple[Any, Any]:
    """The logits and labels that a Lightning ``validation_step`` has returned."""
    missing = [name for name in ("logits", "labels") if not _inputs.holds(outputs, name)]
    if missing:
        found = f"the keys {', '.join(map(str, outputs))}" if isinstance(outputs, Mapping) else None
        raise CalibrantError(
            "CalibrationCallback needs the logits and labels of the validation step; found "
            f"{found or _inputs.described(outputs)}. Return {{'logits': logits, 'labels': labels}} "
            "from validation_step"
        )
    return outputs["logits"], outputs["labels"]


def check_one_ignored_index(found: set[int]) -> int:
    """The label that all losses of a module leave out; torch's own where there are none."""
    if len(found) > 1:
        raise CalibrantError(
            "the losses of a module must have the same ignore_index; found "
            f"{' and '.join(map(str, sorted(found)))}. Pass ignore_label= to CalibrationCallback"
        )
    return next(iter(found), -100)


def check_several_of(values: Any, name: str, allowed: Sequence[str]) -> tuple[str, ...]:
    """Some of a few names."""
    if isinstance(values, str):
        raise CalibrantError(
            f"{name} must be a sequence of names; found the string {values!r}. Pass [{values!r}]"
        )
    return tuple(_inputs.choice(value, name, allowed) for value in values)
