"""The oracle judged by published numbers, textbook formulas, limits and its own inverse."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from mpmath import mp, mpf

from .focal_mpmath import (
    confidence_thresholds,
    focal_log_probs,
    focal_loss,
    focal_map,
    gamma_for_threshold,
    inverse_focal_loss,
    inverse_focal_map,
    odds_against,
    one_minus,
    phi,
    phi_at_odds,
    proper_focal_loss,
    stable,
    sums_of_others,
)

INF = float("inf")
NAN = float("nan")
MAP_GAMMAS = [-1.0, -0.999, -0.5, -0.25, 0.0, 0.05, 0.5, 1.0, 3.0, 7.5]


def close(a: mpf, b: mpf, tolerance: float = 1e-28) -> bool:
    """Say whether a and b agree to a relative tolerance, at a precision beyond both."""
    with mp.workdps(400):
        return abs(a - b) <= tolerance * abs(b)


def all_close(a: list[mpf], b: list[mpf], tolerance: float = 1e-28) -> bool:
    """Say whether two rows agree, number by number."""
    return all(close(x, y, tolerance) for x, y in zip(a, b, strict=True))


def rounded(value: mpf, digits: int) -> str:
    """Return the value with a fixed number of decimals, as the tables print it."""
    with mp.workdps(50):
        scaled = int(mp.nint(abs(value) * 10**digits))
    return f"{scaled // 10**digits}.{scaled % 10**digits:0{digits}d}"


def random_logits(seed: int, classes: int, scale: float = 3.0) -> list[float]:
    """Return a row of normal logits."""
    rng = random.Random(seed)
    return [rng.gauss(0.0, scale) for _ in range(classes)]


# --- textbook formulas, right for moderate numbers at very high precision -------------------------


def textbook_softmax(logits: list[float], temperature: float = 1.0) -> list[mpf]:
    """Return exp(s/T) / sum exp(s/T)."""
    exps = [mp.exp(mpf(s) / mpf(temperature)) for s in logits]
    total = sum(exps)
    return [e / total for e in exps]


def textbook_phi(q: mpf, gamma: float) -> mpf:
    """Return (1-q)^gamma - gamma (1-q)^(gamma-1) q log q."""
    q, gamma = mpf(q), mpf(gamma)
    return (1 - q) ** gamma - gamma * (1 - q) ** (gamma - 1) * q * mp.log(q)


def textbook_map(probs: list[mpf], gamma: float) -> list[mpf]:
    """Return h(q_i) / sum h(q_k), h = q / phi."""
    h = [q / textbook_phi(q, gamma) for q in probs]
    total = sum(h)
    return [v / total for v in h]


def textbook_loss(logits: list[float], label: int, gamma: float) -> mpf:
    """Return -(1-p)^gamma log p."""
    p = textbook_softmax(logits)[label]
    return -((1 - p) ** mpf(gamma)) * mp.log(p)


@pytest.mark.parametrize("gamma", MAP_GAMMAS)
@pytest.mark.parametrize("p", [1e-300, 1e-8, 0.1, 0.25, 0.5, 0.9, 1 - 1e-9, 1 - 2**-53])
def test_phi_is_the_textbook_formula(p: float, gamma: float) -> None:
    """The odds form of phi equals the printed one."""
    with mp.workdps(400):
        expected = textbook_phi(p, gamma)
    assert close(stable(phi, p, gamma), expected)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 3.0])
def test_phi_is_the_derivative_of_the_loss_in_the_cross_entropy(gamma: float) -> None:
    """With f(c) = (1 - e^-c)^gamma c, f'(c) = phi(e^-c)."""
    with mp.workdps(50):
        for p in (0.01, 0.3, 0.95):
            slope = mp.diff(lambda c: (1 - mp.exp(-c)) ** gamma * c, -mp.log(mpf(p)))
            assert close(phi(p, gamma), slope, 1e-20)


