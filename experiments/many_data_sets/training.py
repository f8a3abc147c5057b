"""Many small networks trained side by side: one for each division of a table and each gamma.

A network of a few thousand weights costs more in calls than in arithmetic. So the weights of all
of them stand in one tensor with a leading axis, and one product serves all. Nothing passes between
them: a sum of losses has for each network the gradient of its own, and Adam looks at each weight
alone. The networks of one division begin with the same weights and see the same batches, so they
differ by their loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from calibrant.losses import FocalLoss, GammaPolicy


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How every network is trained.

    Attributes:
        hidden: Sizes of the hidden layers; none makes a linear model.
        gammas: One network for each; 0 is cross-entropy.
        steps: Of Adam.
        batch_size: Rows in a step, or all of them where there are fewer.
        learning_rate: Of Adam.
        look_every: Steps between two looks at the validation set.
    """

    hidden: Sequence[int]
    gammas: Sequence[float]
    steps: int
    batch_size: int
    learning_rate: float
    look_every: int


@dataclass(frozen=True)
class Networks:
    """Weights (networks, in, out) and offsets (networks, 1, out) of each layer.

    Network ``d * gammas + g`` is that of division d and gamma number g. ``torch.nn.Linear`` has
    its weights the other way round.
    """

    weights: list[Tensor]
    offsets: list[Tensor]

    @property
    def tensors(self) -> list[Tensor]:
        """All trained tensors."""
        return [*self.weights, *self.offsets]

    def copy(self) -> Networks:
        """A copy of the weights."""
        return Networks(
            [each.detach().clone() for each in self.weights],
            [each.detach().clone() for each in self.offsets],
        )

    def logits(self, rows: Tensor) -> Tensor:
        """(networks, n, classes) of rows (divisions, n, columns)."""
        found = rows.repeat_interleave(len(self.weights[0]) // len(rows), dim=0)
        for i, (weight, offset) in enumerate(zip(self.weights, self.offsets, strict=True)):
            found = torch.baddbmm(offset, found.relu() if i else found, weight)
        return found


@dataclass(frozen=True)
class Trained:
    """One training, taken at two moments.

    Attributes:
        stopped: Each network where its own loss on the validation set was smallest.
        last: After the last step.
    """

    stopped: Networks
    last: Networks


class OneForEach(GammaPolicy):
    """A gamma for each network, in whose rows all samples have it."""

    signed = False
    checked = True

    def __init__(self, gammas: Tensor) -> None:
        super().__init__()
        self.register_buffer("gammas", gammas)

    def forward(self, p: Tensor) -> Tensor:
        """Gamma for each of the samples, which come network by network."""
        assert isinstance(self.gammas, Tensor)
        return self.gammas.repeat_interleave(len(p) // len(self.gammas))


def train(
    rows: Tensor,
    labels: Tensor,
    val_rows: Tensor,
    val_labels: Tensor,
    *,
    n_classes: int,
    plan: Plan,
    seeds: Sequence[int],
) -> Trained:
    """Train all networks of one table.

    Args:
        rows: (divisions, n, columns).
        labels: (divisions, n).
        val_rows: (divisions, m, columns), looked at but not learned from.
        val_labels: (divisions, m).
        n_classes: Of the table.
        plan: How.
        seeds: One for each division: of the first weights and of the order of the rows.
    """
    sources = [torch.Generator().manual_seed(seed) for seed in seeds]
    gammas = torch.tensor(plan.gammas).repeat(len(seeds))
    focal = FocalLoss(gamma=OneForEach(gammas), reduction="none")

    def losses(logits: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of each network."""
        each = labels.repeat_interleave(len(plan.gammas), dim=0)
        of_samples: Tensor = focal(logits.flatten(0, 1), each.flatten())
        return of_samples.view(each.shape).mean(1)

    networks = first_networks((rows.shape[-1], *plan.hidden, n_classes), len(plan.gammas), sources)
    best, lowest = networks.copy(), torch.full_like(gammas, torch.inf)
    adam = torch.optim.Adam(networks.tensors, lr=plan.learning_rate, fused=True)
    size = min(plan.batch_size, rows.shape[1])
    waiting: list[Tensor] = []
    for step in range(1, plan.steps + 1):
        if not waiting:
            waiting = epoch(rows.shape[1], size, sources)
        places = waiting.pop()
        batch = torch.stack([of[where] for of, where in zip(rows, places, strict=True)])
        loss = losses(networks.logits(batch), labels.gather(1, places))
        adam.zero_grad()
        loss.sum().backward()  # type: ignore[no-untyped-call]
        adam.step()
        if step % plan.look_every == 0 or step == plan.steps:
            with torch.no_grad():
                reached = losses(networks.logits(val_rows), val_labels)
                better = reached < lowest
                lowest = torch.where(better, reached, lowest)
                for kept, now in zip(best.tensors, networks.tensors, strict=True):
                    kept.copy_(torch.where(better[:, None, None], now, kept))
    return Trained(best, networks.copy())


def epoch(n: int, size: int, sources: Sequence[torch.Generator]) -> list[Tensor]:
    """Shuffled batches (divisions, size) of row indices; an incomplete last batch is left out."""
    order = torch.stack([torch.randperm(n, generator=source) for source in sources])
    return list(torch.split(order[:, : n - n % size], size, dim=1))


def first_networks(
    sizes: Sequence[int], n_gammas: int, sources: Sequence[torch.Generator]
) -> Networks:
    """Weights and offsets initialised like ``torch.nn.Linear``, the same for every gamma."""

    def drawn(shape: tuple[int, int], reach: float) -> Tensor:
        one = [(2.0 * torch.rand(shape, generator=source) - 1.0) * reach for source in sources]
        return torch.stack(one).repeat_interleave(n_gammas, dim=0).requires_grad_()

    networks = Networks([], [])
    for before, after in pairwise(sizes):
        networks.weights.append(drawn((before, after), before**-0.5))
        networks.offsets.append(drawn((1, after), before**-0.5))
    return networks
