r"""The focal loss and the focal calibration map in mpmath: slow, obvious, and the judge.

Every function reads Python floats as exact numbers, works at the current mpmath precision and
returns mpf. `stable` reruns a function at doubled precision until its answer stops moving:

    stable(focal_log_probs, [2.0, 0.0, -1.0], 3.0)

One trap shapes the whole file. Logit gaps go to 1e6, so the smaller probability is
exp(-1e6) = 1e-434294. mpf has no smallest number and holds that easily, but the *larger*
probability 1 - 1e-434294 rounds to exactly 1 at 50 digits, at 100, and at 400 000. Then 1 - q
is 0, log q is 0, and u = -q log q / (1 - q) is 0/0. Worse than being wrong, these agree at every
precision, so "raise the precision until the answer is stable" would call them right. Hence a
probability is never subtracted from 1. Each class is described by its odds against,

    t = (1 - q) / q = (sum of the weights of the OTHER classes) / (its own weight),

a positive number with full relative precision at both ends, and everything comes from t:

    q = 1 / (1 + t)             log q     = -log1p(t)
    1 - q = t / (1 + t)         log(1-q)  = -log1p(1 / t)         u = log1p(t) / t
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpmath import fp, mp, mpf

Real = float | mpf

START_DIGITS = 50
MAX_DIGITS = 6400


# --- precision ---------------------------------------------------------------------------------


def stable(function: Callable[..., Any], *args: Any, tolerance: float = 1e-30, **kw: Any) -> Any:
    """Call `function` at 50, 100, 200, ... digits until two results in a row agree.

    Agreement is relative, |a - b| <= tolerance * |b|, for every number of the result; zeros and
    infinities must be equal. It proves nothing about a number that is lost to rounding at every
    precision (see the top of this file): the functions must not lose one.
    """
    digits = START_DIGITS
    with mp.workdps(digits):
        previous = function(*args, **kw)
    while digits < MAX_DIGITS:
        digits *= 2
        with mp.workdps(digits):
            result = function(*args, **kw)
            if _agree(previous, result, mpf(tolerance)):
                return result
        previous = result
    raise ArithmeticError(
        f"{getattr(function, '__name__', function)} is not stable to {tolerance} at {digits} digits"
    )


def _agree(a: Any, b: Any, tolerance: mpf) -> bool:
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(_agree(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if not (mp.isfinite(a) and mp.isfinite(b)):
        return a == b  # nan agrees with nothing
    return abs(a - b) <= tolerance * abs(b)


# --- weights, complements and odds -------------------------------------------------------------


def sums_of_others(weights: Sequence[mpf]) -> list[mpf]:
    """Return sum_{k != i} w_k for every i, each with full relative precision, in O(K).

    total - own is safe while own <= total / 2: at most one bit is lost. The dominant weight (there
    is at most one) would lose everything, so for it the others are added up directly.
    """
    total = sum(weights, mpf(0))
    others = []
    for i, own in enumerate(weights):
        if 2 * own > total:
            others.append(sum((w for k, w in enumerate(weights) if k != i), mpf(0)))
        else:
            others.append(total - own)
    return others


def one_minus(weights: Sequence[Real], i: int) -> mpf:
    """Return 1 - q_i as the sum of the other probabilities, for weights proportional to q."""
    rest = sum((mpf(w) for k, w in enumerate(weights) if k != i), mpf(0))
    return rest / (rest + mpf(weights[i]))


def odds_against(weights: Sequence[mpf]) -> list[mpf]:
    """Return t_i = (1 - q_i) / q_i for weights proportional to q; inf where the weight is 0."""
    others = sums_of_others(weights)
    return [rest / own if own else mp.inf for rest, own in zip(others, weights, strict=True)]


def _softmax_weights(logits_row: Sequence[Real], temperature: Real = 1.0) -> list[mpf]:
    """Return exp(s / T); nothing is subtracted first, because mpf cannot overflow."""
    if not (temperature > 0 and mp.isfinite(temperature)):
        raise ValueError(f"temperature must be positive and finite, got {temperature}")
    logits = [mpf(s) for s in logits_row]
    if any(mp.isnan(s) or s == mp.inf for s in logits):
        raise ValueError(f"logits must be finite or -inf, got {list(logits_row)}")
    if all(s == -mp.inf for s in logits):
        raise ValueError("at least one logit of the row must be finite")
    return [mp.exp(s / mpf(temperature)) for s in logits]


def _probability_weights(probs_row: Sequence[Real]) -> list[mpf]:
    weights = [mpf(p) for p in probs_row]
    if not all(mp.isfinite(w) and w >= 0 for w in weights) or not any(weights):
        raise ValueError(f"probs must be finite, >= 0 and not all 0, got {list(probs_row)}")
    return weights


def _gamma(gamma: Real, at_least: int) -> mpf:
    if not (gamma >= at_least and mp.isfinite(gamma)):
        raise ValueError(f"gamma must be finite and >= {at_least}, got {gamma}")
    return mpf(gamma)


def _check_label(label: int, classes: int) -> None:
    if not 0 <= label < classes:
        raise ValueError(f"label must be in 0..{classes - 1}, got {label}")


# --- phi and the map ---------------------------------------------------------------------------


def phi(p: Real, gamma: Real) -> mpf:
    """Return phi(p) = (1-p)^gamma * (1 + gamma * u(p)), u = -p log p / (1-p); gamma >= -1.

    At p = 1 the limit: 0 for gamma > 0, 1 for gamma = 0, inf for -1 < gamma < 0, 1/2 for -1.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"p must be in [0, 1], got {p}")
    p = mpf(p)
    return phi_at_odds((1 - p) / p if p else mp.inf, gamma)


