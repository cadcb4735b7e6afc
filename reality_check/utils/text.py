"""Text for people: durations, shortened values, the nearest valid name; strict JSON."""

from __future__ import annotations

import difflib
import itertools
import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

#: Weight of a common prefix in the similarity of two names; the rest of it is at most 1.
_PREFIX_WEIGHT = 0.1
_TEXT_OR_INFINITY = re.compile(r'("(?:[^"\\]|\\.)*")|Infinity')


def duration(seconds: float | None) -> str:
    """Format seconds: ``4.2 s``, ``42 s``, ``3 min 5 s``, ``12 min``, ``2 h 5 min``.

    ``None`` and numbers that are not finite give a dash.
    """
    if seconds is None or not math.isfinite(seconds):
        return "—"
    if round(seconds) < 60:
        return f"{round(seconds, 1):g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 10:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def one_line(value: Any, most: int = 300) -> str:
    """Return the message of an exception, or a value, on one line of limited length."""
    try:
        text = str(value) if isinstance(value, BaseException) else repr(value)
    except Exception:  # raised by the __repr__ of a user's class
        text = f"<{type(value).__name__}>"
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


def strict_json(data: Any, **options: Any) -> str:
    """Return JSON that every parser reads: infinity is written as 1e999, which parses as infinity.

    Args:
        data: plain data.
        options: keyword arguments of :func:`json.dumps`.
    """
    text = json.dumps(data, **options)
    # The pattern matches texts too, so that the word within them is kept.
    return _TEXT_OR_INFINITY.sub(lambda match: match[1] or "1e999", text)


def duplicates(names: Sequence[str]) -> list[str]:
    """Return the names that occur more than once, sorted."""
    return sorted({name for name in names if names.count(name) > 1})


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the valid name closest to ``name``, else ``""``."""
    matches = difflib.get_close_matches(name, list(valid), n=5, cutoff=0.5)
    if not matches:
        return ""

    def closeness(match: str) -> float:
        # People seldom mistake how a name begins: TripletLoss is not SoftTripleLoss.
        prefix = itertools.takewhile(
            lambda pair: pair[0] == pair[1], zip(name, match, strict=False)
        )
        alike = difflib.SequenceMatcher(None, match, name).ratio()
        return alike + _PREFIX_WEIGHT * len(list(prefix)) / len(name)

    return f" Did you mean {max(matches, key=closeness)!r}?"
