"""What several rooms' tests share: a tiny data set, a tiny experiment, a database server."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reality_check.data import ImageSet

MakeImages = Callable[..., ImageSet]


@pytest.fixture
def make_images() -> MakeImages:
    """A function that makes classes of noisy 16 x 16 patterns."""

    def make(classes: int = 8, each: int = 6, seed: int = 0, name: str = "patterns") -> ImageSet:
        draw = np.random.default_rng(seed)
        patterns = draw.uniform(0, 255, (classes, 1, 16, 16, 1))
        images = np.clip(patterns + draw.normal(0, 60, (classes, each, 16, 16, 1)), 0, 255)
        return ImageSet(
            images.reshape(-1, 16, 16, 1).astype(np.uint8),
            np.repeat(np.arange(classes), each),
            tuple(f"class {label}" for label in range(classes)),
            name,
        )

    return make


@pytest.fixture(scope="session")
def tiny() -> Path:
    """The YAML of a whole experiment that takes seconds; overrides change it."""
    return Path(__file__).with_name("tiny.yaml")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """A PostgreSQL of the tests' own (``servers.Postgres``); whoever stops it starts it again."""
    spec = importlib.util.spec_from_file_location("servers", Path(__file__).with_name("servers.py"))
    assert spec is not None
    assert spec.loader is not None
    servers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(servers)
    if servers.Postgres.missing() is not None:
        pytest.skip(f"{servers.Postgres.missing()} is not installed")
    pytest.importorskip("psycopg")
    made = servers.Postgres()
    yield made
    made.close()
