"""Runs GPU-marked tests on a simulated GPU where there is no real one.

    pytest -p simulated_cuda.plugin -m gpu

It is switched on for the whole process, since it replaces parts of torch. With a real GPU the same
command runs the same tests on that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from simulated_cuda import Device, simulated_cuda, why_not

_DEVICE = pytest.StashKey[Device]()
_STACK = pytest.StashKey[ExitStack]()
_ON = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Before test files ask whether there is a GPU."""
    stack = config.stash[_STACK] = ExitStack()
    if torch.cuda.is_available():
        config.stash[_ON] = torch.cuda.get_device_name()
    elif (reason := why_not()) is not None:
        config.stash[_ON] = f"nothing, since {reason}"
    else:
        config.stash[_ON] = "a GPU that is simulated on the CPU"
        config.stash[_DEVICE] = stack.enter_context(simulated_cuda())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what cannot run, with the reason."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=why_not() or "no GPU"))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give torch back what was replaced."""
    config.stash[_STACK].close()


def pytest_report_header(config: pytest.Config) -> str:
    """Say what the numbers of passed tests are about."""
    return f"GPU-marked tests run on {config.stash[_ON]}"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave files alone that have no test for GPUs; importing them all takes longer than these."""
    if collection_path.name.startswith("test_") and collection_path.suffix == ".py":
        return True if "mark.gpu" not in collection_path.read_text("utf-8") else None
    return None


@pytest.fixture(autouse=True)
def _as_if_new(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test finds a GPU that is whole; copies that are under way at its end are checked."""
    device = request.config.stash.get(_DEVICE, None)
    if device is None:
        yield
        return
    device.reset()
    yield
    device.page_locked.arrive()
    device.reset()
