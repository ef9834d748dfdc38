"""Tails of Student's t and of the binomial distribution without scipy, by the incomplete beta."""

from __future__ import annotations

import math


def two_sided_p(t: float, df: int) -> float:
    """P(|T| >= |t|) for ``df`` degrees of freedom: I_{df/(df+t²)}(df/2, 1/2)."""
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(df / 2, 0.5, df / (df + t * t))


def quantile(level: float, df: int) -> float:
    """The t with P(|T| <= t) = level, by bisection."""
    low, high = 0.0, 2.0
    while two_sided_p(high, df) > 1 - level:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_p(middle, df) > 1 - level else (low, middle)
    return (low + high) / 2


def binomial_upper(right: float, size: float, error: float) -> float:
    """Clopper and Pearson's upper limit (1934) of a rate: P(as few as ``right``) = ``error``."""
    if right >= size:
        return 1.0
    low, high = right / size, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        as_few = 1.0 - _incomplete_beta(right + 1, size - right, middle)
        low, high = (middle, high) if as_few > error else (low, middle)
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised I_x(a, b), by Lentz's continued fraction (Numerical Recipes 6.4)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    tiny = 1e-300
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1) or tiny)
    h = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / (1.0 + even * d or tiny)
        c = 1.0 + even / c or tiny
        h *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1.0 / (1.0 + odd * d or tiny)
        c = 1.0 + odd / c or tiny
        step = d * c
        h *= step
        if abs(step - 1) < 1e-15:
            break
    return front * h / a
