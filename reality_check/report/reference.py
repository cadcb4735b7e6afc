"""What differs between an experiment's configuration and the published protocol that it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reality_check.config.compose import load_experiment
from reality_check.config.differences import differing_keys, value_at
from reality_check.config.named import named_method, named_model, named_protocol
from reality_check.config.neutral_keys import is_result_neutral, is_table_neutral
from reality_check.config.protocol import Protocol
from reality_check.config.schema import Experiment
from reality_check.results import Deviation
from reality_check.utils.config_files import configs_root, shipped_files

#: The protocol of experiments that repeat a paper's table.
AS_PUBLISHED = "as_published"
#: Parts of that protocol that each paper decides for itself.
_OF_A_PAPER = {"training", "reproductions"}
#: Keys of a protocol that say what it is compared with, not how it is run.
_OF_COMPARISON = ("reference", "published")

#: Keys that mean nothing without another one.
_NEEDS = {
    "training.augmentation.resized_crop_ratio": "training.augmentation.resized_crop_scale",
}


def against_reference(experiment: Experiment) -> Iterator[Deviation]:
    """Everything in which an experiment is not the protocol that it names as its reference."""
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
    yield from _rule_differences(protocol, reference)


def against_published(experiment: Experiment, reference: Protocol) -> Iterator[Deviation]:
    """What is not as the paper's table has it: by choice of ours, by changes, by the paper itself.

    Where the experiment comes from a shipped file, it is compared with that; else only the rules
    that all published experiments share are compared.
    """
    protocol, published = experiment.protocol, experiment.published_results
    if protocol.selects_on == "test":
        yield Deviation(
            "selection on the test classes",
            "The epoch of every network is the one with the best P@1 on the test classes, as "
            "papers have done it. These numbers are too high by an unknown amount and estimate "
            "nothing.",
            True,
        )
    for gap in published.gaps if published else ():
        yield Deviation("not as in the paper", gap)
    if published is None or published.config is None:
        ours, theirs = (
            {k: v for k, v in _rules(p).items() if k not in _OF_A_PAPER}
            for p in (protocol, reference)
        )
        yield from _differences(ours, theirs, reference.name)
        return
    name = published.config
    variant = [f"variant={experiment.variant}"] if experiment.variant else []
    shipped = load_experiment(configs_root() / f"{name}.yaml", variant)
    ours, theirs = (_of_interest(one) for one in (experiment, shipped))
    if experiment.dataset.name != shipped.dataset.name:
        yield Deviation(
            "data set",
            f"The data set is {experiment.dataset.name}; the published figures are of "
            f"{shipped.dataset.name} and cannot be compared with these.",
            True,
        )
        del ours["dataset"], theirs["dataset"]
    yield from _differences(ours, theirs, "as shipped")


def _of_interest(experiment: Experiment) -> dict[str, Any]:
    """What decides about the results of a paper's experiment, as plain data."""
    plain = experiment.plain()
    kept = {key: plain[key] for key in ("dataset", "model", "methods")}
    kept["dataset"] = {
        key: value
        for key, value in kept["dataset"].items()
        if key != "name" and not is_result_neutral(f"dataset.{key}")
    }
    return {**kept, **_rules(experiment.protocol)}


def _model_differences(experiment: Experiment, reference: Protocol) -> Iterator[Deviation]:
    """Trunk, weights and head, and how image files are decoded, where they are other ones."""
    published = reference.published
    pairs = []
    if published.model is not None:
        models = [named_model(published.model), experiment.model]
        theirs, ours = (model.model_dump(mode="json", exclude={"name"}) for model in models)
        pairs.append(("model", theirs, ours))
    images = experiment.dataset.model_dump(mode="json", include=set(published.images))
    if "resize" in images:
        pairs.append(("images", published.images, images))
    for topic, expected, given in pairs:
        texts = [
            f"{key} {_look_up(given, key)} ({reference.name}: {_look_up(expected, key)})"
            for key in differing_keys(expected, given)
        ]
        if texts:
            yield Deviation(topic, f"{', '.join(texts)}.")


def _rule_differences(protocol: Protocol, reference: Protocol) -> Iterator[Deviation]:
    """One sentence per part of the protocol that has other values."""
    yield from _differences(_rules(protocol), _rules(reference), reference.name)


def _differences(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], whose: str
) -> Iterator[Deviation]:
    parts: dict[str, list[str]] = {}
    for key in differing_keys(theirs, ours):
        needed = _NEEDS.get(key)
        if needed is not None and value_at(ours, needed) is None:
            continue  # it does nothing here; what it needs is listed where it should be there
        part, name = _part_of(key)
        given, expected = _look_up(ours, key), _look_up(theirs, key)
        parts.setdefault(part, []).append(f"{name} {given} ({whose}: {expected})")
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
    return {
        key: value
        for key, value in plain.items()
        if key not in _OF_COMPARISON and not is_table_neutral(f"protocol.{key}")
    }


def _look_up(data: Any, dotted: str) -> str:
    value = value_at(data, dotted)
    return "none" if value is None else _short(value)


def _short(value: Any) -> str:
    if isinstance(value, Mapping) and {"low", "high"} <= set(value):
        scale = ", log" if value.get("log") else ""
        return f"searched in [{value['low']:g}, {value['high']:g}{scale}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_short(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        names = [v["name"] if isinstance(v, Mapping) and "name" in v else _short(v) for v in value]
        return " and ".join(names)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def own_ranges(experiment: Experiment) -> Iterator[Deviation]:
    """Methods that carry the name of a shipped one, but not its values or search ranges."""
    if experiment.protocol.reference == AS_PUBLISHED:
        return  # each paper's table has values of its own
    folders = named_protocol(experiment.protocol.reference).published.methods
    for method in experiment.methods:
        file = _published_method(method.name, folders)
        if file is None:
            continue
        published = named_method(file).model_dump(mode="json", by_alias=True)
        ours = method.model_dump(mode="json", by_alias=True)
        keys = sorted({_value_name(key) for key in differing_keys(published, ours)} - {"note"})
        if keys:
            yield Deviation(
                f"method {method.name}",
                f"{method.name} has its own values or search ranges for {', '.join(keys)}, not "
                f"those of configs/methods/{file}.yaml.",
            )


def _published_method(name: str, folders: Sequence[str]) -> str | None:
    """The shipped file of a method: that of the first folder that has one, else the general one."""
    shipped = shipped_files("methods")
    candidates = [*(f"{folder}/{name}" for folder in folders), name]
    return next((file for file in candidates if file in shipped), None)


def _value_name(key: str) -> str:
    """``arguments.alpha`` for ``arguments.alpha.low``."""
    head, _, last = key.rpartition(".")
    return head if last in ("low", "high", "log", "int", "choices") else key
