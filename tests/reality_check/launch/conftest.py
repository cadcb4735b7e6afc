from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.spied import Handed, Made, Spied, experiment, made_up_fold_runs

from reality_check.data import ImageSet


@pytest.fixture
def make(
    make_images: Callable[..., ImageSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Made:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)

    def make_recorded(on_progress: Callable[..., None] = lambda _: None, **changes: Any) -> Spied:
        return Spied(experiment(**changes), tmp_path, make_images(16), on_progress=on_progress)

    return make_recorded


@pytest.fixture
def handed() -> Iterator[Handed]:
    """What every fold run is handed; each then ends at once with a made-up result."""
    with made_up_fold_runs() as seen:
        yield seen
