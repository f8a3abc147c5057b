"""A calibration error for training loops, summed over batches, devices and processes."""

from __future__ import annotations

from typing import Any

from calibrant import _inputs

_inputs.installed("torch", extra="torch", purpose="calibrant.metrics.torch")

import torch
from torch import Tensor, nn

from calibrant.metrics.binning import BinTable, EqualWidthBins, width_edges
from calibrant.metrics.calibration import MOST_BINS, NORMS, error_of_table
from calibrant.metrics.samples import samples_from_scores


class CalibrationError(nn.Module):
    """Expected calibration error over batches: ``update``, ``compute``, ``reset``.

    The state is the sums of equal-width bins (int64 counts, float64 sums), kept as buffers: it
    moves with the module, is saved with it, and does not grow with the number of samples. Under
    ``torch.distributed``, ``compute`` adds up the state of all processes.

    Args:
        n_bins: Number of equal-width bins.
        norm: ``"l1"`` (ECE), ``"l2"`` or ``"max"`` (MCE).
        ignore_label: Rows with this label are left out.

    Examples:
        >>> import torch
        >>> from calibrant.metrics.torch import CalibrationError
        >>> metric = CalibrationError()
        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
        >>> metric.update(logits=logits, labels=torch.tensor([0, 1]))
        >>> round(metric.compute(), 4)
        0.0833
    """

    count: Tensor
    sums: Tensor

    def __init__(
        self, *, n_bins: int = 15, norm: str = "l1", ignore_label: int | None = None
    ) -> None:
        super().__init__()
        self.n_bins = _inputs.whole_number(n_bins, "n_bins", allowed=MOST_BINS)
        self.norm = _inputs.choice(norm, "norm", NORMS)
        self.ignore_label = _inputs.ignored_label(ignore_label)
        self.register_buffer("count", torch.zeros(self.n_bins, dtype=torch.int64))
        self.register_buffer("sums", torch.zeros(5, self.n_bins, dtype=torch.float64))

    def update(
        self, probs: Tensor | None = None, labels: Tensor | None = None, *, logits: Any = None
    ) -> None:
        """Count one more batch of probabilities or logits."""
        if _inputs.all_ignored(labels, self.ignore_label):
            return
        samples = samples_from_scores(probs, labels, logits=logits, ignore_label=self.ignore_label)
        bins = EqualWidthBins(self.n_bins)
        bins.update(samples.confidence, samples.correct)
        self.count += torch.from_numpy(bins.count).to(self.count.device)
        self.sums += torch.from_numpy(bins.sums).to(self.sums.device)

    def compute(self) -> float:
        """The error of all samples counted so far, in all processes; NaN if there are none."""
        count, sums = self.count.clone(), self.sums.clone()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(count)
            torch.distributed.all_reduce(sums)
        if int(count.sum()) == 0:
            return float("nan")
        edges = width_edges(self.n_bins)
        return error_of_table(BinTable(edges[:-1], edges[1:], *sums.cpu().numpy()), self.norm)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move to the device of the module but keep the types: half precision cannot count."""

        def move(state: Tensor) -> Tensor:
            return state.to(fn(torch.empty(0, device=state.device)).device)

        return super()._apply(move, recurse)  # type: ignore[no-untyped-call]

    def reset(self) -> None:
        """Set all counts to 0."""
        self.count.zero_()
        self.sums.zero_()
