"""Checkpoints that are either whole or absent, and that cannot run code when loaded."""

from __future__ import annotations

import hashlib
import io
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reality_check.utils.files import atomic_write

_PREFIX = b"sha256:"
_SEAL_LENGTH = len(_PREFIX) + 64


class Damaged(RuntimeError):
    """A checkpoint is torn or its bytes have changed since it was written."""


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint to a temporary name, flush it to the disk and rename it.

    The file is a zip archive that ``torch.load`` reads; its comment is a checksum of the rest.
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    # An archive ends with the length of its comment, so far 0.
    body = buffer.getvalue()[:-2] + struct.pack("<H", _SEAL_LENGTH)
    atomic_write(path, body + _seal(body))


def load(path: Path) -> dict[str, Any] | None:
    """Read a checkpoint (tensors and plain data only); ``None`` if there is none.

    All tensors are loaded to main memory: modules and optimisers copy them to their device, and
    optimisers keep their step counts there, since on a GPU each step would wait for them.

    Raises:
        Damaged: the file is not what was written.
    """
    if not path.exists():
        return None
    return torch.load(io.BytesIO(check(path)), map_location="cpu", weights_only=True)


def check(path: Path) -> bytes:
    """Compare a checkpoint with its checksum, and return its bytes.

    Raises:
        FileNotFoundError: there is no such file.
        Damaged: the file is not what was written.
    """
    content = path.read_bytes()
    body, seal = content[:-_SEAL_LENGTH], content[-_SEAL_LENGTH:]
    if seal != _seal(body):
        problem = "wrong" if seal.startswith(_PREFIX) else "missing"
        raise Damaged(f"{path} is damaged: its checksum is {problem}")
    return content


def _seal(body: bytes) -> bytes:
    return _PREFIX + hashlib.sha256(body).hexdigest().encode()


def clone(state: Any) -> Any:
    """Return a copy of a state, so that later steps do not change its tensors."""
    if isinstance(state, torch.Tensor):
        return state.detach().clone()
    if isinstance(state, dict):
        return {key: clone(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(map(clone, state))
    return state


def random_states(device: torch.device) -> dict[str, Any]:
    """Return the states of all global generators that losses and miners may draw from.

    Only the GPU ``device`` is included: another machine, or another worker, may have others.
    """
    kind, keys, position, has_gauss, gauss = np.random.get_state()
    version, internal, gauss_next = random.getstate()
    states: dict[str, Any] = {  # as lists and tensors, which ``load`` can read
        "torch": torch.get_rng_state(),
        "numpy": [kind, torch.from_numpy(np.asarray(keys, dtype=np.int64)), position],
        "numpy_gauss": [has_gauss, gauss],
        "python": [version, list(internal), gauss_next],
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_random_states(states: dict[str, Any], device: torch.device) -> None:
    """Restore what :func:`random_states` returned."""
    torch.set_rng_state(states["torch"])
    kind, keys, position = states["numpy"]
    has_gauss, gauss = states["numpy_gauss"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, gauss))
    version, internal, gauss_next = states["python"]
    random.setstate((version, tuple(internal), gauss_next))
    if "cuda" in states and device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)


def seed_everything(seed: int) -> None:
    """Seed all global generators that losses and miners may draw from."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
