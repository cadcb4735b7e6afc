"""Deviations from the published protocol, and differences in the treatment of methods."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from reality_check.config.compose import load_experiment
from reality_check.config.differences import differing_keys, value_at
from reality_check.config.metrics import Stage
from reality_check.config.named import named_method, named_model, named_protocol
from reality_check.config.neutral_keys import is_result_neutral, is_table_neutral
from reality_check.config.protocol import Protocol
from reality_check.config.schema import Experiment
from reality_check.config.search import ALL_KEYS, INDEPENDENT
from reality_check.report.treatment import AS_PUBLISHED, grown, unequal_treatment
from reality_check.report.wording import counts_text
from reality_check.results import Deviation, MethodResults
from reality_check.studies.plan import Step, make_plan
from reality_check.utils.config_files import configs_root, shipped_files

#: Parts of the protocol ``as_published`` that each paper decides for itself.
_PAPER_KEYS = {"training", "reproductions"}
#: Keys of a protocol that say what it is compared with, not how it is run.
_COMPARISON_KEYS = ("reference", "published")

#: A method's score is in doubt if more than this share of its trainings was cut short.
MOST_CUT_SHORT = 0.25

#: Lists of more entries than the first number are abbreviated to the first few.
_MAX_NAMED, _NUM_NAMED = 8, 3

#: Keys without effect if another key has one of some values: that other key, and these values.
_WITHOUT_EFFECT = {
    "training.augmentation.resized_crop_ratio": (
        "training.augmentation.resized_crop_scale",
        (None,),
    ),
    "search.startup_trials": ("search.sampler", INDEPENDENT),
}


def find_deviations(
    experiment: Experiment,
    methods: Sequence[MethodResults],
    finished: bool,
    parallel: Sequence[str] = (),
    steps: Sequence[Step] = (),
    copies: str = "",
) -> list[Deviation]:
    """Return everything a reviewer should know before reading the numbers, serious ones first.

    Args:
        experiment: the experiment as it was run.
        methods: the recorded results of its methods.
        finished: whether all stages are complete.
        parallel: methods whose search trials overlapped in time.
        steps: steps in which the experiment was extended.
        copies: a sentence on samples that have several classes; may be empty.
    """
    deviations = [
        *unequal_treatment(experiment, methods),
        *grown(steps),
        *([Deviation("copies", copies, True)] if copies else ()),
        *_missing_work(experiment, methods, finished),
        *_diverged(methods, finished),
        *_cut_short(methods),
        *against_reference(experiment),
        *own_ranges(experiment),
        *_searches(experiment, methods),
        *_restarts(methods),
        *_parallel_search(parallel),
        *_columns(methods),
    ]
    return sorted(merge_methods(deviations), key=lambda deviation: not deviation.serious)


def merge_methods(deviations: Iterable[Deviation]) -> list[Deviation]:
    """Merge deviations that differ only in their methods."""
    methods: dict[Deviation, dict[str, None]] = {}
    for deviation in deviations:
        names = methods.setdefault(dataclasses.replace(deviation, methods=()), {})
        names.update(dict.fromkeys(deviation.methods))
    return [dataclasses.replace(d, methods=tuple(names)) for d, names in methods.items()]


# -- between the methods, and during the run ------------------------------------------------------


def _missing_work(
    experiment: Experiment, methods: Sequence[MethodResults], finished: bool
) -> Iterator[Deviation]:
    """Yield a deviation for each method of which trials or runs are missing."""
    if finished:
        return
    planned: dict[str, Counter[Stage]] = defaultdict(Counter)
    for study in make_plan(experiment):
        if study.key.stage is not Stage.RACE:  # whose trials are those of the search
            planned[study.key.method][study.key.stage] += study.num_trials
    for method in methods:
        missing = []
        for stage, count in planned[method.name].items():
            # The attributes with the trials are named like the stages.
            done = sum(t.state == "complete" for t in getattr(method, stage))
            if done < count:
                missing.append(f"{stage} {done} of {count}")
            elif stage is Stage.SEARCH and all(trial.diverged for trial in method.search):
                break  # no winner to train again, so later stages are not missing
        if missing:
            yield Deviation(
                "unfinished",
                f"Not finished: {{methods}} ({', '.join(missing)}).",
                True,
                (method.name,),
            )


def _diverged(methods: Sequence[MethodResults], finished: bool) -> Iterator[Deviation]:
    """Yield deviations on trials and runs that diverged."""
    for method in methods:
        trials = [trial for trial in method.search if trial.diverged]
        runs = [t for t in (*method.reproductions, *method.final) if t.diverged]
        if finished and trials and len(trials) == len(method.search):
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
    """Yield a deviation on ``methods``, whose search trials overlapped in time."""
    if methods:
        yield Deviation(
            "parallel search",
            "Search trials of {methods} ran at the same time (several workers), so which "
            "parameters were tried depends on their timing; the published search tried one at a "
            "time.",
            methods=tuple(methods),
        )


def _columns(methods: Sequence[MethodResults]) -> Iterator[Deviation]:
    """Yield deviations on the user's columns: empty cells, and cells from different code."""
    codes: dict[str, set[str]] = {}
    for method in methods:
        for value in method.columns:
            codes.setdefault(value.name, set()).add(value.code)
            if value.problem:
                text = f"The column {value.name} of {{methods}} is empty: {value.problem}."
                yield Deviation(f"The column {value.name}", text, methods=(method.name,))
    for name, fingerprints in codes.items():
        if len(fingerprints) > 1:
            yield Deviation(
                f"The column {name}",
                f"The column {name} was computed by different code for some methods.",
            )


