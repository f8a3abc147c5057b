"""Calibrators as torch layers."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from calibrant import _inputs
from calibrant.errors import CalibrantError

_inputs.installed("torch", extra="torch", purpose="a torch layer (as_module)")

import torch
from torch import Tensor, nn
from torch.jit import TracerWarning, is_tracing  # type: ignore[attr-defined]
from torch.overrides import TorchFunctionMode

from calibrant._numerics.precision import has_float64, narrowed

if TYPE_CHECKING:
    from calibrant.calibrators.base import Calibrator, State


class CalibratorModule(nn.Module):
    """A torch layer from logits to calibrated log-probabilities, which are logits too.

    Arrays of the calibrator are buffers and move with the network to its device. They stay in
    double precision (in single on a device without double), in which most methods compute whatever
    the dtype of the logits: a network cast to half precision keeps its calibrator. The numbers
    (temperature, gamma) are constants, which ``state_dict`` saves with the buffers. There is
    nothing to train, and ``train()`` and ``eval()`` have no effect. Gradients pass through to the
    logits, except for methods that are piecewise constant (histogram, bbq, venn-abers).

    Only the number of classes is checked, so that the layer can be compiled and exported: NaN in
    the logits gives NaN in the result.

    Args:
        calibrator: A fitted calibrator; ``calibrator.as_module()`` makes the same layer.

    Examples:
        >>> import numpy as np, torch, calibrant
        >>> rng = np.random.default_rng(0)
        >>> logits, labels = rng.normal(size=(500, 3)), rng.integers(0, 3, size=500)
        >>> logits[np.arange(500), labels] += 2.0
        >>> scaling = calibrant.TemperatureScaling().fit(logits, labels)
        >>> network = torch.nn.Sequential(torch.nn.Linear(8, 3), scaling.as_module())
        >>> network(torch.ones(2, 8)).exp().sum(dim=-1).round(decimals=6).tolist()
        [1.0, 1.0]
    """

    def __init__(self, calibrator: Calibrator) -> None:
        super().__init__()
        calibrator._need_fit()
        # A copy: this layer stays as it is if the calibrator is fitted again.
        self._calibrator = copy.copy(calibrator)
        self.n_classes = calibrator.n_classes_
        parts = [CalibratorModule(part) for part in calibrator.parts_]
        self.parts: Any = nn.ModuleList(parts) if parts else ()
        self._numbers = {n: v for n, v in calibrator.state_.items() if isinstance(v, float)}
        self._arrays = [name for name in calibrator.state_ if name not in self._numbers]
        for name in self._arrays:
            self.register_buffer(name, torch.tensor(calibrator.state_[name]))

    def forward(self, logits: Tensor) -> Tensor:
        """Calibrated log-probabilities; float16 and bfloat16 give float32."""
        for part in self.parts:
            logits = part(logits)
        return logits if self.parts else self._computed(self._calibrator._log_probs, logits)

    def probs(self, logits: Tensor) -> Tensor:
        """Calibrated probabilities."""
        if not self.parts:
            return self._computed(self._calibrator._probs, logits)
        for part in self.parts[:-1]:
            logits = part(logits)
        probs: Tensor = self.parts[-1].probs(logits)
        return probs

    def extra_repr(self) -> str:
        """The calibrator and its fitted numbers."""
        numbers = [f"{name}={value:.6g}" for name, value in self._numbers.items()]
        return ", ".join([repr(self._calibrator), f"n_classes={self.n_classes}", *numbers])

    def get_extra_state(self) -> Tensor:
        """The constants, saved by ``state_dict``."""
        return torch.tensor(list(self._numbers.values()), dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the constants from ``state_dict``."""
        if state.shape != (len(self._numbers),):
            raise CalibrantError(
                f"a {self._calibrator.NAME} layer has {len(self._numbers)} numbers; found shape "
                f"{tuple(state.shape)} in the state. Load it into a layer of the same method"
            )
        numbers = dict(zip(self._numbers, state.tolist(), strict=True))
        reason = self._calibrator._refuse_state({**self._calibrator.state_, **numbers})
        if reason is not None:
            raise CalibrantError(f"this state cannot be used: {reason}. Save the layer again")
        self._numbers = numbers

    def _computed(self, transform: Callable[[Tensor, State], Tensor], logits: Tensor) -> Tensor:
        with _computing(logits.device.type):
            logits = _inputs.floating(logits, "logits")
            _inputs.same_classes(logits, self.n_classes)
            inner = self._calibrator._inner(logits)
            state: dict[str, Any] = dict(self._numbers)
            for name in self._arrays:
                array = self.get_buffer(name)
                state[name] = array.to(inner.dtype) if array.is_floating_point() else array
            result: Tensor = narrowed(transform(inner, state), logits)
        return result

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move to the device of the network, but keep the dtypes (see the class)."""
        return super()._apply(in_double(fn), recurse)  # type: ignore[no-untyped-call]


def in_double(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Only the move to a device of ``fn``; floats become double, or single if there is no double.

    ``fn`` is what ``Module.to``, ``half`` and others apply to each array of a module.
    """

    def move(array: Tensor) -> Tensor:
        moved = fn(torch.empty(0, device=array.device))
        floating = torch.float64 if has_float64(moved) else torch.float32
        dtype = floating if array.is_floating_point() else array.dtype
        return array.to(device=moved.device, dtype=dtype)

    return move


class _Exportable(TorchFunctionMode):
    """Replaces two functions that ONNX and ``torch.export`` get wrong.

    ``take_along_dim`` fixes the batch size. ``logaddexp`` overflows in one exporter to ONNX and is
    unknown to the other.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        replaced = {torch.take_along_dim: _gathered, torch.logaddexp: _log_sum}
        return replaced.get(func, func)(*args, **(kwargs or {}))


def _gathered(values: Tensor, indices: Tensor, dim: int) -> Tensor:
    one = [
        [1 if i == dim % len(shape) else n for i, n in enumerate(shape)]
        for shape in (values.shape, indices.shape)
    ]
    shape = torch.broadcast_shapes(*one)  # type: ignore[no-untyped-call]
    sizes = [
        [a.shape[dim] if i == dim % len(shape) else n for i, n in enumerate(shape)]
        for a in (values, indices)
    ]
    return torch.gather(values.expand(sizes[0]), dim, indices.expand(sizes[1]))


def _log_sum(a: Tensor, b: Tensor) -> Tensor:
    return torch.maximum(a, b) + torch.log1p(torch.exp(-torch.abs(a - b)))


@contextlib.contextmanager
def _computing(device: str) -> Iterator[None]:
    """Switch autocast off, which would round a calibrator's matrix to bfloat16; allow export."""
    with contextlib.ExitStack() as stack:
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            stack.enter_context(torch.autocast(device, enabled=False))
        traced = is_tracing()  # type: ignore[no-untyped-call]
        if traced:  # its warnings are about shapes, of which only the batch size varies
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore", TracerWarning)
        exported = torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling()
        if traced or exported:
            stack.enter_context(_Exportable())
        yield