def phi_at_odds(odds: mpf, gamma: Real) -> mpf:
    """Return phi(q) with q = 1 / (1 + odds), so that q may lie closer to 1 than an mpf can."""
    gamma = _gamma(gamma, at_least=-1)
    if odds == mp.inf or gamma == 0:
        return mpf(1)
    if odds == 0:
        if gamma == -1:
            return mpf(1) / 2
        return mpf(0) if gamma > 0 else mp.inf
    # (1 - q)^gamma by log1p: 1 - q rounds to 1 for tiny q, which a huge gamma would not forgive.
    power = mp.exp(-gamma * mp.log1p(1 / odds))
    if gamma > 0:
        return power * (1 + gamma * mp.log1p(odds) / odds)
    # Both terms are >= 0. At gamma = -1 only 1 - u ~ t / 2 is left: u must not have rounded to 1.
    return power * ((1 + gamma) - gamma * _one_minus_u(odds))


def _one_minus_u(odds: mpf) -> mpf:
    """Return 1 - log1p(t) / t, for small t as its series t/2 - t^2/3 + t^3/4 - ..."""
    if odds > mpf(2) ** -20:
        with mp.extraprec(50):
            return 1 - mp.log1p(odds) / odds
    total, power, k = mpf(0), odds, 2
    while abs(power) > mp.eps * total / 1024:
        total += power / k
        power, k = -power * odds, k + 1
    return total


def _map_odds(weights: Sequence[mpf], gamma: Real) -> list[mpf]:
    """Return the odds against each class after the map: those of the weights h = q / phi(q)."""
    odds = odds_against(weights)
    if any(t == 0 for t in odds):  # one-hot: a fixed point, though h(1) may be 0 or inf
        _gamma(gamma, at_least=-1)
        return odds
    return odds_against([1 / ((1 + t) * phi_at_odds(t, gamma)) for t in odds])


def focal_log_probs(logits_row: Sequence[Real], gamma: Real, temperature: Real = 1.0) -> list[mpf]:
    """Return log Psi_i, Psi_i = h(q_i) / sum_k h(q_k), h = q / phi(q), q = softmax(s / T)."""
    return [-_log1p(t) for t in _map_odds(_softmax_weights(logits_row, temperature), gamma)]


def focal_map(probs_row: Sequence[Real], gamma: Real) -> list[mpf]:
    """Return Psi_i = h(q_i) / sum_k h(q_k), h = q / phi(q), for q proportional to the row."""
    return [1 / (1 + t) for t in _map_odds(_probability_weights(probs_row), gamma)]


def _log1p(t: mpf) -> mpf:
    return mp.inf if t == mp.inf else mp.log1p(t)


# --- the inverse map ---------------------------------------------------------------------------


def inverse_focal_map(probs_row: Sequence[Real], gamma: Real) -> list[mpf]:
    """Return q with Psi(q) = eta, for eta proportional to the row; gamma >= 0.

    q_i = h^-1(c * eta_i), with the one scalar c that makes the q_i sum to one.
    """
    return [1 / (1 + t) for t in _inverse_odds(probs_row, gamma)]


