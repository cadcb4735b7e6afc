"""Numbers and lists in words: percent, points, parameters, hours."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reality_check.config.metrics import Metric
    from reality_check.results import Cost
    from reality_check.statistics import Centred

#: Text of an empty cell.
NOTHING = "—"
#: Unit of hours in words, by kind of device.
_HOUR_UNITS = {
    "cuda": "GPU hours",
    "cpu": "hours of CPU processes",
    "unknown": "hours of processes on a device that was not recorded",
}


def rounded(value: float, digits: int, plus: bool = False) -> str:
    """Return a number with a fixed number of decimals; a rounded 0 has no sign.

    Args:
        value: the number.
        digits: number of decimals.
        plus: whether positive numbers get a sign, too.
    """
    if not math.isfinite(value):
        return "not finite"
    text = f"{value:{'+' if plus else ''}.{digits}f}"
    return text if text.strip("+-0.") else text.lstrip("+-")


def true_minus(value: float, digits: int = 2, plus: bool = False) -> str:
    """Return :func:`rounded` with a true minus sign instead of a hyphen."""
    return rounded(value, digits, plus).replace("-", "−")


def percent(fraction: float | None, digits: int = 2) -> str:
    """Return ``"25.25"`` for ``0.2525``."""
    return NOTHING if fraction is None else rounded(100 * fraction, digits)


def score_text(value: float | None, metric: Metric) -> str:
    """Return a score in percent, or as a plain number if the metric is not a fraction."""
    return percent(value) if metric.percent or value is None else rounded(value, 3)


def difference_text(difference: float, metric: Metric) -> str:
    """Return a difference in points, or as a plain number if the metric is not a fraction."""
    return points(difference) if metric.percent else true_minus(difference, 3)


def points(difference: float, plus: bool = False) -> str:
    """Return a difference of fractions in percentage points, with a true minus sign."""
    return true_minus(100 * difference, plus=plus)


def interval_text(interval: Centred, fraction: bool = True) -> str:
    """Return ``"25.25 ± 0.13"``, or only the mean if there is no interval.

    Args:
        interval: the mean and its interval.
        fraction: whether the mean is a fraction, which is printed in percent.
    """
    numbers = (interval.mean, interval.half_width)
    return " ± ".join(percent(n) if fraction else rounded(n, 3) for n in numbers if n is not None)


def counts_text(counts: Mapping[str, int]) -> str:
    """Return ``"contrastive 8, proxy_nca 4"``."""
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def parameter(value: Any) -> str:
    """Return the value of a hyper-parameter, with four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def p_text(p_value: float) -> str:
    """Return ``"p = 0.012"``, or ``"p < 0.001"``."""
    if p_value < 0.001:
        return "p < 0.001"
    # 0.0497 is significant, which "0.05" would not show.
    digits = 2 if abs(p_value - 0.05) > 0.0005 else 3
    return f"p = {p_value:.{digits}g}"


def file_name(name: str, names: Iterable[str]) -> str:
    """Return a method's name for use in a file name; special characters become ``_``.

    If this makes two of ``names``, the names of all methods, equal, a digest is appended.
    """

    plain, *others = (re.sub(r"[^\w.+-]+", "_", text) for text in (name, *names))
    # File systems may ignore case. The names of all methods include this one.
    shared = sum(other.lower() == plain.lower() for other in others) > 1
    return f"{plain}_{sha256(name.encode()).hexdigest()[:6]}" if shared else plain


def size_text(number: float) -> str:
    """Return a number of units: ``"5"`` for ``5.0`` and ``"8.6"`` for ``8.63``."""
    return rounded(number, 1).removesuffix(".0")


def counted(number: int, noun: str) -> str:
    """Return ``"1 pair"`` for ``(1, "pair")`` and ``"3 pairs"`` for ``(3, "pair")``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(names: Sequence[str]) -> str:
    """Return ``"a, b and c"`` for ``["a", "b", "c"]``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def hours_text(costs: Iterable[Cost]) -> str:
    """Return ``"3.20 GPU hours and 0.15 hours of CPU processes"``; empty for no costs."""
    spent: dict[str, float] = defaultdict(float)
    for cost in costs:
        spent[cost.device] += cost.hours
    units = {kind: f"hours of processes on {kind}" for kind in spent} | _HOUR_UNITS
    return listed([f"{hours:.2f} {units[kind]}" for kind, hours in sorted(spent.items())])
