"""From a YAML file and ``key.path=value`` overrides to a typed :class:`Experiment`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from reality_check.config import layers
from reality_check.config.messages import validate
from reality_check.config.model import Model
from reality_check.config.named import (
    GROUPS,
    expand,
    expand_methods,
    find_experiment,
    named_protocol,
)
from reality_check.config.overrides import parse_override, set_value
from reality_check.config.schema import Experiment
from reality_check.config.source_code import use_sources
from reality_check.config.types import is_model
from reality_check.config.values import kinds_of
from reality_check.config.yaml_text import read_yaml, unshared
from reality_check.utils.config_files import paper_files
from reality_check.utils.errors import UsageError, every
from reality_check.utils.text import nearest

#: Keys of files only: how they build on each other, and the version of their format.
_FILE_KEYS = ("base", "variants", "schema_version")
#: An unknown key that is valid in more places than these is suggested in none.
_MAX_PATHS = 3


def load_experiment(path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """Load, compose and validate an experiment.

    >>> import reality_check as rc
    >>> experiment = rc.load_experiment(
    ...     "quickstart", ["protocol.search.trials=8", "methods=[quick/contrastive]"]
    ... )
    >>> experiment.protocol.search.trials, [method.name for method in experiment.methods]
    (8, ['contrastive'])

    Args:
        path: a YAML file, the name of one in ``configs/experiments/``, or ``papers/PAPER/ITEM``.
        overrides: ``key.path=value`` texts, e.g. ``protocol.search.trials=8``; values are YAML, or
            text if the key is text. Methods are addressed by name:
            ``methods.proxy_nca.samples_per_class=4``.

    Returns:
        The experiment with every default filled in: typed, so that a misspelled attribute is an
        error; ``experiment.plain()`` is the same as nested dicts and lists, which a YAML can hold.

    Raises:
        UsageError: with one sentence per mistake.
    """
    file = find_experiment(path)
    raw = read_experiment(file)
    if "suite" in raw:
        raise UsageError(
            f"{path} is a suite of several data sets, not one experiment: rc.load_suite reads it, "
            "and reality-check check, run and status take it."
        )
    # A name such as papers/000_sgsl/table3_cub200, if the experiment repeats a table of a paper.
    paper_name = next((name for name, other in paper_files().items() if other == file), None)
    if paper_name is not None and isinstance(raw.get("published_results"), Mapping):
        raw["published_results"] = {**raw["published_results"], "config": paper_name}
    raw.setdefault("name", file.stem if paper_name is None else f"{file.parent.name}_{file.stem}")
    if raw.get("code"):  # locked by a run, with the user's code
        use_sources(file.parent)
    else:
        use_sources(None)
        layers.check_variant(raw, raw.get("variant"), str(path))
    return compose(raw, overrides, where=str(path), beside=file.parent)


def compose(
    raw: Mapping[str, Any],
    overrides: Sequence[str] = (),
    where: str = "experiment",
    beside: Path | None = None,
) -> Experiment:
    """Validate an experiment that is given as plain data, see :func:`load_experiment`.

    Args:
        raw: the keys and values of a YAML.
        overrides: as in :func:`load_experiment`.
        where: the name of the data in messages.
        beside: a folder whose YAML files may be named, too.
    """
    data = unshared(raw)
    parsed = [parse_override(text) for text in overrides]
    for keys, value in parsed:
        if keys[0] in _FILE_KEYS:
            raise UsageError(
                f"{'.'.join(keys)} is not an override; write {keys[0]} in a YAML of your own."
            )
        if keys == ["variant"]:
            layers.check_variant(data, value, where)
        if len(keys) == 1:  # set before names are expanded, since the value may be one
            data[keys[0]] = value
    data = layers.choose_variant(data, where)
    changes = data.pop(layers.CHANGES, [])  # of single methods
    _check_keys(data, where)
    expanders: dict[str, Callable[[], Any]] = {
        key: partial(expand, data[key], key, GROUPS[key], beside) for key in GROUPS if key in data
    }
    expanders["methods"] = partial(expand_methods, data["methods"], beside)
    # The expanded value of each key; mistakes in several of them are reported together.
    data |= zip(expanders, every(expanders.values()), strict=True)
    layers.change_methods(data["methods"], changes, where)
    # Overrides of the search are merged together, since its kind decides which keys are kept.
    changed_search: dict[str, Any] = {}
    for keys, value in parsed:
        if keys == ["protocol", "search"]:
            changed_search.clear()
        if len(keys) > 1:
            # A key of the search, and not the search as a whole.
            is_in_search = keys[:2] == ["protocol", "search"] != keys
            set_value(changed_search if is_in_search else data, keys, value)
    data = layers.merge(data, changed_search)
    for method in data["methods"]:
        own_model = method.get("model")
        if isinstance(own_model, str) or (isinstance(own_model, Mapping) and "base" in own_model):
            model = expand(own_model, "model", "models", beside)
            method["model"] = _changes_to(model, data["model"], f"{where}: {method['name']}.model")
        if isinstance(method.get("training"), Mapping):
            method["training"] = layers.own_training(method["training"], data.get("protocol"))
    _add_controls(data, where)
    experiment: Experiment = validate(Experiment, data, where)
    named_protocol(experiment.protocol.reference)  # raises if it does not exist
    return experiment


def _add_controls(data: dict[str, Any], where: str) -> None:
    """Append a second copy of each method in ``controls``, unless the experiment has it already.

    A copy has seeds of its own, so that it differs from the method by chance only.
    """
    controls, methods = data.get("controls"), data["methods"]
    if not isinstance(controls, list):
        return  # reported when the experiment is validated
    by_name = {str(method["name"]): method for method in methods}
    copied = {(method.get("control_of"), method.get("control_draws", "own")) for method in methods}
    for control in controls:
        name, draws = control, "own"
        if isinstance(control, Mapping):
            name, draws = control.get("of"), control.get("draws", "own")
        if name not in by_name:
            raise UsageError(
                f"{where}: controls name {name!r}, which is not one of the methods; methods: "
                f"{', '.join(by_name)}.{nearest(str(name), by_name)}"
            )
        if (name, draws) not in copied:
            copy = {"control_of": name, "control_draws": draws}
            suffix = "control" if draws == "own" else "shared_control"
            methods.append({**by_name[name], "name": f"{name}_{suffix}", **copy})


def _changes_to(named: Mapping[str, Any], common: Any, where: str) -> dict[str, Any]:
    """Return the keys and values that turn ``common``, the experiment's model, into ``named``."""
    named_settings = validate(Model, {"name": "model", **named}, where).plain()
    try:
        common_settings = Model.model_validate(common).plain()
    except ValidationError:
        common_settings = {}  # reported when the experiment is validated
    return {
        key: value
        for key, value in named_settings.items()
        if key != "name" and (key not in common_settings or common_settings[key] != value)
    }


