"""Checkpoints that are either whole or absent, and that cannot run code when loaded."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reality_check.files import atomic_write


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint to a temporary name, flush it to the disk and rename it."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    atomic_write(path, buffer.getvalue())


def load(path: Path, device: torch.device | str = "cpu") -> dict[str, Any] | None:
    """Read a checkpoint (tensors and plain data only); ``None`` if there is none."""
    if not path.exists():
        return None
    loaded: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    return loaded


def clone(state: Any) -> Any:
    """A copy of a state whose tensors no later step changes."""
    if isinstance(state, torch.Tensor):
        return state.detach().clone()
    if isinstance(state, dict):
        return {key: clone(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(clone(value) for value in state)
    return state


def random_states() -> dict[str, Any]:
    """The states of all global generators that losses and miners may draw from."""
    kind, keys, position, has_gauss, gauss = np.random.get_state()
    version, internal, gauss_next = random.getstate()
    states: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": [kind, torch.from_numpy(np.asarray(keys, dtype=np.int64)), position],
        "numpy_gauss": [has_gauss, gauss],
        "python": [version, list(internal), gauss_next],
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def restore_random_states(states: dict[str, Any]) -> None:
    """The inverse of :func:`random_states`."""
    torch.set_rng_state(states["torch"].cpu())
    kind, keys, position = states["numpy"]
    has_gauss, gauss = states["numpy_gauss"]
    np.random.set_state((kind, keys.cpu().numpy().astype(np.uint32), position, has_gauss, gauss))
    version, internal, gauss_next = states["python"]
    random.setstate((version, tuple(internal), gauss_next))
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([state.cpu() for state in states["cuda"]])


def seed_everything(seed: int) -> None:
    """Seed all global generators that losses and miners may draw from."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
