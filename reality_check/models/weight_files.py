"""Read weight files without running code in them, and load them into trunks key by key."""

from __future__ import annotations

import hashlib
import importlib
import json
import pickle
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from reality_check.config.classes import one_line
from reality_check.utils.errors import UsageError

#: Keys under which checkpoints store the weights, next to optimisers and counters.
_WRAPPERS = ("state_dict", "model_state_dict", "model", "network", "net")
#: First parts of the keys of layers after the trunk, whose weights are left out.
_AFTER_TRUNK = {
    "fc",
    "classifier",
    "head",
    "heads",
    "last_linear",
    "embedder",
    "embedding",
    "aux1",
    "aux2",
    "AuxLogits",
}


def read_state(file: Path, title: str) -> dict[str, Tensor]:
    """Read the weights in a ``.pth``, ``.pt`` or ``.safetensors`` file of any age.

    Args:
        file: file of a ``state_dict``, or of a checkpoint with one under ``state_dict``, ``model``
            or a similar key. Only tensors and plain values are read (``weights_only``).

    Raises:
        UsageError: if the file cannot be read or contains no weights.
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
    state = _find_tensors(loaded)
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


def _find_tensors(loaded: Any) -> dict[str, Tensor]:
    """Return the tensors of a state_dict, or of the one in a checkpoint; {} if there are none."""
    if not isinstance(loaded, Mapping):
        return {}
    for key in _WRAPPERS:
        if isinstance(loaded.get(key), Mapping):
            return _find_tensors(loaded[key])
    return {str(key): value for key, value in loaded.items() if isinstance(value, Tensor)}


def read_json(file: Path) -> dict[str, Any]:
    """Read what stands beside weights; {} if there is no such file."""
    try:
        plain = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return plain if isinstance(plain, dict) else {}


def file_version(file: Path) -> tuple[int, int]:
    """Return what changes when a file is written again."""
    status = file.stat()
    return status.st_mtime_ns, status.st_size


def file_hash(file: Path) -> str:
    """Return the SHA-256 of a file, which is read again if its version changes."""
    return _sha256(file, file_version(file))


@lru_cache(maxsize=64)
def _sha256(file: Path, version: tuple[int, int]) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as stream:
        while block := stream.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def fit_state(trunk: nn.Module, state: Mapping[str, Tensor], title: str, source: str) -> None:
    """Load weights into a trunk, except those of later layers; a common prefix is cut from keys.

    Args:
        trunk: the trunk, changed in place.
        state: weights from :func:`read_state`.
        source: what error messages call the weights.

    Raises:
        UsageError: if weights are missing, left over or of another shape; the trunk is unchanged.
    """
    expected = trunk.state_dict()
    prefix = _common_prefix(expected, state)
    weights = {key.removeprefix(prefix): v for key, v in state.items() if key.startswith(prefix)}
    # Files from before PyTorch 0.4.1 have no counts of batches.
    missing = [k for k in expected if k not in weights and not k.endswith("num_batches_tracked")]
    if set(weights).isdisjoint(expected):
        raise UsageError(
            f"{title}: {source} holds the weights of another network ({_list_first(list(state))}); "
            f"this trunk's are {_list_first(list(expected))}."
        )
    if missing:
        raise UsageError(f"{title}: {source} lacks {_list_first(missing)} of the trunk.")
    extra = [k for k in weights if k not in expected and k.split(".")[0] not in _AFTER_TRUNK]
    if extra:
        raise UsageError(
            f"{title}: {source} also holds {_list_first(extra)}, which the trunk lacks."
        )
    fitting = {
        key: _drop_row_dimension(weights[key], value)
        for key, value in expected.items()
        if key in weights
    }
    wrong = [k for k, value in fitting.items() if value.shape != expected[k].shape]
    if wrong:
        raise UsageError(
            f"{title}: {wrong[0]} is {tuple(fitting[wrong[0]].shape)} in {source}, but "
            f"{tuple(expected[wrong[0]].shape)} in the trunk; is it of another size?"
        )
    trunk.load_state_dict(fitting, strict=False)


def _common_prefix(expected: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> str:
    """Return the prefix that most of the trunk's keys have in the file, such as ``module.``."""
    # How many keys have each prefix, which is empty or ends with a dot.
    prefixes = Counter(
        key[: -len(name)]
        for name in expected
        for key in state
        if key.endswith(name) and key[: -len(name)][-1:] in ("", ".")
    )
    return max(prefixes, key=lambda prefix: (prefixes[prefix], -len(prefix)), default="")


def _drop_row_dimension(value: Tensor, like: Tensor) -> Tensor:
    """Return a matrix of one row (BatchNorm in old files) as a vector, if ``like`` is a vector."""
    return value[0] if like.ndim == 1 and value.shape == (1, *like.shape) else value


def _list_first(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