def cut_short(method: MethodResults) -> tuple[int, int]:
    """Return how many trainings of the reproductions were cut short, and how many there are.

    These trainings reached the limit on epochs at their best epoch, in one phase or both, so they
    might have improved further.
    """
    folds = [phases for trial in method.reproductions for phases in trial.cut_short]
    return sum(map(bool, folds)), len(folds)


def is_serious(count: int, trainings: int) -> bool:
    """Whether ``count`` trainings that were cut short put the method's score in doubt."""
    return count > MOST_CUT_SHORT * trainings


def _cut_short(methods: Sequence[MethodResults]) -> Iterator[Deviation]:
    """Yield a deviation on trainings that were cut short, see :func:`cut_short`."""
    texts, serious = [], False
    for method in methods:
        count, trainings = cut_short(method)
        if not count:
            continue
        serious |= is_serious(count, trainings)
        phases = Counter(p for t in method.reproductions for fold in t.cut_short for p in fold)
        by_phase = ", ".join(f"phase {phase}: {phases[phase]}" for phase in sorted(phases))
        suffix = f" ({by_phase})" if 2 in phases else ""
        texts.append(f"{method.name} {count} of {trainings}{suffix}")
    if texts:
        yield Deviation(
            "short training",
            "Trainings of the reproductions, or phases of them, that ended at their best epoch "
            "because no more epochs were allowed, so that longer ones might have been better: "
            f"{', '.join(texts)}.",
            serious,
        )


def _searches(experiment: Experiment, methods: Sequence[MethodResults]) -> Iterator[Deviation]:
    """Yield deviations on searches with a given first trial, or of which all trials diverged."""
    protocol = experiment.protocol
    if Stage.SEARCH not in protocol.stages:
        return
    for method in experiment.methods:
        training = experiment.training_of(method)
        if len(training.batch_sizes) > 1 and training.iterations_per_epoch != "pass":
            yield Deviation(
                "batch size",
                "The batch size of {methods} is searched and an epoch has as many batches for "
                "each, so trials with larger batches see more samples.",
                methods=(method.name,),
            )
        if method.starts_from is not None:
            yield Deviation(
                "starts from",
                "The first trial of each search of {methods} is the winner of the same search of "
                f"{method.starts_from.method}.",
                methods=(method.name,),
            )
        if method.warm_start is not None:
            folder = method.warm_start.folder
            source = f"the best of the folder {folder}" if folder else "those of the YAML"
            yield Deviation(
                "warm start",
                "The first trial of each search of {methods} has values that were known: "
                f"{source}.",
                serious=True,
                methods=(method.name,),
            )
    for results in methods:
        num_diverged = protocol.search.repeats - len({search for search, _ in results.retrained})
        if results.retrained and num_diverged:
            yield Deviation(
                "diverged",
                f"All trials of {num_diverged} of {protocol.search.repeats} searches of "
                f"{results.name} diverged; these searches count with 0.",
                True,
            )


