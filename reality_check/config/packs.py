"""``methods: [{from: PACK}]``: methods whose results come from a pack instead of trainings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reality_check.utils.archive import unseal
from reality_check.utils.errors import UsageError
from reality_check.utils.paths import find_path
from reality_check.utils.text import nearest

#: Name of the format; its version is that of all files.
SCHEMA = "reality-check-pack"
_KEYS = {"from", "methods"}


def packed_methods(entry: Mapping[str, Any], beside: Path | None) -> list[dict[str, Any]]:
    """Return the methods of a pack as plain data, each with a reference to the pack.

    Args:
        entry: ``{from: PACK}``, or ``{from: PACK, methods: [NAME, ...]}`` for some of them.
        beside: the folder of the YAML, to which the path may be relative.

    Raises:
        UsageError: the file is not a pack, or has no such method.
    """
    if odd_keys := sorted({*map(str, entry)} - _KEYS):
        raise UsageError(
            f"methods: unknown key {odd_keys[0]!r} beside from; methods of a pack are as they were "
            "run, so only their names can be chosen: {from: PACK, methods: [NAME, ...]}."
        )
    file = find_path(str(entry["from"]), beside)
    archive = unseal(file, SCHEMA)
    # "given" lacks the keys that have their default, because another version may not know them.
    experiment = archive.about["given"]
    methods = {method["name"]: method for method in experiment["methods"]}
    chosen = entry.get("methods", list(methods))
    if not isinstance(chosen, list) or not chosen:
        raise UsageError(f"{file}: methods must be a list of names, such as {list(methods)[:2]}.")
    unknown = next((name for name in chosen if name not in methods), None)
    if unknown is not None:
        raise UsageError(
            f"{file} has no method {unknown!r}; it has {', '.join(methods)}."
            f"{nearest(str(unknown), methods)}"
        )
    packed = {
        "file": str(file.resolve()),
        "checksum": archive.checksum,
        "experiment": experiment["name"],
    }
    return [{**methods[name], "packed": packed} for name in chosen]
