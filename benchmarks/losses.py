"""A step of training, forward and backward: our losses against cross-entropy and the textbook.

kornia and monai are measured where they are installed. Memory is what torch allocates at its
peak during the step, by its own profiler, and counts the gradient of the logits. Measured with one
thread and with torch's default: where others use the machine too, several operations of a step
wait for the second thread, and the two tables differ widely.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its name everywhere)
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.timing import print_ratios, side_by_side
from calibrant.losses import LOSSES, FocalLoss

SHAPES = ((128, 10), (8192, 1000), (1024, 50257))
ROUNDS, ROUNDS_IF_SMALL = 7, 1000
"""How often each loss takes its turn: a short step is easily disturbed, and cheap to repeat."""
GAMMA = 3.0
PLAIN = "F.cross_entropy"

Loss = Callable[[Tensor, Tensor], Tensor]


def textbook(logits: Tensor, labels: Tensor) -> Tensor:
    """The focal loss as it is usually written: softmax, gather, pow."""
    p = torch.softmax(logits, dim=1).gather(1, labels.unsqueeze(1)).squeeze(1)
    return (-((1 - p) ** GAMMA) * torch.log(p)).mean()


def textbook_flsd(logits: Tensor, labels: Tensor) -> Tensor:
    """The same with a gamma for each sample."""
    p = torch.softmax(logits, dim=1).gather(1, labels.unsqueeze(1)).squeeze(1)
    gamma = torch.where(p.detach() < 0.2, 5.0, 3.0)
    return (-((1 - p) ** gamma) * torch.log(p)).mean()


def adafocal(logits: Tensor, labels: Tensor) -> Loss:
    """AdaFocal in the middle of a run: bins from data, gammas on both sides of 0."""
    loss = LOSSES["adafocal"]()
    rows = slice(0, 512)
    loss.update(logits[rows].detach(), labels[rows])
    loss.state_dict()["gamma.gammas"].copy_(torch.linspace(-1.0, 3.0, 15))
    return loss


def candidates(logits: Tensor, labels: Tensor) -> dict[str, Loss]:
    """Every loss that is installed."""
    losses: dict[str, Loss] = {
        PLAIN: F.cross_entropy,
        "textbook focal": textbook,
        "textbook FLSD-53": textbook_flsd,
        "calibrant cross-entropy": LOSSES["ce"](),
        "calibrant focal": FocalLoss(gamma=GAMMA),
        "calibrant FLSD-53": LOSSES["flsd-53"](),
        "calibrant AdaFocal": adafocal(logits, labels),
    }
    if kornia := peer("kornia.losses"):
        losses["kornia focal"] = kornia.FocalLoss(alpha=None, gamma=GAMMA, reduction="mean")
    if monai := peer("monai.losses"):
        monai_loss = monai.FocalLoss(gamma=GAMMA, to_onehot_y=True, use_softmax=True)
        losses["monai focal"] = lambda x, y: monai_loss(x, y.unsqueeze(1))
    return losses


def peer(name: str) -> Any:
    """The module, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def step(loss: Loss, logits: Tensor, labels: Tensor) -> Callable[[], None]:
    """Forward and backward."""

    def run() -> None:
        logits.grad = None
        loss(logits, labels).backward()  # type: ignore[no-untyped-call]

    return run


def peak_memory(run: Callable[[], None], logits: Tensor) -> float:
    """Megabytes that torch allocates at most during ``run``, beyond what is there before."""
    run()
    logits.grad = None  # what is freed during the run must have been allocated in it
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
    """Logits of which about half point to the label."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n, n_classes, generator=generator)
    labels = torch.randint(n_classes, (n,), generator=generator)
    logits[torch.arange(0, n, 2), labels[::2]] += 10.0
    return logits.to(dtype).requires_grad_(), labels


def compare(n: int, n_classes: int, dtype: torch.dtype) -> None:
    """Time, and for large inputs memory, side by side."""
    logits, labels = problem(n, n_classes, dtype)
    losses = candidates(logits, labels)
    small = n * n_classes < 100_000
    runs = {name: step(loss, logits, labels) for name, loss in losses.items()}
    seconds = side_by_side(runs, rounds=ROUNDS_IF_SMALL if small else ROUNDS)
    kind = str(dtype).removeprefix("torch.")
    print_ratios(f"loss forward + backward, {n} x {n_classes}, {kind}", seconds, against=PLAIN)
    if not small:
        peaks = {name: peak_memory(run, logits) for name, run in runs.items()}
        print("  peak memory")
        for name, peak in peaks.items():
            print(f"    {name:<24} {peak:6.0f} MB   {peak / peaks[PLAIN]:6.2f} x")


def main() -> None:
    """Print the ratios."""
    default = torch.get_num_threads()
    for threads in sorted({1, default}):
        torch.set_num_threads(threads)
        print(f"\ntorch {torch.__version__}, threads: {threads}, seed 0")
        for shape in SHAPES:
            compare(*shape, torch.float32)
        compare(*SHAPES[1], torch.bfloat16)
    wide = torch.tensor([[30.0, 0.0], [0.0, 120.0]], requires_grad=True)
    print("\ngradients at logit gaps of 30 and 120, gamma = 0.5 (float32)")
    for name, loss in (
        ("textbook", lambda x, y: (-((1 - p(x, y)) ** 0.5) * torch.log(p(x, y))).mean()),
        ("calibrant", FocalLoss(gamma=0.5)),
    ):
        (gradient,) = torch.autograd.grad(loss(wide, torch.tensor([0, 0])), wide)
        print(f"  {name:<10} {gradient.tolist()}")


def p(logits: Tensor, labels: Tensor) -> Tensor:
    """Probability of the label."""
    return torch.softmax(logits, dim=1).gather(1, labels.unsqueeze(1)).squeeze(1)


if __name__ == "__main__":
    main()
