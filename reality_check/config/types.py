"""Types that several parts of the schema share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

from reality_check.config.values import (
    Choices,
    Range,
    dump_value,
    parse_tunable,
    parse_value,
)

Tunable = Annotated[
    float | Range | Choices | None,
    BeforeValidator(parse_tunable),
    PlainSerializer(dump_value),
]
Arguments = Annotated[dict[str, Any], BeforeValidator(parse_value), PlainSerializer(dump_value)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$", max_length=64)]
PositiveInt = Annotated[int, Field(ge=1)]


def check_learning_rate(value: Any) -> Any:
    """Learning rates and their factors are not negative; 0 freezes the part."""
    low = value.low if isinstance(value, Range) else value
    if isinstance(value, Choices):
        low = min(number for number in value.choices if isinstance(number, int | float))
    if isinstance(low, int | float) and low < 0:
        raise ValueError(f"a learning rate or its factor must be at least 0, got {low:g}")
    return value