def _restarts(methods: Sequence[MethodResults]) -> Iterator[Deviation]:
    """Yield a deviation on search trials that took several attempts."""
    restarts = {m.name: count for m in methods if (count := sum(t.attempts - 1 for t in m.search))}
    if restarts:
        yield Deviation(
            "restarts",
            "Attempts repeated with the same parameters after a stop, an error or a lost worker: "
            f"{counts_text(restarts)}.",
        )


# -- against the published protocol ---------------------------------------------------------------


def against_reference(experiment: Experiment) -> Iterator[Deviation]:
    """Yield the differences of an experiment from the protocol that it names as its reference."""
    protocol = experiment.protocol
    reference = named_protocol(protocol.reference)
    if protocol.note:
        yield Deviation("protocol", protocol.note)
    if reference.name == AS_PUBLISHED:
        yield from against_published(experiment, reference)
        return
    published = reference.published
    yield from _model_differences(experiment, reference)
    if published.dataset and experiment.dataset.name not in published.dataset:
        yield Deviation(
            "data set",
            f"The data set is {experiment.dataset.name}; {reference.name} was published for "
            f"{', '.join(published.dataset)}.",
        )
    yield from _differences(_rules(protocol), _rules(reference), reference.name)


def against_published(experiment: Experiment, reference: Protocol) -> Iterator[Deviation]:
    """Yield the differences from the paper's table.

    An experiment that comes from a shipped file is compared with that file, including its known
    gaps to the paper. Otherwise only the rules that all published experiments share are compared.
    """
    protocol, published = experiment.protocol, experiment.published_results
    if protocol.selects_on == "test":
        yield Deviation(
            "selection on the test classes",
            "The epoch of every network is the one with the best P@1 on the test classes, as "
            "many papers did. These numbers are too high by an unknown amount and estimate "
            "nothing.",
            True,
        )
    for gap in published.gaps if published else ():
        yield Deviation("not as in the paper", gap)
    if published is None or published.config is None:
        ours, theirs = (
            {k: v for k, v in _rules(p).items() if k not in _PAPER_KEYS}
            for p in (protocol, reference)
        )
        yield from _differences(ours, theirs, reference.name)
        return
    variant = [f"variant={experiment.variant}"] if experiment.variant else []
    shipped = load_experiment(configs_root() / f"{published.config}.yaml", variant)
    ours, theirs = (_relevant_settings(source) for source in (experiment, shipped))
    if experiment.dataset.name != shipped.dataset.name:
        yield Deviation(
            "data set",
            f"The data set is {experiment.dataset.name}; the published figures are of "
            f"{shipped.dataset.name} and cannot be compared with these.",
            True,
        )
        del ours["dataset"], theirs["dataset"]
    yield from _differences(ours, theirs, "as shipped")


def _relevant_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that affect the results of a paper's experiment, as plain data."""
    plain = experiment.plain()
    dataset = {
        key: value
        for key, value in plain["dataset"].items()
        if key != "name" and not is_result_neutral(f"dataset.{key}")
    }
    settings = {"dataset": dataset, "model": plain["model"], "methods": plain["methods"]}
    return settings | _rules(experiment.protocol)


def _model_differences(experiment: Experiment, reference: Protocol) -> Iterator[Deviation]:
    """Yield differences in trunk, weights and head, and in how image files are decoded."""
    published = reference.published
    pairs = []  # topic, published settings, and ours
    if published.model is not None:
        models = [named_model(published.model), experiment.model]
        theirs, ours = (model.plain(exclude={"name"}) for model in models)
        pairs.append(("model", theirs, ours))
    images = experiment.dataset.plain(include=set(published.images))
    if "resize" in images:  # else the data set has no image files
        pairs.append(("images", published.images, images))
    for topic, expected, actual in pairs:
        texts = [
            f"{key} {_text_at(actual, key)} ({reference.name}: {_text_at(expected, key)})"
            for key in differing_keys(expected, actual)
        ]
        if texts:
            yield Deviation(topic, f"{', '.join(texts)}.")


