"""Compiled code of one test does not count against the next one's limit of recompilations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def forget_compiled_code() -> Iterator[None]:
    yield
    torch.compiler.reset()
