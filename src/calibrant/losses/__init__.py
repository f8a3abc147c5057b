"""PyTorch losses that calibrate, each a drop-in replacement for ``torch.nn.CrossEntropyLoss``.

    loss = FocalLoss(gamma=3.0)                    # or LOSSES["flsd-53"](), by the papers' names
    loss(logits, target).backward()

Some losses change during training. Every loss accepts what these need to know:

    loss.start_epoch(epoch, n_epochs)              # before each epoch, counted from 0
    loss.update(val_logits, val_labels)            # after it, with the whole validation set

This package needs PyTorch: ``pip install 'calibrant[torch]'``.
"""

from calibrant import _inputs

_inputs.installed("torch", extra="torch", purpose="calibrant.losses")

from calibrant.losses.adafocal import AdaFocal
from calibrant.losses.base import Loss
from calibrant.losses.focal import FocalLoss, SigmoidFocalLoss
from calibrant.losses.mmce import MMCELoss
from calibrant.losses.plain import BrierLoss, CrossEntropyLoss
from calibrant.losses.policies import GammaPolicy, SampleGamma, ScheduledGamma
from calibrant.losses.proper import ProperFocalLoss
from calibrant.losses.registry import LOSSES

__all__ = [
    "LOSSES",
    "AdaFocal",
    "BrierLoss",
    "CrossEntropyLoss",
    "FocalLoss",
    "GammaPolicy",
    "Loss",
    "MMCELoss",
    "ProperFocalLoss",
    "SampleGamma",
    "ScheduledGamma",
    "SigmoidFocalLoss",
]
