"""In which values two plain configurations differ, and in which of them two runs may not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

#: The fingerprint of the weights of all pretrained networks, the common one first.
WEIGHTS = "pretrained weights"


def differing_keys(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Yield the dotted names of all values in which two plain configurations differ."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted({*one, *other}):
            name = f"{path}.{key}" if path else str(key)
            if key in one and key in other:
                yield from differing_keys(one[key], other[key], name)
            else:
                yield name
    elif _are_mappings(one) and _are_mappings(other) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            label = left.get("name", index) if isinstance(left, Mapping) else index
            yield from differing_keys(left, right, f"{path}.{label}")
    elif one != other or isinstance(one, bool) != isinstance(other, bool):
        yield path


def conflicting_keys(
    one: Mapping[str, Any],
    other: Mapping[str, Any],
    may_differ: Callable[[str], bool],
    classes: Collection[str] = (),
) -> list[str]:
    """Return the dotted keys that keep the results of two experiments from being joined.

    Args:
        one: an experiment as plain data, with the fingerprints of its ``code``.
        other: likewise. A fingerprint that only one of them has is that of a class of its methods.
        may_differ: whether a key may differ.
        classes: whose fingerprints may differ too.
    """
    keys = []
    for key in differing_keys(one, other):
        name = key.removeprefix("code.")
        if may_differ(key) or key == "code":
            continue
        if name != key:
            found = [(plain.get("code") or {}).get(name) for plain in (one, other)]
            if name == WEIGHTS:
                found = [value and value.split(", ")[0] for value in found]
            if None in found or found[0] == found[1] or name in classes:
                continue
        keys.append(key)
    return keys


def value_at(data: Any, dotted: str, absent: Any = None) -> Any:
    """The value that :func:`differing_keys` names so, or ``absent``."""
    for part in dotted.split("."):
        if isinstance(data, list):
            data = {
                str(entry.get("name", index) if isinstance(entry, Mapping) else index): entry
                for index, entry in enumerate(data)
            }
        if not isinstance(data, Mapping) or part not in data:
            return absent
        data = data[part]
    return data


def _are_mappings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)
