"""Weight files: read without running code in them, and fitted to a trunk key by key."""

from __future__ import annotations

import importlib
import pickle
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from reality_check.config.classes import one_line
from reality_check.utils.errors import UsageError

#: Keys under which checkpoints keep the weights, beside optimisers and counters.
_WRAPPERS = ("state_dict", "model_state_dict", "model", "network", "net")
#: First parts of the names of layers behind the trunk; their weights are left out.
_BEHIND = {
    *("fc", "classifier", "head", "heads", "last_linear", "embedder", "embedding"),
    *("aux1", "aux2", "AuxLogits"),
}


def read_state(file: Path, title: str) -> dict[str, Tensor]:
    """Read the weights in a ``.pth``, ``.pt`` or ``.safetensors`` file of any age.

    Args:
        file: a ``state_dict``, or a checkpoint with one under ``state_dict``, ``model`` or the
            like. Only tensors and plain values are read (``weights_only``).

    Raises:
        UsageError: it cannot be read, or holds no weights.
    """
    try:
        loaded = _load(file)
    except pickle.UnpicklingError as error:
        raise UsageError(
            f"{title}: {file} is not a weight file, or holds more than tensors and plain values, "
            "which is not read because it could run code; save weights alone with "
            f"torch.save(model.state_dict(), path) ({one_line(error, 120)})."
        ) from None
    except Exception as error:
        raise UsageError(
            f"{title}: {file} cannot be read as a weight file ({type(error).__name__}: "
            f"{one_line(error, 120)})."
        ) from None
    state = _tensors(loaded)
    if not state:
        raise UsageError(
            f"{title}: {file} holds no weights but a {type(loaded).__name__}; write one with "
            "torch.save(model.state_dict(), path)."
        )
    return state


def _load(file: Path) -> Any:
    if file.suffix == ".safetensors":
        return importlib.import_module("safetensors.torch").load_file(file)
    return torch.load(file, map_location="cpu", weights_only=True)


def _tensors(loaded: Any) -> dict[str, Tensor]:
    if not isinstance(loaded, Mapping):
        return {}
    for key in _WRAPPERS:
        if isinstance(loaded.get(key), Mapping):
            return _tensors(loaded[key])
    return {str(key): value for key, value in loaded.items() if isinstance(value, Tensor)}


def fit_state(trunk: nn.Module, state: Mapping[str, Tensor], title: str, source: str) -> None:
    """Load weights into a trunk; a common prefix and the layers behind the trunk may be there.

    Args:
        trunk: changed in place.
        state: see :func:`read_state`.

    Raises:
        UsageError: weights are missing, left over, or of another shape; the trunk is untouched.
    """
    wanted = trunk.state_dict()
    prefix = _common_prefix(wanted, state)
    weights = {key.removeprefix(prefix): v for key, v in state.items() if key.startswith(prefix)}
    # Files from before PyTorch 0.4.1 do not count batches.
    missing = [k for k in wanted if k not in weights and not k.endswith("num_batches_tracked")]
    if not set(weights) & set(wanted):
        raise UsageError(
            f"{title}: {source} holds the weights of another network ({_some(list(state))}); this "
            f"trunk's are {_some(list(wanted))}."
        )
    if missing:
        raise UsageError(f"{title}: {source} lacks {_some(missing)} of the trunk.")
    extra = [k for k in weights if k not in wanted and k.split(".")[0] not in _BEHIND]
    if extra:
        raise UsageError(f"{title}: {source} also holds {_some(extra)}, which the trunk lacks.")
    fitting = {key: _row(weights[key], value) for key, value in wanted.items() if key in weights}
    wrong = [k for k, value in fitting.items() if value.shape != wanted[k].shape]
    if wrong:
        raise UsageError(
            f"{title}: {wrong[0]} is {tuple(fitting[wrong[0]].shape)} in {source}, but "
            f"{tuple(wanted[wrong[0]].shape)} in the trunk; is it of another size?"
        )
    trunk.load_state_dict(fitting, strict=False)


def _common_prefix(wanted: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> str:
    """Return the prefix of most of the trunk's keys in the file, such as ``module.``."""
    before = Counter(
        key[: -len(name)]
        for name in wanted
        for key in state
        if key.endswith(name) and key[: -len(name)][-1:] in ("", ".")
    )
    return max(before, key=lambda prefix: (before[prefix], -len(prefix)), default="")


def _row(value: Tensor, like: Tensor) -> Tensor:
    """Return a vector for the matrix of one row that old files have for BatchNorm."""
    return value[0] if like.ndim == 1 and value.shape == (1, *like.shape) else value


def _some(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
