"""Merging plain configurations: bases, variants, and changes for single methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reality_check.config.search import of_kind
from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest

#: Internal key that holds changes of methods by name until the methods are read.
CHANGES = " changes of methods"
#: The name that stands for all methods in a mapping of changes.
_ALL = "all"
#: Keys whose value is a name, a path, or a mapping that may start from one.
_NAMED = ("dataset", "model", "protocol")


def merge(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Merge mappings at any depth; a range, an object or an optimiser is replaced as a whole.

    A search that names its kind keeps of the one below what that kind has.
    """
    merged = dict(base)
    for key, value in own.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping) and not _replaces(old, value):
            is_search = key == "search" and "kind" in value
            merged[key] = merge(of_kind(old, value["kind"]) if is_search else old, value)
        else:
            merged[key] = value
    return merged


def _replaces(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether the new mapping replaces the old one as a whole, as an optimiser does."""
    marks = {"low", "high", "choices", "class"}
    return bool(marks & {*old, *new}) or {"name", "lr"} <= {*new}


def overlay(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Return one experiment's YAML with another's on top.

    Mappings change single keys, also of what the lower one names (``model: resnet50`` below
    ``model: {last_stride: 1}``), unless they have a base of their own. ``methods`` as a list
    replaces, as a mapping from names (or ``all``) it changes those methods.
    """
    upper = dict(upper)
    changes = [*lower.get(CHANGES, [])]
    if isinstance(upper.get("methods"), Mapping):
        changes.append(upper.pop("methods"))
    elif "methods" in upper:
        changes = []
    for key in _NAMED:
        own = upper.get(key)
        if key in lower and isinstance(own, Mapping) and "base" not in own:
            below = {"base": lower[key]} if isinstance(lower[key], str) else lower[key]
            upper[key] = merge(below, own)
    merged = merge({k: v for k, v in lower.items() if k not in (*_NAMED, CHANGES)}, upper)
    merged = {**{k: lower[k] for k in _NAMED if k in lower}, **merged}
    return {**merged, CHANGES: changes} if changes else merged


def choose_variant(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the experiment with the variant applied that its key ``variant`` names.

    Raises:
        UsageError: there are variants, but none of that name.
    """
    data = dict(data)
    variants = data.pop("variants", None)
    if variants is None:
        return data
    if not _maps_to_mappings(variants):
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


def _maps_to_mappings(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(own, Mapping) for name, own in value.items()
    )


def change_methods(
    methods: list[dict[str, Any]], changes: Sequence[Mapping[str, Any]], where: str
) -> None:
    """Apply changes to methods by their names, in place."""
    names = [str(method.get("name")) for method in methods]
    for change in changes:
        for name, own in change.items():
            if own is None:
                continue  # a change below is taken back
            if not isinstance(own, Mapping):
                raise UsageError(
                    f"{where}: methods.{name} must map keys of the method to values, got {own!r}."
                )
            if name != _ALL and name not in names:
                raise UsageError(
                    f"{where}: methods changes {name!r}, but the methods are {', '.join(names)} "
                    f"(or {_ALL}).{nearest(str(name), names)}"
                )
            for index, method in enumerate(methods):
                if name in (_ALL, names[index]):
                    methods[index] = merge(method, own)


def own_training(own: Mapping[str, Any], protocol: Any) -> dict[str, Any]:
    """Return a method's training, which changes keys of the protocol's."""
    common = protocol.get("training") if isinstance(protocol, Mapping) else None
    return merge(common, own) if isinstance(common, Mapping) else dict(own)
