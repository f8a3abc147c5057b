"""Calibrators as torch layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    pass


class CalibratorModule(torch.nn.Module):
    """From logits to calibrated log-probabilities, which are logits too.

    Arrays of the calibrator are buffers, so that they follow the network to its device and type;
    its numbers (temperature, gamma) are constants.
    """
