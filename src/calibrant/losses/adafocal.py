"""AdaFocal: a gamma for each bin, adapted to the calibration of the validation set."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from calibrant import _inputs
from calibrant.errors import CalibrantError
from calibrant.losses.policies import GammaPolicy, gamma_between
from calibrant.metrics.binning import mass_edges
from calibrant.metrics.calibration import MOST_BINS

Floats = npt.NDArray[np.float64]


class AdaFocal(GammaPolicy):
    r"""A gamma for each bin of confidence, raised where the model is over-confident.

    After each epoch ``loss.update(val_logits, val_labels)`` divides the confidences of the
    validation set into bins of equal mass. In a bin with gap = mean confidence - accuracy,

    .. math:: \gamma \leftarrow \gamma\, e^{\lambda\,\mathrm{gap}} \;(\gamma > 0), \qquad
              \gamma \leftarrow \gamma\, e^{-\lambda\,\mathrm{gap}} \;(\gamma < 0)

    A gamma that comes closer to 0 than ``switch`` jumps to ``switch`` with the opposite sign, and
    all stay between ``lowest`` and ``highest``. A training sample takes the gamma of the bin that
    contains the probability of its true class; below 0 it means the inverse focal loss.

    Bins whose edges coincide, because many confidences are equal, are one bin: the first of them
    takes the samples, and all of them take its gap, so that their gammas stay up to date.

    Bins and gammas are buffers, in float32 whatever the dtype of the network: ``state_dict`` holds
    them, and a resumed run continues as if it had not stopped.

    Under ``torch.distributed`` the confidences of all processes are gathered (16 bytes for each
    validation sample). So the bins are those of the whole set, and every process has the gammas
    that a single process would have. All processes must call ``update``. A sampler that repeats
    samples to fill the last batch counts them twice.

    Args:
        n_bins: Number of bins.
        rate: lambda in the exponent.
        start: Gamma of every bin before the first update.
        switch: Absolute value of gamma below which the sign changes.
        lowest: Smallest gamma.
        highest: Largest gamma.

    References:
        Ghosh et al. (2022), AdaFocal: calibration-aware adaptive focal loss.

    Examples:
        >>> import torch
        >>> from calibrant.losses import AdaFocal, FocalLoss
        >>> loss = FocalLoss(gamma=AdaFocal(n_bins=2))
        >>> val_logits = torch.tensor([[0.5, 0.0], [1.0, 0.0], [4.0, 0.0], [5.0, 0.0]])
        >>> loss.update(val_logits, torch.tensor([0, 0, 1, 0]))
        >>> [round(gamma, 4) for gamma in loss.gamma.gammas.tolist()]
        [0.7238, 1.6285]
    """

    checked = True
    needs_validation = True
    edges: Tensor
    gammas: Tensor
    n_updates: Tensor

    def __init__(
        self,
        *,
        n_bins: int = 15,
        rate: float = 1.0,
        start: float = 1.0,
        switch: float = 0.2,
        lowest: float = -2.0,
        highest: float = 20.0,
    ) -> None:
        super().__init__()
        self.n_bins = _inputs.whole_number(n_bins, "n_bins", allowed=MOST_BINS)
        self.rate = _inputs.above_zero(rate, "rate")
        self.switch = _inputs.above_zero(switch, "switch")
        self.lowest, self.highest, start = check_limits_of_gamma(
            lowest, highest, start, self.switch
        )
        inner = torch.arange(1, self.n_bins, dtype=torch.float32) / self.n_bins
        self.register_buffer("edges", inner)
        self.register_buffer("gammas", torch.full((self.n_bins,), start, dtype=torch.float32))
        self.register_buffer("n_updates", torch.tensor(0, dtype=torch.int64))

    def forward(self, p: Tensor) -> Tensor:
        """The gamma of the bin of each probability; the first and last bins are unbounded."""
        edges, gammas = self.edges, self.gammas
        if p.dtype != gammas.dtype:
            edges, gammas = edges.to(p.dtype), gammas.to(p.dtype)
        return gamma_between(p, edges, gammas)

    def update(self, confidence: Tensor, correct: Tensor) -> None:
        """Update bins and gammas by one validation set, gathered from all processes."""
        own = torch.stack([confidence, correct]).double().cpu()
        confidences, hits = _gathered(own, self.gammas.device).numpy()
        _inputs.something_to_measure(len(confidences))
        # Sorted, so that sums do not depend on the order in which processes are gathered.
        order = np.lexsort((hits, confidences))
        edges, gap = _bins(confidences[order], hits[order], self.n_bins)
        gammas = self.gammas.cpu().numpy().astype(np.float64)
        gammas = gammas * np.exp(np.sign(gammas) * self.rate * gap)
        small = np.abs(gammas) < float(np.float32(self.switch))  # as in the buffer
        gammas = np.where(small, -np.sign(gammas) * self.switch, gammas)
        # Rounded up: an edge belongs to the bin below it, in double precision too.
        coarse = edges.astype(np.float32)
        above = np.nextafter(coarse, np.float32(np.inf))
        self.edges.copy_(torch.from_numpy(np.where(coarse < edges, above, coarse)))
        self.gammas.copy_(torch.from_numpy(np.clip(gammas, self.lowest, self.highest)))
        self.n_updates += 1

    def extra_repr(self) -> str:
        """The settings."""
        return (
            f"n_bins={self.n_bins}, rate={self.rate:g}, switch={self.switch:g}, "
            f"lowest={self.lowest:g}, highest={self.highest:g}"
        )


def _bins(confidence: Floats, correct: Floats, n_bins: int) -> tuple[Floats, Floats]:
    """The inner edges of equal-mass bins of sorted samples, and the gap of each bin.

    An edge is the largest confidence of the bin below it and belongs to that bin.
    """
    ranks = mass_edges(float(len(confidence)), n_bins, whole=True).astype(np.intp)
    last = np.full(n_bins, len(confidence) - 1)  # with fewer samples than bins the rest coincide
    last[: len(ranks) - 1] = ranks[1:] - 1
    upper = confidence[last]
    edges = upper[:-1]
    index = np.searchsorted(edges, confidence)
    count = np.bincount(index, minlength=n_bins)
    excess = np.bincount(index, weights=confidence - correct, minlength=n_bins)
    owner = np.searchsorted(edges, upper)  # the first of the bins that coincide
    return edges, excess[owner] / count[owner]


def _gathered(own: Tensor, device: torch.device) -> Tensor:
    """The columns of all processes, on the CPU; ``own`` if there is only one process."""
    group = torch.distributed
    if not (group.is_available() and group.is_initialized()):
        return own
    size = torch.tensor([own.shape[1]], device=device)
    sizes = [torch.empty_like(size) for _ in range(group.get_world_size())]
    group.all_gather(sizes, size)
    # all_gather needs parts of equal shape.
    longest = int(max(sizes))
    padded = torch.nn.functional.pad(own, (0, longest - own.shape[1])).to(device)
    parts = [torch.empty_like(padded) for _ in sizes]
    group.all_gather(parts, padded)
    kept = [part[:, : int(n)].cpu() for part, n in zip(parts, sizes, strict=True)]
    return torch.cat(kept, dim=1)


def check_limits_of_gamma(
    lowest: Any, highest: Any, start: Any, switch: float
) -> tuple[float, float, float]:
    """Check that the limits enclose -switch and switch, and that start is a possible gamma."""
    low, high = _inputs.finite_number(lowest, "lowest"), _inputs.finite_number(highest, "highest")
    begin = _inputs.finite_number(start, "start")
    if not (low <= -switch and switch <= high):
        raise CalibrantError(
            f"lowest and highest must enclose -switch and switch; found {low:g} and {high:g} "
            f"for a switch of {switch:g}. The paper has -2, 20 and 0.2"
        )
    if not (low <= begin <= high and abs(begin) >= switch):
        raise CalibrantError(
            f"start must lie between {low:g} and {high:g} and no closer to 0 than {switch:g}; "
            f"found {begin:g}. The paper has 1"
        )
    return low, high, begin
