"""Searches of one method in several output folders: the same in everything but the seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reality_check.config.differences import differing_keys
from reality_check.results import ExperimentResults, MethodResults


@dataclass(frozen=True)
class Source:
    """One output folder: what the report calls it, where it is, and its results."""

    label: str
    path: Path
    results: ExperimentResults


def texts(value: Any) -> Iterator[str]:
    """Every text in nested data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts(item)


def unlike(one: ExperimentResults, other: ExperimentResults, method: str) -> list[str]:
    """The dotted keys in which a method of two folders differs, its own code among them."""
    settings = [results.settings_of(method) for results in (one, other)]
    codes = [results.config.get("code") or {} for results in (one, other)]
    used = set(texts(settings[0])) | set(texts(settings[1]))
    changed = [f"code.{name}" for name in sorted(used) if codes[0].get(name) != codes[1].get(name)]
    return [*differing_keys(settings[0], settings[1]), *changed]


def pooled(sources: Sequence[Source]) -> set[str]:
    """Names of methods whose folders hold further searches of them: other seeds, else the same."""
    places: dict[str, list[ExperimentResults]] = {}
    for source in sources:
        for method in source.results.methods:
            places.setdefault(method.name, []).append(source.results)
    return {name for name, results in places.items() if _are_searches(name, results)}


def _are_searches(name: str, results: Sequence[ExperimentResults]) -> bool:
    seeds = {one.config.get("seed") for one in results}
    protocol = results[0].config.get("protocol") or {}
    if len(results) < 2 or len(seeds) < len(results) or "search" not in protocol:
        return False
    if protocol["search"].get("retrain_best") or protocol.get("selects_on") != "validation":
        return False
    return not any(unlike(results[0], other, name) for other in results[1:])


def searches_before(source: Source, sources: Sequence[Source], method: str) -> int:
    """What is added to the numbers of a folder's searches of a method."""
    if method not in pooled(sources):
        return 0
    before = sources[: sources.index(source)]
    own = [m for other in before for m in other.results.methods if m.name == method]
    return sum(1 + max((trial.search for trial in m.search), default=0) for m in own)


def joined(parts: Sequence[ExperimentResults]) -> tuple[MethodResults, ...]:
    """The methods of all folders; further searches of one are put behind its own."""
    methods: dict[str, MethodResults] = {}
    for method in (method for part in parts for method in part.methods):
        if (first := methods.get(method.name)) is not None:
            method = dataclasses.replace(
                first,
                search=first.search + method.search,
                reproductions=first.reproductions + method.reproductions,
                final=first.final + method.final,
                retrained=first.retrained + method.retrained,
                origin=f"{first.origin}, {method.origin}",
                importance=None,
                columns=(),
            )
        methods[method.name] = method
    return tuple(methods.values())