@pytest.mark.parametrize("gamma", MAP_GAMMAS)
@pytest.mark.parametrize("temperature", [0.25, 1.0, 3.7])
def test_map_is_the_textbook_formula(gamma: float, temperature: float) -> None:
    """Logits to log probabilities, and probabilities to probabilities, for 2 to 30 classes."""
    for seed, classes in enumerate([2, 3, 5, 30]):
        logits = random_logits(seed, classes)
        with mp.workdps(300):
            probs = textbook_softmax(logits, temperature)
            expected = textbook_map(probs, gamma)
            logs = [mp.log(v) for v in expected]
            scaled = [8 * p for p in probs]
        assert all_close(stable(focal_log_probs, logits, gamma, temperature=temperature), logs)
        assert all_close(stable(focal_map, probs, gamma), expected)
        assert all_close(stable(focal_map, scaled, gamma), expected)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, 5.0])
def test_losses_are_the_textbook_formulas(gamma: float) -> None:
    """Focal and inverse focal loss for every label of a moderate row."""
    logits = random_logits(7, 6)
    for label in range(6):
        with mp.workdps(300):
            p = textbook_softmax(logits)[label]
            focal = textbook_loss(logits, label, gamma)
            inverse = -((1 + p) ** mpf(gamma)) * mp.log(p)
        assert close(stable(focal_loss, logits, label, gamma), focal)
        assert close(stable(inverse_focal_loss, logits, label, gamma), inverse)


# --- the numbers of MATH.md, sections 2, 3 and 4 -------------------------------------------------


@pytest.mark.parametrize(
    ("eta", "gamma", "expected"),
    [
        (0.9, 1.0, "0.7744"),
        (0.9, 2.0, "0.6942"),
        (0.9, 3.0, "0.6471"),
        (0.9, 5.0, "0.5974"),
        (0.8, 2.0, "0.6266"),
    ],
)
def test_printed_inverse_values(eta: float, gamma: float, expected: str) -> None:
    """The optimal output of a focal-trained binary model."""
    assert rounded(stable(inverse_focal_map, [eta, 1 - eta], gamma)[0], 4) == expected


@pytest.mark.parametrize(
    ("gamma", "over", "under"),
    [
        (0.5, "0.161288", "0.421457"),
        (1.0, "0.135335", "0.367879"),
        (2.0, "0.104058", "0.297637"),
        (3.0, "0.085461", "0.252584"),
        (5.0, "0.063876", "0.196803"),
        (7.0, "0.051496", "0.162902"),
    ],
)
def test_printed_confidence_thresholds(gamma: float, over: str, under: str) -> None:
    """The table of tau_oc and tau_uc; the first is the peak of phi, the second has phi = 1."""
    tau_oc, tau_uc = stable(confidence_thresholds, gamma)
    assert (rounded(tau_oc, 6), rounded(tau_uc, 6)) == (over, under)
    with mp.workdps(50):
        assert abs(phi(tau_uc, gamma) - 1) < 1e-40
        peak = phi(tau_oc, gamma)
        assert all(phi(tau_oc * (1 + d), gamma) < peak for d in (mpf("-1e-15"), mpf("1e-15")))


def test_confidence_thresholds_at_gamma_one_are_powers_of_e() -> None:
    """The thresholds at gamma = 1 are e^-2 and e^-1, to all digits."""
    with mp.workdps(60):
        expected = [mp.exp(-2), mp.exp(-1)]
    assert all_close(list(stable(confidence_thresholds, 1.0)), expected)


@pytest.mark.parametrize("gamma", [1e-6, 1e-3, 100.0, 1e6])
def test_confidence_thresholds_far_from_the_table(gamma: float) -> None:
    """Tiny and huge gamma: still the peak, still phi = 1, and tau_uc tends to 1/2 at gamma 0."""
    tau_oc, tau_uc = stable(confidence_thresholds, gamma)
    with mp.workdps(80):
        assert 0 < tau_oc < tau_uc < mpf(1) / 2
        assert abs(phi(tau_uc, gamma) - 1) < 1e-28 * phi(tau_oc, gamma)
        assert abs(mp.diff(lambda q: phi(q, gamma), tau_oc)) < 1e-15 * gamma
    if gamma == 1e-6:
        assert close(tau_uc, mpf(0.5), 1e-6)