def read_experiment(file: Path, trail: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read the YAML of an experiment, on top of its ``base`` if it names one.

    ``trail`` has the files whose ``base`` led here.

    Raises:
        UsageError: a file cannot be read, or is its own base.
    """
    raw = read_yaml(file)
    base = raw.pop("base", None)
    if base is None:
        return raw
    if not isinstance(base, str):
        raise UsageError(f"{file}: base must name an experiment, got {base!r}.")
    sibling = file.parent / f"{base}.yaml"
    base_file = sibling if sibling.is_file() else find_experiment(base)
    if base_file.resolve() in (file.resolve(), *(path.resolve() for path in trail)):
        raise UsageError(f"{file}: {base!r} is its own base; remove one base.")
    lower = read_experiment(base_file, (*trail, file))
    lower.pop("name", None)
    if "published_results" in raw:
        lower.pop("published_results", None)  # they belong to another table
    return layers.overlay(lower, raw)


def _deeper(key: str) -> str:
    """Return ``" Did you mean 'protocol.search.trials'?"`` for ``trials``, else ``""``."""
    paths = [*dict.fromkeys(path for path in _paths_to(key, Experiment) if "methods." not in path)]
    if not 0 < len(paths) <= _MAX_PATHS:
        return ""
    return f" Did you mean {' or '.join(map(repr, paths))}?"


def _paths_to(key: str, model: Any, above: str = "") -> Iterator[str]:
    """Yield the dotted keys of a model that end in ``key``."""
    for name, field in model.model_fields.items():
        if name == key:
            yield above + name
        for kind in filter(is_model, kinds_of(field.annotation)):
            yield from _paths_to(key, kind, f"{above}{name}.")


def _check_keys(data: Mapping[str, Any], where: str) -> None:
    """Raise UsageError if a key is unknown, or else if a required key is missing."""
    required = [name for name, field in Experiment.model_fields.items() if field.is_required()]
    unknown = [key for key in data if key not in Experiment.model_fields]
    valid = ", ".join([*Experiment.model_fields, *_FILE_KEYS])
    mistakes = [
        f"{where}: unknown key {key!r}; valid keys: {valid}."
        f"{_deeper(str(key)) or nearest(str(key), Experiment.model_fields)}"
        for key in unknown
    ]
    # A mistyped key is also reported as missing; report it only once.
    mistakes = mistakes or [
        f"{where}: the key {key!r} is missing; an experiment needs {required}."
        for key in required
        if data.get(key) is None
    ]
    if mistakes:
        raise UsageError("\n".join(mistakes))
