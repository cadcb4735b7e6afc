"""Seeds of all random choices of an experiment, derived from its one seed."""

from __future__ import annotations

import hashlib


def derive(seed: int, *parts: str | int) -> int:
    """Return a 63-bit seed, a pure function of the experiment's seed and the named parts."""
    text = "/".join([str(seed), *map(str, parts)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
