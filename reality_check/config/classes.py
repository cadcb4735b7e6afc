"""Classes that a YAML names: finding them by name or import path, and building their objects."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reality_check.config.plugins import find_plugin, plugins
from reality_check.config.source_code import fingerprint, own_files
from reality_check.utils.errors import UsageError, users_code
from reality_check.utils.text import nearest, one_line

#: Where a plain name (without a dot) of each kind is looked up, in this order.
NAMESPACES = {
    "loss": ("pml_extensions.losses", "pytorch_metric_learning.losses"),
    "miner": ("pytorch_metric_learning.miners",),
    "distance": ("pytorch_metric_learning.distances",),
    "reducer": ("pytorch_metric_learning.reducers",),
    "regularizer": ("pytorch_metric_learning.regularizers",),
    "optimizer": ("torch.optim",),
}
#: Classes in the modules of :data:`NAMESPACES` that cannot run here, and why.
_UNUSABLE = {
    **dict.fromkeys(("ChunkedSoftmax", "ClassSampler"), "it is an argument of losses with proxies"),
    **dict.fromkeys(
        ("ManifoldLoss", "SelfSupervisedLoss", "VICRegLoss"),
        "it compares two views of every image, and batches have one",
    ),
    "GenericPairLoss": "it takes a function; derive a class of your own from it",
    "EmbeddingsAlreadyPackagedAsTriplets": "batches are not made of triplets",
    "BatchedDistance": "it hands its values to a function, which losses do not give",
    "DoNothingReducer": "a loss must return one number",
    **dict.fromkeys(
        ("ClassWeightedReducer", "MultipleReducers"), "a YAML cannot hold its argument"
    ),
    "LBFGS": "it computes the loss several times a step",
    "Muon": "it takes matrices only",
}
#: The plural of each kind in messages, as in ``reality-check show``.
PLURALS = {kind: f"{kind}s" for kind in (*NAMESPACES, "trunk", "dataset")} | {"loss": "losses"}
#: Messages list at most this many classes of a module.
_MOST_LISTED = 12

#: Constructor arguments whose value names a class, and its kind.
_ARGUMENT_KINDS = {
    "distance": "distance",
    "reducer": "reducer",
    "embedding_regularizer": "regularizer",
    "weight_regularizer": "regularizer",
    "loss": "loss",
    "warm_up": "loss",
    "miner": "miner",
}
#: Constructor arguments whose value lists classes (PML's MultipleLosses), and their kind.
_ARGUMENT_LIST_KINDS = {"losses": "loss", "miners": "miner"}
#: The kinds of parameters that can be passed by name.
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def find_class(name: str, kind: str) -> Any:
    """Return the class or function that a YAML names.

    Args:
        name: a plain name such as ``ProxyAnchorLoss``, of this package, PML, torch or a plugin; or
            an import path ``my_losses.MyLoss``, for which the current folder is searched last.
        kind: a key of :data:`PLURALS`.

    Raises:
        UsageError: nothing importable has that name (the message names the nearest one), or several
            packages have it.
    """
    if "." not in name:
        return _find_registered(name, kind)
    module_name, _, attribute = name.rpartition(".")
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(
            f"{kind} {name!r} is not an import path; write one such as my_losses.MyLoss."
        )
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)  # last, so that a random.py in it does not replace Python's
    importlib.invalidate_caches()  # the file may be younger than Python's list of the folder
    with users_code(f"{kind} {name!r}: importing {module_name} failed"):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise  # the user's module exists, and imports one that is missing
            raise UsageError(
                f"{kind} {name!r}: there is no module {error.name!r} in the current folder "
                f"({folder}) or among the installed packages; expected a file "
                f"{error.name.split('.')[0]}.py."
            ) from None
    if not hasattr(module, attribute):
        kinds = "functions" if kind == "metric" else "classes"
        is_listed = inspect.isfunction if kind == "metric" else inspect.isclass
        names = [key for key, value in vars(module).items() if is_listed(value)]
        hint = (
            "" if own_files(module_name) else " That is no file of yours: give yours another name."
        )
        shown = ", ".join(names[:_MOST_LISTED]) + (", ..." if len(names) > _MOST_LISTED else "")
        raise UsageError(
            f"{kind} {name!r}: the module {module_name} has no {attribute!r}; its {kinds}: "
            f"{shown or 'none'}.{nearest(attribute, names)}{hint}"
        )
    target = getattr(module, attribute)
    if not callable(target):
        raise UsageError(
            f"{kind} {name!r} is {one_line(target, 60)}, but it must be a class or a function."
        )
    return target


def registered_names(kind: str) -> dict[str, str]:
    """Return the modules of the usable classes of a kind, by plain name; plugins are left out."""
    names: dict[str, str] = {}
    for module_name in NAMESPACES.get(kind, ()):
        module = importlib.import_module(module_name)
        for key, value in vars(module).items():
            # Base classes, such as Optimizer, are left out, too.
            hidden = key.startswith(("_", "Base")) or key.endswith("Mixin")
            if inspect.isclass(value) and not hidden and key not in {kind.capitalize(), *_UNUSABLE}:
                names.setdefault(key, module_name)
    return names


def _find_registered(name: str, kind: str) -> Any:
    """Return the class of a plain name, from one of the libraries or a plugin."""
    names = registered_names(kind)
    # The library that has the name, if any, and its import path there.
    owners = [(names[name], f"{names[name]}.{name}")] if name in names else []
    plugin = find_plugin(kind, name, owners)
    if plugin is not None:
        return plugin.load()
    if name in names:
        return getattr(importlib.import_module(names[name]), name)
    example = name if name.isidentifier() else "MyClass"
    if kind == "column":
        raise UsageError(
            f"no installed package has a column named {name!r}; write an import path such as "
            f"my_report.{example}.{nearest(name, plugins(kind))}"
        )
    if kind not in PLURALS:
        raise UsageError(
            f"the class of the argument {kind!r} is {name!r}, without the module that it is in; "
            f"write an import path such as my_module.{example}."
        )
    if name in _UNUSABLE:
        raise UsageError(
            f"{kind} {name!r} cannot run here: {_UNUSABLE[name]}; reality-check show "
            f"{PLURALS[kind]} lists those that can."
        )
    raise UsageError(
        f"there is no {kind} named {name!r}; write an import path such as my_module.{example}, or "
        f"one of the known names (reality-check show {PLURALS[kind]})."
        f"{nearest(name, [*names, *plugins(kind)])}"
    )


def build(cls: Any, arguments: Mapping[str, Any], subject: str, extra: Mapping[str, Any]) -> Any:
    """Construct ``cls`` with the arguments of a YAML.

    Args:
        cls: a class or function.
        arguments: keyword arguments; nested ``{class: name, ...}`` mappings are built first.
        subject: the name of the object in messages, e.g. ``"loss ProxyAnchorLoss"``.
        extra: arguments of the harness, passed only if the constructor takes them and ``arguments``
            does not set them to ``null``. In ``arguments``, the value ``$NAME`` stands for the
            argument NAME of the harness.

    Raises:
        UsageError: an unknown or missing argument, or the constructor refused the values.
    """
    accepted, open_ended = constructor_arguments(cls)
    withheld = {key for key, value in arguments.items() if key in extra and value is None}
    keywords = {
        key: _build_nested(key, value, subject, extra)
        for key, value in arguments.items()
        if key not in withheld
    }
    for key in keywords:
        if key in extra and arguments[key] != f"${key}":  # not what the harness would pass
            raise UsageError(
                f"{subject}: {key!r} is set by the harness; remove it from arguments (or write "
                f"{key}: null, to withhold it from the class)."
            )
        if key not in accepted and not open_ended:
            valid = [name for name in accepted if name not in extra]
            raise UsageError(
                f"{subject} has no argument {key!r}; its arguments: {', '.join(valid) or 'none'}."
                f"{nearest(key, valid)}"
            )
    keywords |= {key: extra[key] for key in extra if key in accepted and key not in withheld}
    missing = [name for name in required_arguments(cls) if name not in keywords]
    if missing:
        advice = f", or for what the harness knows one of {_names_of(extra)} as VALUE"
        raise UsageError(
            f"{subject} needs the argument {missing[0]!r}, which has no default; write "
            f"{missing[0]}: VALUE among its arguments{advice if extra else ''}."
        )
    # An optimiser's params are too long for a message.
    shown = ", ".join(f"{key}={one_line(keywords[key], 60)}" for key in keywords if key != "params")
    with users_code(
        f"{subject} could not be built {f'with {shown}' if shown else 'without arguments'}"
    ):
        return cls(**keywords)


def required_arguments(cls: Any) -> list[str]:
    """Return the names of the required arguments of a function or of a class's constructor."""
    function = cls.__init__ if inspect.isclass(cls) else cls
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # such as a class written in C
        return []
    settable = parameters[1:] if inspect.isclass(cls) else parameters  # without self
    return [p.name for p in settable if p.kind in _BY_NAME and p.default is p.empty]