@pytest.mark.parametrize(
    ("p0", "expected"),
    [
        (0.1, "14.9240"),
        (0.19, "5.3370"),
        (0.2, "4.8506"),
        (0.25, "3.0702"),
        (0.3, "1.9572"),
        (0.4, "0.6805"),
        (0.45, "0.2927"),
    ],
)
def test_printed_gamma_for_threshold(p0: float, expected: str) -> None:
    """The table of gamma*, the defining equation, and the Lambert W form the oracle never uses."""
    gamma = stable(gamma_for_threshold, p0)
    assert rounded(gamma, 4) == expected
    with mp.workdps(60):
        a, b = 1 - mpf(p0), mpf(p0) * mp.log(p0)
        lambert = a / b + mp.lambertw(-(a ** (1 - a / b)) / b * mp.log(a), -1) / mp.log(a)
        assert abs(phi(p0, gamma) - 1) < 1e-28
        assert close(gamma, lambert.real)


def test_gamma_for_threshold_at_its_ends() -> None:
    """0 at 1/2, the first-order limit just below it, a finite value at 1e-300."""
    assert gamma_for_threshold(0.5) == 0
    below = 2.0**-50
    with mp.workdps(60):  # log phi ~ gamma (log(1-p0) + u) - gamma^2 u^2 / 2, u(1/2) = log 2
        slope = 2 * (4 - 4 * mp.log(2)) / mp.log(2) ** 2
    assert close(stable(gamma_for_threshold, 0.5 - below), slope * below, 1e-14)
    tiny = stable(gamma_for_threshold, 1e-300)
    with mp.workdps(60):
        assert abs(phi(1e-300, tiny) - 1) < 1e-26
        assert tiny * mpf(1e-300) > 1


@pytest.mark.parametrize(
    ("classes", "gamma", "top", "expected"),
    [
        (10, 0.25, 0.15, "0.1494"),
        (100, 1.0, 0.05, "0.0472"),
        (1000, 1.0, 0.1, "0.0899"),
    ],
)
def test_printed_counter_examples_to_prop_5(
    classes: int, gamma: float, top: float, expected: str
) -> None:
    """One class above equal others: gamma > 0 lowers the top probability."""
    row = [top] + [(1 - top) / (classes - 1)] * (classes - 1)
    assert rounded(stable(focal_map, row, gamma)[0], 4) == expected


@pytest.mark.parametrize(
    ("row", "gamma", "expected"),
    [
        ([0.322, 0.32, 0.32, 0.038], 0.1, "0.321966"),
        ([0.33, 0.33, 0.33, 0.01], 0.5, "0.329923"),
    ],
)
def test_prop_5_fails_with_four_classes_too(row: list[float], gamma: float, expected: str) -> None:
    """Three near-equal classes and a small one: the top still loses, unlike with equal others."""
    assert rounded(stable(focal_map, row, gamma)[0], 6) == expected


# --- fixed points, limits and properties of the map ----------------------------------------------


@pytest.mark.parametrize("gamma", MAP_GAMMAS)
def test_fixed_points(gamma: float) -> None:
    """One-hot, uniform, and uniform over a subset stay as they are."""
    with mp.workdps(60):
        third, tenth = mpf(1) / 3, [mpf(1) / 10] * 10
    assert focal_map([0.0, 1.0, 0.0], gamma) == [0, 1, 0]
    assert focal_log_probs([-INF, 5.0, -INF], gamma) == [-mp.inf, 0, -mp.inf]
    assert all_close(stable(focal_map, [1.0] * 10, gamma), tenth)
    masked = stable(focal_map, [0.0, 2.0, 2.0, 0.0, 2.0], gamma)
    assert masked[0] == masked[3] == 0
    assert all_close([masked[1], masked[2], masked[4]], [third] * 3)


@pytest.mark.parametrize("gamma", MAP_GAMMAS)
def test_a_masked_class_is_an_absent_class(gamma: float) -> None:
    """A logit of -inf stays at -inf and changes nothing for the others."""
    logits = [1.5, -0.25, 0.75]
    expected = stable(focal_log_probs, logits, gamma)
    masked = stable(focal_log_probs, [1.5, -INF, -0.25, 0.75], gamma)
    assert masked[1] == -mp.inf
    assert all_close([masked[0], masked[2], masked[3]], expected)


@pytest.mark.parametrize("gamma", MAP_GAMMAS)
def test_rows_sum_to_one_and_keep_their_order(gamma: float) -> None:
    """1000 classes: the exponentials sum to one, and sorting by logit sorts the result."""
    logits = random_logits(11, 1000)
    with mp.workdps(50):
        logs = focal_log_probs(logits, gamma)
        assert abs(sum(mp.exp(v) for v in logs) - 1) < 1e-45
    order = sorted(range(1000), key=logits.__getitem__)
    assert all(logs[i] < logs[k] for i, k in pairwise(order))


