from __future__ import annotations

import math

import pytest

from reality_check.utils.text import duration, nearest


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.4, "0.4 s"),
        (7, "7 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (125, "2 min 5 s"),
        (599.4, "9 min 59 s"),
        (599.6, "10 min"),
        (1500, "25 min"),
        (3590, "1 h 0 min"),
        (7500, "2 h 5 min"),
        (47 * 3600, "47 h 0 min"),
        (48 * 3600, "2 d 0 h"),
        (None, "—"),
        (math.inf, "—"),
        (math.nan, "—"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("given", "valid", "expected"),
    [
        ("TripletLoss", ["SoftTripleLoss", "TripletMarginLoss"], "TripletMarginLoss"),
        ("seeed", ["speed", "seed"], "seed"),
        ("conv_4", ["conv4_pool", "conv4"], "conv4"),
        ("nothing", ["conv4", "seed"], None),
    ],
)
def test_the_nearest_name(given: str, valid: list[str], expected: str | None) -> None:
    assert nearest(given, valid) == ("" if expected is None else f" Did you mean {expected!r}?")
