"""Calibration of a PyTorch model from its validation loader."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from calibrant import _inputs
from calibrant.errors import CalibrantError

_inputs.installed("torch", extra="torch", purpose="calibrant.calibrate")

import torch
from torch import Tensor, nn

from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.fit_report import FitReport
from calibrant.calibrators.registry import new_calibrator

LABELS = "labels"
"""Entry of a batch in the form of a dict."""
IGNORED = -100
"""Label of rows that do not count, as in ``nn.CrossEntropyLoss``."""


class CalibratedModel(nn.Module):
    """A model, then its calibrator: calibrated log-probabilities, classes on the last axis.

    It takes the inputs of the model. Log-probabilities are logits, so code that follows the model
    works unchanged, and ``exp`` gives probabilities. ``state_dict`` saves model and calibrator.

    Attributes:
        model: The model itself, not a copy.
        layer: The calibrator as a :class:`~calibrant.calibrators.torch_layer.CalibratorModule`.
        calibrator: The fitted calibrator.
    """

    def __init__(self, model: nn.Module, calibrator: Calibrator) -> None:
        super().__init__()
        self.model = model
        self.calibrator = calibrator
        self.layer = calibrator.as_module().to(_device(model))
        self.training = model.training

    @property
    def report_(self) -> FitReport:
        """The report of the calibrator's fit."""
        return self.calibrator.report_

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Calibrated log-probabilities of what the model takes."""
        log_probs: Tensor = self.layer(_inputs.logits_of_network(self.model(*inputs, **named)))
        return log_probs


def calibrate(
    model: nn.Module,
    loader: Iterable[Any],
    method: str | Calibrator = "auto",
    device: torch.device | str | None = None,
) -> CalibratedModel:
    """Fit a calibrator on the output of a model, and append it to the model.

    The model runs once over the loader, in ``eval`` mode and without gradients. The modes of its
    modules are restored. On a terminal, a bar shows the progress.

    Args:
        model: A classifier that returns logits, classes on the last axis: a tensor, an object or
            dict with ``logits``, or a tuple that starts with them.
        loader: Batches of held-out samples, which the model was not trained on:
            ``(inputs, labels, ...)``, or dicts with ``"labels"`` whose other entries are arguments
            of the model (Hugging Face). Rows with the label -100 do not count.
        method: A name in ``CALIBRATORS``, or a calibrator, which is copied.
        device: Where to run; the model is moved there. None leaves it where it is.

    Examples:
        >>> import torch, calibrant
        >>> rng = torch.Generator().manual_seed(0)
        >>> x = torch.randn(1000, 3, generator=rng)
        >>> y = torch.distributions.Categorical(logits=x).sample()
        >>> model = torch.nn.Linear(3, 3)
        >>> model.load_state_dict({"weight": 4 * torch.eye(3), "bias": torch.zeros(3)})
        <All keys matched successfully>
        >>> loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 100)
        >>> calibrated = calibrant.calibrate(model, loader, "temperature")
        >>> 3.0 < calibrated.calibrator.temperature_ < 5.0
        True
        >>> calibrated(x[:2]).exp().sum(dim=-1).round(decimals=5).tolist()
        [1.0, 1.0]
    """
    _inputs.instance(model, nn.Module, "model")
    calibrator = new_calibrator(method)
    if device is not None:
        model.to(device)
    logits, labels = _outputs(model, loader)
    _inputs.refuse_probabilities(
        _inputs.scores("logits", logits), remedy="Remove the softmax, or return its logarithm"
    )
    return CalibratedModel(model, calibrator.fit(logits=logits, labels=labels))


def _outputs(model: nn.Module, loader: Iterable[Any]) -> tuple[Tensor, Tensor]:
    """Logits (n, K) and labels (n,) of all batches, in main memory."""
    parts = []
    with (
        _evaluating(model),
        torch.no_grad(),
        click.progressbar(
            loader, label="running the model", file=sys.stderr, hidden=not sys.stderr.isatty()
        ) as batches,
    ):
        for batch in batches:
            output, labels = _run(model, batch)
            logits = _inputs.logits(_one_logit_per_class(_inputs.logits_of_network(output).cpu()))
            labels = _inputs.labels(labels, logits, ignored=IGNORED).cpu()
            kept = labels != IGNORED
            parts.append((logits[kept], labels[kept]))
    if not parts:
        raise CalibrantError(
            "the loader must give at least one batch; found none. Pass a DataLoader of held-out "
            "samples; a generator can be used only once"
        )
    return torch.cat([logits for logits, _ in parts]), torch.cat([labels for _, labels in parts])


def _run(model: nn.Module, batch: Any) -> tuple[Any, Any]:
    """The output of the model for a batch, and the labels of the batch."""
    device = _device(model)
    if _inputs.holds(batch, LABELS):
        inputs = {name: value for name, value in batch.items() if name != LABELS}
        return model(**_moved(inputs, device)), batch[LABELS]
    if isinstance(batch, tuple | list) and len(batch) >= 2:
        return model(_moved(batch[0], device)), batch[1]
    found = list(batch) if isinstance(batch, Mapping) else _inputs.described(batch)
    raise CalibrantError(
        f"a batch must be (inputs, labels) or a dict with {LABELS!r}; found {found}. "
        "Change the collate_fn of the loader"
    )


def _one_logit_per_class(logits: Tensor) -> Tensor:
    if logits.ndim < 2 or logits.shape[-1] < 2:
        raise CalibrantError(
            "the model must return a logit for each class, shape (batch, classes); found shape "
            f"{tuple(logits.shape)}. For binary logits s return "
            "torch.stack([torch.zeros_like(s), s], dim=-1)"
        )
    return logits


def _device(model: nn.Module) -> torch.device:
    """The device of the first weight."""
    weights = (*model.parameters(), *model.buffers())
    return weights[0].device if weights else torch.device("cpu")


def _moved(value: Any, device: torch.device) -> Any:
    """Tensors on ``device``, also inside of dicts and tuples."""
    if isinstance(value, Mapping):
        return {name: _moved(entry, device) for name, entry in value.items()}
    if isinstance(value, tuple | list):
        return tuple(_moved(entry, device) for entry in value)
    return value.to(device) if isinstance(value, Tensor) else value


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Put all modules into ``eval`` mode, and each back into its own mode at the end."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        model.train(modes[model])  # modules may do more in it than to set their mode
        for module, mode in modes.items():
            module.training = mode
