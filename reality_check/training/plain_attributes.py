"""State of losses and miners in plain attributes, which their ``state_dict`` lacks.

PML's cross-batch memory, for example, counts in a plain number how far its queue is filled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from reality_check.utils import checkpoints

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_ATOMS = frozenset({type(None), bool, int, float, str})

State = dict[str, dict[str, Any]]


class PlainAttributes:
    """The plain attributes of some objects and of the modules within them, for checkpoints.

    Plain are None, numbers, strings, tensors, NumPy's arrays and numbers, and lists, tuples and
    dictionaries of these; buffers that are not persistent count too. Anything else is left alone:
    a module keeps it with its own ``get_extra_state`` and ``set_extra_state``.

    Only what has changed since this was created is state, so that what tells of the machine (such
    as the name of a device) is not carried to another one.

    Args:
        owners: objects by name; None is left out.
        device: of the tensors that were not in main memory.
    """

    def __init__(self, owners: Mapping[str, Any], device: torch.device) -> None:
        self._device = device
        self._parts = {
            f"{owner}.{name}": part
            for owner, whole in owners.items()
            for name, part in _parts(whole)
        }
        self._first = {
            key: checkpoints.clone(_attributes(part)) for key, part in self._parts.items()
        }

    def state_dict(self) -> State:
        """Return the changed attributes, as copies."""
        return {
            key: {
                name: checkpoints.clone(value)
                for name, value in _attributes(part).items()
                if name not in self._first[key] or not _same(self._first[key][name], value)
            }
            for key, part in self._parts.items()
        }

    def load_state_dict(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Load a state; attributes that it lacks get their first values."""
        for key, part in self._parts.items():
            wanted = {**self._first[key], **state.get(key, {})}
            current = _attributes(part)
            for name in current.keys() - wanted.keys():
                delattr(part, name)
            for name, value in wanted.items():
                same = name in current and _same(current[name], value)
                if not same and (name in current or not _is_taken(part, name)):
                    setattr(part, name, _unpacked(value, self._device))


class _NotPlain(Exception):
    pass


def _parts(whole: Any) -> list[tuple[str, Any]]:
    if isinstance(whole, nn.Module):
        return list(whole.named_modules())
    return [] if whole is None else [("", whole)]


def _attributes(part: Any) -> dict[str, Any]:
    values = {k: v for k, v in getattr(part, "__dict__", {}).items() if k not in _OF_EVERY_MODULE}
    for name in getattr(part, "_non_persistent_buffers_set", ()):
        values[name] = getattr(part, name)
    packed = {}
    for name, value in values.items():
        with contextlib.suppress(_NotPlain):
            packed[name] = _packed(value)
    return packed


def _is_taken(part: Any, name: str) -> bool:
    """Whether a value that is not plain, such as a parameter, has that name now."""
    namespaces = ("__dict__", "_parameters", "_buffers", "_modules")
    return any(name in getattr(part, namespace, ()) for namespace in namespaces)


def _packed(value: Any) -> Any:
    """Return a value that can be loaded without running code; dictionaries in it name its kind."""
    if type(value) in _ATOMS:
        return value
    if isinstance(value, Tensor):
        if isinstance(value, nn.Parameter) or value.layout != torch.strided:
            raise _NotPlain
        value = value.detach()
        return value if value.device.type == "cpu" else {"on the device": value}
    if isinstance(value, np.ndarray | np.generic):
        try:
            return {"array": torch.from_numpy(np.array(value))}
        except (TypeError, ValueError) as error:  # of text, say
            raise _NotPlain from error
    if type(value) in (list, tuple):
        return type(value)(_packed(element) for element in value)
    if type(value) is dict and all(type(key) in _ATOMS for key in value):
        return {"dict": {key: _packed(element) for key, element in value.items()}}
    raise _NotPlain


def _unpacked(packed: Any, device: torch.device) -> Any:
    if isinstance(packed, Tensor):
        return packed.clone()
    if isinstance(packed, list | tuple):
        return type(packed)(_unpacked(element, device) for element in packed)
    if not isinstance(packed, dict):
        return packed
    ((kind, content),) = packed.items()
    if kind == "array":
        return content.numpy().copy()[()]
    if kind == "on the device":
        return content.to(device, copy=True)
    return {key: _unpacked(element, device) for key, element in content.items()}


def _same(first: Any, second: Any) -> bool:
    if type(first) is not type(second):
        return False
    if isinstance(first, Tensor):
        alike = first.dtype == second.dtype and first.device == second.device
        return alike and torch.equal(first, second)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(_same, first, second))
    if isinstance(first, dict):
        same_keys = first.keys() == second.keys()
        return same_keys and all(_same(first[key], second[key]) for key in first)
    return bool(first == second)
