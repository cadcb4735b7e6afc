"""Values of a YAML that are searched instead of fixed: ranges and choices.

A value anywhere under a method (or a learning rate of the protocol) may be written as::

    margin: {low: 0.0, high: 1.0}
    scale: {low: 1, high: 100, log: true}
    num_bins: {low: 2, high: 32, int: true}
    mode: {choices: [soft, hard]}
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import Self


class Strict(BaseModel):
    """A model that refuses unknown keys; the text below a key says in editors what it means."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Range(Strict):
    """A searched number between ``low`` and ``high`` (inclusive)."""

    low: float
    """Smallest value."""
    high: float
    """Largest value."""
    log: bool = False
    """Whether it is searched on a logarithmic scale."""
    integer: bool = Field(default=False, alias="int")
    """Whether only whole numbers are tried."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(
                f"a range needs finite low < high, got low={self.low:g} and high={self.high:g}"
            )
        if self.log and self.low <= 0:
            raise ValueError(f"a log range needs low > 0, got low={self.low:g}")
        if self.integer and not (self.low.is_integer() and self.high.is_integer()):
            raise ValueError(
                f"an int range needs whole numbers, got low={self.low:g} and high={self.high:g}"
            )
        return self

    def middle(self) -> float | int:
        """The middle of the range: geometric for ``log``, arithmetic else."""
        mid = math.sqrt(self.low * self.high) if self.log else (self.low + self.high) / 2
        return round(mid) if self.integer else mid


class Choices(Strict):
    """A searched choice between the listed plain values."""

    choices: list[str | bool | int | float | None] = Field(min_length=2)
    """The values that are tried."""

    def middle(self) -> Any:
        """The first choice."""
        return self.choices[0]


Searched = Range | Choices


def parse_value(value: Any) -> Any:
    """Turn mappings that describe a range or choices into such, at any depth.

    Raises:
        ValueError: a mapping mixes the keys of a range with others, or a range is empty.
    """
    if isinstance(value, Range | Choices):
        return value
    if isinstance(value, Mapping):
        keys = set(value)
        if "class" not in keys and keys & {"low", "high", "choices"}:
            return _parse_searched(dict(value))
        return {str(key): _parse_item(str(key), item) for key, item in value.items()}
    if isinstance(value, list):
        return [parse_value(item) for item in value]
    return value


def _parse_item(key: str, item: Any) -> Any:
    try:
        return parse_value(item)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def _parse_searched(value: dict[str, Any]) -> Searched:
    kind = Choices if "choices" in value else Range
    allowed = ["choices"] if kind is Choices else ["low", "high", "log", "int"]
    unknown = sorted(set(value) - set(allowed))
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r} in a search range; allowed: {allowed}")
    missing = [key for key in ("low", "high") if kind is Range and key not in value]
    if missing:
        raise ValueError(f"a range needs both low and high; {missing[0]!r} is missing")
    for key in ("low", "high"):
        if key in value and (isinstance(value[key], bool) or not is_number(value[key])):
            raise ValueError(f"{key} must be a number, got {value[key]!r}")
    for key in ("log", "int"):
        if not isinstance(value.get(key, False), bool):
            raise ValueError(f"{key} must be true or false, got {value[key]!r}")
    if kind is Choices:
        _check_choices(value["choices"])
    try:
        return kind(**value)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(str(first.get("ctx", {}).get("error", first["msg"]))) from None


def _check_choices(entries: Any) -> None:
    if not isinstance(entries, list) or len(entries) < 2:
        raise ValueError(f"choices must be a list of at least two values, got {entries!r}")
    for entry in entries:
        if not (entry is None or isinstance(entry, str | bool | int | float)):
            raise ValueError(f"choices must be plain values, got {entry!r}")
        if sum(repr(entry) == repr(other) for other in entries) > 1:
            raise ValueError(f"choices lists {entry!r} twice")


def is_number(value: Any) -> bool:
    """Whether the value is an int or a float (bool is not)."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def parse_tunable(value: Any) -> float | Searched | None:
    """A number, or a range or choices of numbers; numbers written as ``1e-4`` are accepted."""
    if value is None or isinstance(value, Range | Choices):
        return value
    if isinstance(value, Mapping):
        parsed = parse_value(value)
        wrong = parsed.choices if isinstance(parsed, Choices) else []
        wrong = [entry for entry in wrong if not is_number(entry)]
        if wrong:
            raise ValueError(f"the choices must be numbers, got {wrong[0]!r}")
        if isinstance(parsed, Range | Choices):
            return parsed
        raise ValueError("expected a number or a range such as {low: 0.1, high: 1}")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"expected a number or a range such as {{low: 0.1, high: 1}}: {value!r}")
    try:
        number = float(value)
    except ValueError as error:
        raise ValueError(
            f"expected a number or a range such as {{low: 0.1, high: 1}}, got {value!r}"
        ) from error
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, got {number}")
    return number


def dump_value(value: Any) -> Any:
    """The inverse of :func:`parse_value`: plain data that YAML can hold."""
    if isinstance(value, Range):
        plain = value.model_dump(by_alias=True, exclude_defaults=True)
        return plain | ({key: int(plain[key]) for key in ("low", "high")} if value.integer else {})
    if isinstance(value, Choices):
        return {"choices": list(value.choices)}
    if isinstance(value, Mapping):
        return {key: dump_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [dump_value(item) for item in value]
    return value


def find_searched(value: Any, path: str) -> Iterator[tuple[str, Searched]]:
    """Yield ``(dotted name, range or choices)`` for everything searched below ``value``."""
    if isinstance(value, Range | Choices):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from find_searched(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from find_searched(item, f"{path}.{index}")


def fill_in(value: Any, path: str, params: Mapping[str, Any]) -> Any:
    """Replace everything searched below ``value`` by its entry of ``params``."""
    if isinstance(value, Range | Choices):
        return params[path]
    if isinstance(value, Mapping):
        return {
            key: fill_in(item, f"{path}.{key}" if path else str(key), params)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [fill_in(item, f"{path}.{index}", params) for index, item in enumerate(value)]
    return value
