"""Suites: the same methods on several data sets, from one YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from reality_check.config import layers
from reality_check.config.compose import compose, load_experiment, read_experiment
from reality_check.config.differences import differing_keys, texts_in, value_at
from reality_check.config.messages import validate
from reality_check.config.named import find_experiment
from reality_check.config.schema import Experiment
from reality_check.config.source_code import use_sources
from reality_check.config.types import Name
from reality_check.config.values import Strict
from reality_check.config.yaml_text import read_yaml
from reality_check.utils.config_files import config_files, paper_files
from reality_check.utils.errors import UsageError, every, labelled
from reality_check.utils.own_names import RESERVED
from reality_check.utils.paths import find_path
from reality_check.utils.seeds import derive
from reality_check.utils.text import duplicates

#: Keys of an experiment that belong to one data set.
_OF_ONE = ("dataset", "claims", "published_results", "variant", "variants", "studies", "code")
#: Keys of a method that may differ between data sets.
_FREE = ("model", "training", "trials", "packed", "samples_per_class", "warm_start", "note")
#: Keys of the protocol that, with those of the search, decide which score is estimated.
_OF_PROTOCOL = ("selects_on", "selects_by", "categories")
_REMEDY = (
    "One verdict over data sets needs the same methods (name, loss, arguments, search space, code),"
    " kind of search, number of trials, networks that are scored (own or retrained), categories and"
    " metric everywhere"
)


@dataclass(frozen=True)
class Suite:
    """The same methods on several data sets.

    Attributes:
        name: the name of the suite, and of its folder, runs/NAME; by default the file's.
        members: the experiment on each data set, by its name, which is also that of its folder.
    """

    name: str
    members: Mapping[str, Experiment]


def load(path: str | Path, overrides: Sequence[str] = ()) -> Experiment | Suite:
    """Load what a YAML holds: an experiment (:func:`load_experiment`) or a suite."""
    is_suite = "suite" in read_experiment(find_experiment(path))
    return (load_suite if is_suite else load_experiment)(path, overrides)


def load_suite(path: str | Path, overrides: Sequence[str] = ()) -> Suite:
    """Load and validate a suite: a YAML with ``suite: [NAME, ...]`` in place of ``dataset``.

    Each entry is the name of a data set, or of an experiment whose data set is taken (and what the
    suite leaves open), or a mapping with such a name as ``base`` and what differs there, or with a
    ``name`` and a ``dataset`` of its own. All other keys are those of an experiment, and hold on
    every data set. Seeds follow from that of the suite and the name of the data set, so that data
    sets share no draws.

    Args:
        path: a YAML file, or the name of one in ``configs/experiments/``.
        overrides: ``key.path=value`` for all data sets, or ``NAME.key.path=value`` for one.

    Raises:
        UsageError: with one sentence per mistake.
    """
    file = find_experiment(path)
    raw = read_experiment(file)
    use_sources(None)
    entries = raw.pop("suite", None)
    if not isinstance(entries, list) or len(entries) < 2:
        raise UsageError(
            f"{path}: suite must list two data sets or more, such as suite: [cub200, cars196], got "
            f"{entries!r}; for one data set, write dataset: NAME."
        )
    if wrong := [key for key in _OF_ONE if key in raw]:
        raise UsageError(
            f"{path}: {wrong[0]} belongs to one data set; write it in an experiment of its own, "
            "and the name of that file in suite."
        )
    # Overrides that begin with no key of an experiment begin with the name of a data set.
    fields = Experiment.model_fields
    of_one = {text: False for text in overrides if re.split(r"[.=]", text)[0] not in fields}
    renamed = [text for text in overrides if text.startswith("name=")]
    of_all = [text for text in overrides if text not in (*of_one, *renamed)]
    name = renamed[-1][5:] if renamed else raw.pop("name", file.stem)
    validate(_Named, {"name": name}, str(path))

    def member(entry: Any, label: str) -> Experiment:
        found = _member(raw, entry, of_all, file)
        own = []
        for text in of_one:
            for prefix in (f"{label}.", f"{found.name}."):
                if text.startswith(prefix) and not of_one[text]:
                    own.append(text.removeprefix(prefix))
                    of_one[text] = True
        return _member(raw, entry, [*of_all, *own], file) if own else found

    labels = [_label(entry, path) for entry in entries]
    members = every(
        partial(labelled, label, partial(member, entry, label))
        for entry, label in zip(entries, labels, strict=True)
    )
    names = [member.name for member in members]
    if repeated := duplicates([name.lower() for name in names]):
        raise UsageError(
            f"{path}: suite has {repeated[0]!r} twice, which would count twice; leave one out (or "
            "give it another name, if it is another data set: {base: ..., name: ...})."
        )
    if unused := [text for text, used in of_one.items() if not used]:
        raise UsageError(
            f"{unused[0]!r} begins neither with a key of an experiment nor with a data set of the "
            f"suite: {', '.join(names)}."
        )
    suite = Suite(name, dict(zip(names, members, strict=True)))
    check_alike({name: member.plain() for name, member in suite.members.items()})
    return suite


class _Named(Strict):
    """Checks the name of a suite, as that of an experiment is checked."""

    name: Name


def _label(entry: Any, path: str | Path) -> str:
    """Return the name by which overrides address an entry of a suite."""
    changes = entry if isinstance(entry, Mapping) else {"base": entry}
    label = changes.get("name", changes.get("base"))
    if not isinstance(label, str) or not {"base", "dataset"} & {*changes}:
        raise UsageError(
            f"{path}: an entry of suite must be the name of a data set or an experiment, or a "
            "mapping with such a name as base, or with name and dataset of its own; got "
            f"{entry!r}."
        )
    return label


def _member(
    shared: Mapping[str, Any], entry: Any, overrides: Sequence[str], file: Path
) -> Experiment:
    """Return the experiment on one data set of a suite."""
    changes = dict(entry) if isinstance(entry, Mapping) else {"base": entry}
    base = changes.pop("base", None)
    lower = {} if base is None else _named(base, file.parent)
    raw = layers.overlay(layers.overlay(lower, shared), changes)
    experiment = compose({"name": "suite", **raw}, overrides, str(file), file.parent)
    name = changes.get("name", experiment.dataset.name)
    if RESERVED.fullmatch(name):
        raise UsageError(
            f"{file}: the output folder keeps the name {name!r} for itself; give the data set "
            "another one, as name: in its entry."
        )
    seed = derive(experiment.seed, "suite", name) >> 32  # ten digits
    return experiment.model_copy(update={"name": name, "seed": seed})


def _named(base: str, beside: Path) -> dict[str, Any]:
    """Return the keys that a name stands for: those of an experiment, or a data set alone."""
    file = find_path(base, beside)
    is_file = (
        base.endswith((".yaml", ".yml")) and file.is_file() and "reader" not in read_yaml(file)
    )
    is_name = base not in config_files("datasets", beside) and (
        base in config_files("experiments") or base in paper_files()
    )
    if not is_file and not is_name:
        return {"dataset": base}
    raw = read_experiment(find_experiment(file if is_file else base))
    if "suite" in raw:
        raise UsageError(f"{base} is a suite itself; name its data sets instead.")
    return {k: v for k, v in raw.items() if k not in ("name", "claims", "published_results")}


def check_alike(
    experiments: Mapping[str, Mapping[str, Any]], methods: Mapping[str, Sequence[str]] | None = None
) -> None:
    """Make sure that experiments differ in their data sets only in so far as one verdict allows.

    Args:
        experiments: the settings of each data set's experiment as plain data, by name.
        methods: the names of their methods, where the settings do not have these.

    Raises:
        UsageError: they differ, or two of them have the same data set.
    """
    traits = {
        name: _traits(plain, (methods or {}).get(name)) for name, plain in experiments.items()
    }
    data_sets: dict[str, str] = {}
    for name, plain in experiments.items():
        known = plain.get("dataset")
        data = value_at(plain, "code.dataset") or str(known and {**known, "name": None})
        if known and (twin := data_sets.setdefault(data, name)) != name:
            raise UsageError(
                f"{twin} and {name} have the same data set, which would count twice; leave one out."
            )
    (first, expected), *others = traits.items()
    for name, found in others:
        for prefix, settings in expected.items():
            for key in differing_keys(settings, found[prefix]):
                values = [value_at(each, key, "not set") for each in (settings, found[prefix])]
                said = f"{prefix}{key} is {values[0]} on {first} and {values[1]} on {name}"
                if prefix == "the code of ":
                    said = f"{prefix}{key} is not the same on {first} and on {name}"
                raise UsageError(f"{said}. {_REMEDY}.")


def _traits(plain: Mapping[str, Any], names: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    """Return what must be the same on all data sets, by the beginning of its keys."""
    settings = sorted(plain.get("methods") or [], key=lambda method: str(method["name"]))
    search = value_at(plain, "protocol.search") or {}
    size = "budget" if search.get("budget") else "trials"
    texts, code = {*texts_in(settings)}, plain.get("code") or {}
    return {
        "": {"methods": ", ".join(sorted(names or [m["name"] for m in settings]))},
        **{f"methods.{m['name']}.": {k: m[k] for k in m if k not in _FREE} for m in settings},
        "protocol.": {key: value_at(plain, f"protocol.{key}") for key in _OF_PROTOCOL},
        "protocol.search.": {
            **{key: search.get(key) for key in ("kind", "sampler", "trials_per_parameter", size)},
            "retrain": "none" if search.get("retrain") == "none" else "best or difference",
        },
        "the code of ": {name: known for name, known in code.items() if name in texts},
    }
