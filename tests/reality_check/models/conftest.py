"""What the tests of trunks share: optional libraries, and a folder for downloaded weights."""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from reality_check.models import trunk_building as building
from reality_check.models import weight_files

#: Operators that torchvision expects from its compiled part, which loads only beside the torch that
#: it was built for; no trunk calls them.
OPERATORS = torch.library.Library("torchvision", "FRAGMENT")


def library(name: str) -> Any:
    """Import an optional library, also beside a torch that torchvision was not built for."""
    try:
        return importlib.import_module(name)
    except RuntimeError:
        for operator in ("nms", "qnms"):
            if not hasattr(torch.ops.torchvision, operator):
                OPERATORS.define(f"{operator}(Tensor boxes, Tensor scores, float most) -> Tensor")
        return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"needs {name}, which is not installed: {error}")


@pytest.fixture
def torchvision() -> Any:
    return library("torchvision")


@pytest.fixture
def timm() -> Any:
    return library("timm")


@pytest.fixture
def transformers() -> Any:
    with contextlib.suppress(pytest.skip.Exception):
        library("torchvision")  # transformers imports it where it is installed
    return library("transformers")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that downloaded weights lie in: empty, and nobody else's."""
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path / "hub"))
    return tmp_path / "hub" / "checkpoints"


@pytest.fixture(autouse=True)
def nothing_read_before() -> None:
    for cached in (building._read_weights, weight_files._sha256):
        cached.cache_clear()


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request fails at once, as without a network."""
    import socket

    def refuse(*arguments: object, **named: object) -> None:
        raise OSError("no network in tests")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
