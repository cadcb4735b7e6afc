"""Results of several output folders as one: which may stand in one table, and putting them there.

What may stand in one table was measured on the same images and classes, with the same network, by
the same protocol. Methods may differ in anything; so may the seed, the storage and the machine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reality_check.config.differences import differing_keys, value_at
from reality_check.config.neutral_keys import is_table_neutral
from reality_check.report.deviations import together
from reality_check.report.pooling import Source, joined, pooled, searches_before, texts, unlike
from reality_check.results import (
    Cost,
    Deviation,
    ExperimentResults,
    Folder,
    MethodResults,
    QueryScores,
    ResultRow,
    TrialRecord,
)
from reality_check.utils.errors import UsageError

_WHERE = "“How it was run”"


def folder_labels(paths: Sequence[Path]) -> list[str]:
    """The shortest endings of paths that tell them apart, e.g. ``["a/one", "b/one", "two"]``.

    Raises:
        UsageError: a folder is named twice.
    """
    parts = [path.resolve().parts for path in paths]
    for place, own in enumerate(parts):
        if own in parts[:place]:
            raise UsageError(f"{paths[place]} is named twice; name it once.")
    labels = []
    for own in parts:
        length = 1
        while sum(other[-length:] == own[-length:] for other in parts) > 1:
            length += 1
        labels.append("/".join(own[-length:]))
    return labels


def differences(one: ExperimentResults, other: ExperimentResults) -> list[str]:
    """The dotted keys of the settings that keep two experiments out of one table."""
    users = set(texts(one.config.get("methods"))) | set(texts(other.config.get("methods")))
    keys = []
    for key in differing_keys(one.config, other.config):
        if is_table_neutral(key):
            continue
        code = key.removeprefix("code.")
        both = all(code in (r.config.get("code") or {}) for r in (one, other))
        if key == "code" or (code != key and (code in users or not both)):
            continue  # a method's own class, or one that only one of them uses
        keys.append(key)
    return keys


def groups(sources: Sequence[Source]) -> list[list[Source]]:
    """Put together what may stand in one table, in the order given."""
    together: list[list[Source]] = []
    for source in sources:
        for group in together:
            if not differences(group[0].results, source.results):
                group.append(source)
                break
        else:
            together.append([source])
    return together


def combine(sources: Sequence[Source]) -> ExperimentResults:
    """Return the results of comparable folders as those of one experiment.

    A method that several folders searched with other seeds, all else being the same, is one method
    with the searches of all of them. Any other that several folders have carries its folder's label
    in its name. Where seeds differ, the reproductions of the later seeds get numbers of their own,
    because reproductions of the same number count as trained with common seeds.

    Args:
        sources: of one group of :func:`groups`.
    """
    if len(sources) == 1:
        return sources[0].results
    parts = [_part(source, sources) for source in sources]
    first, name = parts[0], " + ".join(dict.fromkeys(part.name for part in parts))
    return dataclasses.replace(
        first,
        name=name,
        finished=all(part.finished for part in parts),
        methods=joined(parts),
        rows=tuple(row for part in parts for row in part.rows),
        baselines=_baselines(sources),
        deviations=_deviations(sources),
        facts=_facts(sources),
        config=_config(parts, name),
        queries=_queries(sources),
        costs=tuple(cost for part in parts for cost in part.costs),
        versions={k: v for k, v in first.versions.items() if all(k in p.versions for p in parts)},
        folders=tuple(describe(source) for source in sources),
    )


# -- one folder's results under the names of the whole -------------------------------------------


def _names(source: Source, sources: Sequence[Source]) -> dict[str, str]:
    """From each method of a folder to its name among all."""
    taken = [m.name for other in sources for m in other.results.methods]
    together = pooled(sources)
    return {
        method.name: f"{method.name} ({source.label})"
        if taken.count(method.name) > 1 and method.name not in together
        else method.name
        for method in source.results.methods
    }


def _offset(source: Source, sources: Sequence[Source]) -> int:
    """What is added to the numbers of a folder's reproductions."""
    seeds = list(dict.fromkeys(_seed(other) for other in sources))
    if len(seeds) == 1:
        return 0
    numbers = [row.reproduction for other in sources for row in other.results.rows]
    planned = [len(m.reproductions) for other in sources for m in other.results.methods]
    return seeds.index(_seed(source)) * max([0, *(n + 1 for n in numbers), *planned])


def _seed(source: Source) -> Any:
    return source.results.config.get("seed")


def _part(source: Source, sources: Sequence[Source]) -> ExperimentResults:
    names, offset = _names(source, sources), _offset(source, sources)
    results = source.results
    settings = [
        entry | {"name": names.get(entry["name"], entry["name"])}
        for entry in results.config.get("methods") or []
    ]
    before = {m.name: searches_before(source, sources, m.name) for m in results.methods}

    def row(one: ResultRow) -> ResultRow:
        number = one.reproduction + offset
        name = names.get(one.method, one.method)
        search = None if one.search is None else one.search + before[one.method]
        return dataclasses.replace(one, method=name, reproduction=number, search=search)

    def cost(one: Cost) -> Cost:
        return dataclasses.replace(one, method=names.get(one.method, one.method))

    return dataclasses.replace(
        results,
        methods=tuple(
            _method(m, names[m.name], offset, before[m.name], source.label) for m in results.methods
        ),
        rows=tuple(map(row, results.rows)),
        costs=tuple(map(cost, results.costs)),
        config=results.config | {"methods": settings},
    )


