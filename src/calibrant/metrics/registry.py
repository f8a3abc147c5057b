"""The registry of metrics, and the decorator that makes a function a metric."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, cast

from calibrant._registry import Registry
from calibrant._types import Array
from calibrant.metrics.samples import ScoredSamples, summarise

Options = ParamSpec("Options")


class Metric(Protocol):
    """A metric: called with arrays, or through ``of`` with samples that are already checked."""

    __name__: str
    of: Callable[..., float]

    def __call__(
        self,
        probs: Array = None,
        labels: Array = None,
        *,
        logits: Array = None,
        sample_weight: Array = None,
        ignore_label: int | None = None,
        positive: Any = None,
        classes: Any = None,
        **options: Any,
    ) -> float:
        """Measure ``probs`` (or ``logits=``) against ``labels``."""


METRICS: Registry[Metric] = Registry("metric")
"""Every metric by name."""


def metric(core: Callable[Concatenate[ScoredSamples, Options], float]) -> Metric:
    """Turn ``core``, a function of samples and keyword-only options, into a public metric."""

    @functools.wraps(core)
    def measured(
        probs: Array = None,
        labels: Array = None,
        *,
        logits: Array = None,
        sample_weight: Array = None,
        ignore_label: int | None = None,
        positive: Any = None,
        classes: Any = None,
        **options: Any,
    ) -> float:
        samples = summarise(
            probs,
            labels,
            logits=logits,
            sample_weight=sample_weight,
            ignore_label=ignore_label,
            positive=positive,
            classes=classes,
        )
        return core(samples, **options)  # type: ignore[call-arg]

    own = [
        p
        for p in inspect.signature(measured, follow_wrapped=False).parameters.values()
        if p.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    options = list(inspect.signature(core).parameters.values())[1:]
    public = cast(Any, measured)
    public.__signature__ = inspect.Signature([*own, *options], return_annotation=float)
    public.of = core
    METRICS[core.__name__] = public
    return cast(Metric, public)
