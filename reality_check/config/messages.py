"""Validation errors as sentences that name the key, the value and what is allowed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import ValidationError

from reality_check.config.datasets import Dataset
from reality_check.config.search import KINDS
from reality_check.config.types import is_model
from reality_check.config.values import kinds_of
from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest

#: From each value of ``reader`` to its model.
_READERS = {
    name: model
    for model in get_args(get_args(Dataset)[0])
    for name in get_args(model.model_fields["reader"].annotation)
}
#: From a key to the models of its value by tag. Pydantic puts tags into the locations of errors.
_TAGGED: dict[Any, Any] = {"dataset": _READERS, "search": KINDS}

#: How the tags end by which pydantic says that a value is no range and no choices.
_SEARCHED = ("Range]", "Choices")


def validate(model: type[Any], data: Any, where: str) -> Any:
    """Validate plain data and return the model.

    Raises:
        UsageError: with one sentence per mistake.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        items = _as_plain(error.errors(include_url=False))
        lines = [line for item in items for line in _sentence(item, data, model).splitlines()]
        raise UsageError("\n".join(f"{where}: {line}" for line in dict.fromkeys(lines))) from None


def _as_plain(mistakes: Sequence[Any]) -> list[Any]:
    """Return the mistakes in values that may be searched as those in plain values."""
    searchable = {mistake["loc"][:-1] for mistake in mistakes if _is_of_searched(mistake)}
    return [
        {**m, "loc": m["loc"][:-1]} if m["loc"][:-1] in searchable else m
        for m in mistakes
        if not _is_of_searched(m)
    ]


def _is_of_searched(mistake: Any) -> bool:
    """Return whether a mistake says that a value is no range, or no choices."""
    return bool(mistake["loc"]) and str(mistake["loc"][-1]).endswith(_SEARCHED)


def _sentence(mistake: Any, data: Any, root: type[Any]) -> str:
    """Return the message about a mistake, an entry of pydantic's ``ValidationError.errors()``.

    The message has several lines if one check found several mistakes.
    """
    location = _without_tags(mistake["loc"])
    name = _dotted(location, data)
    kind, value = mistake["type"], mistake.get("input")
    context = mistake.get("ctx", {})
    if kind in ("extra_forbidden", "invalid_key"):
        valid = _valid_keys(mistake["loc"][:-1], root)
        hint = nearest(str(location[-1]), valid)
        return f"unknown key {name!r}; valid keys here: {', '.join(valid)}.{hint}"
    if kind == "missing":
        return f"the key {name!r} is missing."
    if kind in ("literal_error", "union_tag_invalid"):
        expected = context.get("expected") or context.get("expected_tags")
        if kind == "union_tag_invalid":
            # Pydantic puts the discriminator between quotes, chr(39).
            name, value = f"{name}.{context['discriminator'].strip(chr(39))}", context["tag"]
        allowed = str(expected).replace("'", "").replace(" or ", ", ").split(", ")
        return f"{name} must be one of {expected}, got {value!r}.{nearest(str(value), allowed)}"
    if kind == "union_tag_not_found":
        readers = ", ".join(_READERS)
        return f"{name} needs the key 'reader' (or a name, or a base); readers: {readers}."
    if kind == "value_error":
        message = str(context.get("error", mistake["msg"]))
        # A check of several methods reports one mistake per line.
        lines = [line if line.endswith((".", "?")) else f"{line}." for line in message.split("\n")]
        return "\n".join(f"{name}: {line}" if name else line for line in lines)
    if kind == "string_pattern_mismatch":
        return (
            f"{name} may hold only letters, digits and the signs _ . + -, and must start with a "
            f"letter or digit, got {value!r}."
        )
    if kind.startswith("model_") and (valid := _valid_keys(mistake["loc"], root)):
        return f"{name} must be a mapping with keys of {', '.join(valid)}; got {value!r}."
    message = mistake["msg"].replace("Input should", "must")
    advice = (
        "; put it in quotes" if kind == "string_type" and isinstance(value, int | float) else ""
    )
    return f"{name} {message[0].lower()}{message[1:]}, got {value!r}{advice}."


def _without_tags(location: Sequence[Any]) -> list[Any]:
    """Return the location as in the YAML, without the tags that pydantic adds to it."""
    return [
        part
        for key, part in itertools.pairwise((None, *location))  # ``part`` follows ``key``
        if part not in _TAGGED.get(key, ())
    ]


def _dotted(location: Sequence[Any], data: Any) -> str:
    """Return the location as the user would write it, with list entries by name."""
    parts = []
    for part in location:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            data = None
        has_name = isinstance(part, int) and isinstance(data, Mapping) and "name" in data
        parts.append(str(data["name"] if has_name else part))
    return ".".join(parts)


def _valid_keys(location: Sequence[Any], model: Any) -> list[str]:
    """Return the valid keys of the model at a location as pydantic gives it, with tags."""
    for key, part in itertools.pairwise((None, *location)):
        if part in _TAGGED.get(key, ()):  # the tag that follows a key
            model = _TAGGED[key][part]
        elif is_model(model) and part in model.model_fields:
            model = next(filter(is_model, kinds_of(model.model_fields[part].annotation)), None)
    if not is_model(model):
        return []
    return [field.alias or name for name, field in model.model_fields.items()]
