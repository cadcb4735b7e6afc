"""Calls that are repeated while a storage is away."""

from __future__ import annotations

import signal
from pathlib import Path

import optuna
import pytest
import sqlalchemy
from support.flaky import Flaky, gone

from reality_check.studies import retries
from reality_check.studies.retries import Retries, StorageLost, is_temporary


@pytest.mark.usefixtures("quick")
def test_a_call_is_repeated_and_the_outage_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    retrying = Retries("postgresql")
    assert retrying.call(Flaky(5, gone())) == "done"
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "does not answer" in told[0]
    assert "server closed" in told[0]
    assert "answers after" in told[1]


@pytest.mark.usefixtures("quick")
def test_a_real_error_is_not_repeated() -> None:
    wrong = Flaky(1, sqlalchemy.exc.ProgrammingError("SELECT", {}, Exception("no such table")))
    with pytest.raises(sqlalchemy.exc.ProgrammingError):
        Retries("postgresql").call(wrong)
    assert wrong.calls == 1


@pytest.mark.usefixtures("quick")
def test_retries_end_and_what_follows_does_not_wait_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retries, "RETRY_SECONDS", 0.0)
    retrying = Retries("postgresql")
    with pytest.raises(StorageLost, match="has not answered"):
        retrying.call(Flaky(10**6, gone()))
    monkeypatch.setattr(retries, "RETRY_SECONDS", 1e9)
    again = Flaky(10**6, gone())
    with pytest.raises(StorageLost):
        retrying.call(again)
    assert again.calls == 1
    assert retrying.call(Flaky(0, gone())) == "done"  # it is back
    assert retrying.call(Flaky(3, gone())) == "done"


def test_ctrl_c_ends_an_outage_after_the_call_and_a_second_one_ends_the_call() -> None:
    ended: list[int] = []

    def call(presses: int) -> None:
        for _ in range(presses):
            signal.raise_signal(signal.SIGINT)
        ended.append(presses)
        raise gone()

    for presses in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            Retries("postgresql").call(call, presses)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert ended == [1]


def test_only_a_locked_sqlite_may_pass(tmp_path: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'no' / 'such.db'}")
    with pytest.raises(sqlalchemy.exc.OperationalError) as caught:
        engine.connect()
    assert not is_temporary(caught.value)
    wrapped = optuna.exceptions.StorageInternalError("commit")
    wrapped.__cause__ = gone()
    assert is_temporary(wrapped)
