"""What the settings alone do not say of a run: the data as it was found, and the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reality_check.config.metrics import Stage
from reality_check.config.protocol import Protocol
from reality_check.config.schema import Experiment
from reality_check.report.wording import counted

_CHOSEN = {"official": "the data set's own test classes", "half": "the second half"}


def run_facts(
    experiment: Experiment,
    data: Mapping[str, Any],
    environment: Mapping[str, Any],
    gpus: Mapping[str, int],
    gpu_settings: Mapping[str, Mapping[str, int]] | None = None,
) -> list[tuple[str, str]]:
    """Return what stands beside the settings of an experiment, each with a title.

    Args:
        experiment: what was run.
        data: what :meth:`PreparedExperiment.describe_data` kept; may be empty.
        environment: of the worker that opened the first search.
        gpus: on how many attempts each kind of GPU has worked.
        gpu_settings: by method, on how many attempts what made steps on a GPU faster.
    """
    protocol = experiment.protocol
    searched = Stage.SEARCH in protocol.stages
    return [
        *_data_facts(data, protocol),
        ("Search", _search_fact(protocol) if searched else "none: all values are fixed"),
        ("Device", data.get("device", "not recorded")),
        *([("GPU", _gpu_fact(gpus, protocol.training.tf32))] if gpus else []),
        *([("GPU settings", _settings_fact(gpu_settings))] if gpu_settings else []),
        ("Versions", environment.get("versions", "not recorded")),
        ("Machine", environment.get("machine", "not recorded")),
    ]


def _gpu_fact(gpus: Mapping[str, int], tf32: bool) -> str:
    ending = f"TF32 {'on' if tf32 else 'off'}"
    if len(gpus) == 1:
        return f"{next(iter(gpus))}, {ending}"
    return "; ".join(
        f"{gpu}, {ending} ({counted(count, 'trial')})" for gpu, count in sorted(gpus.items())
    )


def _settings_fact(by_method: Mapping[str, Mapping[str, int]]) -> str:
    """Methods with one word for all their trials share it."""
    methods: dict[str, list[str]] = {}
    for method, counts in by_method.items():
        words = [
            words if len(counts) == 1 else f"{words} ({counted(count, 'trial')})"
            for words, count in sorted(counts.items())
        ]
        methods.setdefault("; ".join(words), []).append(method)
    return ". ".join(f"{', '.join(names)}: {words}" for words, names in methods.items())


def _search_fact(protocol: Protocol) -> str:
    search = protocol.search
    text = f"{search.trials_text} of {protocol.split.folds} folds, sampler {search.sampler}"
    if search.repeats > 1:
        return f"{search.repeats} independent searches per method, each of {text}"
    if search.retrain_best is not None:
        return f"one per method of {text}; all its subsets of {search.budget} trials are searches"
    return f"one per method of {text}"


def _data_facts(data: Mapping[str, Any], protocol: Protocol) -> list[tuple[str, str]]:
    """The data set and how it was divided."""
    if not data:
        return [("Data set", "not recorded")]
    folds = ", ".join(f"{train} + {validation}" for train, validation in data["folds"])
    queries = data.get("queries")
    noun = data["noun"]
    test = f"{data['test_images']} test {noun}s"
    if queries is not None:
        test += f", {queries} queries and {data['test_images'] - queries} in the gallery"
    tested = protocol.split.test_classes
    chosen = _CHOSEN[tested] if isinstance(tested, str) else "named in the protocol"
    facts = [
        (
            "Data set",
            f"{data['name']}: {data['classes']} classes, {data['images']} {noun}s of "
            f"{_size(data['image_shape'])}",
        ),
        (
            "Classes",
            f"{data['trainval_classes']} trainval, {data['test_classes']} test: {chosen} ({test})",
        ),
    ]
    if data.get("origin"):
        facts.insert(1, ("Samples", data["origin"]))
    if protocol.selects_on == "validation":
        split = f"rule {protocol.split.rule}; training + validation classes: {folds}"
        facts.append(("Folds", split))
    if data.get("input_shape") and data["input_shape"] != data["image_shape"]:
        facts.append(("Network input", _size(data["input_shape"])))
    if data.get("lone_images"):
        facts.append(
            (f"Classes of one {noun}", f"{data['lone_images']}; their {noun}s are no queries")
        )
    if data.get("skipped"):
        files = data["skipped"]
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        text = f"{len(files)} that could not be decoded: {'; '.join(files[:3])}{more}"
        facts.append(("Images left out", text))
    return facts


def _size(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) if shape else "different sizes"