def test_phi_at_its_limits() -> None:
    """The values at p = 0 and p = 1, and the approach to them."""
    assert [phi(0.0, g) for g in (-1.0, -0.5, 0.0, 3.0)] == [1, 1, 1, 1]
    assert [phi(1.0, g) for g in (-1.0, -0.5, 0.0, 3.0)] == [0.5, mp.inf, 1, 0]
    assert close(stable(phi, 1 - 2.0**-53, -1.0), mpf(0.5), 1e-15)


def test_phi_with_a_tiny_probability_and_a_huge_gamma() -> None:
    """At gamma = 1/p, (1-p)^gamma -> 1/e: lost at any precision once 1 - p has rounded to 1."""
    p, gamma = 2.0**-1000, 2.0**1000
    with mp.workdps(60):
        expected = mp.exp(-1) * (1 + 1000 * mp.log(2))
    assert close(stable(phi, p, gamma), expected)


# --- the inverse and the proper loss --------------------------------------------------------------


@pytest.mark.parametrize("gamma", [1e-3, 0.5, 1.0, 5.0, 100.0])
def test_inverse_undoes_the_map(gamma: float) -> None:
    """Psi(Psi^-1(eta)) = eta for rows from flat to saturated, with zeros kept."""
    for seed, (classes, scale) in enumerate([(2, 1.0), (3, 0.01), (5, 30.0), (12, 3.0)]):
        with mp.workdps(300):
            eta = textbook_softmax(random_logits(seed, classes, scale))
        eta.insert(1, mpf(0))
        q = stable(inverse_focal_map, eta, gamma)
        assert q[1] == 0
        with mp.workdps(60):
            assert abs(sum(q) - 1) < 1e-28
            assert all_close(focal_map(q, gamma), eta)


def test_inverse_of_a_long_row() -> None:
    """The same for 1000 classes."""
    with mp.workdps(50):
        eta = textbook_softmax(random_logits(3, 1000))
        q = inverse_focal_map(eta, 3.0)
        assert all_close(focal_map(q, 3.0), eta, 1e-44)
        assert abs(sum(q) - 1) < 1e-44


@pytest.mark.parametrize("gamma", [0.5, 2.0, 5.0])
def test_inverse_minimises_the_focal_risk(gamma: float) -> None:
    """d/dq [eta FL(q) + (1-eta) FL(1-q)] = 0 at q = Psi^-1(eta)."""

    def risk(q: mpf) -> mpf:
        return -0.75 * (1 - q) ** gamma * mp.log(q) - 0.25 * q**gamma * mp.log(1 - q)

    with mp.workdps(60):
        q = inverse_focal_map([0.75, 0.25], gamma)[0]
        assert abs(mp.diff(risk, q)) < 1e-25
        assert risk(q) < min(risk(q - mpf("1e-9")), risk(q + mpf("1e-9")))


@pytest.mark.parametrize("gamma", [0.0, 0.5, 4.0])
def test_inverse_fixed_points(gamma: float) -> None:
    """One-hot returns itself, uniform and subset-uniform stay; gamma = 0 only normalises."""
    with mp.workdps(60):
        half = mpf(1) / 2
        expected = [mpf(1) / 8, mpf(7) / 8]
    assert inverse_focal_map([0.0, 3.0, 0.0], gamma) == [0, 1, 0]
    result = stable(inverse_focal_map, [1.0, 0.0, 1.0], gamma)
    assert result[1] == 0
    assert all_close([result[0], result[2]], [half, half])
    if gamma == 0:
        assert all_close(stable(inverse_focal_map, [1.0, 7.0], gamma), expected)


@pytest.mark.parametrize("gamma", [0.5, 2.0, 5.0])
def test_proper_focal_loss(gamma: float) -> None:
    """It is FL at Psi^-1(p), and its expectation under eta is least at p = eta."""
    eta = [0.6, 0.3, 0.1]

    def risk(probs: list[mpf]) -> mpf:
        with mp.workdps(50):
            return sum(mpf(e) * proper_focal_loss(probs, k, gamma) for k, e in enumerate(eta))

    with mp.workdps(50):
        q = inverse_focal_map(eta, gamma)
        expected = -((1 - q[1]) ** mpf(gamma)) * mp.log(q[1])
    assert close(stable(proper_focal_loss, eta, 1, gamma), expected)
    best = risk(eta)
    for shift in ([1, -1, 0], [-1, 1, 0], [0, 1, -1], [1, 0, -1]):
        assert risk([mpf(e) + mpf("1e-6") * d for e, d in zip(eta, shift, strict=True)]) > best