def _inverse_odds(probs_row: Sequence[Real], gamma: Real) -> list[mpf]:
    """Return the odds against each class of the inverse; inf for zeros, 0 for a one-hot's one.

    The scalar searched for is x = log odds against the top class. It fixes c = h(q_top) / eta_top,
    c fixes the other q_i, and the equation is: sum of the other q_i = 1 - q_top. In log odds,
    log h is nearly straight (slope -gamma near q = 1, -1 near q = 0), so Newton needs few steps,
    and doubles, which neither over- nor underflow there, can find the start by bracketing.
    """
    gamma = _gamma(gamma, at_least=0)
    weights = _probability_weights(probs_row)
    odds = odds_against(weights)
    if gamma == 0 or any(t == 0 for t in odds):
        return odds
    top = max(range(len(weights)), key=weights.__getitem__)
    rest = [i for i, w in enumerate(weights) if w and i != top]
    log_ratios = [mp.log(weights[i] / weights[top]) for i in rest]
    guess = min(float(mp.log(odds[top]) / (1 + gamma)), float(mp.log(len(rest))))
    start = _bracket_inverse([float(v) for v in log_ratios], float(gamma), guess)
    solution = _polish_inverse(log_ratios, gamma, [mpf(x) for x in start])
    result = [mp.inf] * len(weights)
    for i, x in zip([top, *rest], solution, strict=True):
        result[i] = mp.exp(x)
    return result


def _bracket_inverse(log_ratios: list[float], gamma: float, guess: float) -> list[float]:
    """Return the log odds, top class first, in double precision, by bracketing the one scalar."""
    x_rest = [max(-ratio, 0.0) for ratio in log_ratios]

    def imbalance(x_top: float) -> tuple[float, float]:
        """Return log(sum of the other q_i) - log(1 - q_top), decreasing in x_top, and its slope."""
        log_h, slope, log_q, log_r = _log_h(fp, x_top, gamma)
        others = []
        for k, ratio in enumerate(log_ratios):

            def excess(x: float, target: float = log_h + ratio) -> tuple[float, float]:
                value, gradient, *_ = _log_h(fp, x, gamma)
                return value - target, gradient

            x_rest[k] = _decreasing_root(excess, x_rest[k])
            others.append(_log_h(fp, x_rest[k], gamma))
        largest = max(o[2] for o in others)
        parts = [fp.exp(o[2] - largest) for o in others]
        # d log q_k / dx_top = -(1 - q_k) * slope / slope_k
        rates = [-fp.exp(o[3]) * slope / o[1] for o in others]
        rate = sum(p * r for p, r in zip(parts, rates, strict=True)) / sum(parts)
        return largest + fp.log(sum(parts)) - log_r, rate - fp.exp(log_q)

    x_top = _decreasing_root(imbalance, guess)
    imbalance(x_top)  # brings x_rest to the final x_top
    return [x_top, *x_rest]


def _decreasing_root(function: Callable[[float], tuple[float, float]], x: float) -> float:
    """Return the root of a decreasing function (value, slope): Newton, kept inside a bracket."""
    low, high = -fp.inf, fp.inf
    for _ in range(1000):
        value, slope = function(x)
        if value == 0:
            return x
        low, high = (x, high) if value > 0 else (low, x)
        step = -value / slope
        if min(abs(step), high - low) <= 1e-12 * max(1.0, abs(x)):
            return min(max(x + step, low), high)
        x = x + step
        if not low < x < high:
            x = (low + high) / 2
    raise ArithmeticError(f"no root found between {low} and {high}")


def _polish_inverse(log_ratios: list[mpf], gamma: mpf, xs: list[mpf]) -> list[mpf]:
    """Return the log odds `xs` (top class first) after Newton steps on the whole system.

    log h(x_k) - log h(x_top) = log_ratio_k;    log(sum of the other q_k) - log(1 - q_top) = 0.
    """
    for _ in range(60):
        (log_h, slope, log_q, log_r), *others = [_log_h(mp, x, gamma) for x in xs]
        qs = [mp.exp(o[2]) for o in others]
        total = sum(qs)
        # Step of class k: fixed_k + tied_k * (step of the top class).
        fixed = [(log_h + v - o[0]) / o[1] for v, o in zip(log_ratios, others, strict=True)]
        tied = [slope / o[1] for o in others]
        pulls = [-(q / total) * (1 - q) for q in qs]  # d log(total) / dx_k; no q_k exceeds 1/2
        value = mp.log(total) - log_r + sum(p * f for p, f in zip(pulls, fixed, strict=True))
        step = -value / (sum(p * t for p, t in zip(pulls, tied, strict=True)) - mp.exp(log_q))
        steps = [step, *(f + t * step for f, t in zip(fixed, tied, strict=True))]
        xs = [x + d for x, d in zip(xs, steps, strict=True)]
        # The error left is about step^2.
        if all(abs(d) <= mp.eps**0.6 * max(1, abs(x)) for d, x in zip(steps, xs, strict=True)):
            return xs
    raise ArithmeticError("Newton's method did not settle; the starting point was poor")


