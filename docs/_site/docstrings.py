"""Docstrings are written with Sphinx's roles, as their authors' tools show them; here they become
Markdown: references, formulas and literal blocks.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`(~?)([^`]+)`")
_MATH_ROLE = re.compile(r":math:`([^`]+)`")
_MATH_BLOCK = re.compile(r"^( *)\.\. math::(.*(?:\n(?:\1 +.*)?)*)", re.M)
_LITERAL = re.compile(r"::\n\n((?: {4,}.*(?:\n|$)|\n)+)")


class Roles(griffe.Extension):
    """Rewrites every docstring once, when its object is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value, obj)


def to_markdown(text: str, obj: griffe.Object | None = None) -> str:
    """Sphinx's roles and directives, as far as our docstrings have them, in Markdown."""
    text = _MATH_BLOCK.sub(_math_block, text)
    text = _MATH_ROLE.sub(r"$\1$", text)
    text = _LITERAL.sub(_literal, text)
    return _ROLE.sub(lambda match: _reference(match[1], match[2], obj), text)


def _math_block(match: re.Match[str]) -> str:
    formula = "\n".join(line.strip() for line in match[2].strip().splitlines())
    return textwrap.indent(f"\n$$\n{formula}\n$$\n", match[1]) + "\n"


def _literal(match: re.Match[str]) -> str:
    code = textwrap.dedent(match[1]).strip("\n")
    return f":\n\n```text\n{code}\n```\n\n"


def _reference(short: str, name: str, obj: griffe.Object | None) -> str:
    shown = name.rpartition(".")[2] if short else name
    target = name
    if obj is not None and "." not in name:
        try:
            target = obj.resolve(name)
        except griffe.NameResolutionError:
            target = name
    return f'<autoref optional identifier="{target}"><code>{shown}</code></autoref>'
