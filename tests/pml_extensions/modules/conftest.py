"""Compiled code of one test does not count against the next one's limit of recompilations."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def forget_compiled_code() -> Iterator[None]:
    yield
    if "torch._dynamo" in sys.modules:  # else nothing was compiled, and this imports the compiler
        torch.compiler.reset()
