"""Changes of single values of an experiment: ``key.path=value``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from reality_check.config.yaml_text import parse_yaml
from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest


def parse_override(text: str) -> tuple[list[str], Any]:
    """The keys and the value of ``key.path=value``.

    Raises:
        UsageError: the text is none, or its value no YAML.
    """
    path, equals, value = text.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise UsageError(
            f"{text!r} is not an override; write key.path=value, e.g. protocol.search.trials=8."
        )
    try:
        return keys, parse_yaml(value)
    except (yaml.YAMLError, RecursionError):
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        raise UsageError(f"the value of the override {shown!r} is not valid YAML.") from None


def set_value(data: dict[str, Any], keys: Sequence[str], value: Any) -> None:
    """Set one value of the expanded experiment. Whether the key is valid shows in validation."""
    target: Any = data
    dotted = ".".join(keys)
    for position, key in enumerate(keys[:-1]):
        if isinstance(target, list):
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
    for index, method in enumerate(methods):
        if name in (method.get("name"), str(index)):
            return method
    names = [str(method.get("name")) for method in methods]
    raise UsageError(
        f"override {dotted!r}: there is no method {name!r}; methods here: {', '.join(names)}."
        f"{nearest(name, names)}"
    )
