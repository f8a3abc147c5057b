"""Gamma policies: the gamma of a sample by epoch, or by the probability of its true class."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from calibrant import _inputs
from calibrant._numerics.precision import has_float64
from calibrant._types import Array
from calibrant.errors import CalibrantError
from calibrant.focal import gamma_for_threshold

PAPER_FRACTIONS = (100 / 350, 250 / 350)
"""Where the papers change gamma: after 100 and 250 of 350 epochs."""
MOST_EPOCHS = range(0, 2**53)


class GammaPolicy(nn.Module, ABC):
    """A function from the probability of the true class (detached) to gamma.

    A subclass defines ``forward``: it gets the probabilities of a batch and returns a gamma for
    each, or one for all. Its state belongs in buffers, so that ``state_dict`` holds it and a
    compiled loss sees it change. A gamma below 0 means the inverse focal loss. The loss uses the
    probabilities afterwards, so ``forward`` must not change them in place. No gradient passes
    through gamma: it is selected, not trained.

    Examples:
        >>> import torch
        >>> from calibrant.losses import FocalLoss, GammaPolicy
        >>> class Linear(GammaPolicy):
        ...     def forward(self, p):
        ...         return 3.0 - 2.0 * p
        >>> loss = FocalLoss(gamma=Linear())
        >>> round(loss(torch.tensor([[1.0, 0.0]]), torch.tensor([0])).item(), 4)
        0.0416
    """

    signed = True
    """Whether a gamma can be below 0."""
    checked = False
    """Whether every gamma is known to be finite; if not, each batch is checked."""
    needs_validation = False
    """Whether :meth:`update` has an effect."""

    @abstractmethod
    def forward(self, p: Tensor) -> Tensor:
        """Gamma for each probability."""

    def start_epoch(self, epoch: int, n_epochs: int | None = None) -> None:
        """Called with the number of the epoch that begins, counted from 0."""

    def update(self, confidence: Tensor, correct: Tensor) -> None:
        """Called with the confidences of the validation set, and whether they are correct."""

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move to the device of the network, but keep the dtypes: bins must not be rounded."""

        def move(state: Tensor) -> Tensor:
            moved = fn(torch.empty(0, device=state.device))
            narrow = state.dtype == torch.float64 and not has_float64(moved)
            dtype = torch.float32 if narrow else state.dtype
            if state.is_meta:  # no data yet: to_empty, before a state is loaded
                return torch.empty_like(state, device=moved.device, dtype=dtype)
            return state.to(device=moved.device, dtype=dtype)

        return super()._apply(move, recurse)  # type: ignore[no-untyped-call]