def test_losses_at_certainty() -> None:
    """Loss 0 for the only class with mass, infinite for a class without."""
    for gamma in (0.0, 2.0):
        for loss in (focal_loss, inverse_focal_loss):
            assert loss([-INF, 1.0], 1, gamma) == 0
            assert loss([-INF, 1.0], 0, gamma) == mp.inf
        assert proper_focal_loss([0.0, 1.0], 1, gamma) == 0
        assert proper_focal_loss([0.0, 1.0], 0, gamma) == mp.inf


# --- saturation: logit gaps that no precision can hold in q --------------------------------------

GAP = 1e6


def test_the_textbook_loss_is_falsely_stable() -> None:
    """The trap itself: at gap 1e6 the textbook loss is 0 at every precision, and "stable"."""
    assert stable(textbook_loss, [GAP, 0.0], 0, 2.0) == 0
    loss = stable(focal_loss, [GAP, 0.0], 0, 2.0)
    with mp.workdps(60):
        assert close(mp.log(loss), mpf(-3 * GAP))


@pytest.mark.parametrize("gamma", [-0.5, 0.0, 0.5, 3.0])
@pytest.mark.parametrize("classes", [2, 5])
def test_saturated_map_has_its_asymptotics(gamma: float, classes: int) -> None:
    """Log Psi_other -> -(1+gamma) gap + gamma log(K-1) + log(1+gamma).

    With t = (K-1) e^-gap the odds against the top class: h_top -> t^-gamma / (1+gamma) and
    h_other -> e^-gap, up to terms of order gap * t. Then log Psi_top = -sum of the other Psi.
    """
    logs = stable(focal_log_probs, [0.0] * (classes - 1) + [GAP], gamma)
    scaled = stable(focal_log_probs, [0.0] * (classes - 1) + [GAP / 64], gamma, temperature=2.0**-6)
    with mp.workdps(60):
        other = -(1 + mpf(gamma)) * GAP + gamma * mp.log(classes - 1) + mp.log1p(gamma)
        top = -(classes - 1) * mp.exp(other)
        assert all_close(logs, [other] * (classes - 1) + [top])
        assert all_close(scaled, logs)


def test_saturated_map_at_gamma_minus_one() -> None:
    """phi(1; -1) = 1/2, so h_top = 2 and log Psi_other = -gap - log 2."""
    logs = stable(focal_log_probs, [0.0, GAP], -1.0)
    with mp.workdps(60):
        other = -GAP - mp.log(2)
        assert all_close(logs, [other, -mp.exp(other)])


@pytest.mark.parametrize("gamma", [-1.0, -0.5, 2.0])
def test_saturated_phi_and_complement(gamma: float) -> None:
    """1 - q is the sum of the others, and phi -> t^gamma (1+gamma), or 1/2 at gamma = -1."""
    with mp.workdps(60):
        weights = [mp.exp(GAP), mpf(1), mpf(1)]
        t = 2 * mp.exp(-GAP)
        assert close(odds_against(weights)[0], t)
        assert close(one_minus(weights, 0), t)
        expected = mpf(1) / 2 if gamma == -1 else t**gamma * (1 + mpf(gamma))
        assert close(phi_at_odds(t, gamma), expected)


@pytest.mark.parametrize("gamma", [0.5, 3.0])
def test_saturated_losses(gamma: float) -> None:
    """Loss of the top class -> t^(1+gamma), of the other -> gap; inverse focal: 2^gamma t, gap."""
    row = [GAP, 0.0]
    with mp.workdps(60):
        t = mp.exp(-GAP)
        assert close(stable(focal_loss, row, 0, gamma), t ** (1 + mpf(gamma)))
        assert close(stable(focal_loss, row, 1, gamma), mpf(GAP))
        assert close(stable(inverse_focal_loss, row, 0, gamma), mpf(2) ** gamma * t)
        assert close(stable(inverse_focal_loss, row, 1, gamma), mpf(GAP))


