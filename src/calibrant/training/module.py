"""The Lightning module that trains a network by a recipe."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from calibrant import _inputs
from calibrant.errors import CalibrantError
from calibrant.losses import Loss
from calibrant.training import checks
from calibrant.training.datasets import DataSet
from calibrant.training.loaders import (
    ALONE,
    EpochBatches,
    TrainBatch,
    World,
    derived_seed,
    random_subset,
)
from calibrant.training.models import MODELS
from calibrant.training.observations import SplitPredictions, observe, predict, weight_norm
from calibrant.training.recipes import Recipe

Record = dict[str, Any]
TAKES = {"mlp": ("images", "features"), "text-cnn": ("tokens",), "tree-lstm": ("trees",)}
"""Kinds of data for networks that do not take images only."""


class Clock:
    """A moment in wall time and in this process's CPU time.

    Pausing a run or sharing its core adds to wall time only.
    """

    def __init__(self) -> None:
        self.seconds = time.perf_counter()
        self.cpu = time.process_time()


class TrainingModule(LightningModule):
    """Trains a network by a recipe and measures it after each epoch.

    An epoch depends only on the weights and the states of the optimiser and the loss at its start:
    learning rate, order, augmentation and dropout follow from the recipe and the number of the
    epoch. A run therefore continues from :meth:`state` as if it had not stopped, and no state of a
    random generator is stored.

    Args:
        recipe: How to train.
        data: What to train on.
        network: Any module that returns logits for the inputs of ``data``.
        loss: What to train with.
        on_epoch: Called after each epoch, in every process, with its record.
        on_step: Called before each step with the epoch, the number of the step and the number of
            steps.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: DataSet,
        network: nn.Module,
        loss: Loss,
        *,
        on_epoch: Callable[[Record], None] | None = None,
        on_step: Callable[[int, int, int], None] | None = None,
    ) -> None:
        super().__init__()
        self.recipe = recipe
        self.data = data
        if data.kind == "images":
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.network = network
        self.loss = loss
        self.on_epoch = on_epoch
        self.on_step = on_step
        self.first_epoch = 0
        self.best: dict[str, Any] | None = None
        self._optimizer_state: dict[str, Any] | None = None
        self._losses: list[Tensor] = []
        self._started, self._epoch = Clock(), 0
        self._threads = torch.get_num_threads()
        self.final: dict[str, SplitPredictions] | None = None
        observed = {"train": data.train, "val": data.val, "test": data.test}
        if loss.needs_validation or recipe.choice == "best":
            del observed["val"]  # all of it is used
        self._observed = {
            name: random_subset(len(split), recipe.observed, recipe.seed)
            for name, split in observed.items()
        }

    @property
    def epoch(self) -> int:
        """Current epoch of the recipe, also in a resumed run."""
        return self.first_epoch + self.trainer.current_epoch

    @property
    def world(self) -> World:
        """Rank of this process, and the number of processes."""
        return World(self.trainer.global_rank, self.trainer.world_size)

    def state(self) -> dict[str, Any]:
        """Everything that the next epoch starts from."""
        optimizer = self.trainer.optimizers[0]
        return {
            "epoch": self.epoch + 1,
            "module": self.state_dict(),
            "optimizer": optimizer.state_dict(),
            "best": self.best,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Start from a state of :meth:`state`; call it before the trainer runs."""
        with _inputs.refusing(
            "the checkpoint does not fit the network", "Resume with the network of the run"
        ):
            self.load_state_dict(state["module"])
        self.first_epoch = state["epoch"]
        self.best = state["best"]
        self._optimizer_state = state["optimizer"]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimiser, with its state in a resumed run."""
        optimizer = optimizer_of(self.recipe, self.network)
        if self._optimizer_state is not None:
            optimizer.load_state_dict(self._optimizer_state)
            self._optimizer_state = None
        return optimizer

    def train_dataloader(self) -> EpochBatches:
        """The batches of this epoch."""
        return EpochBatches(
            self.data.train,
            self.data.augment,
            batch_size=self.recipe.batch_size,
            seed=self.recipe.seed,
            epoch=self.epoch,
            world=self.world,
        )

    def on_train_epoch_start(self) -> None:
        """Set everything that depends on the number of the epoch."""
        self._keep_threads()
        self._started, self._epoch = Clock(), self.epoch
        self._losses = []
        self.loss.start_epoch(self.epoch, self.recipe.epochs)
        torch.manual_seed(derived_seed(self.recipe.seed, self.epoch, "network", self.world.rank))
        factor = self.recipe.factor_at(self.epoch)
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = group["first_lr"] * factor

    def training_step(self, batch: TrainBatch, batch_idx: int) -> Tensor:
        """The loss of a batch."""
        if self.on_step is not None:
            self.on_step(self._epoch, batch_idx, int(self.trainer.num_training_batches))
        loss: Tensor = self.loss(self.network(batch.inputs), batch.targets)
        # Gradients are averaged over processes; a loss that is a sum has to undo that.
        share = batch.share if self.loss.reduction == "mean" else float(self.world.size)
        if share != 1.0:
            loss = loss * share
        self._losses.append(loss.detach())
        return loss

    def on_train_epoch_end(self) -> None:
        """Measure the network, update the loss by the validation split, and report."""
        trained = Clock()
        loss = self._over_processes(float(torch.stack(self._losses).double().mean()))
        if not math.isfinite(loss):
            raise CalibrantError(
                f"the training loss must stay finite; found {loss} in epoch {self.epoch}. Use a "
                "smaller learning rate, or clip gradients with clip_norm"
            )
        self._share_buffers()
        record: Record = {
            "epoch": self.epoch,
            "learning_rate": self.recipe.learning_rate_at(self.epoch),
            "loss": loss,
            "weight_norm": weight_norm(self.network),
        }
        for name, predicted in self._predictions():
            if name == "val" and self.loss.needs_validation:
                self.loss.update(*predicted.own)
            record[name] = observe(*predicted[:3], bins=name == "train")
        if self.recipe.choice == "best":
            self._keep_best(record["val"]["error"])
        measured = Clock()
        for name in ("seconds", "cpu"):
            start, middle, end = (getattr(c, name) for c in (self._started, trained, measured))
            record[name] = {"train": middle - start, "measure": end - middle}
        if self.on_epoch is not None:
            self.on_epoch(record)

    def on_train_end(self) -> None:
        """Predict while all processes are running."""
        self.finish(self.device, self.world)

    def finish(self, device: torch.device | str, world: World = ALONE) -> None:
        """Predict the whole validation and test splits with the weights that the recipe selects."""
        self._keep_threads()
        if self.best is not None:
            self.network.load_state_dict(self.best["network"])
        self.final = {
            name: predict(self.network, split, device=device, world=world)
            for name, split in (("val", self.data.val), ("test", self.data.test))
        }

    def _predictions(self) -> Iterator[tuple[str, SplitPredictions]]:
        for name in ("train", "val", "test"):
            self._keep_threads()
            indices = self._observed.get(name)
            if indices is None or len(indices):
                split, loss = getattr(self.data, name), self.loss if name == "train" else None
                device, world = self.device, self.world
                predicted = predict(
                    self.network, split, indices, device=device, world=world, loss=loss
                )
                yield name, predicted

    def _keep_threads(self) -> None:
        """Restore the number of torch's threads, on which the rounding of sums depends."""
        if torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)

    def _keep_best(self, error: float) -> None:
        """Keep the weights, on the CPU, if the validation error is the smallest so far."""
        if self.best is None or error < self.best["error"]:
            network = {name: v.cpu().clone() for name, v in self.network.state_dict().items()}
            self.best = {"epoch": self.epoch, "error": error, "network": network}

    def _share_buffers(self) -> None:
        """Copy the running means of the first process to all, as DDP does in training."""
        if self.world.size > 1:
            for buffer in self.network.buffers():
                torch.distributed.broadcast(buffer, 0)

    def _over_processes(self, value: float) -> float:
        if self.world.size == 1:
            return value
        total = torch.tensor(value, dtype=torch.float32, device=self.device)
        torch.distributed.all_reduce(total)
        return float(total) / self.world.size


