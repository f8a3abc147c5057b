r"""Top-rest scaling: slow, obvious, and the judge.

    log(p_m / (1 - p_m)) = sum_j w_j B_j(z) + c + v (z - a) + d_m
    p_k / (1 - p_m) = softmax over k != m of (s_k / (T T') + b_k)

m is the first largest logit, z its log-odds under softmax(s / T), a its lead over the runner-up
divided by T. The lead of the calibrated top class over the likeliest other is kept between a / 4
and 4 a. B_0 is what of z lies below 0, B_1 to B_3 what lies between 0, 2, 4 and 6, B_4 what lies
above 6, each end rounded off by log(1 + e^x). The map is mpmath, the fit is scipy on the whole
objective with numeric slopes. Nothing of calibrant is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpmath import mp, mpf
from scipy.optimize import minimize

Floats = np.ndarray[Any, np.dtype[np.float64]]
KNOTS = (0, 2, 4, 6)


# --- the map -------------------------------------------------------------------------------------


def log_probs(logits: Sequence[float], state: dict[str, Any]) -> list[Any]:
    """Of one row, to about 60 digits; -inf at absent classes."""
    with mp.workdps(80):
        s = [mpf(float(logit)) for logit in logits]
        m = s.index(max(s))
        others = [k for k in range(len(s)) if k != m and s[k] > -mp.inf]
        result = [-mp.inf] * len(s)
        if not others:
            result[m] = mpf(0)
            return result
        t, t_rest = mpf(state["temperature"]), mpf(state["rest_temperature"])
        lead = min((s[m] - s[k]) / t for k in others)
        z = lead - mp.log(mp.fsum(mp.exp((s[k] - s[m]) / t + lead) for k in others))

        rest = {
            k: (s[k] - s[m]) / (t * t_rest) + mpf(float(state["rest_biases"][k])) for k in others
        }
        top_score = max(rest.values())
        total = top_score + mp.log(mp.fsum(mp.exp(each - top_score) for each in rest.values()))
        rest = {k: each - total for k, each in rest.items()}

        w = [mpf(float(slope)) for slope in state["slopes"]]
        over = [_log1p_exp(z - knot) for knot in KNOTS]
        parts = [z - over[0], over[0] - over[1], over[1] - over[2], over[2] - over[3], over[3]]
        x = mp.fsum(slope * part for slope, part in zip(w, parts, strict=True))
        x += mpf(state["offset"]) + mpf(state["contest"]) * (z - lead)
        x += mpf(float(state["class_offsets"][m]))
        likeliest = max(rest.values())
        # lead of the top class: log(p_m / (1 - p_m)) - log(p_k / (1 - p_m))
        x = min(max(x, likeliest + lead / 4), likeliest + 4 * lead)
        result[m] = -_log1p_exp(-x)
        for k in others:
            result[k] = rest[k] - _log1p_exp(x)
        return result


def _log1p_exp(x: Any) -> Any:
    return x + mp.log1p(mp.exp(-x)) if x > 0 else mp.log1p(mp.exp(x))


# --- the fit -------------------------------------------------------------------------------------


def features(logits: Floats, temperature: float) -> tuple[Any, Floats, Floats]:
    """The top class of each row; the factors of slopes, offset and contest; the lead."""
    rows = np.arange(len(logits))
    m = logits.argmax(axis=1)
    z = (logits - logits[rows, m, np.newaxis]) / temperature
    z[rows, m] = -np.inf
    lead = -z.max(axis=1)
    odds = -np.log(np.exp(z).sum(axis=1))
    over = [np.logaddexp(0.0, odds - knot) for knot in KNOTS]
    parts = [odds - over[0], over[0] - over[1], over[1] - over[2], over[2] - over[3], over[3]]
    return m, np.stack([*parts, np.ones(len(odds)), odds - lead], axis=1), lead


def top_objective(
    x: Floats, logits: Floats, labels: Any, temperature: float, strength: float, count: Floats
) -> float:
    """Of slopes, offset, contest and, where x is longer than 7, the class offsets."""
    m, factors, _ = features(logits, temperature)
    odds = factors @ x[:7] + (x[7:][m] if len(x) > 7 else 0.0)
    loss = np.logaddexp(0.0, np.where(m == labels, -odds, odds))
    away = x[:7] - np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    return float(count @ loss + (away @ away) / 2 + strength * (x[7:] @ x[7:]) / 2)


def rest_objective(
    x: Floats, logits: Floats, labels: Any, temperature: float, strength: float, count: Floats
) -> float:
    """Of log T' and, where x is longer than 1, the biases."""
    m = logits.argmax(axis=1)
    wrong = m != labels
    biases = x[1:] if len(x) > 1 else np.zeros(logits.shape[1])
    scores = logits[wrong] / temperature / np.exp(x[0]) + biases
    scores[np.arange(wrong.sum()), m[wrong]] = -np.inf
    of_label = scores[np.arange(wrong.sum()), labels[wrong]]
    loss = np.log(np.exp(scores - of_label[:, np.newaxis]).sum(axis=1))
    return float(count[wrong] @ loss + 5.0 * x[0] ** 2 / 2 + strength * (x[1:] @ x[1:]) / 2)


def minimum(objective: Any, start: Floats, *given: Any) -> Any:
    """Where it is smallest; slopes are at least 0."""
    n_slopes = 5 if objective is top_objective else 0
    bounds = [(0.0, None)] * n_slopes + [(None, None)] * (len(start) - n_slopes)
    options = {"maxiter": 2000, "maxfun": 200_000, "ftol": 1e-13, "gtol": 1e-7}
    found = minimize(objective, start, given, "L-BFGS-B", bounds=bounds, options=options)
    return found.x