@pytest.mark.parametrize("gamma", [0.5, 3.0])
def test_saturated_inverse(gamma: float) -> None:
    """From eta_other = e^-gap: t^(1+gamma) (1+gamma) = e^-gap, and the loss follows from t."""
    with mp.workdps(110):
        eta = [mpf(1), mp.exp(-GAP)]
    with mp.workdps(60):
        t = (mp.exp(-GAP) / (1 + mpf(gamma))) ** (1 / (1 + mpf(gamma)))
        assert close(stable(inverse_focal_map, eta, gamma)[1], t)
        assert close(stable(proper_focal_loss, eta, 0, gamma), t ** (1 + mpf(gamma)))
        assert close(stable(proper_focal_loss, eta, 1, gamma), -mp.log(t))


def test_smallest_double_in_the_inverse() -> None:
    """Rows of doubles reach 5e-324; the inverse still maps back to them."""
    q = stable(inverse_focal_map, [1.0, 5e-324, 0.0], 2.0)
    with mp.workdps(60):
        assert close(focal_map(q, 2.0)[1], mpf(5e-324))


# --- the helpers ---------------------------------------------------------------------------------


def test_sums_of_others() -> None:
    """Integers give exact sums, with and without a dominant weight."""
    for weights in ([1, 2, 3], [5, 5], [100, 1, 2], [0, 7], [4]):
        exact = [sum(weights) - w for w in weights]
        assert sums_of_others([mpf(w) for w in weights]) == exact


def test_stable_raises_the_precision_until_it_suffices() -> None:
    """(1 + 1e-90) - 1 is 0 at 50 digits, poor at 100 and good from 200 on."""
    with mp.workdps(60):
        expected = mpf("1e-90")
    assert close(stable(lambda: (1 + mpf("1e-90")) - 1), expected)


def test_stable_compares_lists_infinities_and_zeros() -> None:
    """Equal infinities and zeros agree; the result keeps its shape."""
    assert stable(lambda: [mp.inf, -mp.inf, mpf(0), (mpf(1), [mpf(2)])]) == [
        mp.inf,
        -mp.inf,
        0,
        (1, [2]),
    ]


@pytest.mark.parametrize(
    "unstable",
    [
        lambda: mpf(mp.prec),
        lambda: [mpf(1), mpf(mp.prec)],
        lambda: mp.inf * (-1) ** (mp.dps // 50).bit_length(),
        lambda: mpf(0) if (mp.dps // 50).bit_length() % 2 else mpf("1e-99"),
        lambda: mp.nan,
        lambda: [mpf(1)] * mp.prec,
    ],
)
def test_stable_refuses_what_never_settles(unstable: object) -> None:
    """A number, a list entry, a sign of infinity, a zero, nan or a length that keeps changing."""
    with pytest.raises(ArithmeticError, match="not stable"):
        stable(unstable)


@pytest.mark.parametrize(
    "call",
    [
        lambda: phi(0.5, -1.1),
        lambda: phi(1.1, 1.0),
        lambda: phi(NAN, 1.0),
        lambda: focal_map([0.5, 0.5], -1.5),
        lambda: focal_map([1.0, 0.0], NAN),
        lambda: focal_map([0.5, -0.5], 1.0),
        lambda: focal_map([0.0, 0.0], 1.0),
        lambda: focal_log_probs([0.0, INF], 1.0),
        lambda: focal_log_probs([0.0, NAN], 1.0),
        lambda: focal_log_probs([-INF, -INF], 1.0),
        lambda: focal_log_probs([0.0, 1.0], 1.0, temperature=0.0),
        lambda: inverse_focal_map([0.5, 0.5], -0.5),
        lambda: focal_loss([0.0, 1.0], 0, -0.5),
        lambda: focal_loss([0.0, 1.0], 2, 1.0),
        lambda: inverse_focal_loss([0.0, 1.0], -1, 1.0),
        lambda: proper_focal_loss([0.5, 0.5], 0, -0.5),
        lambda: gamma_for_threshold(0.51),
        lambda: gamma_for_threshold(0.0),
        lambda: confidence_thresholds(0.0),
    ],
)
def test_inputs_outside_the_domain_are_refused(call: object) -> None:
    """A silent answer would make the oracle a false witness."""
    with pytest.raises(ValueError, match="must be"):
        call()
