"""Training steps, forward and backward: our losses against cross-entropy and textbook code.

Focal losses of other packages are measured if they are installed, as in the environment of
``make bench-peers``; each is called so that it returns the mean over the batch, and its value and
gradient are compared with ours. Memory is torch's peak allocation during the step, by its own
profiler, including the gradient of the logits. Measured with one thread and with torch's default:
on a shared machine, several operations of a step wait for the second thread, and the two tables
differ widely.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its name everywhere)
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.timing import peer, print_ratios, side_by_side
from calibrant.losses import LOSSES, FocalLoss, ProperFocalLoss

SHAPES = ((128, 10), (8192, 1000), (1024, 50257))
ROUNDS, ROUNDS_IF_SMALL = 7, 1000
"""Rounds of each loss: a short step is easily disturbed, and cheap to repeat."""
GAMMA = 3.0
PLAIN, OURS = "F.cross_entropy", "calibrant focal"
GAPS = (17.0, 120.0)
"""Lead of the largest logit over the others or over the label."""

Loss = Callable[[Tensor, Tensor], Tensor]


def textbook(gamma: float) -> Loss:
    """The focal loss as it is usually written: softmax, gather, pow."""

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        p = torch.softmax(logits, dim=1).gather(1, labels.unsqueeze(1)).squeeze(1)
        return (-((1 - p) ** gamma) * torch.log(p)).mean()

    return loss


def textbook_flsd(logits: Tensor, labels: Tensor) -> Tensor:
    """The same with a gamma per sample."""
    p = torch.softmax(logits, dim=1).gather(1, labels.unsqueeze(1)).squeeze(1)
    gamma = torch.where(p.detach() < 0.2, 5.0, 3.0)
    return (-((1 - p) ** gamma) * torch.log(p)).mean()


def peers(gamma: float) -> dict[str, Loss]:
    """The focal losses of other packages, called so that they return the mean over the batch."""
    losses: dict[str, Loss] = {}
    if kornia := peer("kornia.losses"):
        # Its mean is over all entries of the logits.
        kornia_loss = kornia.FocalLoss(alpha=None, gamma=gamma, reduction="mean")
        losses["kornia"] = lambda x, y: kornia_loss(x, y) * x.shape[1]
    if monai := peer("monai.losses"):
        # The same; without use_softmax it is the binary loss of every class.
        monai_loss = monai.FocalLoss(gamma=gamma, to_onehot_y=True, use_softmax=True)
        losses["monai"] = lambda x, y: monai_loss(x, y.unsqueeze(1)) * x.shape[1]
    if torch_focalloss := peer("torch_focalloss"):
        losses["pytorch-focalloss"] = torch_focalloss.MultiClassFocalLoss(gamma=gamma)
    if focal_loss := peer("focal_loss"):
        # It takes probabilities.
        focal_loss_torch = focal_loss.FocalLoss(gamma=gamma)
        losses["focal-loss-torch"] = lambda x, y: focal_loss_torch(torch.softmax(x, dim=1), y)
    return losses


def adafocal(logits: Tensor, labels: Tensor) -> Loss:
    """AdaFocal in the middle of a run: bins from data, gammas on both sides of 0."""
    loss = LOSSES["adafocal"]()
    rows = slice(0, 512)
    loss.update(logits[rows].detach(), labels[rows])
    loss.state_dict()["gamma.gammas"].copy_(torch.linspace(-1.0, 3.0, 15))
    return loss


def candidates(logits: Tensor, labels: Tensor) -> dict[str, Loss]:
    """All installed losses."""
    return {
        PLAIN: F.cross_entropy,
        "textbook focal": textbook(GAMMA),
        "textbook FLSD-53": textbook_flsd,
        "calibrant cross-entropy": LOSSES["ce"](),
        OURS: FocalLoss(gamma=GAMMA),
        "calibrant FLSD-53": LOSSES["flsd-53"](),
        "calibrant AdaFocal": adafocal(logits, labels),
        "calibrant proper focal": ProperFocalLoss(gamma=GAMMA),
        **peers(GAMMA),
    }


def step(loss: Loss, logits: Tensor, labels: Tensor) -> Callable[[], None]:
    """Forward and backward."""

    def run() -> None:
        logits.grad = None
        loss(logits, labels).backward()  # type: ignore[no-untyped-call]

    return run


def peak_memory(run: Callable[[], None], logits: Tensor) -> float:
    """Peak megabytes that torch allocates during ``run``."""
    run()
    logits.grad = None  # so that everything freed in the run is allocated in it
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as measured:
        run()
    results: Any = measured.profiler
    events = [e for e in results.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak / 1e6


def problem(n: int, n_classes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Logits whose largest is at the label in about half of the rows."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n, n_classes, generator=generator)
    labels = torch.randint(n_classes, (n,), generator=generator)
    logits[torch.arange(0, n, 2), labels[::2]] += 10.0
    return logits.to(dtype).requires_grad_(), labels


def compare(n: int, n_classes: int, dtype: torch.dtype) -> None:
    """Compare time, and for large inputs memory."""
    logits, labels = problem(n, n_classes, dtype)
    losses = candidates(logits, labels)
    small = n * n_classes < 100_000
    runs = {name: step(loss, logits, labels) for name, loss in losses.items()}
    seconds = side_by_side(runs, rounds=ROUNDS_IF_SMALL if small else ROUNDS)
    kind = str(dtype).removeprefix("torch.")
    print_ratios(f"loss forward + backward, {n} x {n_classes}, {kind}", seconds, against=PLAIN)
    print_peers("time", seconds)
    if not small:
        peaks = {name: peak_memory(run, logits) for name, run in runs.items()}
        print("  peak memory")
        for name, peak in peaks.items():
            print(f"    {name:<24} {peak:6.0f} MB   {peak / peaks[PLAIN]:6.2f} x")
        print_peers("memory", peaks)


def print_peers(what: str, measured: dict[str, float]) -> None:
    """Ratios of the other packages to ours."""
    ratios = [f"{name} {measured[name] / measured[OURS]:.2f}" for name in peers(GAMMA)]
    if ratios:
        print(f"  {what}, as a multiple of {OURS}: {', '.join(ratios)}")


def print_agreement(n: int, n_classes: int) -> None:
    """Differences of the other focal losses and their gradients from ours in float64."""
    logits, labels = problem(n, n_classes, torch.float32)
    exact, direction = found(FocalLoss(gamma=GAMMA), logits.detach().double(), labels)
    print(f"\ndifference from float64, {n} x {n_classes}, float32, relative: value, gradient")
    ours: dict[str, Loss] = {OURS: FocalLoss(gamma=GAMMA), "textbook": textbook(GAMMA)}
    for name, loss in (ours | peers(GAMMA)).items():
        value, gradient = found(loss, logits.detach(), labels)
        off = float((gradient.double() - direction).norm() / direction.norm())
        print(f"  {name:<18} {abs(float(value / exact) - 1.0):.0e}  {off:.0e}")


def print_gaps(gamma: float) -> None:
    """The gradient of the largest logit, if it is the label and if it is not."""
    print(f"\ngradient at the largest, gamma = {gamma:g}, float32, gaps {GAPS}: correct, wrong")
    ours: dict[str, Loss] = {OURS: FocalLoss(gamma=gamma), "textbook": textbook(gamma)}
    for name, loss in (ours | peers(gamma)).items():
        slopes = [
            float(found(loss, torch.tensor([[gap, 0.0, 0.0]]), torch.tensor([label]))[1][0, 0])
            for label in (0, 1)
            for gap in GAPS
        ]
        print(f"  {name:<18} {'  '.join(f'{slope:8.1e}' for slope in slopes)}")


def found(loss: Loss, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Value and gradient."""
    leaf = logits.clone().requires_grad_()
    value = loss(leaf, labels)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


def main() -> None:
    """Print the ratios."""
    default = torch.get_num_threads()
    for threads in sorted({1, default}):
        torch.set_num_threads(threads)
        load = os.getloadavg()[0]
        print(f"\ntorch {torch.__version__}, threads: {threads}, load average {load:.1f}, seed 0")
        for shape in SHAPES:
            compare(*shape, torch.float32)
        compare(*SHAPES[1], torch.bfloat16)
    print_agreement(*SHAPES[1])
    for gamma in (0.5, GAMMA):
        print_gaps(gamma)


if __name__ == "__main__":
    main()
