"""``references.bib``: BibTeX entries of everything that an experiment used.

The entries, and what cites them, are in ``configs/references.yaml``. This module selects those that
an experiment needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from reality_check.config.classes import named_classes
from reality_check.config.differences import value_at
from reality_check.config.metrics import metric_of
from reality_check.config.yaml_text import read_yaml
from reality_check.results import ExperimentResults
from reality_check.utils.config_files import configs_root

#: Packages whose classes are known by their short names.
_KNOWN_MODULES = ("pml_extensions", "pytorch_metric_learning", "reality_check")
#: Part of ``references.yaml`` for each kind of class.
_PARTS = {"loss": "losses", "miner": "miners", "distance": "distances"}
#: What was used, each with the keys of its entries; ``None`` instead of keys if it has none.
_Citations = Iterator[tuple[str, list[str] | None]]
#: Fewest methods with which p-values are corrected.
_MIN_CORRECTED = 3


def references_bib(results: ExperimentResults) -> str:
    """Return the BibTeX file of an experiment.

    Losses, miners, data sets and trunks without an entry (the user's own) are listed in a comment
    at the top. Those without any paper (a wrapper, a plain convolutional network) are not
    mentioned.
    """
    reasons: dict[str, list[str]] = {}
    unknown: list[str] = []
    for reason, keys in _citations(results):
        if keys is None:
            unknown.append(reason)
        for key in keys or ():
            reasons.setdefault(key, []).append(reason)
    blocks = [
        f"% What {_comment(results.name)} used, with a paper: written by reality-check.\n"
        "% Cite what you show; the comment above an entry says what it stands for."
    ]
    if unknown:
        lines = "\n".join(f"%   {_comment(name)}" for name in dict.fromkeys(unknown))
        blocks.append(f"% Without an entry here; add its source if it has one:\n{lines}")
    entries = _data()["entries"]
    for key in sorted(reasons):
        why = _comment("; ".join(dict.fromkeys(reasons[key])))
        blocks.append(f"% {why}\n{bibtex(key, entries[key])}")
    return "\n\n".join(blocks) + "\n"


def bibtex(key: str, fields: Mapping[str, Any]) -> str:
    """Return one entry; ``fields`` are its BibTeX fields and its ``type``."""
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if name != "type"]
    return "\n".join([f"@{fields['type']}{{{key},", *lines, "}"])


def _comment(text: str) -> str:
    """Return a text on one line without ``@``, which starts an entry even in a comment."""
    return " ".join(text.replace("@", "(at)").split())


@cache
def _data() -> dict[str, Any]:
    return read_yaml(configs_root() / "references.yaml")


def _citations(results: ExperimentResults) -> _Citations:
    """Yield the citations of everything that an experiment used."""
    config = results.config
    methods = config.get("methods") or []
    for method in results.methods:
        settings = results.settings_of(method.name)
        yield from _method_citations(method.name, {**settings, "loss": method.loss})
    if dataset := config.get("dataset"):
        name, data = str(dataset.get("name")), _data()
        keys = data["datasets"].get(name) or data["readers"].get(dataset.get("reader"))
        yield f"data set {name}", keys
    models = [config.get("model") or {}, *(method.get("model") or {} for method in methods)]
    yield from _trunk_citations(models)
    yield from _protocol_citations(results)
    yield from _software_citations(config)
    if len(results.methods) >= _MIN_CORRECTED:
        yield "correction of the p-values for several pairs", _data()["statistics"]["correction"]
    if any(method.importance is not None for method in results.methods):
        yield "importance of hyper-parameters", _data()["statistics"]["importance"]


def _method_citations(name: str, settings: Mapping[str, Any]) -> _Citations:
    """Yield the citations of a method's loss and miner, and of classes in their arguments."""
    miner = settings.get("miner") or {}
    # Names of classes, each with its kind, a key of _PARTS
    classes = [(str(settings["loss"]), "loss")]
    if "class" in miner:
        classes.append((str(miner["class"]), "miner"))
    for part in (settings.get("arguments") or {}, miner):
        classes += [(cls, kind) for cls, kind in named_classes(part) if kind in _PARTS]
    for cls, kind in classes:
        module, _, class_name = cls.rpartition(".")
        is_known = not module or module.partition(".")[0] in _KNOWN_MODULES
        keys = _data()[_PARTS[kind]].get(class_name) if is_known else None
        if keys is None and kind == "distance":
            continue  # distances rarely have a paper
        yield f"{kind} of {name}" if keys is not None else f"{kind} of {name}: {cls}", keys


def _trunk_citations(models: Iterable[Mapping[str, Any]]) -> _Citations:
    """Yield the citations of the trunks and pretrained weights of ``models``."""
    data = _data()
    for model in models:
        if trunk := model.get("trunk"):
            name = str(trunk).rpartition(":")[2]  # without "timm:" or "torchvision:"
            trunks = data["trunks"].items()
            keys = next((keys for pattern, keys in trunks if re.fullmatch(pattern, name)), None)
            yield f"trunk {trunk}", keys
        if model.get("weights") in data["weights"]:
            yield f"pretrained weights {model['weights']}", data["weights"][model["weights"]]


def _protocol_citations(results: ExperimentResults) -> _Citations:
    """Yield the citations of the protocol and of published results."""
    data = _data()
    for name, keys in data["protocols"].items():
        if results.reference == name or results.reference.startswith(f"{name}_"):
            yield f"protocol {results.reference}", keys
    published = results.config.get("published_results") or {}
    if published.get("paper") in data["papers"]:
        yield "the table that is repeated", data["papers"][published["paper"]]
    for other in results.published:
        if other.paper in data["papers"]:
            yield "published figures", data["papers"][other.paper]


def _software_citations(config: Mapping[str, Any]) -> _Citations:
    """Yield the citations of packages and of the search's sampler."""
    data = _data()
    for package, keys in data["software"].items():
        yield f"software {package}", keys
    sampler = value_at(config, "protocol.search.sampler")
    searched = value_at(config, "protocol.selects_on", "validation") == "validation"
    if sampler in data["samplers"] and searched:
        yield f"search with the sampler {sampler}", data["samplers"][sampler]
    metrics = value_at(config, "protocol.final_metrics") or []
    if any(metric_of(name).needs_faiss for name in metrics):
        yield "software faiss: clusters and binary codes", data["faiss"]
