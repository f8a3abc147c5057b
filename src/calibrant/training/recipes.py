"""How a network is trained: everything that decides its weights, as plain data with a hash."""

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
"""What the learning rate is multiplied with at each step of the schedule."""
FORMAT = 1
"""Of the hash: changes when the same recipe begins to mean another run."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One run: data, network, loss, and how they are put together.

    Attributes:
        data: Name of the data set.
        model: Name of the network, or ``package.module:function``. That is code, which
            :meth:`from_dict` takes from no file.
        loss: Name out of ``calibrant.losses.LOSSES``.
        seed: Of the split, the first weights, the order of the samples and their augmentation.
        epochs: How often the training part is seen.
        batch_size: Samples in a step, of all processes together.
        optimizer: ``"sgd"``, ``"adam"`` or ``"adagrad"``.
        learning_rate: Until the first of ``steps``.
        steps: Epochs, counted from 0, from which on the learning rate is a tenth of what it was.
        momentum: Of SGD.
        nesterov: Whether SGD's momentum is Nesterov's.
        betas: Of Adam.
        weight_decay: Added to the gradient, times the weights, as torch's optimisers do.
        words_learning_rate: Of word vectors, which then have no weight decay; None treats them as
            all other weights.
        clip_norm: Gradients of a larger norm are shortened to it; None leaves them alone.
        choice: ``"last"`` keeps the weights of the last epoch; ``"best"`` those of the epoch with
            the best validation accuracy, the first of equal ones.
        limit: Samples of the training part that are used; None takes all.
        observed: Samples of each part that are measured after each epoch, drawn by the seed; None
            takes all, 0 none. The validation part is measured whole where the loss learns from it
            or the best epoch is chosen by it; both held-out parts are at the end.
        data_options: What the reader of the data set is told besides.
        model_options: What the network is told besides.
        loss_options: What the loss is told besides.
        source: Where it stands, in words; no part of the hash.

    Examples:
        >>> from calibrant.training import Recipe
        >>> short = Recipe(data="digits", model="mlp", loss="fl-3", epochs=10, steps=(5, 8))
        >>> [round(short.learning_rate_at(epoch), 6) for epoch in (0, 4, 5, 8)]
        [0.1, 0.1, 0.01, 0.001]
        >>> short.lasting(20).steps
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
        betas = checks.several(self.betas, "betas", count=2)
        for name, value in (("momentum", self.momentum), *(("betas", beta) for beta in betas)):
            checks.share_left_out(value, name)
        checks.yes_or_no(self.nesterov, "nesterov")
        if self.nesterov and self.optimizer == "sgd":
            check_momentum_for_nesterov(self.momentum)
        check_rising_epochs(self.steps, self.epochs)
        for name in ("data_options", "model_options", "loss_options"):
            _inputs.plain_options(getattr(self, name), name)

    @property
    def hash(self) -> str:
        """SHA-256 of what decides the run: the same recipe, the same hash."""
        decisive = {name: value for name, value in self.to_dict().items() if name != "source"}
        text = json.dumps({"format": FORMAT, **decisive}, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def name(self) -> str:
        """``data/model/loss/seed`` for tables and folders."""
        return f"{self.data}/{self.model}/{self.loss}/{self.seed}"

    def learning_rate_at(self, epoch: int) -> float:
        """What ``learning_rate`` has become in this epoch, counted from 0."""
        return self.learning_rate * self.factor_at(epoch)

    def factor_at(self, epoch: int) -> float:
        """By how much the learning rates of this epoch differ from the first."""
        reached: float = FACTOR ** sum(epoch >= step for step in self.steps)
        return reached

    def lasting(self, epochs: int) -> Recipe:
        """The same over another number of epochs, with the steps at the same parts of the run."""
        epochs = _inputs.whole_number(epochs, "epochs", allowed=range(1, 2**31))
        scaled = (round(step * epochs / self.epochs) for step in self.steps)
        steps = tuple(sorted({step for step in scaled if 0 < step < epochs}))
        return replace(self, epochs=epochs, steps=steps)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as JSON holds it."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), allow_nan=False))
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], *, own_model: str | None = None) -> Recipe:
        """The recipe of :meth:`to_dict`; a name it does not have is refused.

        Args:
            plain: The fields. They may come from a file, so they may not name code to run.
            own_model: The one ``package.module:function`` that ``plain`` may name as its network,
                because the caller trusts it.
        """
        _inputs.registered_network(
            plain.get("model"),
            own_model,
            "a recipe",
            "If you trust it, pass own_model= with the same name",
        )
        known = {entry.name for entry in fields(cls)}
        for name in plain:
            _inputs.parameter(name, "a recipe", sorted(known))
        listed = (name for name in ("steps", "betas") if name in plain)
        tuples = {name: checks.several(plain[name], name) for name in listed}
        return cls(**{**plain, **tuples})


def check_rising_epochs(steps: Any, epochs: int) -> None:
    """Epochs at which something changes, in order and within the run."""
    for step in checks.several(steps, "steps"):
        _inputs.whole_number(step, "steps", allowed=range(1, 2**31))
    if any(a >= b for a, b in pairwise(steps)) or (steps and steps[-1] >= epochs):
        raise CalibrantError(
            f"steps must rise and stay below the {epochs} epochs of the run; found "
            f"{', '.join(map(str, steps))}. Leave out those that never come"
        )


def check_momentum_for_nesterov(momentum: float) -> None:
    """Some momentum to look ahead with."""
    if momentum == 0.0:
        raise CalibrantError(
            "nesterov needs a momentum above 0; found 0. Pass momentum=0.9, say, or leave it out"
        )