def _build_nested(key: str, value: Any, subject: str, extra: Mapping[str, Any]) -> Any:
    """Return an argument's value, with objects built for the classes that it names."""
    if isinstance(value, list) and key in _ARGUMENT_LIST_KINDS:
        return [_build_nested(_ARGUMENT_LIST_KINDS[key], item, subject, extra) for item in value]
    kind = _ARGUMENT_KINDS.get(key)
    if isinstance(value, str) and kind:
        value = {"class": value}
    if not (isinstance(value, Mapping) and "class" in value):
        return _harness_value(value, subject, extra)
    name = str(value["class"])
    arguments = {argument: item for argument, item in value.items() if argument != "class"}
    # Without a kind, only an import path is found, and messages name the argument.
    return build(find_class(name, kind or key), arguments, f"{subject}: {key} {name}", extra)


def _harness_value(value: Any, subject: str, extra: Mapping[str, Any]) -> Any:
    """Return ``extra[NAME]`` for the value ``$NAME``; other values are returned unchanged."""
    if not (extra and isinstance(value, str) and value.startswith("$")):
        return value
    if value[1:] not in extra:
        raise UsageError(f"{subject}: the harness knows no {value}, only {_names_of(extra)}.")
    return extra[value[1:]]


def _names_of(extra: Mapping[str, Any]) -> str:
    return ", ".join(f"${name}" for name in extra)


