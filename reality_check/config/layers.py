"""Merging plain configurations: bases, variants, and changes for single methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reality_check.config.search import kept_keys
from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest

#: Internal key of an experiment, removed when its methods are read: a list of mappings from a
#: method's name to its changed keys.
CHANGES = " changes of methods"
#: The name that stands for all methods in a mapping of changes.
_ALL = "all"
#: Keys whose value is a name, a path, or a mapping that may start from one.
_NAMED = ("dataset", "model", "protocol")


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge changes into a mapping at any depth; ranges, classes and optimisers are replaced.

    Which keys of a search are kept is defined by :func:`reality_check.config.search.kept_keys`.
    """
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping) and not _replaces(old, value):
            merged[key] = merge(kept_keys(old, value) if key == "search" else old, value)
        else:
            merged[key] = value
    return merged


def _replaces(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether the new mapping replaces the old one as a whole."""
    replacing_keys = {"low", "high", "choices", "class"}  # of ranges, choices and classes
    is_optimizer = {"name", "lr"} <= {*new}
    return bool(replacing_keys & {*old, *new}) or is_optimizer


def overlay(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Return one experiment's YAML with another's on top.

    Mappings change single keys, even if the lower YAML has a name (``model: {last_stride: 1}`` on
    top of ``model: resnet50``), unless they have a ``base``. A list of ``methods`` replaces the
    lower one; a mapping from names (or ``all``) changes these methods.
    """
    upper = dict(upper)
    changes = [*lower.get(CHANGES, [])]  # of methods, the lowest first
    if isinstance(upper.get("methods"), Mapping):
        changes.append(upper.pop("methods"))
    elif "methods" in upper:
        changes = []
    for key in _NAMED:
        value = upper.get(key)
        if key in lower and isinstance(value, Mapping) and "base" not in value:
            base = {"base": lower[key]} if isinstance(lower[key], str) else lower[key]
            upper[key] = merge(base, value)
    # The values of the upper YAML's _NAMED keys are complete by now; they replace the lower ones.
    merged = merge({k: v for k, v in lower.items() if k not in (*_NAMED, CHANGES)}, upper)
    merged = {k: lower[k] for k in _NAMED if k in lower} | merged
    return {**merged, CHANGES: changes} if changes else merged


def choose_variant(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Apply the variant that the key ``variant`` names, and return the experiment.

    Raises:
        UsageError: there are variants, but none of that name.
    """
    data = dict(data)
    variants = data.pop("variants", None)
    if variants is None:
        return data
    if not isinstance(variants, Mapping) or not all(
        isinstance(name, str) and isinstance(entry, Mapping) for name, entry in variants.items()
    ):
        raise UsageError(f"{where}: variants must map names to keys and values of an experiment.")
    chosen = data.get("variant")
    if not isinstance(chosen, str) or chosen not in variants:
        raise UsageError(
            f"{where}: variant is {chosen!r}, but it must be one of {', '.join(variants)}."
            f"{nearest(str(chosen), variants)}"
        )
    return overlay(data, variants[chosen])


def check_variant(data: Mapping[str, Any], variant: Any, where: str) -> None:
    """Raise :class:`UsageError` if a variant is chosen but the experiment has none."""
    if variant is not None and data.get("variants") is None:
        raise UsageError(
            f"{where}: variant is {variant!r}, but this experiment has no variants; leave it out."
        )


def change_methods(
    methods: list[dict[str, Any]], changes: Sequence[Mapping[str, Any]], where: str
) -> None:
    """Apply changes to methods, in place.

    Args:
        changes: mappings from a method's name, or ``all``, to its changed keys.
        where: the experiment, for messages.
    """
    names = [str(method.get("name")) for method in methods]
    for change in changes:
        for name, values in change.items():
            if values is None:
                continue  # null takes back a change of the base
            if not isinstance(values, Mapping):
                raise UsageError(
                    f"{where}: methods.{name} must map keys of the method to values, got "
                    f"{values!r}."
                )
            if name != _ALL and name not in names:
                raise UsageError(
                    f"{where}: methods changes {name!r}, but the methods are {', '.join(names)} "
                    f"(or {_ALL}).{nearest(str(name), names)}"
                )
            for index, method in enumerate(methods):
                if name in (_ALL, names[index]):
                    methods[index] = merge(method, values)


def own_training(changes: Mapping[str, Any], protocol: Any) -> dict[str, Any]:
    """Return a method's training: that of the protocol, if there is any, with the changes."""
    common = protocol.get("training") if isinstance(protocol, Mapping) else None
    return merge(common, changes) if isinstance(common, Mapping) else dict(changes)
