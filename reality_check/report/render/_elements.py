"""HTML elements that escape every text they are given."""

from __future__ import annotations

import html
import re


class Html(str):
    """Text that is HTML already; any other text is escaped where it meets an element."""

    __slots__ = ()


def escape(text: str) -> Html:
    """Return ``text`` safe inside elements and attributes; HTML is returned as it is."""
    return text if isinstance(text, Html) else Html(html.escape(text))


def join(*children: str, between: str = "") -> Html:
    """Return the children one after the other."""
    return Html(between.join(escape(child) for child in children))


def element(tag: str, *children: str, **attributes: str) -> Html:
    """Return ``<tag ...>children</tag>``.

    Args:
        tag: for example ``"p"``.
        children: texts (escaped) and HTML (kept).
        attributes: values by name; write ``class_`` for ``class``.
    """
    pairs = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for name, value in attributes.items()
    )
    return Html(f"<{tag}{pairs}>{join(*children)}</{tag}>")


def breakable(name: str) -> Html:
    """Return a name that may be broken after its underscores, dots and hyphens only."""
    return Html(re.sub(r"([_.-])(?=[^\W\d])", r"\1<wbr>", escape(name)))
