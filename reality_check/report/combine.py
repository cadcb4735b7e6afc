"""Combine the results of several output folders, where they are comparable.

Comparable results were measured on the same images and classes, with the same network and protocol.
Methods, seeds, storages and machines may differ.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reality_check.config.differences import conflicting_keys, differing_keys, texts_in, value_at
from reality_check.config.neutral_keys import is_table_neutral
from reality_check.report.deviations import merge_methods
from reality_check.results import (
    Deviation,
    ExperimentResults,
    Folder,
    MethodResults,
    QueryScores,
    ResultRow,
    TrialRecord,
)
from reality_check.utils.errors import UsageError


@dataclass(frozen=True)
class Source:
    """An output folder, with its label in the report, its path and its results."""

    label: str
    path: Path
    results: ExperimentResults

    @property
    def seed(self) -> Any:
        """Seed of the experiment."""
        return self.results.config.get("seed")


def folder_labels(paths: Sequence[Path]) -> list[str]:
    """Return the shortest endings of paths that are distinct, e.g. ``["a/one", "b/one", "two"]``.

    Raises:
        UsageError: a folder is named twice.
    """
    parts = [path.resolve().parts for path in paths]
    for number, folder_parts in enumerate(parts):
        if folder_parts in parts[:number]:
            raise UsageError(f"{paths[number]} is named twice; name it once.")
    labels = []
    for folder_parts in parts:
        length = 1
        while sum(other[-length:] == folder_parts[-length:] for other in parts) > 1:
            length += 1
        labels.append("/".join(folder_parts[-length:]))
    return labels


def differences(first: ExperimentResults, second: ExperimentResults) -> list[str]:
    """Return the dotted keys of settings whose values make two experiments incomparable."""
    # Any text in the settings of a method may be the name of a class.
    classes = {*texts_in([results.config.get("methods") for results in (first, second)])}
    return conflicting_keys(first.config, second.config, is_table_neutral, classes)


def groups(sources: Sequence[Source]) -> list[list[Source]]:
    """Return the sources in groups that are comparable with each other, in the order given."""
    grouped: list[list[Source]] = []
    for source in sources:
        for group in grouped:
            if not differences(group[0].results, source.results):
                group.append(source)
                break
        else:
            grouped.append([source])
    return grouped


def combine(sources: Sequence[Source]) -> ExperimentResults:
    """Return the results of comparable folders as the results of one experiment.

    If several folders searched the same method with different seeds and all else equal, their
    searches are pooled. Any other method that several folders have gets the label of its folder
    appended to its name. Reproductions of the second and later seeds are renumbered, because
    reproductions with the same number count as trained with common seeds.

    Args:
        sources: sources of one group of :func:`groups`.
    """
    folders = tuple(_folder(source) for source in sources)
    if len(sources) == 1:
        return dataclasses.replace(sources[0].results, folders=folders)
    members = _members(sources)
    renamed = [_renamed(member) for member in members]
    first, name = renamed[0], " + ".join(dict.fromkeys(results.name for results in renamed))
    return dataclasses.replace(
        first,
        name=name,
        finished=all(results.finished for results in renamed),
        methods=_methods(renamed),
        rows=tuple(row for results in renamed for row in results.rows),
        baselines=_baselines(sources),
        deviations=_deviations(sources),
        facts=_facts(members),
        config=_config(renamed, name),
        queries=_queries(members),
        costs=tuple(cost for results in renamed for cost in results.costs),
        # Versions of the first folder, for packages of which every folder has a version.
        versions={k: v for k, v in first.versions.items() if all(k in p.versions for p in renamed)},
        folders=folders,
    )


# -- searches of one method in several folders ----------------------------------------------------


def pooled(sources: Sequence[Source]) -> set[str]:
    """Return the names of methods whose searches in several folders differ only in the seed."""
    folders: dict[str, list[ExperimentResults]] = {}
    for source in sources:
        for method in source.results.methods:
            folders.setdefault(method.name, []).append(source.results)
    return {name for name, results in folders.items() if _differs_in_seed(name, results)}


def _differs_in_seed(name: str, results: Sequence[ExperimentResults]) -> bool:
    """Whether a method's searches in several folders differ only in the seed."""
    seeds = {result.config.get("seed") for result in results}
    protocol = results[0].config.get("protocol") or {}
    if len(results) < 2 or len(seeds) < len(results) or "search" not in protocol:
        return False
    # Subsets are taken of one search, and scores on the test classes are not pooled.
    if protocol["search"].get("retrain_best") or protocol.get("selects_on") != "validation":
        return False
    return not any(_differing_settings(results[0], other, name) for other in results[1:])


def _differing_settings(
    first: ExperimentResults, second: ExperimentResults, method: str
) -> list[str]:
    """Return the dotted keys in which a method's settings or code differ between two folders."""
    settings = [results.settings_of(method) for results in (first, second)]
    codes = [results.config.get("code") or {} for results in (first, second)]
    # Any text in the settings may be the name of code, which has a fingerprint in ``codes``.
    names = sorted({*texts_in(settings)})
    changed = [f"code.{name}" for name in names if codes[0].get(name) != codes[1].get(name)]
    return [*differing_keys(settings[0], settings[1]), *changed]


