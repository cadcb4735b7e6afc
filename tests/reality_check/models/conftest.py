"""What the tests of trunks share: optional libraries, and a folder for downloaded weights."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from reality_check.models import trunk_building as building


def library(name: str) -> Any:
    """Import an optional library; beside a torch it was not built for others are raised."""
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError, AttributeError) as error:
        pytest.skip(f"needs {name} (the extra 'vision'), which does not import: {error}")


@pytest.fixture
def torchvision() -> Any:
    return library("torchvision")


@pytest.fixture
def timm() -> Any:
    return library("timm")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that downloaded weights lie in: empty, and nobody else's."""
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path / "hub"))
    return tmp_path / "hub" / "checkpoints"


@pytest.fixture(autouse=True)
def nothing_read_before() -> None:
    for cached in (building._read_weights, building._sha256):
        cached.cache_clear()


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request fails at once, as without a network."""
    import socket

    def refuse(*arguments: object, **named: object) -> None:
        raise OSError("no network in tests")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