def constructor_arguments(cls: Any) -> tuple[list[str], bool]:
    """Return the argument names that a constructor accepts, and whether it may accept others.

    If a constructor takes ``**kwargs``, the arguments of its base classes are accepted, too.
    """
    if not inspect.isclass(cls):
        arguments = list(inspect.signature(cls).parameters.values())
        names = [p.name for p in arguments if p.kind in _BY_NAME]
        return names, any(p.kind is p.VAR_KEYWORD for p in arguments)
    names = []
    for base in cls.__mro__:
        init = vars(base).get("__init__")
        if init is None or base is object:
            continue
        if base.__module__ == "torch.nn.modules.module":  # Module refuses its **kwargs
            return names, False
        parameters = list(inspect.signature(init).parameters.values())[1:]  # without self
        names += [p.name for p in parameters if p.kind in _BY_NAME and p.name not in names]
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            return names, False
    return names, True


def named_classes(arguments: Any) -> Iterator[tuple[str, str]]:
    """Yield ``(name, kind)`` of every class that the arguments of a YAML name, at any depth."""
    if isinstance(arguments, Mapping):
        for key, value in arguments.items():
            kind = _ARGUMENT_KINDS.get(key)
            if isinstance(value, str) and kind:
                yield value, kind
            elif isinstance(value, Mapping):
                if "class" in value:
                    yield str(value["class"]), kind or key
                yield from named_classes(value)
            elif isinstance(value, list) and key in _ARGUMENT_LIST_KINDS:
                for item in value:
                    yield from named_classes({_ARGUMENT_LIST_KINDS[key]: item})


def own_module(name: str) -> str | None:
    """Return the module of an import path if it is the user's own; otherwise ``None``."""
    module = name.rpartition(".")[0]
    return module if module and ":" not in name and own_files(module) else None


def source_fingerprint(name: str, kind: str) -> str | None:
    """Return a fingerprint of the code of a class of the user or of a plugin.

    Returns:
        :func:`reality_check.config.source_code.fingerprint` of the module of an import path or of a
        plugin; ``None`` for other names.
    """
    module = name.rpartition(".")[0]
    if not module:
        plugin = find_plugin(kind, name)
        return None if plugin is None else fingerprint(plugin.entry.module)
    find_class(name, kind)  # imports the module
    return fingerprint(module)
