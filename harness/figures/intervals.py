"""Student's t, and the intervals that every figure and table shares (DESIGN.md, section 5)."""

import math
from dataclasses import dataclass

CONFIDENCE = 0.95
PRELIMINARY_BELOW = 5  # blocks


@dataclass(frozen=True)
class Interval:
    """A quantity over blocks; `low` and `high` are None where one block leaves no interval."""

    value: float
    low: float | None
    high: float | None
    n: int


def _incomplete_beta(a, b, x):
    """Regularised incomplete beta function I_x(a, b), by Lentz's continued fraction."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    if x > (a + 1.0) / (a + b + 2.0):  # the fraction converges fast on the other side only
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    tiny = 1e-300
    front = (
        math.exp(
            math.lgamma(a + b)
            - math.lgamma(a)
            - math.lgamma(b)
            + a * math.log(x)
            + b * math.log1p(-x)
        )
        / a
    )
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    fraction = d
    for m in range(1, 1000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + numerator * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + numerator / c
            c = c if abs(c) > tiny else tiny
            fraction *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return front * fraction


def t_cdf(t, freedom):
    tail = 0.5 * _incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))
    return 1.0 - tail if t >= 0 else tail


def t_quantile(probability, freedom):
    """The t with t_cdf(t, freedom) = probability, to a relative 1e-12."""
    if not 0.0 < probability < 1.0:
        raise ValueError(f"probability {probability}; expected within (0, 1)")
    if freedom <= 0:
        raise ValueError(f"{freedom} degrees of freedom; expected more than 0")
    if probability < 0.5:
        return -t_quantile(1.0 - probability, freedom)
    low, high = 0.0, 1.0
    while t_cdf(high, freedom) < probability:
        high *= 2.0
    while high - low > 1e-12 * max(high, 1e-3):
        middle = 0.5 * (low + high)
        if t_cdf(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def mean_interval(values):
    """Arithmetic mean of `values` with its t interval."""
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return Interval(mean, None, None, n)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    half = t_quantile(0.5 + CONFIDENCE / 2.0, n - 1) * math.sqrt(variance / n)
    return Interval(mean, mean - half, mean + half, n)


def log_interval(values):
    """Geometric mean of positive `values` with its t interval on the logarithms."""
    logs = mean_interval([math.log(value) for value in values])
    if logs.low is None:
        return Interval(math.exp(logs.value), None, None, logs.n)
    return Interval(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high), logs.n)


def paired_ratio(ours, other):
    """ours / other over the blocks that both have, from {block: value}; None without a block."""
    blocks = sorted(
        block for block in ours.keys() & other.keys() if ours[block] > 0 and other[block] > 0
    )
    if not blocks:
        return None
    return log_interval([ours[block] / other[block] for block in blocks])


def paired_difference(ours, other):
    """ours - other over the blocks that both have, likewise."""
    blocks = sorted(ours.keys() & other.keys())
    return mean_interval([ours[block] - other[block] for block in blocks]) if blocks else None


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else 0.5 * (ordered[middle - 1] + ordered[middle])
