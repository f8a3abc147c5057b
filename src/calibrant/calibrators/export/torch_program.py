"""Calibrators as torch programs, which need no class of calibrant."""

from __future__ import annotations

import io
import json

import torch
from torch import Tensor, nn

from calibrant._version import __version__
from calibrant.calibrators.base import Calibrator

OF_THIS_MACHINE = ("stack_trace", "source_fn_stack", "from_node")
"""Entries of a traced program that name files of this machine."""


class _Probs(nn.Module):
    """From logits to calibrated probabilities."""

    def __init__(self, calibrator: Calibrator) -> None:
        super().__init__()
        self.layer = calibrator.as_module()

    def forward(self, logits: Tensor) -> Tensor:
        return self.layer.probs(logits)


def program(calibrator: Calibrator, dtype: str) -> torch.export.ExportedProgram:
    """The calibrator as a traced program, from (batch, classes) to the same shape."""
    # Two rows, because tracing takes sizes of 0 and 1 for constants.
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
    """Metadata of an exported file."""
    return {
        "calibrant.version": __version__,
        "calibrant.method": calibrator.NAME,
        "calibrant.n_classes": str(calibrator.n_classes_),
        "calibrant.created": calibrator.origin_.created or "",
    }


def program_file(calibrator: Calibrator, dtype: str) -> bytes:
    """The program as a file for ``torch.export.load``."""
    about = json.dumps(description(calibrator))
    # In memory, because torch aborts the process if the disk is full.
    content = io.BytesIO()
    torch.export.save(program(calibrator, dtype), content, extra_files={"calibrant.json": about})
    return content.getvalue()
