"""Types that several parts of the schema share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, TypeGuard, TypeVar, get_origin

from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer

from reality_check.config.values import (
    Choices,
    Range,
    choices_of,
    dump_value,
    ends_of,
    parse_items,
    parse_tunable,
    parse_value,
)

Tunable = Annotated[
    float | Range | Choices | None, BeforeValidator(parse_tunable), PlainSerializer(dump_value)
]
Arguments = Annotated[dict[str, Any], BeforeValidator(parse_items), PlainSerializer(dump_value)]
#: Fixed values, none of which is searched.
Fixed = Annotated[dict[str, Any], BeforeValidator(partial(parse_items, searched=False))]
_Plain = TypeVar("_Plain")
#: A value of some type, or a range or choices of such values.
Searchable = Annotated[
    _Plain | Range | Choices, BeforeValidator(parse_value), PlainSerializer(dump_value)
]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$", max_length=64)]
PositiveInt = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class MayDiffer:
    """Marks a key of the schema, with all keys below it, as allowed to differ.

    :mod:`reality_check.config.neutral_keys` finds the marked keys.

    Attributes:
        between: ``"runs"`` of one experiment, if no result depends on the key; or
            ``"experiments"``, whose results may be in one table even if the key differs.
        keys: for a mapping with free keys, the only keys that may differ; all of them if empty.
    """

    between: Literal["runs", "experiments"]
    keys: tuple[str, ...] = ()


RESULT_NEUTRAL = MayDiffer("runs")
TABLE_NEUTRAL = MayDiffer("experiments")
#: The location of files may differ between runs, since fingerprints verify their content.
DataPath = Annotated[str, RESULT_NEUTRAL]
Download = Annotated[
    bool, RESULT_NEUTRAL, Field(description="Whether to fetch what is missing into `path`.")
]
CheckCounts = Annotated[
    bool, Field(description="Whether the data set must be complete: all its classes and images.")
]
DataName = Annotated[Name, Field(description="Name of the data set in reports.")]


def is_model(annotation: Any) -> TypeGuard[type[BaseModel]]:
    """Return whether a key's type is a model; in Python 3.10 ``list[int]`` is a ``type``, too."""
    is_class = isinstance(annotation, type) and get_origin(annotation) is None
    return is_class and issubclass(annotation, BaseModel)


def check_learning_rate(value: Any) -> Any:
    """Return a learning rate or factor, or raise ``ValueError`` if it is negative; 0 freezes."""
    low = min(ends_of(value), default=0)
    if low < 0:
        raise ValueError(f"a learning rate or its factor must be at least 0, got {low:g}")
    return value


def check_choices(value: Any, least: int) -> Any:
    """Return a whole number or choices of them; raise ``ValueError`` for others or a range."""
    wrong = [v for v in choices_of(value) if v is not None and not (type(v) is int and v >= least)]
    if wrong:  # a range is no whole number
        raise ValueError(
            f"write a whole number from {least} on, or {{choices: [32, 64]}}; got "
            f"{'a range' if isinstance(value, Range) else wrong[0]}"
        )
    return value