def _log_h(ctx: Any, x: Any, gamma: Any) -> tuple[Any, Any, Any, Any]:
    """Return log h, d(log h)/dx, log q and log(1-q) at q = 1 / (1 + e^x); `ctx` is mp or fp.

    log h = log q - gamma log(1-q) - log1p(gamma u)
    d(log h)/dx = -(1-q) - gamma q (2 + log q + (gamma-1) u) / (1 + gamma u)
    """
    w = ctx.exp(-abs(x))
    near = ctx.log1p(w)
    if x > 0:
        log_q, log_r, u = -x - near, -near, (x + near) * w
        q, r = w / (1 + w), 1 / (1 + w)
    else:
        log_q, log_r, u = -near, x - near, near / w if w else 1
        q, r = 1 / (1 + w), w / (1 + w)
    slope = -r - gamma * q * (2 + log_q + (gamma - 1) * u) / (1 + gamma * u)
    return log_q - gamma * log_r - ctx.log1p(gamma * u), slope, log_q, log_r


# --- losses ------------------------------------------------------------------------------------


def focal_loss(logits_row: Sequence[Real], label: int, gamma: Real) -> mpf:
    """Return -(1 - p)^gamma * log p, p = softmax(s)_label; gamma >= 0."""
    _check_label(label, len(logits_row))
    return _focal_loss_at_odds(odds_against(_softmax_weights(logits_row))[label], gamma)


def proper_focal_loss(probs_row: Sequence[Real], label: int, gamma: Real) -> mpf:
    """Return FL(Psi^-1(p), label), the properised focal loss, for p proportional to the row."""
    _check_label(label, len(probs_row))
    return _focal_loss_at_odds(_inverse_odds(probs_row, gamma)[label], gamma)


def inverse_focal_loss(logits_row: Sequence[Real], label: int, gamma: Real) -> mpf:
    """Return -(1 + p)^gamma * log p, p = softmax(s)_label; gamma >= 0."""
    gamma = _gamma(gamma, at_least=0)
    _check_label(label, len(logits_row))
    t = odds_against(_softmax_weights(logits_row))[label]
    return mp.exp(gamma * mp.log1p(1 / (1 + t))) * _log1p(t)


def _focal_loss_at_odds(t: mpf, gamma: Real) -> mpf:
    gamma = _gamma(gamma, at_least=0)
    if t == 0 or t == mp.inf:
        return t
    return mp.exp(-gamma * mp.log1p(1 / t)) * mp.log1p(t)


# --- thresholds --------------------------------------------------------------------------------


def gamma_for_threshold(p0: Real) -> mpf:
    """Return the gamma > 0 with phi(p0; gamma) = 1, for 0 < p0 < 1/2; 0 at p0 = 1/2.

    log phi = gamma log(1-p0) + log1p(gamma u) is concave in gamma and 0 at gamma = 0. It rises
    to its peak at gamma = -1/log(1-p0) - 1/u; the root wanted lies beyond the peak.
    """
    if not 0 < p0 <= 0.5:
        raise ValueError(f"p0 must be in (0, 0.5], got {p0}")
    p0 = mpf(p0)
    if 2 * p0 == 1:
        return mpf(0)
    log_rest = mp.log1p(-p0)
    u = -p0 * mp.log(p0) / (1 - p0)

    def log_phi(gamma: mpf) -> mpf:
        return gamma * log_rest + mp.log1p(gamma * u)

    low = -1 / log_rest - 1 / u
    high = 2 * low
    while log_phi(high) > 0:
        low, high = high, 2 * high
    return _bisect(log_phi, low, high)


def confidence_thresholds(gamma: Real) -> tuple[mpf, mpf]:
    """Return (tau_oc, tau_uc): the argmax of phi, and the root of phi = 1 above it; gamma > 0.

    phi' = -gamma (1-q)^(gamma-1) * (2 + log q + (gamma-1) u) changes sign once, below q = 1/2, and
    phi(1/2) < 1, so that 1/2 ends both brackets.
    """
    if not gamma > 0:
        raise ValueError(f"gamma must be > 0 (phi is constant at 0), got {gamma}")
    gamma = _gamma(gamma, at_least=0)

    def falling(q: mpf) -> mpf:
        return -(2 + mp.log(q) - (gamma - 1) * q * mp.log(q) / (1 - q))

    def log_phi(q: mpf) -> mpf:
        return gamma * mp.log1p(-q) + mp.log1p(-gamma * q * mp.log(q) / (1 - q))

    low = mpf(1) / 4
    while falling(low) < 0:
        low /= 2
    tau_oc = _bisect(falling, low, mpf(1) / 2)
    return tau_oc, _bisect(log_phi, tau_oc, mpf(1) / 2)


def _bisect(function: Callable[[mpf], mpf], low: mpf, high: mpf) -> mpf:
    """Return the root of a function that is positive at `low`, negative at `high`, 0 < low."""
    while high - low > 4 * mp.eps * high:
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return (low + high) / 2