def _differences(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], reference: str
) -> Iterator[Deviation]:
    """Yield a deviation for each part of the protocol in which two plain protocols differ."""
    parts: dict[str, list[str]] = {}
    for key in differing_keys(theirs, ours):
        # A key without effect here is skipped; the key that switches it off is listed itself.
        other, values = _WITHOUT_EFFECT.get(key, ("", ()))
        if value_at(ours, other) in values or is_result_neutral(f"protocol.{key}"):
            continue
        part, name = _part_of(key)
        actual, expected = _text_at(ours, key), _text_at(theirs, key)
        parts.setdefault(part, []).append(f"{name} {actual} ({reference}: {expected})")
    for part, texts in parts.items():
        yield Deviation(part, f"{', '.join(texts)}.")


def _part_of(key: str) -> tuple[str, str]:
    """Return the part of a protocol that a key belongs to, and the key's name within that part.

    For ``training.augmentation.crop_size`` they are ``augmentation`` and ``crop_size``.
    """
    if key.count(".") > 1:
        key = key.removeprefix("training.")
    head, _, rest = key.partition(".")
    return (head, rest) if rest else ("protocol", head)


def _rules(protocol: Protocol) -> dict[str, Any]:
    """Return the settings by which protocols are compared, as plain data."""
    # Searches of different kinds have different keys in plain data, so all keys are compared.
    plain = protocol.plain() | {"search": {key: getattr(protocol.search, key) for key in ALL_KEYS}}
    return {
        key: value
        for key, value in plain.items()
        if key not in _COMPARISON_KEYS and not is_table_neutral(f"protocol.{key}")
    }


def _text_at(data: Any, dotted: str) -> str:
    """Return the value of a dotted key in words."""
    value = value_at(data, dotted)
    return "none" if value is None else _value_text(value)


def _value_text(value: Any) -> str:
    """Return a setting in words; long lists are abbreviated, lists of lists given by lengths."""
    if isinstance(value, Mapping):
        if {"low", "high"} <= value.keys():
            scale = ", log" if value.get("log") else ""
            return f"searched in [{value['low']:g}, {value['high']:g}{scale}]"
        return "{" + ", ".join(f"{key}: {_value_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        if value and all(isinstance(item, list) for item in value):
            return f"{len(value)} lists of " + _value_text([len(item) for item in value])
        names = [
            v["name"] if isinstance(v, Mapping) and "name" in v else _value_text(v) for v in value
        ]
        if len(names) > _MAX_NAMED:
            return f"{', '.join(names[:_NUM_NAMED])} and {len(names) - _NUM_NAMED} more"
        return " and ".join(names) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def own_ranges(experiment: Experiment) -> Iterator[Deviation]:
    """Yield deviations on methods named like a shipped one, but with other values or ranges."""
    if experiment.protocol.reference == AS_PUBLISHED:
        return  # each paper's table uses its own values
    folders = named_protocol(experiment.protocol.reference).published.methods
    shipped = shipped_files("methods")
    for method in experiment.methods:
        candidates = [*(f"{folder}/{method.name}" for folder in folders), method.name]
        file = next((file for file in candidates if file in shipped), None)
        if file is None:
            continue
        keys = map(_value_name, differing_keys(named_method(file).plain(), method.plain()))
        if changed := sorted({*keys} - {"note", "packed", "trials"}):
            yield Deviation(
                f"method {method.name}",
                f"{method.name} has its own values or search ranges for {', '.join(changed)}, not "
                f"those of configs/methods/{file}.yaml.",
            )


def _value_name(key: str) -> str:
    """Return ``arguments.alpha`` for ``arguments.alpha.low``."""
    head, _, last = key.rpartition(".")
    return head if last in ("low", "high", "log", "int", "choices") else key
