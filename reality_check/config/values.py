"""Values of a YAML that are searched instead of fixed: ranges and choices.

A value anywhere under a method (or a learning rate of the protocol) may be written as::

    margin: {low: 0.0, high: 1.0}
    scale: {low: 1, high: 100, log: true}
    num_bins: {low: 2, high: 32, int: true}
    mode: {choices: [soft, hard]}
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from typing_extensions import Self

from reality_check.config.yaml_text import Unquoted

#: Keys of a range and of choices, and what users often write instead.
_KEYS = ("low", "high", "choices")
_MISTAKEN_KEYS = (
    "value values val vals choice choises choces chioces options option min max minimum maximum "
    "lo hi lower upper lwo hihg hgih hig"
)

#: Default of a removed key that affected no result: all its values are accepted.
ANY = object()

#: From a class to its removed keys, with their defaults; files of earlier versions have them.
GONE = {
    "GpuSettings": {
        "fold_batchnorm": False,
        "probe": ANY,
        "cudnn_benchmark": ANY,
        "fused_optimizers": ANY,
    },
}


class Strict(BaseModel):
    """A model that refuses unknown keys; editors show the docstring below a key."""

    model_config = ConfigDict(
        extra="forbid",
        populate_by_name=True,
        allow_inf_nan=False,
        ser_json_inf_nan="constants",
    )

    def plain(self, **options: Any) -> dict[str, Any]:
        """Return plain data that validates to an equal model.

        Args:
            options: options of :meth:`pydantic.BaseModel.model_dump`, such as ``exclude``.
        """
        return self.model_dump(mode="json", by_alias=True, **options)

    @model_validator(mode="before")
    @classmethod
    def as_meant(cls, values: Any) -> Any:
        """Interpret ambiguous words of YAML 1.1 by the types of their keys.

        Keys that are :data:`GONE` are left out if they have their default.
        """
        if not isinstance(values, Mapping):
            return values
        meant = {key: _as_meant(value, cls.model_fields.get(key)) for key, value in values.items()}
        for key, default in GONE.get(cls.__name__, {}).items():
            if default in (ANY, meant.get(key)):
                meant.pop(key, None)
        return meant


def _as_meant(value: Any, field: FieldInfo | None) -> Any:
    """Return a value, as text if it is an unquoted word, or a bool whose key takes a number."""
    if isinstance(value, list | tuple):
        return [_as_meant(entry, field) for entry in value]
    # The types that a key with a bool accepts; for other values, [bool] converts nothing.
    kinds = [*kinds_of(field.annotation)] if field and isinstance(value, bool) else [bool]
    # 1 stands for a Literal of numbers, such as Literal[1, 2].
    is_numeric = bool not in kinds and any(kind in kinds for kind in (int, float, 1))
    return str(value) if is_numeric or isinstance(value, Unquoted) else value


def kinds_of(annotation: Any) -> Iterator[Any]:
    """Yield a type and all types that it is composed of."""
    yield annotation
    for part in get_args(annotation):
        yield from kinds_of(part)


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
        if self.low >= self.high:
            raise ValueError(
                f"a range needs low < high, got low={self.low:g} and high={self.high:g}"
            )
        if self.log and self.low <= 0:
            raise ValueError(f"a log range needs low > 0, got low={self.low:g}")
        if self.integer and not (self.low.is_integer() and self.high.is_integer()):
            raise ValueError(
                f"an int range needs whole numbers, got low={self.low:g} and high={self.high:g}"
            )
        return self

    def middle(self) -> float | int:
        """Return the middle of the range: geometric for ``log``, else arithmetic."""
        mid = math.sqrt(self.low * self.high) if self.log else (self.low + self.high) / 2
        return round(mid) if self.integer else mid


class Choices(Strict):
    """A searched choice between the listed plain values."""

    model_config = ConfigDict(allow_inf_nan=True)

    choices: list[str | bool | int | float | None] = Field(min_length=2)
    """The values that are tried."""

    def middle(self) -> Any:
        """Return the first choice."""
        return self.choices[0]


Searched = Range | Choices
#: The end of messages about plain values.
_PLAIN = "a number such as 10 or .inf, or text in quotes"


def parse_value(value: Any, searched: bool = True) -> Any:
    """Return data that YAML and JSON preserve exactly, with ranges and choices at any depth.

    Args:
        searched: whether mappings may describe ranges and choices.

    Raises:
        ValueError: a value cannot be written in a YAML, a mapping mixes the keys of a range with
            others, or a range is empty.
    """
    if isinstance(value, Range | Choices):
        return value
    if isinstance(value, Mapping):
        if searched and "class" not in value and _resembles_range(value):
            return _parse_searched(dict(value))
        return parse_items(value, searched)
    if isinstance(value, list | tuple):
        return [parse_value(item, searched) for item in value]
    if isinstance(value, Unquoted):
        raise ValueError(f"{value} has several meanings; write true, false, {_PLAIN}")
    if isinstance(value, str):
        return str.__str__(value).encode().decode()  # a plain str; lone surrogates are an error
    if value is None or isinstance(value, bool):
        return value
    if is_number(value) and not math.isnan(value):
        return int(value) if isinstance(value, int) else float(value)  # plain, not of a subclass
    raise ValueError(f"{value!r} is not kept by a YAML; write null, {_PLAIN}")


def parse_items(values: Any, searched: bool = True) -> Any:
    """Apply :func:`parse_value` to each value of a mapping, whose keys must be text."""
    if not isinstance(values, Mapping):
        return values
    parsed = {}
    for key, item in values.items():
        if not isinstance(key, str):
            raise ValueError(f"the key {key!r} is no text; write it in quotes")
        try:
            parsed[str.__str__(key)] = parse_value(item, searched)  # a plain str, not a subclass
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    return parsed


def _resembles_range(value: Mapping[Any, Any]) -> bool:
    """Return whether a mapping is a range or choices, or was probably meant to be."""
    keys = {str(key).lower() for key in value} - {"log", "int"}
    return not keys.isdisjoint(_KEYS) or (bool(keys) and keys.issubset(_MISTAKEN_KEYS.split()))


def _parse_searched(value: dict[str, Any]) -> Searched:
    """Return the range or choices that a mapping describes, after checking it."""
    kind, allowed = (
        (Choices, ["choices"]) if "choices" in value else (Range, ["low", "high", "log", "int"])
    )
    for key in sorted(map(str, {*value} - {*allowed})):  # the first, if any
        raise ValueError(
            f"unknown key {key!r} in a search range; write {{low: 0, high: 1}}, also with "
            "log: true or int: true, or {choices: [a, b]}"
        )
    if kind is Choices:
        value["choices"] = parse_value(value["choices"], searched=False)
        _check_choices(value["choices"])
    else:
        _check_ends(value)
    try:
        return kind(**value)
    except ValidationError as error:
        first = error.errors()[0]
        # The message of a check below, or else that of pydantic.
        raise ValueError(str(first.get("ctx", {}).get("error", first["msg"]))) from None


def _check_ends(value: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless the values in the mapping of a range have the right types."""
    for key in ("low", "high"):
        if key not in value:
            raise ValueError(f"a range needs both low and high; {key!r} is missing")
        end = value[key]
        if not (is_number(end) and abs(end) <= sys.float_info.max and end == float(end)):
            raise ValueError(f"{key} must be a number that a float can hold, got {end!r}")
    for key in ("log", "int"):
        if not isinstance(value.get(key, False), bool):
            raise ValueError(f"{key} must be true or false, got {value[key]!r}")


