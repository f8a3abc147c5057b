"""The registry of metrics, and the decorator that makes a function a metric."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, cast, overload

from calibrant import _inputs
from calibrant._registry import Registry
from calibrant._types import Array
from calibrant.errors import CalibrantError
from calibrant.metrics.samples import ScoredSamples, samples_from_scores

Options = ParamSpec("Options")


class Metric(Protocol):
    """A metric: called with arrays, or through ``of`` with samples that are already checked."""

    __name__: str
    of: Callable[..., float]
    lower_is_better: bool
    """Whether models can be compared by it."""

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


Core = Callable[Concatenate[ScoredSamples, Options], float]


def check_metric(name: str, entry: Any) -> None:
    """Refuse what is not a metric of this name."""
    if not hasattr(entry, "of") or entry.__name__ != name:
        raise CalibrantError(
            f"expected a function called {name} with the decorator metric, got "
            f"{_inputs.described(entry)}. Decorate it, and give it the name of the entry point"
        )


METRICS: Registry[Metric] = Registry("metric", plugins="calibrant.metrics", check=check_metric)
"""Every metric by name."""


@overload
def metric(core: Core[Options]) -> Metric: ...
@overload
def metric(*, lower_is_better: bool) -> Callable[[Core[Options]], Metric]: ...
def metric(core: Any = None, *, lower_is_better: bool = False) -> Any:
    """Turn ``core``, a function of samples and keyword-only options, into a metric in ``METRICS``.

    Its intervals come from resampling, where the number of times that a sample was drawn is its
    weight. So a metric must use the weights of the samples (:meth:`ScoredSamples.mean` does).

    Args:
        core: A function from :class:`ScoredSamples` to a number. An option called ``n_bins`` gets
            the number of bins of an evaluation.
        lower_is_better: Whether models can be compared by it.

    Examples:
        >>> import calibrant
        >>> from calibrant.metrics import metric
        >>> @metric(lower_is_better=True)
        ... def half_sure_errors(samples, *, above=0.5):
        ...     return samples.mean(~samples.correct & (samples.confidence > above))
        >>> half_sure_errors([[0.9, 0.1], [0.2, 0.8]], [0, 0])
        0.5
        >>> del calibrant.METRICS["half_sure_errors"]
    """
    if core is None:
        return functools.partial(metric, lower_is_better=lower_is_better)

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
        samples = samples_from_scores(
            probs,
            labels,
            logits=logits,
            sample_weight=sample_weight,
            ignore_label=ignore_label,
            positive=positive,
            classes=classes,
        )
        return cast(float, core(samples, **options))

    own = [
        p
        for p in inspect.signature(measured, follow_wrapped=False).parameters.values()
        if p.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    options = list(inspect.signature(core).parameters.values())[1:]
    public = cast(Any, measured)
    public.__signature__ = inspect.Signature([*own, *options], return_annotation=float)
    public.of = core
    public.lower_is_better = lower_is_better
    METRICS.register(core.__name__, public)
    return public
