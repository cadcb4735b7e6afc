from __future__ import annotations

import pytest

from reality_check.studies import retries


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "LONGEST_PAUSE", 0.001)
    monkeypatch.setattr(retries.time, "sleep", lambda seconds: None)