def _method(
    method: MethodResults, name: str, offset: int, before: int, label: str
) -> MethodResults:
    def records(trials: tuple[TrialRecord, ...], added: int) -> tuple[TrialRecord, ...]:
        return tuple(
            dataclasses.replace(
                r, method=name, trial_index=r.trial_index + added, search=r.search + before
            )
            for r in trials
        )

    return dataclasses.replace(
        method,
        name=name,
        origin=label,
        search=records(method.search, 0),
        reproductions=records(method.reproductions, offset),
        final=records(method.final, offset),
        retrained=tuple((search + before, trial) for search, trial in method.retrained),
    )


# -- the whole ------------------------------------------------------------------------------------


def _baselines(sources: Sequence[Source]) -> tuple[ResultRow, ...]:
    """Those of all folders together: of other seeds they are further ones, else they are the same.

    All start from the same network and images.
    """
    runs: dict[tuple[str, str], dict[tuple[tuple[str, float], ...], None]] = {}
    for source in sources:
        own: dict[tuple[str, str, int], list[tuple[str, float]]] = {}
        for row in source.results.baselines:
            place = (row.method, row.category, row.reproduction)
            own.setdefault(place, []).append((row.metric, row.value))
        for (method, category, _), values in own.items():
            runs.setdefault((method, category), {})[tuple(values)] = None
    name = sources[0].results.name
    return tuple(
        ResultRow(name, method, category, number, metric, value)
        for (method, category), different in runs.items()
        for number, values in enumerate(different)
        for metric, value in values
    )


def _deviations(sources: Sequence[Source]) -> tuple[Deviation, ...]:
    """That the runs were apart, what holds for all folders, and what for some with their labels."""
    several = Deviation(
        "several folders",
        f"The methods come from {len(sources)} output folders with the same data set, split, "
        "network and protocol. They were run separately: who chose what to run again, or to show, "
        "is not recorded.",
    )
    deviations = [several, *_apart(sources)]
    if len({_seed(source) for source in sources}) > 1:
        text = (
            "The folders have different seeds, so methods are paired within a folder only; those "
            "that are otherwise the same are further searches of one method."
        )
        deviations.append(Deviation("seeds", text))
    for fact in ("Versions", "Device", "GPU", "Machine"):
        if len({dict(source.results.facts).get(fact) for source in sources}) > 1:
            text = f"Not the same in all folders (see {_WHERE})."
            deviations.append(Deviation(fact.lower(), text))
    for one in together(one for source in sources for one in source.results.deviations):
        labels = [
            s.label for s in sources if one.template in {d.template for d in s.results.deviations}
        ]
        some = f" ({', '.join(labels)})" if len(labels) < len(sources) else ""
        deviations.append(dataclasses.replace(one, template=one.template + some))
    return tuple(deviations)


def _apart(sources: Sequence[Source]) -> Iterator[Deviation]:
    """Methods of one name that are no searches of one method, and why."""
    together = pooled(sources)
    places: dict[str, Source] = {}
    for source in sources:
        for method in source.results.methods:
            first = places.setdefault(method.name, source)
            if first is source or method.name in together:
                continue
            keys = unlike(first.results, source.results, method.name)
            if keys and _seed(first) != _seed(source):
                yield Deviation(
                    "searches apart",
                    f"{method.name} of {first.label} and of {source.label} are not searches of one "
                    f"method: they differ in {', '.join(keys[:5])}.",
                )


def _facts(sources: Sequence[Source]) -> tuple[tuple[str, str], ...]:
    """What is the same in all folders once, anything else for each."""
    known = [(source.label, dict(source.results.facts)) for source in sources]
    lines = []
    for key in dict.fromkeys(key for _, facts in known for key in facts):
        values = [(label, facts[key]) for label, facts in known if key in facts]
        if len(values) == len(known) and len({value for _, value in values}) == 1:
            lines.append((key, values[0][1]))
        else:
            lines += [(f"{key} ({label})", value) for label, value in values]
    if len({_seed(source) for source in sources}) > 1:
        spans = [f"{s.label} from {_offset(s, sources)}" for s in sources]
        text = f"the seeds differ, so runs are numbered separately: {', '.join(spans)}"
        lines.append(("Numbers of runs", text))
    return tuple(lines)


def _config(parts: Sequence[ExperimentResults], name: str) -> dict[str, Any]:
    """The settings of the first folder, with the methods and further metrics of all."""
    first, every = parts[0].config, [part.config for part in parts]
    metrics = [m for one in every for m in value_at(one, "protocol.final_metrics") or []]
    protocol = {**(first.get("protocol") or {}), "final_metrics": list(dict.fromkeys(metrics))}
    methods = {method["name"]: method for one in every for method in one["methods"]}
    return first | {"name": name, "protocol": protocol, "methods": list(methods.values())}


def _queries(sources: Sequence[Source]) -> QueryScores | None:
    """The scores of every query; of folders whose queries are others there are none."""
    first = next((s.results.queries for s in sources if s.results.queries is not None), None)
    if first is None:
        return None
    origins: dict[tuple[str, int], tuple[QueryScores, str, int]] = {}
    for source in sources:
        queries = source.results.queries
        if queries is None or queries.class_names != first.class_names:
            continue
        if np.array_equal(queries.labels, first.labels):
            names, offset = _names(source, sources), _offset(source, sources)
            for row in source.results.rows:
                own = (names[row.method], row.reproduction + offset)
                origins[own] = (queries, row.method, offset)

    def load(method: str, category: str, reproduction: int) -> NDArray[np.float64] | None:
        if (method, reproduction) not in origins:
            return None
        queries, name, offset = origins[method, reproduction]
        return queries.load(name, category, reproduction - offset)

    return QueryScores(first.labels, first.class_names, load)


def describe(source: Source) -> Folder:
    """Return what a report says of an output folder."""
    results = source.results
    return Folder(
        label=source.label,
        path=str(source.path),
        experiment=results.name,
        methods=tuple(method.name for method in results.methods),
        seed=_seed(source),
        finished=results.finished,
    )