def optimizer_of(recipe: Recipe, network: nn.Module) -> torch.optim.Optimizer:
    """The optimiser of a recipe; every group stores its initial learning rate."""
    trained = [p for p in network.parameters() if p.requires_grad]
    words = getattr(network, "words", None)
    groups: list[dict[str, Any]] = [{"params": trained}]
    if recipe.words_learning_rate is not None and words is not None and words.weight.requires_grad:
        groups = [
            {"params": [p for p in trained if p is not words.weight]},
            {"params": [words.weight], "lr": recipe.words_learning_rate, "weight_decay": 0.0},
        ]
    common: dict[str, Any] = {"lr": recipe.learning_rate, "weight_decay": recipe.weight_decay}
    optimizer: torch.optim.Optimizer
    if recipe.optimizer == "sgd":
        common |= {"momentum": recipe.momentum, "nesterov": recipe.nesterov}
        optimizer = torch.optim.SGD(groups, **common)
    elif recipe.optimizer == "adam":
        optimizer = torch.optim.Adam(groups, betas=recipe.betas, **common)
    else:
        # One pass over all word vectors instead of five: a step on a CPU takes 0.8 of the time.
        on_cpu = all(p.device.type == "cpu" for p in trained)
        optimizer = torch.optim.Adagrad(groups, fused=on_cpu, **common)
    for group in optimizer.param_groups:
        group["first_lr"] = group["lr"]
    return optimizer


def network_options(recipe: Recipe, data: DataSet) -> dict[str, Any]:
    """Options of the network: channels, columns or words of the data, and the recipe's own."""
    known: dict[str, Any] = {}
    if checks.is_own_code(recipe.model):  # it takes only its own options
        return dict(recipe.model_options)
    model = _inputs.choice(recipe.model, "model", tuple(MODELS))
    takes = TAKES.get(model, ("images",))
    if data.kind not in takes:
        raise CalibrantError(
            f"the network {model} takes {' or '.join(takes)}; found {data.kind} in {data.name}. "
            "Choose another network"
        )
    if model == "mlp":
        known = {"n_features": math.prod(data.input_shape)}
    elif data.kind == "images":
        known = {"in_channels": data.input_shape[0]}
    elif data.embeddings is not None:
        known = {"embeddings": data.embeddings}
    elif data.vocabulary is not None:
        known = {"n_words": len(data.vocabulary)}
    return {**known, **recipe.model_options}
