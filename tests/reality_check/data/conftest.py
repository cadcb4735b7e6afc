from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest


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
    file = Path(__file__).with_name("genuine_trees.py")
    spec = importlib.util.spec_from_file_location("genuine_trees", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
