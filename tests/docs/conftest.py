"""How the tests of the documentation read a page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

FENCE = re.compile(
    r"^(?:<!-- (?P<mark>not run|run with): (?P<text>[^\n]+) -->\n)?"
    r'```(?P<language>\w+)(?: title="(?P<title>[^"\n]+)")?\n(?P<code>.*?)^```$',
    re.M | re.S,
)


class Block(NamedTuple):
    """A block of code in a page.

    Attributes:
        language: as after the fence.
        code: what it holds, for the tests.
        line: of the page that the code starts at.
        title: the file that it is written to, if it names one.
        reason: why it is not run, from a mark ``<!-- not run: reason -->`` directly above.
        extra: what it is run with beside what it says, from ``<!-- run with: arguments -->``;
            of these, ``old->new`` has changed the code.
    """

    language: str
    code: str
    line: int
    title: str | None = None
    reason: str | None = None
    extra: tuple[str, ...] = ()


def read_blocks(page: Path) -> list[Block]:
    """The blocks of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    return [_block(match, text) for match in FENCE.finditer(text)]


def _block(match: re.Match[str], text: str) -> Block:
    marked = {match["mark"]: match["text"]}
    code, extra = match["code"], marked.get("run with", "").split()
    for change in (text for text in extra if "->" in text):
        old, new = change.split("->")
        assert old in code, f"{old} is not in the block that begins with {code[:40]!r}"
        code = code.replace(old, new)
    return Block(
        match["language"],
        code,
        text.count("\n", 0, match.start("code")) + 1,
        match["title"],
        marked.get("not run"),
        tuple(text for text in extra if "->" not in text),
    )


@pytest.fixture(scope="session")
def blocks_of() -> Callable[[Path], list[Block]]:
    """A function from a page to its blocks."""
    return read_blocks
