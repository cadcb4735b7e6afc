"""Changes of single values of an experiment: ``key.path=value``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, get_origin

import yaml

from reality_check.config.schema import Experiment
from reality_check.config.types import is_model
from reality_check.config.values import kinds_of
from reality_check.config.yaml_text import parse_word, parse_yaml
from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest

#: Types of keys that are not, or not only, text.
_NO_TEXT = (int, float, bool, Any, list, dict, tuple, Literal)
_QUOTED = re.compile(r"'([^']|'')*'|\"([^\"\\]|\\.)*\"")


def parse_override(text: str) -> tuple[list[str], Any]:
    """Parse ``key.path=value`` into its keys and its value.

    A value is parsed as YAML only if it begins with a bracket or is in quotes; other values are
    single words, in which signs such as # @ % have no meaning. If the key takes only text, so is
    the value.

    Raises:
        UsageError: the text is not an override, or its value is not YAML.
    """
    path, equals, value_text = text.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise UsageError(
            f"{text!r} is not an override; write key.path=value, e.g. protocol.search.trials=8."
        )
    try:
        return keys, _parse_value(value_text, _types_of(keys))
    except (yaml.YAMLError, RecursionError, ValueError):
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        raise UsageError(f"the value of the override {shown!r} is not valid YAML.") from None


def _parse_value(text: str, types: Sequence[Any]) -> Any:
    """Parse the value of a key of these types, see :func:`parse_override`."""
    word = text.strip()
    # Whether the key takes values other than text; without types, it takes anything.
    takes_more = any(kind in _NO_TEXT or get_origin(kind) in _NO_TEXT for kind in types or [Any])
    if _QUOTED.fullmatch(word) or (word[:1] in ("[", "{") and (takes_more or str not in types)):
        return parse_yaml(word)
    is_null = not word or (word == "null" and type(None) in types)
    return parse_word(word) if takes_more or is_null else word


def _types_of(keys: Sequence[str]) -> list[Any]:
    """Return the types that the schema has for a key; none below a key with free keys."""
    types: list[Any] = [Experiment]
    # The second key of ``methods`` is the name of a method.
    for key in [keys[0], *keys[2:]] if keys[0] == "methods" else keys:
        fields = [kind.model_fields.get(key) for kind in types if is_model(kind)]
        types = [kind for field in fields if field for kind in kinds_of(field.annotation)]
    return types


def set_value(data: dict[str, Any], keys: Sequence[str], value: Any) -> None:
    """Set one value of the expanded experiment; validation checks the key later."""
    target: Any = data
    dotted = ".".join(keys)
    for position, key in enumerate(keys[:-1]):
        if isinstance(target, list):  # of all lists, only ``methods`` has entries with names
            if position != 1 or keys[0] != "methods":
                raise _list_error(keys[:position], dotted)
            target = _find_method(target, key, dotted)
        else:
            if target.get(key) is None:
                target[key] = {}
            target = target[key]
        if not isinstance(target, dict | list):
            raise UsageError(
                f"override {dotted!r}: {'.'.join(keys[: position + 1])!r} is a single value "
                "and has no keys below it."
            )
    if isinstance(target, list):
        if keys[:-1] != ["methods"]:
            raise _list_error(keys[:-1], dotted)
        raise UsageError(f"override {dotted!r}: name a key of the method, not the method itself.")
    target[keys[-1]] = value


def _list_error(keys: Sequence[str], dotted: str) -> UsageError:
    name = ".".join(keys)
    return UsageError(f"override {dotted!r}: {name} is a list; give it whole, as {name}=[...].")


def _find_method(methods: Sequence[dict[str, Any]], name: str, dotted: str) -> dict[str, Any]:
    """Return the method of a name or an index."""
    for index, method in enumerate(methods):
        if name in (method.get("name"), str(index)):
            return method
    names = [str(method.get("name")) for method in methods]
    raise UsageError(
        f"override {dotted!r}: there is no method {name!r}; methods here: {', '.join(names)}."
        f"{nearest(name, names)}"
    )
