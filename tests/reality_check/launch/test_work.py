"""The process that starts workers, and watches them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from support.spied import experiment

from reality_check.launch import work as room
from reality_check.launch.parallelism import Parallelism
from reality_check.studies import storage
from reality_check.studies.recorded_experiment import RecordedExperiment


class NoWorkers:
    """Workers that have nothing left to do once they have been watched."""

    def __init__(self, *_: Any) -> None:
        pass

    def wait(self, watch: Any) -> None:
        watch()

    def stop(self) -> None:
        pass


def test_a_server_that_restarts_while_workers_begin_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = RecordedExperiment(experiment(), tmp_path)
    monkeypatch.setattr(room, "LocalWorkers", NoWorkers)
    connect, calls = storage._open_with_retries, []

    def restarting(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            raise sqlalchemy.exc.OperationalError("SELECT 1", {}, Exception("Lost connection"))
        return connect(*args)

    monkeypatch.setattr(storage, "_open_with_retries", restarting)
    watched: list[RecordedExperiment] = []
    room.work([recorded], tmp_path, Parallelism(), watched.append, lambda _: None, math.inf)
    assert len(calls) == 2
    assert [each.out_dir for each in watched] == [tmp_path]
