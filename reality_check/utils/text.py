"""Words: one line of a longer text, nearest names, durations."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def duration(seconds: float) -> str:
    """Seconds as people say them: ``42 s``, ``3 min``, ``2 h 5 min``."""
    minutes = int(seconds // 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    if minutes < 10:
        return f"{minutes} min {int(seconds % 60)} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def one_line(value: Any, most: int = 300) -> str:
    """The text of an exception, or of a value, on one line of limited length."""
    text = " ".join((str(value) if isinstance(value, BaseException) else repr(value)).split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the valid name closest to ``name``, else ``""``."""
    matches = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return f" Did you mean {matches[0]!r}?" if matches else ""
