"""From a YAML file and ``key.path=value`` overrides to a typed :class:`Experiment`.

A key such as ``dataset:`` takes a name (a file of that name in ``configs/datasets/`` here, in the
current folder, or beside the YAML), a path to a YAML, or a mapping; a mapping may start from a
named one with ``base: name`` and change single keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from reality_check.config import layers
from reality_check.config.layers import merge
from reality_check.config.messages import explain
from reality_check.config.model import Model
from reality_check.config.plugins import find_plugin, plugins
from reality_check.config.schema import Experiment, Method, Protocol
from reality_check.utils.config_files import config_files, paper_files, shipped_files
from reality_check.utils.errors import UsageError, at_home
from reality_check.utils.text import nearest

#: Keys that say how files build on each other, and so stand in files only.
_OF_FILES = ("base", "variants")
#: Keys of an experiment that name a file, and the folder in ``configs/`` they are looked up in.
GROUPS = {"dataset": "datasets", "model": "models", "protocol": "protocols"}
#: Names that a message lists; of more, it says how many.
_MOST_LISTED = 15


class _Loader(yaml.SafeLoader):
    """Safe YAML in which 1e-4 is a number, as in YAML 1.2, and no key may be given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if (key.tag, key.value) in seen:
                    problem = f"the key {key.value!r} is given twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Quotes the texts that :class:`_Loader` would read as numbers."""


for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )


def parse_yaml(text: str) -> Any:
    """Parse YAML text safely."""
    return _unshared(yaml.load(text, Loader=_Loader))


def dump_yaml(data: Any, compact: bool = False) -> str:
    """The inverse of :func:`parse_yaml`, with keys in their order.

    Args:
        data: plain data.
        compact: whether ranges and other collections without inner ones take one line.
    """
    return yaml.dump(
        data,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None if compact else False,
    )


def _unshared(data: Any, depth: int = 0) -> Any:
    """A copy in which no part is held twice: overrides must not reach through YAML's aliases."""
    if depth > 50:
        raise yaml.YAMLError("nested too deeply")
    if isinstance(data, Mapping):
        return {key: _unshared(value, depth + 1) for key, value in data.items()}
    if isinstance(data, list):
        return [_unshared(value, depth + 1) for value in data]
    return data


