"""Differences between two plain configurations, and which of them keep runs apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from reality_check.utils.passwords import without_password

#: The key in ``code`` of the fingerprints of all pretrained weights, joined by ", ". The first is
#: that of the network that the methods share.
WEIGHTS = "pretrained weights"
#: The folders of an absolute path, maybe after the name of a library, as in hf:/a/folder.
_FOLDERS = re.compile(r"^(\w{2,}:)?(?!//)(?:[/~]|[A-Za-z]:[\\/])(?:.*[\\/])?(?=[^\\/])", re.DOTALL)


def differing_keys(first: Any, second: Any, path: str = "") -> Iterator[str]:
    """Yield the dotted names of all values in which two plain configurations differ."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for key in sorted({*first, *second}):
            name = f"{path}.{key}" if path else str(key)
            if key in first and key in second:
                yield from differing_keys(first[key], second[key], name)
            else:
                yield name
    elif _is_list_of_mappings(first) and _is_list_of_mappings(second) and len(first) == len(second):
        for index, (left, right) in enumerate(zip(first, second, strict=True)):
            yield from differing_keys(left, right, f"{path}.{left.get('name', index)}")
    elif first != second or isinstance(first, bool) != isinstance(second, bool):  # 1 == True
        yield path


def conflicting_keys(
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    may_differ: Callable[[str], bool],
    classes: Collection[str] = (),
) -> list[str]:
    """Return the dotted keys that keep the results of two experiments from being joined.

    Args:
        first: an experiment as plain data, with the fingerprints of its ``code``.
        second: the other experiment. A fingerprint that only one of the two has may differ, since
            it belongs to a class that only its methods use.
        may_differ: returns whether a key may differ.
        classes: classes whose fingerprints may differ too.
    """
    keys = []
    for key in differing_keys(without_folders(first), without_folders(second)):
        name = key.removeprefix("code.")
        if may_differ(key) or key == "code":  # only one of the two has any fingerprints
            continue
        if name != key:  # a key of ``code``, whose value is a fingerprint
            fingerprints = [(plain.get("code") or {}).get(name) for plain in (first, second)]
            if name == WEIGHTS:  # only those of the network that the methods share
                fingerprints = [value and value.split(", ")[0] for value in fingerprints]
            if None in fingerprints or fingerprints[0] == fingerprints[1] or name in classes:
                continue
        keys.append(key)
    return keys


def value_at(data: Any, dotted: str, absent: Any = None) -> Any:
    """Return the value at a key as named by :func:`differing_keys`, or ``absent``."""
    for part in dotted.split("."):
        if isinstance(data, list):  # its entries are addressed by their names, or else by index
            data = {
                str(entry.get("name", index) if isinstance(entry, Mapping) else index): entry
                for index, entry in enumerate(data)
            }
        if not isinstance(data, Mapping) or part not in data:
            return absent
        data = data[part]
    return data


def without_folders(value: Any) -> Any:
    """Return nested data with absolute paths reduced to their names, and URLs without passwords."""
    if isinstance(value, Mapping):
        return {key: without_folders(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(without_folders, value))
    return _FOLDERS.sub(r"\1", without_password(value)) if isinstance(value, str) else value


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text in nested data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts_in(item)


def _is_list_of_mappings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)