def _check_choices(entries: Any) -> None:
    """Raise ``ValueError`` unless choices are a list of different plain values, at least two."""
    if not isinstance(entries, list) or len(entries) < 2:
        raise ValueError(f"choices must be a list of at least two values, got {entries!r}")
    seen: dict[Any, Any] = {}
    for entry in entries:
        if isinstance(entry, list | Mapping):
            raise ValueError(f"choices must be plain values, got {entry!r}")
        if entry in seen:  # 1, 1.0 and true are equal
            equal = f"{seen[entry]!r} and {entry!r}"
            raise ValueError(f"choices lists {equal}, which are equal; remove one")
        seen[entry] = entry


def is_number(value: Any) -> bool:
    """Return whether the value is an int or a float (bool is not)."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def parse_tunable(value: Any) -> float | Searched | None:
    """Parse a number, or a range or choices of numbers, also written as ``1e-4``."""
    parsed = parse_value(value) if isinstance(value, Mapping) else value
    if parsed is None or isinstance(parsed, Range):
        return parsed
    for entry in parsed.choices if isinstance(parsed, Choices) else [parsed]:
        try:  # NaN stands for what is not a number
            number = math.nan if isinstance(entry, bool) else float(entry)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(
                f"expected a finite number or a range such as {{low: 0.1, high: 1}}, got {entry!r}"
            )
    return parsed if isinstance(parsed, Choices) else number


def ends_of(value: Any) -> list[Any]:
    """Return all choices, both ends of a range, or the number itself; empty for other values."""
    if isinstance(value, Range):
        ends = [value.low, value.high]
        return list(map(int, ends)) if value.integer else ends
    if isinstance(value, Choices):
        return value.choices
    return [value] if is_number(value) else []


def choices_of(value: Any) -> list[Any]:
    """Return all choices, or the value itself as the only one."""
    return value.choices if isinstance(value, Choices) else [value]


def dump_value(value: Any) -> Any:
    """Return plain data for YAML; the inverse of :func:`parse_value`."""
    return _map_searched(value, "", lambda _, searched: _dumped(searched))


def _dumped(value: Searched) -> dict[str, Any]:
    """Return a range or choices as plain data; the ends of a range of integers as ints."""
    plain = value.model_dump(by_alias=True, exclude_defaults=True)
    if isinstance(value, Range):
        plain["low"], plain["high"] = ends_of(value)
    return plain


def find_searched(value: Any, path: str) -> list[tuple[str, Searched]]:
    """Return ``(dotted name, range or choices)`` of everything searched below ``value``."""
    searched: list[tuple[str, Searched]] = []
    _map_searched(value, path, lambda *found: searched.append(found))
    return searched


def fill_in(value: Any, path: str, params: Mapping[str, Any]) -> Any:
    """Replace everything searched below ``value`` by its entry of ``params``."""
    return _map_searched(value, path, lambda name, _: params[name])


def _map_searched(value: Any, path: str, function: Callable[[str, Searched], Any]) -> Any:
    """Replace everything searched below ``value`` by ``function`` of its path and itself."""
    if isinstance(value, Range | Choices):
        return function(path, value)
    if isinstance(value, Mapping):
        return {
            key: _map_searched(item, f"{path}.{key}" if path else str(key), function)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [
            _map_searched(item, f"{path}.{index}", function) for index, item in enumerate(value)
        ]
    return value