def load_experiment(path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """Load, compose and validate an experiment.

    >>> import reality_check as rc
    >>> experiment = rc.load_experiment(
    ...     "quickstart", ["protocol.search.trials=4", "methods=[quick/contrastive]"]
    ... )
    >>> experiment.protocol.search.trials, [method.name for method in experiment.methods]
    (4, ['contrastive'])

    Args:
        path: a YAML file, the name of one in ``configs/experiments/``, or ``papers/PAPER/ITEM``.
        overrides: ``key.path=value`` texts, e.g. ``protocol.search.trials=8``; values are YAML.
            Methods are addressed by name: ``methods.proxy_nca.samples_per_class=4``.

    Returns:
        The experiment with every default filled in: typed, so that a misspelled attribute is an
        error; ``experiment.plain()`` is the same as nested dicts and lists, which a YAML can hold.

    Raises:
        UsageError: with one sentence per mistake.
    """
    file = find_experiment(path)
    raw = read_experiment(file)
    of_paper = next((name for name, other in paper_files().items() if other == file), None)
    if of_paper is not None and isinstance(raw.get("published_results"), Mapping):
        raw["published_results"] = {**raw["published_results"], "config": of_paper}
    raw.setdefault("name", file.stem if of_paper is None else f"{file.parent.name}_{file.stem}")
    if not raw.get("code"):  # a locked file says which variant of another one it is
        layers.check_variant(raw, raw.get("variant"), str(path))
    return compose(raw, overrides, where=str(path), beside=file.parent)


def compose(
    raw: Mapping[str, Any],
    overrides: Sequence[str] = (),
    where: str = "experiment",
    beside: Path | None = None,
) -> Experiment:
    """Validate an experiment given as plain data. See :func:`load_experiment`."""
    data = _unshared(raw)
    pairs = [_parse_override(text) for text in overrides]
    for keys, value in pairs:
        if keys[0] in _OF_FILES:
            raise UsageError(
                f"{'.'.join(keys)} is no override; write {keys[0]} in a YAML of your own."
            )
        if keys == ["variant"]:
            layers.check_variant(data, value, where)
        if len(keys) == 1:
            data[keys[0]] = value
    data = layers.choose_variant(data, where)
    changes = data.pop(layers.CHANGES, [])
    _check_keys(data, where)
    for key, group in GROUPS.items():
        if key in data:
            data[key] = _expand(data[key], key, group, beside)
    data["methods"] = _expand_methods(data.get("methods"), beside)
    layers.change_methods(data["methods"], changes, where)
    for keys, value in pairs:
        if len(keys) > 1:
            _set(data, keys, value)
    for method in data["methods"]:
        own = method.get("model")
        if isinstance(own, str) or (isinstance(own, Mapping) and "base" in own):
            named = _expand(own, "model", "models", beside)
            method["model"] = _changes_to(named, data["model"], f"{where}: {method['name']}.model")
        if isinstance(method.get("training"), Mapping):
            method["training"] = layers.own_training(method["training"], data.get("protocol"))
    experiment: Experiment = _validate(Experiment, data, where)
    named_protocol(experiment.protocol.reference)
    return experiment


def _changes_to(named: Mapping[str, Any], common: Any, where: str) -> dict[str, Any]:
    """What to change in the experiment's model so that it is the named one."""
    whole = _validate(Model, {"name": "model", **named}, where).model_dump(mode="json")
    try:
        ours = Model.model_validate(common).model_dump(mode="json")
    except ValidationError:
        ours = {}  # told when the experiment is validated
    return {
        key: value
        for key, value in whole.items()
        if key != "name" and (key not in ours or ours[key] != value)
    }


def find_experiment(path: str | Path) -> Path:
    """The file that the user means: a path, or a name from ``configs/experiments/``."""
    file = at_home(path)
    if file.is_file():
        return file.resolve()
    named = config_files("experiments")
    papers = paper_files()
    if str(path) in named or str(path) in papers:
        return (named | papers)[str(path)]
    if file.is_dir():
        raise UsageError(f"{path} is a folder; name the YAML of an experiment.")
    if file.suffix in (".yaml", ".yml"):
        there = sorted(str(file.with_name(one.name)) for one in file.parent.glob("*.y*ml"))
        raise UsageError(
            f"There is no file {str(path)!r}, {_instead(file, there)}.{nearest(str(file), there)}"
        )
    raise UsageError(
        f"There is no file {str(path)!r} and no experiment of that name; experiments that ship "
        f"with the package: {_some(named, 'experiments')}; those of the papers: reality-check show "
        f"papers.{nearest(str(path), [*named, *papers])}"
    )


def _instead(file: Path, there: list[str]) -> str:
    """What the message on a missing YAML says is there."""
    if not file.parent.is_dir():
        return f"and no folder {str(file.parent)!r}"
    if not there:
        return f"nor another YAML in {str(file.parent.resolve())!r}; reality-check init writes one"
    return f"but {', '.join(there[:_MOST_LISTED])}"


def read_experiment(file: Path, trail: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read the YAML of an experiment, on top of its ``base`` if it names one.

    Args:
        file: of the experiment.
        trail: the files that led here by their ``base``.

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
    found = sibling if sibling.is_file() else find_experiment(base)
    if found.resolve() in (file.resolve(), *(path.resolve() for path in trail)):
        raise UsageError(f"{file}: {base!r} is its own base; remove one base.")
    lower = read_experiment(found, (*trail, file))
    lower.pop("name", None)
    if "published_results" in raw:
        lower.pop("published_results", None)  # of another table
    return layers.put_on(lower, raw)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read one YAML mapping safely.

    Raises:
        UsageError: naming the line when it is not YAML, or not a mapping.
    """
    try:
        data = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deep; close its brackets.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not valid YAML"
        raise UsageError(f"{path}{line}: {problem}.") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path} must hold a mapping of keys to values.")
    return data


def named_method(name: str) -> Method:
    """The method of that name as it ships with the package, whatever the user's folders hold."""
    return _validate(Method, _read_shipped(name, "methods"), name)


def named_model(name: str) -> Model:
    """The model of that name as it ships with the package, whatever the user's folders hold."""
    return _validate(Model, _read_shipped(name, "models"), name)


def named_protocol(name: str) -> Protocol:
    """The protocol of that name as it ships with the package, whatever the user's folders hold.

    Raises:
        UsageError: none of that name ships with the package.
    """
    files = shipped_files("protocols")
    if name not in files:
        raise UsageError(
            f"protocol.reference is {name!r}, but it must name a protocol that ships with the "
            f"package ({', '.join(files)}); deviations are counted against it."
            f"{nearest(name, files)}"
        )
    return _validate(Protocol, _read_shipped(name, "protocols"), name)


def _read_shipped(name: str, group: str) -> dict[str, Any]:
    file = shipped_files(group)[name]
    own = {"name": file.stem, **read_yaml(file)}
    base = own.pop("base", None)
    return merge(_read_shipped(base, group), own) if base else own


def _validate(model: type[Any], data: Any, where: str) -> Any:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise UsageError(explain(error, data, where)) from None


def _check_keys(data: Mapping[str, Any], where: str) -> None:
    required = [name for name, field in Experiment.model_fields.items() if field.is_required()]
    unknown = [key for key in data if key not in Experiment.model_fields]
    if unknown:
        valid = ", ".join([*Experiment.model_fields, "base", "variants"])
        hint = nearest(str(unknown[0]), Experiment.model_fields)
        raise UsageError(f"{where}: unknown key {unknown[0]!r}; valid keys: {valid}.{hint}")
    missing = [key for key in required if data.get(key) is None]
    if missing:
        raise UsageError(
            f"{where}: the key {missing[0]!r} is missing; an experiment needs {required}."
        )


def _expand_methods(methods: Any, beside: Path | None) -> list[Any]:
    if not isinstance(methods, list) or not methods:
        raise UsageError(
            "methods must be a list of names or mappings, e.g. methods: [normalized_softmax]."
        )
    expanded = []
    for entry in methods:
        if isinstance(entry, Mapping) and "base" not in entry and "loss" not in entry:
            raise UsageError(
                f"a method needs a loss (loss: my_losses.MyLoss) or a base (base: proxy_nca); "
                f"got the keys {sorted(map(str, entry))}."
            )
        method = _expand(entry, "method", "methods", beside)
        if isinstance(method, dict) and "name" not in method:
            method["name"] = str(method.get("loss", "")).rpartition(".")[2]
        expanded.append(method)
    return expanded


def _expand(
    value: Any, key: str, group: str, beside: Path | None, trail: tuple[Path, ...] = ()
) -> dict[str, Any]:
    """Turn a name, a path or a mapping with ``base`` into a plain mapping.

    ``trail`` holds the files that led here by their ``base``.
    """
    if isinstance(value, str):
        return _read_named(value, key, group, beside, trail)
    if not isinstance(value, Mapping):
        raise UsageError(f"{key} must be a name or a mapping, got {value!r}.")
    own = dict(value)
    base = own.pop("base", None)
    if base is None:
        return own
    if not isinstance(base, str):
        raise UsageError(f"{key}.base must be a name, got {base!r}.")
    return merge(_read_named(base, key, group, beside, trail), own)


def _read_named(
    name: str, key: str, group: str, beside: Path | None, trail: tuple[Path, ...]
) -> dict[str, Any]:
    if key == "dataset" and _is_of_plugin(name, beside):
        return {"name": name, "reader": "function", "function": name}
    file = _find_named(name, key, group, beside, trail)
    if file in trail:
        chain = " -> ".join(path.stem for path in (*trail, file))
        raise UsageError(f"{key}: {name!r} is its own base ({chain}); remove one base.")
    data = read_yaml(file)
    data.setdefault("name", file.stem)
    return _expand(data, key, group, beside, (*trail, file)) if "base" in data else data


def _is_of_plugin(name: str, beside: Path | None) -> bool:
    """Whether the name of a data set is that of a plugin; the user's own files win over both."""
    shipped = shipped_files("datasets").get(name)
    used = config_files("datasets", beside).get(name)
    if used != shipped:
        return False
    ours = [("reality_check", str(shipped))] if shipped else []
    return find_plugin("dataset", name, ours) is not None


def _find_named(
    name: str, key: str, group: str, beside: Path | None, trail: tuple[Path, ...]
) -> Path:
    if name.endswith((".yaml", ".yml")):
        folders = [path.parent for path in trail[-1:]] + ([beside] if beside else [])
        candidates = [at_home(name), *(folder / name for folder in folders)]
        file = next((path for path in candidates if path.is_file()), None)
        if file is None:
            raise UsageError(f"{key}: there is no file {name!r}.")
        return file.resolve()
    files = config_files(group, beside)
    if name not in files:
        known = [*files, *plugins(key)]
        raise UsageError(
            f"{key}: there is no {key} named {name!r}; known names: {_some(known, group)}."
            f"{nearest(name, known)}"
        )
    if files[name] in trail:
        # The user's own file of a name may start from the one that ships with the package.
        return shipped_files(group).get(name, files[name])
    return files[name]


def _some(names: Iterable[str], group: str) -> str:
    """The names in a message: all, or as many as one reads, and where the others are listed."""
    ordered = sorted(names, key=lambda name: ("/" in name, name))
    if len(ordered) <= _MOST_LISTED:
        return ", ".join(ordered) or "none"
    more = len(ordered) - _MOST_LISTED
    return f"{', '.join(ordered[:_MOST_LISTED])} and {more} more (reality-check show {group})"


def _parse_override(text: str) -> tuple[list[str], Any]:
    path, equals, value = text.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise UsageError(
            f"{text!r} is not an override; write key.path=value, e.g. protocol.search.trials=8."
        )
    try:
        return keys, parse_yaml(value)
    except (yaml.YAMLError, RecursionError):
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        raise UsageError(f"the value of the override {shown!r} is not valid YAML.") from None


def _set(data: dict[str, Any], keys: Sequence[str], value: Any) -> None:
    """Set one value of the expanded experiment. Whether the key is valid shows in validation."""
    target: Any = data
    dotted = ".".join(keys)
    for position, key in enumerate(keys[:-1]):
        if isinstance(target, list):
            if position != 1 or keys[0] != "methods":
                raise _list_error(keys[:position], dotted)
            target = _find_method(target, key, dotted)
        else:
            if target.get(key) is None:
                target[key] = {}
            target = target[key]
        if not isinstance(target, dict | list):
            raise UsageError(
                f"override {dotted!r}: {'.'.join(keys[: position + 1])!r} is a single value "
                "and has no keys below it."
            )
    if isinstance(target, list):
        if keys[:-1] != ["methods"]:
            raise _list_error(keys[:-1], dotted)
        raise UsageError(f"override {dotted!r}: name a key of the method, not the method itself.")
    target[keys[-1]] = value


def _list_error(keys: Sequence[str], dotted: str) -> UsageError:
    name = ".".join(keys)
    return UsageError(f"override {dotted!r}: {name} is a list; give it whole, as {name}=[...].")


def _find_method(methods: Sequence[dict[str, Any]], name: str, dotted: str) -> dict[str, Any]:
    for index, method in enumerate(methods):
        if name in (method.get("name"), str(index)):
            return method
    names = [str(method.get("name")) for method in methods]
    raise UsageError(
        f"override {dotted!r}: there is no method {name!r}; methods here: {', '.join(names)}."
        f"{nearest(name, names)}"
    )


def differing_keys(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Yield the dotted names of all values in which two plain configurations differ."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted({*one, *other}):
            name = f"{path}.{key}" if path else str(key)
            if key in one and key in other:
                yield from differing_keys(one[key], other[key], name)
            else:
                yield name
    elif _are_mappings(one) and _are_mappings(other) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            label = left.get("name", index) if isinstance(left, Mapping) else index
            yield from differing_keys(left, right, f"{path}.{label}")
    elif one != other:
        yield path


def value_at(data: Any, dotted: str, absent: Any = None) -> Any:
    """The value that :func:`differing_keys` names so, or ``absent``."""
    for part in dotted.split("."):
        if isinstance(data, list):
            data = {
                str(entry.get("name", index) if isinstance(entry, Mapping) else index): entry
                for index, entry in enumerate(data)
            }
        if not isinstance(data, Mapping) or part not in data:
            return absent
        data = data[part]
    return data


def _are_mappings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)
