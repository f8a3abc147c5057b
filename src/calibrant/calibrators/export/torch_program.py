"""Calibrators as torch programs, without a Python class of ours in them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor, nn

from calibrant._version import __version__
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.modules import CalibratorModule

OF_THIS_MACHINE = ("stack_trace", "source_fn_stack", "from_node")
"""What a traced program knows of the files it was made from."""


class _Probs(nn.Module):
    """From logits to calibrated probabilities."""

    def __init__(self, calibrator: Calibrator) -> None:
        super().__init__()
        self.layer = CalibratorModule(calibrator)

    def forward(self, logits: Tensor) -> Tensor:
        return self.layer.probs(logits)


def program(calibrator: Calibrator, dtype: str) -> torch.export.ExportedProgram:
    """The calibrator as a traced program, from (batch, classes) to the same shape."""
    # Two rows, as sizes of 0 and 1 would be taken for constants.
    example = torch.zeros(2, calibrator.n_classes_, dtype=getattr(torch, dtype))
    traced = torch.export.export(
        _Probs(calibrator).eval(),
        (example,),
        dynamic_shapes=({0: torch.export.Dim("batch")},),
    )
    for node in traced.graph.nodes:
        for name in OF_THIS_MACHINE:
            node.meta.pop(name, None)
    return traced


def description(calibrator: Calibrator) -> dict[str, str]:
    """What a file says of itself."""
    return {
        "calibrant.version": __version__,
        "calibrant.method": calibrator.NAME,
        "calibrant.n_classes": str(calibrator.n_classes_),
    }


def write_program(calibrator: Calibrator, dtype: str, path: Path) -> None:
    """Write the program for ``torch.export.load``."""
    about = json.dumps(description(calibrator))
    torch.export.save(program(calibrator, dtype), path, extra_files={"calibrant.json": about})
