"""Title, unit and direction of a user-defined metric or column of the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_ATTRIBUTE = "__reality_check_description__"
_MAX_LENGTH = 60


@dataclass(frozen=True)
class Description:
    """How reports print a value.

    Attributes:
        title: the heading of its column.
        unit: printed after the title, such as ``ms``; empty for a plain number.
        higher_is_better: whether a larger value is the better one, for ranking and selection.

    Raises:
        ValueError: the title or unit is not one line of printable text, or the direction is not a
            bool.
    """

    title: str
    unit: str = ""
    higher_is_better: bool = True

    def __post_init__(self) -> None:
        for key, text in (("title", self.title), ("unit", self.unit)):
            if not isinstance(text, str) or not text.isprintable() or len(text) > _MAX_LENGTH:
                raise ValueError(
                    f"reality_check.describe: {key}={text!r}, but it must be one line of printable "
                    f"text of at most {_MAX_LENGTH} characters."
                )
        if not self.title.strip():
            raise ValueError(
                "reality_check.describe: title is empty; write the head of the column, such as "
                "title='silhouette'."
            )
        if not isinstance(self.higher_is_better, bool):
            raise ValueError(
                f"reality_check.describe: higher_is_better={self.higher_is_better!r}, but it must "
                "be True or False."
            )


def describe(
    *, title: str, unit: str = "", higher_is_better: bool = True
) -> Callable[[Function], Function]:
    """Decorate a user-defined metric or column, to set how reports print it.

    >>> @describe(title="silhouette", higher_is_better=True)
    ... def silhouette(embeddings, labels): ...
    >>> description_of(silhouette).title
    'silhouette'

    Args:
        title: the heading of its column.
        unit: printed after the title, such as ``ms``.
        higher_is_better: whether a larger value is the better one.

    Raises:
        ValueError: an argument is not printable text, or not a bool.
    """
    description = Description(title, unit, higher_is_better)

    def decorate(function: Function) -> Function:
        setattr(function, _ATTRIBUTE, description)
        return function

    return decorate


def description_of(function: Callable[..., Any]) -> Description:
    """Return the description set by :func:`describe`; without one, the name is the title."""
    described = getattr(function, _ATTRIBUTE, None)
    if isinstance(described, Description):
        return described
    return Description(str(getattr(function, "__name__", type(function).__name__))[:_MAX_LENGTH])
