"""Recipes: everything that decides the weights of a run, as plain data with a hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

from calibrant import _inputs
from calibrant.errors import CalibrantError
from calibrant.training import checks

OPTIMIZERS = ("sgd", "adam", "adagrad")
CHOICES = ("last", "best")
FACTOR = 0.1
"""Factor of the learning rate at each step of the schedule."""
FORMAT = 1
"""Version of the hash, to be changed when the same recipe means another run."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings of one run.

    Attributes:
        data: Name of the data set.
        model: Name of the network, or ``package.module:function``. The latter is code, which
            :meth:`from_dict` does not accept from files.
        loss: A name in ``calibrant.losses.LOSSES``.
        seed: Seed of the split, the initial weights, the order of the samples and their
            augmentation.
        epochs: Number of passes over the training split.
        batch_size: Samples per step, over all processes.
        optimizer: ``"sgd"``, ``"adam"`` or ``"adagrad"``.
        learning_rate: Learning rate before the first of ``steps``.
        steps: Epochs, counted from 0, at which the learning rate is divided by 10.
        momentum: Momentum of SGD.
        nesterov: Whether SGD uses Nesterov momentum.
        betas: Betas of Adam.
        weight_decay: L2 penalty, added to the gradient as in torch's optimisers.
        words_learning_rate: Learning rate of word vectors, which then have no weight decay; None
            treats them like all other weights.
        clip_norm: Largest norm of the gradient; None does not clip.
        choice: ``"last"`` keeps the weights of the last epoch; ``"best"`` those of the first epoch
            with the best validation accuracy.
        limit: Number of training samples to use; None uses all.
        observed: Number of samples of each split to measure after each epoch, drawn by the seed;
            None is all, 0 none. The whole validation split is measured if the loss uses it or the
            best epoch is selected by it. Both held-out splits are measured whole at the end.
        data_options: Other options of the data set.
        model_options: Other options of the network.
        loss_options: Other options of the loss.
        source: Origin of the recipe, in words; not in the hash.

    Examples:
        >>> from calibrant.training import Recipe
        >>> short = Recipe(data="digits", model="mlp", loss="fl-3", epochs=10, steps=(5, 8))
        >>> [round(short.learning_rate_at(epoch), 6) for epoch in (0, 4, 5, 8)]
        [0.1, 0.1, 0.01, 0.001]
        >>> short.with_epochs(20).steps
        (10, 16)
        >>> short.hash == Recipe.from_dict(short.to_dict()).hash
        True
    """

    data: str
    model: str
    loss: str = "ce"
    seed: int = 0
    epochs: int
    batch_size: int = 128
    optimizer: str = "sgd"
    learning_rate: float = 0.1
    steps: tuple[int, ...] = ()
    momentum: float = 0.9
    nesterov: bool = False
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    words_learning_rate: float | None = None
    clip_norm: float | None = None
    choice: str = "last"
    limit: int | None = None
    observed: int | None = None
    data_options: Mapping[str, Any] = field(default_factory=dict)
    model_options: Mapping[str, Any] = field(default_factory=dict)
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("data", "model", "loss"):
            _inputs.text(getattr(self, name), name)
        whole, most = _inputs.whole_number, 2**31
        whole(self.seed, "seed", allowed=range(2**63))
        whole(self.epochs, "epochs", allowed=range(1, most))
        whole(self.batch_size, "batch_size", allowed=range(1, most))
        for name, lowest in (("limit", 1), ("observed", 0)):
            if getattr(self, name) is not None:
                whole(getattr(self, name), name, allowed=range(lowest, 2**62))
        _inputs.choice(self.optimizer, "optimizer", OPTIMIZERS)
        _inputs.choice(self.choice, "choice", CHOICES)
        _inputs.above_zero(self.learning_rate, "learning_rate")
        for name in ("words_learning_rate", "clip_norm"):
            if getattr(self, name) is not None:
                _inputs.above_zero(getattr(self, name), name)
        _inputs.not_negative(self.weight_decay, "weight_decay")
        betas = checks.as_tuple(self.betas, "betas", count=2)
        for name, value in (("momentum", self.momentum), *(("betas", beta) for beta in betas)):
            checks.fraction_below_one(value, name)
        checks.check_bool(self.nesterov, "nesterov")
        if self.nesterov and self.optimizer == "sgd" and self.momentum == 0.0:
            raise CalibrantError(
                "nesterov needs a momentum above 0; found 0. Pass momentum=0.9, for example, or "
                "leave nesterov out"
            )
        self._check_steps()
        for name in ("data_options", "model_options", "loss_options"):
            checks.plain_options(getattr(self, name), name)

    def _check_steps(self) -> None:
        steps = checks.as_tuple(self.steps, "steps")
        for step in steps:
            _inputs.whole_number(step, "steps", allowed=range(1, 2**31))
        if any(a >= b for a, b in pairwise(steps)) or (steps and steps[-1] >= self.epochs):
            raise CalibrantError(
                f"steps must increase and stay below the {self.epochs} epochs of the run; found "
                f"{', '.join(map(str, steps))}. Leave out those that are never reached"
            )

    @property
    def hash(self) -> str:
        """SHA-256 of all fields but ``source``."""
        decisive = {name: value for name, value in self.to_dict().items() if name != "source"}
        text = json.dumps({"format": FORMAT, **decisive}, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def name(self) -> str:
        """``data/model/loss/seed`` for tables and folders."""
        return f"{self.data}/{self.model}/{self.loss}/{self.seed}"

    def learning_rate_at(self, epoch: int) -> float:
        """Learning rate in an epoch, counted from 0."""
        return self.learning_rate * self.factor_at(epoch)

    def factor_at(self, epoch: int) -> float:
        """Factor of the initial learning rates in an epoch."""
        factor: float = FACTOR ** sum(epoch >= step for step in self.steps)
        return factor

    def with_epochs(self, epochs: int) -> Recipe:
        """The recipe with another number of epochs; the steps are rescaled."""
        epochs = _inputs.whole_number(epochs, "epochs", allowed=range(1, 2**31))
        scaled = (round(step * epochs / self.epochs) for step in self.steps)
        steps = tuple(sorted({step for step in scaled if 0 < step < epochs}))
        return replace(self, epochs=epochs, steps=steps)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain data for JSON."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), allow_nan=False))
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], *, own_model: str | None = None) -> Recipe:
        """The recipe of :meth:`to_dict`; unknown fields are refused.

        Args:
            plain: The fields. They may come from a file, so they must not name code to run.
            own_model: The one ``package.module:function`` that ``plain`` may name as its network
                because the caller trusts it.
        """
        checks.registered_network(
            plain.get("model"),
            own_model,
            "a recipe",
            "If you trust it, pass own_model= with the same name",
        )
        known = {entry.name for entry in fields(cls)}
        for name in plain:
            _inputs.parameter(name, "a recipe", sorted(known))
        listed = (name for name in ("steps", "betas") if name in plain)
        tuples = {name: checks.as_tuple(plain[name], name) for name in listed}
        return cls(**{**plain, **tuples})
