from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest
from support import genuine_trees


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has a cache folder of its own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("REALITY_CHECK_CACHE", str(folder))
    return folder


@pytest.fixture
def real_data() -> Path:
    """The folder of real data sets, or a skip."""
    folder = os.environ.get("REALITY_CHECK_DATA")
    if not folder:
        pytest.skip("REALITY_CHECK_DATA is not set: it names the folder with omniglot/ and others")
    return Path(folder)


@pytest.fixture(scope="session")
def trees() -> ModuleType:
    """Builders of small data sets in the genuine layouts: see genuine_trees.py."""
    return genuine_trees
