"""Measurements after each epoch: the quantities of Mukhoti et al. (2020), Figures 1 to 4."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from calibrant.losses import Loss
from calibrant.metrics import ada_ece, ece, error_rate
from calibrant.metrics.reliability import reliability_of
from calibrant.metrics.samples import samples_from_scores
from calibrant.training.datasets import Split
from calibrant.training.loaders import ALONE, World, channels_last

BATCH = 256
"""Batch size of predictions."""
RELIABILITY_BINS = 25
"""As in Figure 2."""
NORM_EXPONENTS = np.linspace(-8.0, 3.0, 45)
"""Edges of the bins of gradient norms, as powers of ten; the first and last bin are open."""

Floats = npt.NDArray[np.float64]


class SplitPredictions(NamedTuple):
    """Predictions of a split, in the requested order."""

    logits: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    gradient_norms: Floats | None
    own: tuple[Tensor, Tensor]
    """Logits and labels of the rows computed by this process."""


def predict(
    network: nn.Module,
    split: Split,
    indices: Tensor | None = None,
    *,
    device: torch.device | str = "cpu",
    world: World = ALONE,
    loss: Loss | None = None,
) -> SplitPredictions:
    """Logits of a split; each process computes its share, and all of them get everything.

    Args:
        network: The network; evaluated in evaluation mode and then set back.
        split: Split to predict, with one target per item.
        indices: Items to predict; None is all.
        device: Device of the network.
        world: Rank of this process, and the number of processes.
        loss: If given, the norm of each sample's gradient with respect to the weights of the last
            linear layer is computed. That gradient is the outer product of the gradient with
            respect to the logits and the layer's input, so its norm is the product of two norms.
            There are none without such a layer, or if it does not see one row per sample. A loss
            over batches, such as MMCE, uses batches of ``BATCH``.
    """
    split = split.evaluation()
    indices = torch.arange(len(split)) if indices is None else indices
    own = indices[world.rank :: world.size]
    layer = last_layer(network) if loss is not None else None
    batches = []
    mode = network.training
    network.eval()
    for batch in torch.split(own, BATCH):
        inputs, targets = split.batch(batch)
        with torch.no_grad(), _inputs_of(layer) as seen:
            logits = network(channels_last(inputs).to(device)).float()
        columns = [logits]
        if loss is not None and layer is not None:
            columns.append(_gradient_norms(loss, logits, targets.to(device), seen))
        batches.append(torch.cat(columns, 1).cpu())
    network.train(mode)
    mine = torch.cat(batches) if batches else torch.empty(0, 0)
    table = gathered(mine, len(indices), device, world).numpy()
    n_classes = table.shape[1] - (layer is not None)
    norms = table[:, n_classes:].astype(np.float64).ravel()
    return SplitPredictions(
        np.ascontiguousarray(table[:, :n_classes]),
        split.labels[indices].numpy(),
        norms if layer is not None and not np.isnan(norms).any() else None,
        (mine[:, :n_classes], split.labels[own]),
    )


def observe(
    logits: npt.NDArray[Any],
    labels: npt.NDArray[np.int64],
    gradient_norms: Floats | None = None,
    *,
    bins: bool = False,
) -> dict[str, Any]:
    """Measure confidence, errors and calibration of one split, as JSON can hold it.

    Args:
        logits: (n, K).
        labels: (n,).
        gradient_norms: (n,) norm of each sample's gradient; adds their histogram.
        bins: Whether to add the reliability in 25 bins.

    Returns:
        dict: ``n``, ``error``, ``nll``, ``entropy``, ``true_prob`` (probability of the true class),
        ``ece`` and ``ada_ece`` in 15 bins. ``nll``, ``entropy`` and ``true_prob`` also with
        ``_correct`` and ``_wrong``: the mean over the samples classified correctly or wrongly,
        None if there are none.

    References:
        Mukhoti et al. (2020), Figures 1 to 4.

    Examples:
        >>> import numpy as np
        >>> from calibrant.training.observations import observe
        >>> seen = observe(np.log([[0.8, 0.2], [0.6, 0.4]]), np.array([0, 1]))
        >>> seen["error"], round(seen["true_prob_wrong"], 4), round(seen["nll"], 4)
        (0.5, 0.4, 0.5697)
    """
    samples = samples_from_scores(logits=logits, labels=labels)
    found: dict[str, Any] = {"n": len(samples), "error": error_rate.of(samples)}
    for name, values in {
        "nll": -samples.true_log_prob,
        "entropy": samples.entropy,
        "true_prob": np.exp(samples.true_log_prob),
    }.items():
        found[name] = samples.mean(values)
        for suffix, where in (("correct", samples.correct), ("wrong", ~samples.correct)):
            found[f"{name}_{suffix}"] = samples.mean(values, where) if where.any() else None
    found |= {"ece": ece.of(samples), "ada_ece": ada_ece.of(samples)}
    if bins:
        curve = reliability_of(samples, n_bins=RELIABILITY_BINS, top_class=True).to_dict()
        found["reliability"] = {name: curve[name] for name in ("count", "confidence", "accuracy")}
    if gradient_norms is not None:
        found["gradient_norm"] = norm_histogram(gradient_norms)
    return found


def norm_histogram(norms: Floats) -> dict[str, Any]:
    """Counts over powers of ten, in the same bins every epoch, with mean and median."""
    with np.errstate(divide="ignore"):
        index = np.searchsorted(NORM_EXPONENTS, np.log10(norms), side="right")
    counts = np.bincount(index, minlength=len(NORM_EXPONENTS) + 1)
    return {
        "mean": float(norms.mean()),
        "median": float(np.median(norms)),
        "count": counts.tolist(),
    }


def last_layer(network: nn.Module) -> nn.Linear | None:
    """The linear layer that computes the logits: ``classifier``, or the last one."""
    named = getattr(network, "classifier", None)
    if isinstance(named, nn.Linear):
        return named
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    return layers[-1] if layers else None


def weight_norm(network: nn.Module) -> float | None:
    """The L2 norm of the weights of the last linear layer, without biases (Figure 3h)."""
    layer = last_layer(network)
    return None if layer is None else float(layer.weight.detach().norm())


def gathered(own: Tensor, total: int, device: torch.device | str, world: World) -> Tensor:
    """The rows of all processes; process r has computed rows r, r + size, ..."""
    if world.size == 1:
        return own
    most = math.ceil(total / world.size)
    width = torch.tensor([own.shape[1]], device=device)
    torch.distributed.all_reduce(width, torch.distributed.ReduceOp.MAX)
    padded = torch.zeros(most, int(width), device=device)
    padded[: len(own), : own.shape[1]] = own.to(device)
    parts = [torch.empty_like(padded) for _ in range(world.size)]
    torch.distributed.all_gather(parts, padded)
    return torch.stack(parts, 1).flatten(0, 1)[:total].cpu()


def _gradient_norms(loss: Loss, logits: Tensor, targets: Tensor, seen: list[Tensor]) -> Tensor:
    """(n, 1) norm of the gradient of each row's loss with respect to the last layer's weights.

    NaN if the layer has not ``seen`` one row per row of logits.
    """
    features = seen[-1] if seen else torch.empty(0)
    if features.dim() != 2 or len(features) != len(logits):
        return torch.full((len(logits), 1), torch.nan, device=logits.device)
    with torch.enable_grad():
        free = logits.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(free, targets), free)
    if loss.reduction == "mean":
        gradient = gradient * len(gradient)  # of the row's own loss, not of its share in the mean
    norms: Tensor = gradient.norm(dim=1, keepdim=True) * features.float().norm(dim=1, keepdim=True)
    return norms


@contextlib.contextmanager
def _inputs_of(layer: nn.Module | None) -> Iterator[list[Tensor]]:
    """What a layer sees while the block runs."""
    seen: list[Tensor] = []
    if layer is None:
        yield seen
        return
    with layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach())):
        yield seen
