"""Calibrators as ONNX models.

torch does not translate every operation to ONNX exactly: ``log1p`` becomes log(1 + x), which
rounds, and constants of a float64 model pass through float32. The translations here are exact. The
finished model is compared with the calibrator before it is returned.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime  # type: ignore[import-untyped]
import torch
from onnxscript import ir, opset18

from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.export.torch_program import description, program
from calibrant.calibrators.multilabel.method import MultiLabelCalibration

op: Any = opset18
OPSET = 18
AGREEMENT = 1e-6
"""Largest allowed error of a probability, as documented. A wrong model has a far larger one."""
ERRORS_ONLY = 3


def model(calibrator: Calibrator, dtype: str) -> bytes:
    """An ONNX model from ``logits`` to ``probs``, both (batch, classes)."""
    with _quiet():
        translated = torch.onnx.export(
            program(calibrator, dtype),
            dynamo=True,
            verbose=False,
            optimize=True,
            opset_version=OPSET,
            input_names=["logits"],
            output_names=["probs"],
            dynamic_shapes={"logits": {0: "batch"}},  # its name: the program has its size
            custom_translation_table=_translations(),
        )
    assert translated is not None
    graph = translated.model
    graph.producer_name = "calibrant"
    graph.producer_version = description(calibrator)["calibrant.version"]
    graph.metadata_props.clear()
    graph.metadata_props.update(description(calibrator))
    graph.graph.metadata_props.clear()
    for node in graph.graph:
        node.metadata_props.clear()  # it names files of this machine
    content: bytes = translated.model_proto.SerializeToString()
    _check(content, calibrator, dtype)
    return content


def _translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """torch operators as ONNX operators, in the dtype of their arguments."""

    def number(value: float, like: Any) -> Any:
        return op.Constant(value=ir.tensor(np.asarray(value, dtype=like.dtype.numpy())))

    def scalar_tensor(s: Any, dtype: int, **_: Any) -> Any:
        return op.Constant(value=ir.tensor(np.asarray(s, dtype=ir.DataType(dtype).numpy())))

    def clamp(self: Any, min: float | None = None, max: float | None = None) -> Any:  # noqa: A002
        bounds = (None if bound is None else number(bound, self) for bound in (min, max))
        return op.Clip(self, *bounds)

    def log1p(self: Any) -> Any:
        one = number(1.0, self)
        u = op.Add(self, one)  # its rounding error cancels in log(u) / (u - 1)
        ratio = op.Where(op.Greater(self, one), one, op.Div(self, op.Sub(u, one)))
        return op.Where(op.Equal(u, one), self, op.Mul(op.Log(u), ratio))

    aten = torch.ops.aten
    return {
        aten.scalar_tensor.default: scalar_tensor,
        aten.clamp.default: clamp,
        aten.log1p.default: log1p,
    }


def _check(content: bytes, calibrator: Calibrator, dtype: str) -> None:
    """Refuse a model whose results differ from those of the calibrator."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = ERRORS_ONLY
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    logits = _probe(calibrator.n_classes_).astype(dtype)
    if isinstance(calibrator, MultiLabelCalibration):
        logits = logits[np.isfinite(logits).all(axis=1)]
    (found,) = session.run(["probs"], {"logits": logits})
    off = np.abs(found - calibrator.predict_proba(logits=logits)).max()
    if not off <= AGREEMENT:
        raise ArithmeticError(
            f"the ONNX model of {calibrator.NAME} is off by {off:.2g} under onnxruntime "
            f"{onnxruntime.__version__}, so it was not written. Try other versions of torch, onnx "
            "and onnxruntime, and report this; format='numpy' needs none of them"
        )


def _probe(n_classes: int) -> npt.NDArray[np.float64]:
    """Rows of all kinds: ordinary, saturated, huge, and with masked classes."""
    rng = np.random.default_rng(0)
    scales = np.repeat([0.1, 3.0, 30.0, 1e4], 4)[:, np.newaxis]
    logits = scales * rng.standard_normal((len(scales), n_classes))
    masked = np.where(rng.random(logits.shape) < 0.3, -np.inf, logits)
    masked[:, 0] = logits[:, 0]
    return np.concatenate([logits, masked])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the warnings and log messages of torch and onnxscript."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)