class ScheduledGamma(GammaPolicy):
    """One gamma for all samples that changes during the run (FLS).

    ``loss.start_epoch(epoch, n_epochs)`` sets the epoch; before that the first gamma applies.

    Args:
        gammas: The gammas in order of time; at least 0.
        fractions: Where each next gamma begins, as a fraction of the run. The default is the
            schedule of the papers, after 100/350 and 250/350 of the run; a run of fewer than 4
            epochs does not reach the last gamma.
        epochs: The same in epochs, instead of ``fractions``.

    References:
        Mukhoti et al. (2020), Sec. 5: FLS-531 is 5 for 100 epochs of 350, 3 for 150, then 1.

    Examples:
        >>> from calibrant.losses import FocalLoss, ScheduledGamma
        >>> loss = FocalLoss(gamma=ScheduledGamma())
        >>> gammas = []
        >>> for epoch in range(7):
        ...     loss.start_epoch(epoch, n_epochs=7)
        ...     gammas.append(loss.gamma.gamma.item())
        >>> gammas
        [5.0, 5.0, 3.0, 3.0, 3.0, 1.0, 1.0]
    """

    signed = False
    checked = True
    gamma: Tensor
    epoch: Tensor

    def __init__(
        self,
        gammas: Sequence[float] = (5.0, 3.0, 1.0),
        *,
        fractions: Sequence[float] | None = None,
        epochs: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.gammas = tuple(_inputs.gamma(g, lowest=0.0, like=torch.empty(0)) for g in gammas)
        if fractions is not None and epochs is not None:
            raise CalibrantError("a schedule takes fractions or epochs; found both. Leave one out")
        self.in_epochs = epochs is not None
        name = "epochs" if self.in_epochs else "fractions"
        given: Sequence[float] | None = epochs if self.in_epochs else fractions
        boundaries = PAPER_FRACTIONS if given is None else given
        self.boundaries = check_boundaries(name, boundaries, n_gammas=len(self.gammas))
        self.register_buffer("gamma", torch.tensor(self.gammas[0], dtype=torch.float64))
        self.register_buffer("epoch", torch.tensor(0, dtype=torch.int64))

    def start_epoch(self, epoch: int, n_epochs: int | None = None) -> None:
        """Set the gamma of this epoch."""
        epoch = _inputs.whole_number(epoch, "epoch", allowed=MOST_EPOCHS)
        # Equal fractions are equal as doubles: 10/35 is 100/350.
        reached = epoch / (1 if self.in_epochs else check_length_of_run(epoch, n_epochs))
        stage = sum(reached >= boundary for boundary in self.boundaries)
        self.gamma.fill_(self.gammas[stage])
        self.epoch.fill_(epoch)

    def forward(self, p: Tensor) -> Tensor:
        """The gamma of the epoch, whatever ``p``."""
        return self.gamma.to(p.dtype, copy=True)  # the loss keeps it while an epoch may begin

    def extra_repr(self) -> str:
        """The gammas and where they change."""
        what = "epochs" if self.in_epochs else "fractions"
        return f"{self.gammas}, {what}={tuple(round(b, 4) for b in self.boundaries)}"


class SampleGamma(GammaPolicy):
    """A gamma for each sample, by the thresholds between which the probability of its class lies.

    A probability that differs from a threshold by rounding only counts as equal to it, so that one
    fifth, computed from five equal logits, is on the stated side of 0.2.

    Args:
        thresholds: Increasing probabilities.
        gammas: One more than thresholds: for p up to the first threshold, up to the second, ...,
            above the last. Below 0 it is the inverse focal loss.
        inclusive: Whether p equal to a threshold takes the gamma below the threshold.

    References:
        Mukhoti et al. (2020), Sec. 5: FLA-53 is 5 for p <= 0.19, else 3; FLSD-53 in the authors'
        code is 5 for p < 0.2, else 3.

    Examples:
        >>> import torch
        >>> from calibrant.losses import SampleGamma
        >>> p = torch.tensor([0.1, 0.19, 0.2, 0.5, 0.9])
        >>> SampleGamma((0.19, 0.5), (5.0, 3.0, 2.0))(p).tolist()
        [5.0, 5.0, 3.0, 3.0, 2.0]
        >>> SampleGamma((0.2,), (5.0, 3.0), inclusive=False)(p).tolist()
        [5.0, 5.0, 3.0, 3.0, 3.0]
    """

    checked = True
    edges32: Tensor
    edges64: Tensor
    gammas32: Tensor
    gammas64: Tensor

    def __init__(
        self, thresholds: Sequence[float], gammas: Sequence[float], *, inclusive: bool = True
    ) -> None:
        super().__init__()
        self.thresholds = check_boundaries("thresholds", thresholds, n_gammas=len(gammas))
        self.gammas = tuple(check_signed_gamma(g, like=torch.empty(0)) for g in gammas)
        self.inclusive = inclusive
        self.signed = min(self.gammas) < 0.0
        self._make_constants(torch.empty(0).device)

    def _make_constants(self, device: torch.device) -> None:
        """Thresholds and gammas as buffers, which are not saved."""
        sign = 1.0 if self.inclusive else -1.0
        for name, dtype in (("32", torch.float32), ("64", torch.float64)):
            eps = torch.finfo(dtype).eps
            edges = [t * (1.0 + sign * _rounding(t, eps)) for t in self.thresholds]
            kept = dtype if has_float64(torch.empty(0, device=device)) else torch.float32
            for what, values in (("edges", edges), ("gammas", self.gammas)):
                made = torch.tensor(values, dtype=kept, device=device)
                self.register_buffer(what + name, made, persistent=False)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Make the buffers on the device of the network: they may have no data yet (to_empty)."""
        self._make_constants(fn(torch.empty(0, device=self.edges32.device)).device)
        return self

    @classmethod
    def for_thresholds(cls, thresholds: Sequence[float], *, rest: float) -> SampleGamma:
        """A policy with the gamma for each threshold at which its gradient is cross-entropy's.

        Args:
            thresholds: Increasing probabilities of at most 0.5.
            rest: Gamma above the last threshold.

        Examples:
            >>> from calibrant.losses import SampleGamma
            >>> policy = SampleGamma.for_thresholds((0.2, 0.25), rest=2.0)
            >>> [round(gamma, 4) for gamma in policy.gammas]
            [4.8506, 3.0702, 2.0]
        """
        return cls(thresholds, (*map(gamma_for_threshold, thresholds), rest))

    def forward(self, p: Tensor) -> Tensor:
        """The gamma of each probability."""
        if p.dtype == torch.float64:
            return gamma_between(p, self.edges64, self.gammas64)
        return gamma_between(p, self.edges32, self.gammas32)

    def extra_repr(self) -> str:
        """Thresholds and gammas."""
        sign = "<=" if self.inclusive else "<"
        pairs = zip(self.thresholds, self.gammas[:-1], strict=True)
        steps = [f"{g:g} for p {sign} {t:g}" for t, g in pairs]
        return ", ".join([*steps, f"else {self.gammas[-1]:g}"])


def gamma_between(p: Tensor, edges: Tensor, gammas: Tensor) -> Tensor:
    """The gamma of the interval that contains each p; an edge belongs to the interval below it."""
    index = torch.bucketize(p, edges)
    # gather is faster than indexing, and works under vmap, where p may be a single sample.
    return gammas[index] if index.dim() > 1 else gammas.gather(0, index)


def _rounding(p: float, eps: float) -> float:
    """Relative error of p = exp(-c) due to the rounding of c."""
    return 4.0 * eps * (1.0 - math.log(p))


def check_signed_gamma(value: Any, *, like: Array) -> float:
    """Check a gamma of a policy: finite, below 0 for the inverse focal loss."""
    number = _inputs.finite_number(value, "gamma")
    _inputs.within_type(number, "gamma", like, smallest=0.0)
    return number


def check_boundaries(name: str, values: Sequence[Any], *, n_gammas: int) -> tuple[float, ...]:
    """Check increasing boundaries, one fewer than gammas; only ``epochs`` may be above 1."""
    found = tuple(_inputs.finite_number(value, name) for value in values)
    highest = math.inf if name == "epochs" else 1.0
    if not (
        all(a < b for a, b in pairwise(found)) and all(0.0 < value < highest for value in found)
    ):
        limits = "above 0" if name == "epochs" else "strictly between 0 and 1"
        raise CalibrantError(
            f"{name} must increase and lie {limits}; found {found}. "
            "Sort them, and remove duplicates"
        )
    if n_gammas != len(found) + 1:
        raise CalibrantError(
            f"there must be one more gamma than {name}; found {n_gammas} gammas and {len(found)} "
            f"{name}. The last gamma applies above the last of them"
        )
    return found


def check_length_of_run(epoch: int, n_epochs: Any) -> int:
    """Check the number of epochs of a run, for a schedule in fractions of it."""
    if n_epochs is None:
        raise CalibrantError(
            "a schedule in fractions of the run needs n_epochs; found none. Call "
            "start_epoch(epoch, n_epochs) (in Lightning: set max_epochs), or pass epochs= to the "
            "schedule"
        )
    length = _inputs.whole_number(n_epochs, "n_epochs", allowed=range(1, 2**53))
    if epoch >= length:
        raise CalibrantError(
            f"epoch must be below n_epochs; found {epoch} of {length}. Count epochs from 0"
        )
    return length
