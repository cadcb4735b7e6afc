"""Facts of a run in addition to its settings: the data as read, and the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reality_check.config.metrics import Stage
from reality_check.config.protocol import Protocol
from reality_check.config.schema import Experiment
from reality_check.report.wording import counted

_TEST_CLASSES = {"official": "the data set's own test classes", "half": "the second half"}


def run_facts(
    experiment: Experiment,
    data: Mapping[str, Any],
    environment: Mapping[str, Any],
    gpus: Mapping[str, int],
    trained_with: Mapping[str, int],
) -> list[tuple[str, str]]:
    """Return the facts of a run as (title, text) pairs.

    Args:
        experiment: the experiment that was run.
        data: the result of :meth:`PreparedExperiment.describe_data`; may be empty.
        environment: environment of the worker that opened the first search.
        gpus: number of attempts on each kind of GPU.
        trained_with: number of attempts with each set of GPU options and remarks.
    """
    protocol = experiment.protocol
    search = _search_fact(protocol) if Stage.SEARCH in protocol.stages else None
    tf32 = f"TF32 {'on' if protocol.training.tf32 else 'off'}"
    return [
        *_data_facts(data, protocol),
        ("Search", search or "none: all values are fixed"),
        ("Device", data.get("device", "not recorded")),
        *([("GPU", f"{_with_counts(gpus)}, {tf32}")] if gpus else []),
        *([("Trained with", _with_counts(trained_with))] if trained_with else []),
        ("Versions", environment.get("versions", "not recorded")),
        ("Machine", environment.get("machine", "not recorded")),
    ]


def _with_counts(values: Mapping[str, int]) -> str:
    """Return the values in words, with the number of attempts if there are several values."""
    if len(values) == 1:
        return next(iter(values))
    return "; ".join(f"{value} ({counted(n, 'trial')})" for value, n in sorted(values.items()))


def _search_fact(protocol: Protocol) -> str:
    """Return the search of a protocol in words."""
    search = protocol.search
    text = f"{search.trials_text} of {protocol.split.folds} folds, sampler {search.sampler}"
    if search.repeats > 1:
        return f"{search.repeats} independent searches per method, each of {text}"
    if search.retrain_best is not None:
        return f"one per method of {text}; all its subsets of {search.budget} trials are searches"
    return f"one per method of {text}"


def _data_facts(data: Mapping[str, Any], protocol: Protocol) -> list[tuple[str, str]]:
    """Return the facts of the data set and its split."""
    if not data:
        return [("Data set", "not recorded")]
    folds = ", ".join(f"{train} + {validation}" for train, validation in data["folds"])
    noun = data["noun"]
    test = f"{data['test_images']} test {noun}s"
    if (queries := data.get("queries")) is not None:
        test += f", {queries} queries and {data['test_images'] - queries} in the gallery"
    tested = protocol.split.test_classes
    chosen = _TEST_CLASSES[tested] if isinstance(tested, str) else "named in the protocol"
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
    if data.get("origin"):  # listed after the data set
        facts.insert(1, ("Samples", data["origin"]))
    if protocol.selects_on == "validation":
        facts.append(
            ("Folds", f"rule {protocol.split.rule}; training + validation classes: {folds}")
        )
    if data.get("input_shape") and data["input_shape"] != data["image_shape"]:
        facts.append(("Network input", _size(data["input_shape"])))
    if data.get("lone_images"):
        facts.append(
            (f"Classes of one {noun}", f"{data['lone_images']}; their {noun}s are no queries")
        )
    if files := data.get("skipped"):
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        text = f"{len(files)} that could not be decoded: {'; '.join(files[:3])}{more}"
        facts.append(("Images left out", text))
    return facts


def _size(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) if shape else "different sizes"
