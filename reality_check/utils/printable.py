"""Printing to terminals and logs whose encoding lacks some characters."""

from __future__ import annotations

import codecs
import io
import sys

#: Replacements; any other character that the encoding lacks is printed as its number.
_PLAIN = str.maketrans(
    {
        "−": "-", "–": "-", "—": "-", "…": "...", "±": "+/-", "√": "sqrt ", "²": "^2",
        "“": '"', "”": '"', "’": "'", "≤": "<=", "≥": ">=",
    }
)  # fmt: skip


def printable_output(encoding: str | None = None) -> None:
    """Let stdout and stderr replace characters that their encoding lacks, instead of failing.

    Args:
        encoding: the encoding to set, if given.
    """
    codecs.register_error("reality-check", _replace)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # notebooks and GUIs have others
            stream.reconfigure(encoding=encoding, errors="reality-check")


def _replace(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return replacements for what cannot be encoded, and the position to continue at."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end].translate(_PLAIN)
    return lacking.encode("ascii", "backslashreplace").decode("ascii"), error.end
