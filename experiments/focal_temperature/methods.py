"""The methods: temperature and focal temperature scaling, each selected by ECE and by NLL."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibrant import FocalTemperatureScaling, Identity, TemperatureScaling
from experiments.scoreboard.methods import Fitted, Method, calibrant_method
from experiments.scoreboard.networks import Floats, Labels

AS_IT_IS = "as it is"
PLAIN = {"ada_ece": "temperature by ECE", "nll": "temperature by NLL"}
FOCAL = {"ada_ece": "focal temperature by ECE", "nll": "focal temperature by NLL"}
CHANGED = "changed predictions"
"""Name of the number of test samples whose predicted class has changed."""


def compared() -> list[Method]:
    """Every method, with a count of the predictions that it changes."""

    def plain(criterion: str) -> Method:
        return calibrant_method(PLAIN[criterion], lambda: TemperatureScaling(criterion=criterion))

    def focal(criterion: str) -> Method:
        return calibrant_method(
            FOCAL[criterion], lambda: FocalTemperatureScaling(criterion=criterion)
        )

    methods = [calibrant_method(AS_IT_IS, Identity)]
    methods += [make(criterion) for criterion in PLAIN for make in (plain, focal)]
    return [counting(method) for method in methods]


def counting(method: Method) -> Method:
    """The same method; its facts count the predictions that it has changed."""

    def fit(logits: Floats, labels: Labels) -> Fitted:
        fitted = method.fit(logits, labels)
        facts = dict(fitted.facts)

        def apply(new: Floats) -> Floats:
            probs = fitted.apply(new)
            facts[CHANGED] = int(np.sum(probs.argmax(axis=1) != new.argmax(axis=1)))
            return probs

        return Fitted(apply, facts)

    return replace(method, fit=fit)