# -- one folder's results under their names and numbers in the combined results -------------------


@dataclass(frozen=True)
class _Member:
    """One of the combined folders.

    Attributes:
        source: the folder.
        names: the name of each method in the combined results, by its name in the folder.
        first_run: the number that the folder's reproduction 0 has in the combined results.
        first_search: the same for search 0 of each method.
    """

    source: Source
    names: dict[str, str]
    first_run: int
    first_search: dict[str, int]


def _members(sources: Sequence[Source]) -> list[_Member]:
    """Return the folders with the names and numbers that they have in the combined results."""
    # ``num_searches`` counts the searches of pooled methods in the folders so far.
    pooled_names, num_searches = pooled(sources), Counter[str]()
    num_folders = Counter(method.name for source in sources for method in source.results.methods)
    seeds = list(dict.fromkeys(source.seed for source in sources))
    run_counts = [row.reproduction + 1 for source in sources for row in source.results.rows]
    run_counts += [len(m.reproductions) for source in sources for m in source.results.methods]
    members = []
    for source in sources:
        methods = source.results.methods
        names = {
            m.name: m.name
            if num_folders[m.name] == 1 or m.name in pooled_names
            else f"{m.name} ({source.label})"
            for m in methods
        }
        # Every seed has its own range of numbers, which is as long as the longest one needed.
        first_run = seeds.index(source.seed) * max(run_counts, default=0)
        first_search = {method.name: num_searches[method.name] for method in methods}
        members.append(_Member(source, names, first_run, first_search))
        for method in methods:
            if method.name in pooled_names:
                num_searches[method.name] += 1 + max((t.search for t in method.search), default=0)
    return members


def _renamed(member: _Member) -> ExperimentResults:
    """Return the results of a folder under its names and numbers in the combined results."""
    results, names = member.source.results, member.names
    settings = [
        entry | {"name": names[entry["name"]]} for entry in results.config.get("methods") or []
    ]
    return dataclasses.replace(
        results,
        methods=tuple(_renamed_method(member, method) for method in results.methods),
        rows=tuple(
            dataclasses.replace(
                row,
                method=names.get(row.method, row.method),
                reproduction=row.reproduction + member.first_run,
                search=None if row.search is None else row.search + member.first_search[row.method],
            )
            for row in results.rows
        ),
        costs=tuple(
            dataclasses.replace(cost, method=names.get(cost.method, cost.method))
            for cost in results.costs
        ),
        config=results.config | {"methods": settings},
    )


def _renamed_method(member: _Member, method: MethodResults) -> MethodResults:
    """Return a method of a folder under its name and numbers in the combined results."""
    name, first_search = member.names[method.name], member.first_search[method.name]

    def renumbered(trials: tuple[TrialRecord, ...], first: int) -> tuple[TrialRecord, ...]:
        """Return trials with ``first`` added to their numbers, and with combined search numbers."""
        return tuple(
            dataclasses.replace(
                trial,
                trial_index=(trial.trial_index or 0) + first,
                search=trial.search + first_search,
            )
            for trial in trials
        )

    return dataclasses.replace(
        method,
        name=name,
        origin=member.source.label,
        search=renumbered(method.search, 0),
        reproductions=renumbered(method.reproductions, member.first_run),
        final=renumbered(method.final, member.first_run),
        retrained=tuple((search + first_search, trial) for search, trial in method.retrained),
    )


# -- the combined results -------------------------------------------------------------------------


def _methods(all_results: Sequence[ExperimentResults]) -> tuple[MethodResults, ...]:
    """Return the methods of all folders; searches of pooled methods follow one another."""
    methods: dict[str, MethodResults] = {}
    for method in itertools.chain(*(results.methods for results in all_results)):
        if (first := methods.get(method.name)) is not None:
            method = dataclasses.replace(
                first,
                search=first.search + method.search,
                reproductions=first.reproductions + method.reproductions,
                final=first.final + method.final,
                retrained=first.retrained + method.retrained,
                origin=f"{first.origin}, {method.origin}",
                importance=None,
                columns=(),  # the columns of one folder do not describe all
            )
        methods[method.name] = method
    return tuple(methods.values())


def _baselines(sources: Sequence[Source]) -> tuple[ResultRow, ...]:
    """Return the distinct baselines of all folders.

    Folders with the same seed have the same networks and images, and so the same baselines.
    """
    # By baseline and category, the values of each run; a dict, whose keys stay in their order
    distinct_runs: dict[tuple[str, str], dict[tuple[tuple[str, float], ...], None]] = {}
    for source in sources:
        for (method, category, _), rows in itertools.groupby(
            source.results.baselines, lambda row: (row.method, row.category, row.reproduction)
        ):
            values = tuple((row.metric, row.value) for row in rows)
            distinct_runs.setdefault((method, category), {})[values] = None
    name = sources[0].results.name
    return tuple(
        ResultRow(name, method, category, number, metric, value)
        for (method, category), distinct in distinct_runs.items()
        for number, values in enumerate(distinct)
        for metric, value in values
    )


