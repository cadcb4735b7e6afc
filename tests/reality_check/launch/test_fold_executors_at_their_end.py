"""What becomes of the processes of a worker when something goes wrong in one of them."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
import torch

from reality_check.evaluation.scoring import Diverged
from reality_check.launch import fold_executors as runners
from reality_check.launch.fold_executors import LOST, SerialExecutor
from reality_check.studies.retries import StorageLost
from reality_check.training.strategy import Strategy
from reality_check.utils.errors import UsageError
from reality_check.utils.lease import LeaseLost

CPU = torch.device("cpu")
T = TypeVar("T")


# -- one process, or a strategy -----------------------------------------------------------------


class Pair(Strategy):
    """The main process of two; notes what the other one is told."""

    size = 2

    def __init__(self) -> None:
        self.told: list[Any] = []

    def broadcast(self, value: T) -> T:
        self.told.append(value)
        return value


class Fails:
    """A fold run that ends with an exception."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def run(self, *arguments: Any) -> Any:
        raise self.error


class Ended(BaseException):
    """Stands for the end of this process."""


@pytest.fixture
def strategy(monkeypatch: pytest.MonkeyPatch) -> Pair:
    def end(status: int) -> None:
        raise Ended(status)

    monkeypatch.setattr(runners.os, "_exit", end)
    return Pair()


def run(runner: SerialExecutor, error: BaseException) -> Any:
    job: Any = Fails(error)
    with pytest.raises(type(error)):
        runner.run([job], lambda position: None)
    return job


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        StorageLost("the database was away"),
        UsageError("the batch cannot be divided"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_nothing_is_said_to_processes_that_wait_in_the_middle_of_a_step(
    strategy: Pair, error: BaseException
) -> None:
    runner = SerialExecutor(None, CPU, strategy)  # type: ignore[arg-type]
    job = run(runner, error)
    runner.close()
    assert strategy.told == [job]
    # Should the storage give this worker other work, the others could not follow.
    with pytest.raises(Ended, match=str(LOST)):
        run(runner, error)
    assert strategy.told == [job]


def test_a_divergence_is_seen_by_all_and_they_wait_for_the_next_fold_run(strategy: Pair) -> None:
    runner = SerialExecutor(None, CPU, strategy)  # type: ignore[arg-type]
    told = [run(runner, Diverged("the loss became nan")) for _ in range(2)]
    runner.close()
    assert strategy.told == [*told, None]


def test_a_team_whose_workwas_taken_away_ends(strategy: Pair) -> None:
    job: Any = Fails(LeaseLost())
    with pytest.raises(Ended, match=str(LOST)):
        SerialExecutor(None, CPU, strategy).run([job], lambda position: None)  # type: ignore[arg-type]


def test_work_thatwas_taken_away_before_it_began_leaves_the_others_waiting(strategy: Pair) -> None:
    def renew_lease() -> float:
        raise LeaseLost

    runner = SerialExecutor(None, CPU, strategy)  # type: ignore[arg-type]
    job: Any = Fails(LeaseLost())
    with pytest.raises(LeaseLost):
        runner.run([job], lambda position: None, renew_lease)
    runner.close()
    assert strategy.told == [None]


def test_one_process_goes_on_after_any_error() -> None:
    runner = SerialExecutor(None, CPU)  # type: ignore[arg-type]
    for _ in range(2):
        run(runner, OSError(28, "No space left on device"))
    runner.close()
