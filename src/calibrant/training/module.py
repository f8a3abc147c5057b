"""The Lightning module: a network, a loss and a recipe, epoch by epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from calibrant import _inputs
from calibrant.errors import CalibrantError
from calibrant.losses import Loss
from calibrant.training.datasets import DataSet
from calibrant.training.loaders import ALONE, EpochBatches, TrainBatch, World, drawn, seed_of
from calibrant.training.models import MODELS
from calibrant.training.observations import Predicted, observe, predict, weight_norm
from calibrant.training.recipes import Recipe

Record = dict[str, Any]
TAKES = {"mlp": ("images", "features"), "text-cnn": ("tokens",), "tree-lstm": ("trees",)}
"""What networks take that do not take images alone."""


class Clock:
    """A moment: on the wall, and in what this process has computed.

    A run that is paused, or shares its core, takes longer on the wall alone.
    """

    def __init__(self) -> None:
        self.seconds = time.perf_counter()
        self.cpu = time.process_time()


class TrainingModule(LightningModule):
    """Trains a network by a recipe, measures it after each epoch, and says what it found.

    Nothing that happens in an epoch depends on more than the weights, the state of the optimiser
    and of the loss at its beginning: learning rate, order, augmentation and dropout follow from
    the recipe and the number of the epoch. So a run goes on from :meth:`state` as if it had not
    stopped, and no state of a random generator has to be kept.

    Args:
        recipe: How to train.
        data: What to train on.
        network: Any module that gives logits of the inputs of ``data``.
        loss: What to train with.
        on_epoch: Called after each epoch, in every process, with the record of it.
        on_step: Called before each step with the epoch, the number of the step in it, and how many
            there are.
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
        self.final: dict[str, Predicted] | None = None
        observed = {"train": data.train, "val": data.val, "test": data.test}
        if loss.needs_validation or recipe.choice == "best":
            del observed["val"]  # all of it counts
        self._places = {
            name: drawn(len(part), recipe.observed, recipe.seed) for name, part in observed.items()
        }

    @property
    def epoch(self) -> int:
        """Which epoch of the recipe this is, also after the run has been resumed."""
        return self.first_epoch + self.trainer.current_epoch

    @property
    def world(self) -> World:
        """Which of how many processes this is."""
        return World(self.trainer.global_rank, self.trainer.world_size)

    def state(self) -> dict[str, Any]:
        """Everything that the next epoch begins with."""
        optimizer = self.trainer.optimizers[0]
        return {
            "epoch": self.epoch + 1,
            "module": self.state_dict(),
            "optimizer": optimizer.state_dict(),
            "best": self.best,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Begin with the state that :meth:`state` gave, before the trainer runs."""
        with _inputs.refusing(
            "the checkpoint does not fit the network", "Resume with the network of the run"
        ):
            self.load_state_dict(state["module"])
        self.first_epoch = state["epoch"]
        self.best = state["best"]
        self._optimizer_state = state["optimizer"]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimiser, at the state of the run that is resumed."""
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
        """Set all that depends on the number of the epoch."""
        self._keep_threads()
        self._started, self._epoch = Clock(), self.epoch
        self._losses = []
        self.loss.start_epoch(self.epoch, self.recipe.epochs)
        torch.manual_seed(seed_of(self.recipe.seed, self.epoch, "network", self.world.rank))
        factor = self.recipe.factor_at(self.epoch)
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = group["first_lr"] * factor

    def training_step(self, batch: TrainBatch, batch_idx: int) -> Tensor:
        """The loss of a batch."""
        if self.on_step is not None:
            self.on_step(self._epoch, batch_idx, int(self.trainer.num_training_batches))
        loss: Tensor = self.loss(self.network(batch.inputs), batch.targets)
        # A sum over the whole batch is that of all processes, whose gradients are averaged.
        share = batch.share if self.loss.reduction == "mean" else float(self.world.size)
        if share != 1.0:
            loss = loss * share
        self._losses.append(loss.detach())
        return loss

    def on_train_epoch_end(self) -> None:
        """Measure the network, show the loss the validation part, and report."""
        trained = Clock()
        loss = self._over_processes(float(torch.stack(self._losses).double().mean()))
        check_finite_loss(loss, self.epoch)
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
            record[name] = observe(
                predicted.logits,
                predicted.labels,
                predicted.gradient_norms,
                bins=name == "train",
            )
        if self.recipe.choice == "best":
            self._keep_best(record["val"]["error"])
        measured = Clock()
        for name in ("seconds", "cpu"):
            begun, halfway, ended = (getattr(c, name) for c in (self._started, trained, measured))
            record[name] = {"train": halfway - begun, "measure": ended - halfway}
        if self.on_epoch is not None:
            self.on_epoch(record)

    def on_train_end(self) -> None:
        """Predict while all processes are there."""
        self.finish(self.device, self.world)

    def finish(self, device: torch.device | str, world: World = ALONE) -> None:
        """Predict the validation and the test part, whole, by the weights the recipe chooses."""
        self._keep_threads()
        if self.best is not None:
            self.network.load_state_dict(self.best["network"])
        parts = (("val", self.data.val), ("test", self.data.test))
        self.final = {
            name: predict(self.network, part, device=device, world=world) for name, part in parts
        }

    def _predictions(self) -> Iterator[tuple[str, Predicted]]:
        for name in ("train", "val", "test"):
            self._keep_threads()
            places = self._places.get(name)
            if places is None or len(places):
                yield (
                    name,
                    predict(
                        self.network,
                        getattr(self.data, name),
                        places,
                        device=self.device,
                        world=self.world,
                        loss=self.loss if name == "train" else None,
                    ),
                )

    def _keep_threads(self) -> None:
        """Torch's threads as at the beginning, for sums over them are rounded by their number."""
        if torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)

    def _keep_best(self, error: float) -> None:
        """The network of the epoch with the smallest validation error so far, on the CPU."""
        if self.best is None or error < self.best["error"]:
            network = {name: v.cpu().clone() for name, v in self.network.state_dict().items()}
            self.best = {"epoch": self.epoch, "error": error, "network": network}

    def _share_buffers(self) -> None:
        """Running means of the first process for all, as DDP has them in training."""
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
    """The optimiser of a recipe; every group knows the learning rate it began with."""
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
        optimizer = torch.optim.Adagrad(groups, **common)
    for group in optimizer.param_groups:
        group["first_lr"] = group["lr"]
    return optimizer