def _deviations(sources: Sequence[Source]) -> tuple[Deviation, ...]:
    """Return the deviations of all folders, labelled with their folders if not all have them."""
    several = Deviation(
        "several folders",
        f"The methods come from {len(sources)} output folders with the same data set, split, "
        "network and protocol. They were run separately: who chose what to run again, or to show, "
        "is not recorded.",
    )
    deviations = [several, *_not_pooled(sources)]
    if len({source.seed for source in sources}) > 1:
        deviations.append(
            Deviation(
                "seeds",
                "The folders have different seeds; methods that are otherwise the same are further "
                "searches of one method.",
            )
        )
    for fact in ("Versions", "Device", "GPU", "Machine"):
        if len({dict(source.results.facts).get(fact) for source in sources}) > 1:
            deviations.append(
                Deviation(fact.lower(), "Not the same in all folders (see “How it was run”).")
            )
    for deviation in merge_methods(d for source in sources for d in source.results.deviations):
        template = deviation.template
        labels = [
            s.label for s in sources if any(d.template == template for d in s.results.deviations)
        ]
        suffix = f" ({', '.join(labels)})" if len(labels) < len(sources) else ""
        deviations.append(dataclasses.replace(deviation, template=template + suffix))
    return tuple(deviations)


def _not_pooled(sources: Sequence[Source]) -> Iterator[Deviation]:
    """Yield the differences that keep methods of one name, with different seeds, from pooling."""
    pooled_names, firsts = pooled(sources), dict[str, Source]()
    for source in sources:
        for method in source.results.methods:
            first = firsts.setdefault(method.name, source)
            if method.name in pooled_names or first.seed == source.seed:
                continue
            if keys := _differing_settings(first.results, source.results, method.name):
                yield Deviation(
                    "searches not pooled",
                    f"{method.name} of {first.label} and of {source.label} are not searches of one "
                    f"method: they differ in {', '.join(keys[:5])}.",
                )


def _facts(members: Sequence[_Member]) -> tuple[tuple[str, str], ...]:
    """Return facts shared by all folders once, and other facts for each folder."""
    folders = [(m.source.label, dict(m.source.results.facts)) for m in members]
    lines = []
    for key in dict.fromkeys(key for _, facts in folders for key in facts):
        values = [(label, facts[key]) for label, facts in folders if key in facts]
        if len({facts.get(key) for _, facts in folders}) == 1:
            lines.append((key, values[0][1]))
        else:
            lines += [(f"{key} ({label})", value) for label, value in values]
    if len({m.source.seed for m in members}) > 1:
        spans = [f"{m.source.label} from {m.first_run}" for m in members]
        text = f"the seeds differ, so runs are numbered separately: {', '.join(spans)}"
        lines.append(("Numbers of runs", text))
    return tuple(lines)


def _config(all_results: Sequence[ExperimentResults], name: str) -> dict[str, Any]:
    """Return the settings of the first folder, with the methods and final metrics of all folders.

    ``protocol.described`` has the descriptions of the user's metrics. If folders describe a metric
    differently, the first description counts.
    """
    configs = [results.config for results in all_results]
    first = configs[0]
    metrics = [m for config in configs for m in value_at(config, "protocol.final_metrics") or []]
    protocol = {**(first.get("protocol") or {}), "final_metrics": list(dict.fromkeys(metrics))}
    descriptions: dict[str, Any] = {}
    for config in reversed(configs):
        descriptions |= value_at(config, "protocol.described") or {}
    protocol["described"] = descriptions
    methods = {method["name"]: method for config in configs for method in config["methods"]}
    return first | {"name": name, "protocol": protocol, "methods": list(methods.values())}


def _queries(members: Sequence[_Member]) -> QueryScores | None:
    """Return the scores of every query, from folders with the same queries as the first.

    The result is ``None`` if no folder has such scores.
    """
    scores = [(m, queries) for m in members if (queries := m.source.results.queries) is not None]
    if not scores:
        return None
    first = scores[0][1]
    loaders: dict[tuple[str, str, int], Callable[[], NDArray[np.float64] | None]] = {}
    for member, queries in scores:
        if queries.class_names == first.class_names and np.array_equal(
            queries.labels, first.labels
        ):
            for row in member.source.results.rows:
                key = member.names[row.method], row.category, row.reproduction + member.first_run
                loaders[key] = partial(queries.load, row.method, row.category, row.reproduction)
    # Runs without scores have a loader that returns None.
    return QueryScores(
        first.labels, first.class_names, lambda *run: loaders.get(run, lambda: None)()
    )


def _folder(source: Source) -> Folder:
    """Return the facts about an output folder that the report shows."""
    results = source.results
    return Folder(
        label=source.label,
        path=str(source.path),
        experiment=results.name,
        methods=tuple(method.name for method in results.methods),
        seed=source.seed,
        finished=results.finished,
    )
