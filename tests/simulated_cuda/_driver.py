"""Has torch's autograd engine get along without a driver, for which torch has no switch.

The engine asks for the stream of each GPU tensor, and for those of all GPUs that have a "primary
context". A guard that does nothing answers the first (torch has one). The second asks the driver:
one entry of the CUDA hooks' table of C++ methods is replaced by "no context". A torch that was
built for CPUs alone lacks both.
"""

from __future__ import annotations

import atexit
import ctypes
from pathlib import Path

import torch

_METHOD = "hasPrimaryContext"
_HEADER = "include/ATen/detail/AcceleratorHooksInterface.h"
_HOOKS = "_ZN2at6detail12getCUDAHooksEv"
_ENTRIES = 128  # more than the table has; what lies behind it is copied and never used
_HEAD = 2  # words before the address that objects point to
_WORD = ctypes.sizeof(ctypes.c_void_p)
_alive: list[object] = []  # what C++ points to


def need_no_driver() -> None:
    """Let gradients of GPU tensors be computed without one; until the process ends."""
    if not _alive:
        torch._C._ensureCUDADeviceGuardSet()
        _have_no_contexts()


def _have_no_contexts() -> None:
    folder = Path(torch.__file__).parent
    get_hooks = ctypes.CDLL(str(folder / "lib" / "libtorch_cpu.so"))[_HOOKS]
    get_hooks.restype = ctypes.c_void_p
    pointer = ctypes.c_void_p.from_address(get_hooks())
    table = pointer.value
    assert table is not None
    entries = (ctypes.c_void_p * (_HEAD + _ENTRIES)).from_address(table - _HEAD * _WORD)
    copy = type(entries)(*entries)
    answer = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int8)(lambda *_: False)
    copy[_HEAD + _place(folder / _HEADER)] = ctypes.cast(answer, ctypes.c_void_p).value
    pointer.value = ctypes.addressof(copy) + _HEAD * _WORD
    atexit.register(setattr, pointer, "value", table)
    _alive.extend([copy, answer])


def _place(header: Path) -> int:
    """Which entry of the table is the method's: they are in the order of the header."""
    place = 0
    for line in header.read_text().splitlines():
        if line.strip().startswith("virtual"):
            if _METHOD in line:
                return place
            place += 2 if "~" in line else 1  # a destructor has two
    raise LookupError(f"{header} has no method {_METHOD}")