def network_options(recipe: Recipe, data: DataSet) -> dict[str, Any]:
    """What the data set says of the network: channels, columns, words; the recipe has the rest."""
    known: dict[str, Any] = {}
    if _inputs.is_own_code(recipe.model):  # it takes what it is told
        return dict(recipe.model_options)
    model = _inputs.choice(recipe.model, "model", tuple(MODELS))
    check_kind_of_network(model, TAKES.get(model, ("images",)), data.name, data.kind)
    if model == "mlp":
        known = {"n_features": math.prod(data.input_shape)}
    elif data.kind == "images":
        known = {"in_channels": data.input_shape[0]}
    elif data.embeddings is not None:
        known = {"embeddings": data.embeddings}
    elif data.vocabulary is not None:
        known = {"n_words": len(data.vocabulary)}
    return {**known, **recipe.model_options}


def check_finite_loss(loss: float, epoch: int) -> None:
    """A training loss that is still a number."""
    if not math.isfinite(loss):
        raise CalibrantError(
            f"the training loss must stay finite; found {loss} in epoch {epoch}. Take a smaller "
            "learning rate, or shorten gradients with clip_norm"
        )


def check_kind_of_network(model: str, takes: Sequence[str], data: str, kind: str) -> None:
    """A network for this kind of data."""
    if kind not in takes:
        raise CalibrantError(
            f"the network {model} takes {' or '.join(takes)}; found {kind} in {data}. "
            "Choose another network"
        )
