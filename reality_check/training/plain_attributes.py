"""The state that losses and miners keep in plain attributes, outside of their ``state_dict``.

PML's cross-batch memory, for example, keeps the fill level of its queue in a plain number.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from reality_check.utils import checkpoints

#: Attributes that every module has.
_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))
_ATOM_TYPES = frozenset({type(None), bool, int, float, str})

State = dict[str, dict[str, Any]]


class PlainAttributes:
    """The plain attributes of some objects and of the modules within them, for checkpoints.

    Plain values are None, numbers, strings, tensors, NumPy's arrays and numbers, and lists, tuples
    and dictionaries of these; buffers that are not persistent count too. Other values are ignored:
    a module can keep them with ``get_extra_state`` and ``set_extra_state``.

    Only attributes that have changed since this object was created belong to the state, so that
    attributes which describe the machine (such as the name of a device) do not move to another one.

    Args:
        owners: the objects by name; ``None`` is left out.
        device: the device of restored tensors that were not in main memory.
    """

    def __init__(self, owners: Mapping[str, Any], device: torch.device) -> None:
        self._device = device
        self._parts = {
            f"{name}.{path}": part
            for name, value in owners.items()
            for path, part in _modules_of(value)
        }
        self._initial = {
            key: checkpoints.clone(_plain_attributes(part)) for key, part in self._parts.items()
        }

    def state_dict(self) -> State:
        """Return the changed attributes, as copies."""
        return {
            key: {
                name: checkpoints.clone(value)
                for name, value in _plain_attributes(part).items()
                if name not in self._initial[key] or not _equal(self._initial[key][name], value)
            }
            for key, part in self._parts.items()
        }

    def load_state_dict(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Restore a state; attributes that are not in it get their initial values."""
        for key, part in self._parts.items():
            restored = {**self._initial[key], **state.get(key, {})}
            current = _plain_attributes(part)
            for name in current.keys() - restored.keys():
                delattr(part, name)
            for name, value in restored.items():
                unchanged = name in current and _equal(current[name], value)
                # A name whose value is now a parameter, or not plain, is left as it is.
                if not unchanged and (name in current or not _is_taken(part, name)):
                    setattr(part, name, _unpacked(value, self._device))


class _NotPlain(Exception):
    """A value is not plain."""


def _modules_of(owner: Any) -> list[tuple[str, Any]]:
    """Return pairs of a path and a module: a module itself, with the path ``""``, and those in it.

    Another object is returned in the same way, without the objects in it; ``None`` is left out.
    """
    if isinstance(owner, nn.Module):
        return list(owner.named_modules())
    return [] if owner is None else [("", owner)]


def _plain_attributes(part: Any) -> dict[str, Any]:
    """Return the plain attributes of an object by name, as :func:`_packed` returns them."""
    values = {k: v for k, v in getattr(part, "__dict__", {}).items() if k not in _MODULE_ATTRIBUTES}
    # Buffers that the state_dict of a module leaves out.
    for name in getattr(part, "_non_persistent_buffers_set", ()):
        values[name] = getattr(part, name)
    packed = {}
    for name, value in values.items():
        with contextlib.suppress(_NotPlain):
            packed[name] = _packed(value)
    return packed


def _is_taken(part: Any, name: str) -> bool:
    """Return whether the object has any value of that name, such as a parameter."""
    namespaces = ("__dict__", "_parameters", "_buffers", "_modules")
    return any(name in getattr(part, namespace, ()) for namespace in namespaces)


def _packed(value: Any) -> Any:
    """Return a value in a form that can be loaded without running code.

    Values that need conversion become dictionaries ``{kind: content}``.

    Raises:
        _NotPlain: the value is not plain.
    """
    if type(value) in _ATOM_TYPES:
        return value
    if isinstance(value, Tensor):
        if isinstance(value, nn.Parameter) or value.layout != torch.strided:
            raise _NotPlain
        value = value.detach()
        return value if value.device.type == "cpu" else {"on the device": value}
    if isinstance(value, np.ndarray | np.generic):
        try:
            return {"array": torch.from_numpy(np.array(value))}
        except (TypeError, ValueError) as error:  # such as an array of text
            raise _NotPlain from error
    if type(value) in (list, tuple):
        return type(value)(_packed(element) for element in value)
    if type(value) is dict and all(type(key) in _ATOM_TYPES for key in value):
        return {"dict": {key: _packed(element) for key, element in value.items()}}
    raise _NotPlain


def _unpacked(packed: Any, device: torch.device) -> Any:
    """Return a copy of the value that :func:`_packed` converted."""
    if isinstance(packed, Tensor):
        return packed.clone()
    if isinstance(packed, list | tuple):
        return type(packed)(_unpacked(element, device) for element in packed)
    if not isinstance(packed, dict):
        return packed
    ((kind, content),) = packed.items()
    if kind == "array":
        return content.numpy().copy()[()]  # [()] turns an array without dimensions into a number
    if kind == "on the device":
        return content.to(device, copy=True)
    return {key: _unpacked(element, device) for key, element in content.items()}


def _equal(first: Any, second: Any) -> bool:
    """Return whether two packed values are equal, with their types and devices."""
    if type(first) is not type(second):
        return False
    if isinstance(first, Tensor):
        same_kind = first.dtype == second.dtype and first.device == second.device
        return same_kind and torch.equal(first, second)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(_equal, first, second))
    if isinstance(first, dict):
        same_keys = first.keys() == second.keys()
        return same_keys and all(_equal(first[key], second[key]) for key in first)
    return bool(first == second)
