"""What differs from the named protocol, and between methods: computed from config and records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reality_check.config.compose import (
    differing_keys,
    named_method,
    named_protocol,
    shipped_files,
)
from reality_check.config.schema import Experiment, Protocol
from reality_check.results import Deviation, MethodResults

#: Keys of a protocol that say nothing about how it is run.
_NOT_RULES = {"name", "reference", "note", "published", "final_metrics", "gallery"}


def find_deviations(
    experiment: Experiment,
    methods: Sequence[MethodResults],
    finished: bool,
    parallel: Sequence[str] = (),
) -> list[Deviation]:
    """Everything a reviewer should know before reading the numbers; serious ones first.

    Args:
        experiment: as it was run.
        methods: what was recorded.
        finished: whether all stages are complete.
        parallel: methods whose search trials overlapped in time.
    """
    found = [
        *_unequal_treatment(experiment, methods),
        *_missing_work(experiment, methods, finished),
        *_diverged(methods),
        *_cut_short(experiment, methods),
        *_against_reference(experiment),
        *_own_ranges(experiment),
        *_restarts(methods),
        *_parallel_search(parallel),
    ]
    return sorted(found, key=lambda deviation: not deviation.serious)


def _against_reference(experiment: Experiment) -> Iterator[Deviation]:
    protocol = experiment.protocol
    reference = named_protocol(protocol.reference)
    if protocol.note:
        yield Deviation("protocol", protocol.note)
    published = reference.published
    if published.trunk is not None and experiment.model.trunk != published.trunk:
        yield Deviation(
            "trunk",
            f"The trunk is {experiment.model.trunk}; {reference.name} uses {published.trunk}.",
        )
    if published.dataset and experiment.dataset.name not in published.dataset:
        yield Deviation(
            "data set",
            f"The data set is {experiment.dataset.name}; {reference.name} was published for "
            f"{', '.join(published.dataset)}.",
        )
    yield from _rule_differences(protocol, reference)


def _rule_differences(protocol: Protocol, reference: Protocol) -> Iterator[Deviation]:
    """One sentence per part of the protocol that has other values."""
    ours, theirs = _rules(protocol), _rules(reference)
    parts: dict[str, list[str]] = {}
    for key in differing_keys(theirs, ours):
        part, name = _part_of(key)
        given, expected = _look_up(ours, key), _look_up(theirs, key)
        parts.setdefault(part, []).append(f"{name} {given} ({reference.name}: {expected})")
    for part, texts in parts.items():
        yield Deviation(part, f"{', '.join(texts)}.")


def _part_of(key: str) -> tuple[str, str]:
    """The part of a protocol that a key belongs to, and its name within it."""
    head, _, rest = key.partition(".")
    if head == "training" and "." in rest:
        part, _, name = rest.partition(".")
        return part, name
    return (head, rest) if rest else ("protocol", head)


def _rules(protocol: Protocol) -> dict[str, Any]:
    plain = protocol.model_dump(mode="json", by_alias=True)
    return {key: value for key, value in plain.items() if key not in _NOT_RULES}


def _look_up(data: Any, dotted: str) -> str:
    for part in dotted.split("."):
        if isinstance(data, Mapping):
            data = data.get(part)
        elif isinstance(data, list):
            data = data[int(part)]
    return "none" if data is None else _short(data)


def _short(value: Any) -> str:
    if isinstance(value, Mapping) and {"low", "high"} <= set(value):
        scale = ", log" if value.get("log") else ""
        return f"searched in [{value['low']:g}, {value['high']:g}{scale}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_short(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return " and ".join(map(_short, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _own_ranges(experiment: Experiment) -> Iterator[Deviation]:
    """Methods that carry the name of a shipped one, but not its values."""
    shipped = shipped_files("methods")
    for method in experiment.methods:
        if method.name not in shipped:
            continue
        published = named_method(method.name).model_dump(mode="json", by_alias=True)
        ours = method.model_dump(mode="json", by_alias=True)
        keys = sorted({_value_name(key) for key in differing_keys(published, ours)} - {"note"})
        if keys:
            yield Deviation(
                f"method {method.name}",
                f"{method.name} has its own values or search ranges for {', '.join(keys)}, not "
                f"those of configs/methods/{method.name}.yaml.",
            )


def _value_name(key: str) -> str:
    """``arguments.alpha`` for ``arguments.alpha.low``."""
    head, _, last = key.rpartition(".")
    return head if last in ("low", "high", "log", "int", "choices") else key


def _unequal_treatment(
    experiment: Experiment, methods: Sequence[MethodResults]
) -> Iterator[Deviation]:
    done = {m.name: sum(t.state == "complete" for t in m.search) for m in methods}
    if len(set(done.values())) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in done.items())
        yield Deviation(
            "unequal search", f"The methods have unequal numbers of trials: {counts}.", True
        )
    searched = {m.name: len(m.searched) for m in methods}
    if len(set(searched.values())) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in searched.items())
        yield Deviation(
            "searched parameters",
            "All methods get the same number of trials, but they search different numbers of "
            f"hyper-parameters: {counts}.",
        )
    two = [m.name for m in experiment.methods if m.phase2 is not None]
    one = [m.name for m in experiment.methods if m.phase2 is None]
    if experiment.protocol.training.phases == "method" and two and one:
        yield Deviation(
            "phases",
            f"Trained in two phases: {', '.join(two)}; in one: {', '.join(one)}. The limit of "
            "epochs is the same for all.",
        )
    raw = [m.name for m in experiment.methods if not m.normalize_embeddings]
    if raw and len(raw) < len(methods):
        yield Deviation(
            "geometry",
            f"Retrieval by raw Euclidean distance: {', '.join(raw)}; on unit vectors: the others. "
            "results.csv has both geometries for all.",
        )


def _missing_work(
    experiment: Experiment, methods: Sequence[MethodResults], finished: bool
) -> Iterator[Deviation]:
    if finished:
        return
    protocol = experiment.protocol
    wanted = {"search": protocol.search.trials, "reproductions": protocol.reproductions}
    if "complete" in protocol.categories:
        wanted["complete"] = protocol.reproductions
    for method in methods:
        missing = []
        for stage, count in wanted.items():
            done = sum(t.state == "complete" for t in getattr(method, stage))
            if done < count:
                missing.append(f"{stage} {done} of {count}")
        if missing:
            text = f"{method.name} is not finished: {', '.join(missing)}."
            yield Deviation("unfinished", text, True)


def _diverged(methods: Sequence[MethodResults]) -> Iterator[Deviation]:
    for method in methods:
        trials = [trial for trial in method.search if trial.diverged]
        runs = [t for t in (*method.reproductions, *method.complete) if t.diverged]
        if trials and len(trials) == len(method.search):
            yield Deviation(
                "diverged",
                f"Every search trial of {method.name} diverged ({trials[0].diverged}); it has no "
                "results.",
                True,
            )
        elif trials:
            yield Deviation(
                "diverged",
                f"{len(trials)} of {len(method.search)} search trials of {method.name} diverged; "
                "they count with value 0.",
            )
        if runs:
            yield Deviation(
                "diverged",
                f"{len(runs)} reproductions of {method.name} diverged and count as 0 in its means "
                "and intervals.",
                True,
            )


def _parallel_search(methods: Sequence[str]) -> Iterator[Deviation]:
    if methods:
        yield Deviation(
            "parallel search",
            f"Search trials of {', '.join(methods)} ran at the same time (several workers), so "
            "which parameters were tried depends on their timing; the published search tried one "
            "at a time.",
        )


def _cut_short(experiment: Experiment, methods: Sequence[MethodResults]) -> Iterator[Deviation]:
    """Trainings whose best epoch is the last one allowed: they might have gone on improving."""
    limit = experiment.protocol.training.max_epochs
    cut = {}
    for method in methods:
        epochs = [epoch for trial in method.reproductions for epoch in trial.fold_epochs]
        count = sum(epoch >= limit for epoch in epochs)
        if count:
            cut[method.name] = f"{method.name} {count} of {len(epochs)}"
    if cut:
        yield Deviation(
            "short training",
            f"Trainings of the reproductions whose best epoch was the last of the {limit} allowed, "
            f"so that longer ones might have been better: {', '.join(cut.values())}.",
        )


def _restarts(methods: Sequence[MethodResults]) -> Iterator[Deviation]:
    lost = {m.name: sum(t.attempts - 1 for t in m.search) for m in methods}
    if any(lost.values()):
        counts = ", ".join(f"{name} {count}" for name, count in lost.items() if count)
        yield Deviation(
            "restarts",
            f"Attempts repeated after a worker was lost, with the same parameters: {counts}.",
        )
