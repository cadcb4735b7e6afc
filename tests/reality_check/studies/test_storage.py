"""Storages by URL: passwords, journals, and real database servers that go away in the middle."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy
from optuna.trial import TrialState
from support import servers

from reality_check.cli.main import main
from reality_check.config import load_experiment
from reality_check.launch.prepare import prepare
from reality_check.launch.work_loop import WorkLoop
from reality_check.launch.worker import work
from reality_check.studies import retries
from reality_check.studies.campaign import Campaign
from reality_check.studies.output_folder import load_locked
from reality_check.studies.patient_storage import PatientStorage
from reality_check.studies.retries import Retries, StorageLost, is_passing
from reality_check.studies.storage import (
    check_workers,
    open_storage,
    same_database,
    sole_worker,
)
from reality_check.studies.study import Study
from reality_check.utils.errors import UsageError
from reality_check.utils.lease import HeartbeatMonitor
from reality_check.utils.passwords import (
    PASSWORD_VARIABLE,
    lent_password,
    password_for,
    split_password,
    without_password,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore:Heartbeat of storage"),
]


# -- passwords -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "bare", "password"),
    [
        ("postgresql://tom:secret@host/db", "postgresql://tom@host/db", "secret"),
        ("mysql+pymysql://tom:a%40b@host:1/db?x=1", "mysql+pymysql://tom@host:1/db?x=1", "a@b"),
        ("postgresql://tom:p@ss@host/db", "postgresql://tom@host/db", "p@ss"),
        ("postgresql://tom:p/s?@host/db?x=a@b", "postgresql://tom@host/db?x=a@b", "p/s?"),
        ("postgresql://tom:@host/db", "postgresql://tom@host/db", ""),
        ("postgresql://tom@host/db?password=secret", "postgresql://tom@host/db", "secret"),
        ("postgresql://h/db?passwd=secret&x=1", "postgresql://h/db?x=1", "secret"),
        ("postgresql://tom@host:5/db", "postgresql://tom@host:5/db", None),
        ("sqlite:////a:b@c/studies.db", "sqlite:////a:b@c/studies.db", None),
        ("journal:///a/b.log", "journal:///a/b.log", None),
    ],
)
def test_the_password_is_taken_out_of_the_url(url: str, bare: str, password: str | None) -> None:
    assert split_password(url) == (bare, password)
    assert without_password(bare) == bare


def test_the_password_comes_from_the_url_or_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "lent")
    assert password_for("postgresql://tom:own@host/db")[1] == "own"
    assert password_for("postgresql://tom@host/db")[1] == "lent"
    assert password_for("sqlite:///studies.db")[1] is None
    with lent_password("postgresql://tom:own@host/db"):
        assert os.environ[PASSWORD_VARIABLE] == "own"
    with lent_password("postgresql://tom@host/db"):
        assert os.environ[PASSWORD_VARIABLE] == "lent"
    assert os.environ[PASSWORD_VARIABLE] == "lent"
    monkeypatch.delenv(PASSWORD_VARIABLE)
    with lent_password("postgresql://tom:own@host/db"):
        assert os.environ[PASSWORD_VARIABLE] == "own"
    assert PASSWORD_VARIABLE not in os.environ


def test_another_way_to_the_same_database() -> None:
    here = "postgresql+psycopg://tom:secret@host/db"
    assert same_database(here, "postgresql+psycopg://ann@localhost:6000/db?sslmode=require")
    assert not same_database(here, "postgresql+psycopg://tom@host/other")
    assert not same_database(here, "mysql+pymysql://tom@host/db")
    assert not same_database(here, None)
    assert not same_database("sqlite:////a/db", "sqlite:////b/db")


# -- retries -------------------------------------------------------------------------------------


class Flaky:
    """Fails so often before it works."""

    def __init__(self, times: int, error: Exception) -> None:
        self.left, self.error, self.calls = times, error, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.left > 0:
            self.left -= 1
            raise self.error
        return "done"


def gone() -> Exception:
    return sqlalchemy.exc.OperationalError("SELECT", {}, Exception("server closed"), False)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "LONGEST_PAUSE", 0.001)
    monkeypatch.setattr(retries.time, "sleep", lambda seconds: None)


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


def test_only_a_locked_sqlite_may_pass(tmp_path: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'no' / 'such.db'}")
    with pytest.raises(sqlalchemy.exc.OperationalError) as caught:
        engine.connect()
    assert not is_passing(caught.value)
    wrapped = optuna.exceptions.StorageInternalError("commit")
    wrapped.__cause__ = gone()
    assert is_passing(wrapped)


@pytest.fixture
def database(tmp_path: Path) -> PatientStorage:
    opened = open_storage(f"sqlite:///{tmp_path / 'studies.db'}")
    assert isinstance(opened, PatientStorage)
    return opened


class LostAnswer:
    """Does a method of Optuna's database, and loses its answer the first time."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        original = getattr(optuna.storages.RDBStorage, name)
        self.lost = 0

        def method(storage: Any, *arguments: Any, **keywords: Any) -> Any:
            result = original(storage, *arguments, **keywords)
            if not self.lost:
                self.lost += 1
                raise gone()
            return result

        monkeypatch.setattr(optuna.storages.RDBStorage, name, method)


@pytest.mark.usefixtures("quick")
def test_a_trial_told_twice_is_fine(
    database: PatientStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = optuna.create_study(storage=database)
    study.enqueue_trial({})
    trial = study.ask()
    answer = LostAnswer("set_trial_state_values", monkeypatch)
    study.tell(trial, 0.5)
    assert answer.lost == 1
    assert [t.state for t in study.trials] == [TrialState.COMPLETE]
    # A trial that another worker has ended meanwhile is not told again.
    study.enqueue_trial({})
    other = study.ask()
    database.set_trial_state_values(other._trial_id, TrialState.FAIL)
    LostAnswer("set_trial_state_values", monkeypatch)
    with pytest.raises(optuna.exceptions.UpdateFinishedTrialError):
        database.set_trial_state_values(other._trial_id, TrialState.COMPLETE, [0.5])


@pytest.mark.usefixtures("quick")
def test_a_trial_made_twice_leaves_one_complete_trial_a_slot(
    database: PatientStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Study(database, "one", 2, {}, "random", 1, 0, fixed={"a": 1})
    original, lost = PatientStorage.create_new_trial, []

    def twice(storage: PatientStorage, *arguments: Any, **keywords: Any) -> Any:
        if not lost:
            lost.append(original(storage, *arguments, **keywords))  # the answer that never came
        return original(storage, *arguments, **keywords)

    monkeypatch.setattr(PatientStorage, "create_new_trial", twice)
    from reality_check.studies.trial import TrialResult

    for _ in range(5):
        stage.work_once(lambda attempt: TrialResult(0.5))
    assert lost
    assert stage.is_complete()
    complete = [t for t in stage.trials() if t.state == "complete"]
    assert sorted(t.trial_index for t in complete) == [0, 1]


@pytest.mark.usefixtures("quick")
def test_workers_that_cannot_reach_the_server_are_not_lost(database: PatientStorage) -> None:
    """It is away for longer than the grace time; then it answers this worker first."""
    now = [0.0]
    database._monitor = HeartbeatMonitor(lambda: now[0])
    stage = Study(database, "one", 2, {}, "random", 1, 0, fixed={})
    stage.study.enqueue_trial({}, user_attrs={"trial_index": 0})
    trial = stage.study.ask()
    trial.set_user_attr("worker", {"host": "elsewhere/1", "pid": 1, "started": 1})
    database.record_heartbeat(trial._trial_id)

    def is_lost(seconds: float) -> bool:
        now[0] += seconds
        stage.release_lost()
        return stage.trials()[0].state == "failed"

    assert not is_lost(0.0)
    assert not is_lost(200.0)
    database._retries.call(Flaky(3, gone()))
    assert not is_lost(200.0)
    database._monitor = HeartbeatMonitor(lambda: now[0])
    assert not is_lost(0.0)
    assert not is_lost(200.0)
    assert is_lost(200.0)


def test_several_open_a_new_database_at_once(tmp_path: Path) -> None:
    """Each of them finds no tables and makes them."""
    url, together = f"sqlite:///{tmp_path / 'studies.db'}", threading.Barrier(4)

    def enter(number: int) -> None:
        together.wait()
        optuna.create_study(storage=open_storage(url), study_name=str(number))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(enter, range(4)))
    assert sorted(optuna.get_all_study_names(storage=url)) == ["0", "1", "2", "3"]


# -- the journal ---------------------------------------------------------------------------------


def test_a_torn_last_line_of_a_journal_is_cut_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "studies.log"
    url = f"journal://{path}"
    study = optuna.create_study(storage=open_storage(url), study_name="one")
    study.enqueue_trial({"x": 1})
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code": 4, "stu')
    study = optuna.load_study(storage=open_storage(url), study_name="one")
    assert path.read_bytes() == whole
    assert "torn" in caplog.text
    study.enqueue_trial({"x": 2})
    again = optuna.load_study(storage=open_storage(url), study_name="one")
    assert len(again.trials) == 2


def test_a_journal_serves_one_worker(tmp_path: Path) -> None:
    url = f"journal://{tmp_path / 'studies.log'}"
    check_workers(url, 1)
    check_workers(None, 8)
    with pytest.raises(UsageError, match="serves one worker, got 2"):
        check_workers(url, 2)


class Held:
    """A process that holds what a worker on a journal holds, until it is killed."""

    def __init__(self, url: str) -> None:
        code = (
            "import sys, time; from reality_check.studies.storage import sole_worker\n"
            "with sole_worker(sys.argv[1]):\n    print('held', flush=True)\n    time.sleep(600)"
        )
        command = [sys.executable, "-c", code, url]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"held\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_a_second_worker_on_a_journal_is_refused(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, url = tmp_path / "out", f"journal://{tmp_path / 'studies.log'}"
    locked = prepare(load_experiment(tiny, [f"storage={url}"]), out).experiment
    Campaign(locked, out).baselines()
    worked: list[WorkLoop] = []
    monkeypatch.setattr(WorkLoop, "run", lambda self: worked.append(self))
    first = Held(url)
    try:
        for storage in ([], ["--storage", url]):
            assert main(["worker", str(out), *storage]) == 2
            error = capsys.readouterr().err
            assert f"serves one worker, which is process {first.process.pid} of the mach" in error
            assert len(error.splitlines()) == 1
        assert worked == []
    finally:
        first.kill()
    # The one that held it was killed: the next one may work.
    assert main(["worker", str(out)]) == 0
    assert len(worked) == 1


def test_the_next_worker_on_a_journal_takes_up_what_the_last_one_had(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one was killed on another machine, or this one has been restarted since."""
    out, url = tmp_path / "out", f"journal://{tmp_path / 'studies.log'}"
    locked = prepare(load_experiment(tiny, [f"storage={url}"]), out).experiment
    (stage, *_) = (unit.study for unit in Campaign(locked, out).ready_stages())
    stage.study.enqueue_trial({}, user_attrs={"trial_index": 0})
    stage.study.ask().set_user_attr("worker", {"host": "elsewhere/1", "pid": 1, "started": 1})
    stage.release_lost()
    assert [trial.state for trial in stage.trials()] == ["running"]
    found: list[str] = []

    def look(loop: WorkLoop) -> None:
        works = loop._campaign.ready_stages()
        found.extend(trial.state for work in works for trial in work.study.trials())

    monkeypatch.setattr(WorkLoop, "run", look)
    assert work(out, 0) == 0
    assert found == ["failed"]


def test_a_database_serves_any_number_of_workers(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'studies.db'}"
    with sole_worker(url) as alone, sole_worker(url):
        assert not alone
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["journal://studies.log", "journal:////no/such/folder/x.log"])
def test_a_journal_needs_a_folder(url: str) -> None:
    with pytest.raises(UsageError, match="whole path"):
        open_storage(url)


# -- experiments ---------------------------------------------------------------------------------


def test_the_plain_experiment_has_no_password(tiny: Path) -> None:
    made = load_experiment(tiny, ["storage=postgresql+psycopg://tom:secret@host/db"])
    assert made.storage is not None
    assert "secret" in made.storage
    assert made.plain()["storage"] == "postgresql+psycopg://tom@host/db"


@pytest.mark.slow
def test_a_whole_experiment_on_a_journal(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    command = ["run", str(tiny), f"storage=journal://{tmp_path / 'studies.log'}", "--out", out]
    assert main([*command, "--workers", "2"]) == 2
    assert "serves one worker" in capsys.readouterr().err
    assert main(command) == 0
    assert Campaign(load_locked(Path(out)), Path(out)).is_complete()


def test_a_waiting_trial_is_started_by_one_worker_only(tmp_path: Path) -> None:
    """SQLite has no locks of rows: whoever looks before it writes finds what another has too."""
    url, workers, rounds = f"sqlite:///{tmp_path}/studies.db", 4, 40
    storages = [open_storage(url) for _ in range(workers)]
    study = optuna.create_study(storage=storages[0])
    for _ in range(rounds):
        study.enqueue_trial({})
    trials = [trial._trial_id for trial in study.get_trials(deepcopy=False)]
    together = threading.Barrier(workers)

    def start(storage: Any) -> list[bool]:
        started = []
        for trial in trials:
            together.wait()
            started.append(storage.set_trial_state_values(trial, TrialState.RUNNING))
        return started

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        started = list(pool.map(start, storages))
    assert [sum(each) for each in zip(*started, strict=True)] == [1] * rounds
    found = [storages[0].get_trial(trial) for trial in trials]
    assert all(trial.state is TrialState.RUNNING and trial.datetime_start for trial in found)
    assert not storages[0].set_trial_state_values(trials[0], TrialState.RUNNING)


# -- real servers --------------------------------------------------------------------------------


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("Postgres", marks=pytest.mark.postgres),
        "MariaDB",
    ],
)
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    kind = getattr(servers, request.param)
    if kind.missing() is not None:
        pytest.skip(f"{kind.missing()} is not installed")
    pytest.importorskip(kind.scheme.partition("+")[2])
    made = kind()
    yield made
    made.close()


def with_storage(tiny: Path, folder: Path, url: str) -> None:
    """Write the tiny experiment with a storage, password and all, as a user may."""
    (folder / "tiny.yaml").write_text(f"{tiny.read_text()}storage: {url}\n")


def start(folder: Path, workers: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "reality_check", "run", "tiny.yaml", "--out", "out"]
    with (folder / "run.log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--workers", str(workers)], cwd=folder, stdout=log, stderr=log
        )


def wait_until(what: str, there: Any, seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def attempts(url: str, folder: Path) -> dict[str, list[optuna.trial.FrozenTrial]]:
    """The trials of every study of this output folder."""
    mine = load_locked(folder).studies
    opened = open_storage(url)
    names = list(optuna.get_all_study_names(storage=opened))
    return {
        name.removeprefix(f"{mine}/"): optuna.load_study(study_name=name, storage=opened).trials
        for name in names
        if mine is not None and name.startswith(mine)
    }


def everything_written(folder: Path) -> str:
    """The text of all files below a folder, also of those in no text encoding."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return "\n".join(path.read_bytes().decode("latin-1") for path in files)


@pytest.mark.slow
@pytest.mark.xdist_group("servers")
def test_a_restart_in_the_middle_ends_with_exact_counts(
    server: Any, tiny: Path, tmp_path: Path
) -> None:
    with_storage(tiny, tmp_path, server.url())
    process = start(tmp_path, workers=2)
    out = tmp_path / "out"
    try:
        wait_until(
            "no trial runs",
            lambda: process.poll() is not None or any((out / "normalized_softmax").rglob("*.pt")),
        )
        server.stop()
        time.sleep(3.0)
        server.start()
        assert process.wait(timeout=400) == 0, (tmp_path / "run.log").read_text()
    finally:
        process.kill()
        server.stop()
        server.start()
    found = attempts(server.url(), out)
    wanted = {"search": 2, "reproductions": 1}
    for stage, count in wanted.items():
        trials = found[f"normalized_softmax/{stage}"]
        complete = [t.user_attrs["trial_index"] for t in trials if t.state is TrialState.COMPLETE]
        assert sorted(complete) == list(range(count)), stage
        assert all(t.state.is_finished() for t in trials), stage
    logs = "".join(path.read_text() for path in (out / "logs").glob("*.log"))
    assert "the storage does not answer" in logs
    (tmp_path / "tiny.yaml").unlink()  # which holds the password, as the user wrote it
    written = everything_written(tmp_path)
    assert servers.PASSWORD not in written
    assert servers.QUOTED not in written


@pytest.mark.slow
@pytest.mark.xdist_group("servers")
def test_two_experiments_share_a_server_and_a_tunnel_leads_to_it(
    server: Any,
    tiny: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with_storage(tiny, tmp_path, server.url())
    for out in ("one", "two"):
        assert main(["run", "tiny.yaml", "--out", out]) == 0
        search = attempts(server.url(), Path(out))["normalized_softmax/search"]
        assert len(search) == 2
    # Without the password in the URL it must come from elsewhere.
    capsys.readouterr()
    assert main(["report", "one"]) == 2
    assert PASSWORD_VARIABLE in capsys.readouterr().err
    monkeypatch.setenv(PASSWORD_VARIABLE, servers.PASSWORD)
    assert main(["report", "one"]) == 0
    # Another name of the host leads to the same studies.
    tunnel = server.url(None).replace("127.0.0.1", "localhost")
    assert main(["run", "tiny.yaml", f"storage={tunnel}", "--out", "one"]) == 0
    assert load_locked(Path("one")).storage == tunnel
    assert work(Path("one"), 0, storage=server.url()) == 0


@pytest.mark.slow
@pytest.mark.xdist_group("servers")
def test_a_worker_keeps_one_connection_and_gives_that_of_its_heartbeat_back(server: Any) -> None:
    storage = open_storage(server.url())
    assert isinstance(storage, PatientStorage)
    with storage.engine.connect(), storage.engine.connect():
        pass
    assert storage.engine.pool.checkedin() == 1  # type: ignore[attr-defined]
    storage.engine.dispose()


@pytest.mark.xdist_group("servers")
def test_long_notes_survive(server: Any) -> None:
    stage = Study(open_storage(server.url()), "long", 1, {}, "random", 1, 0, fixed={})
    stage.note("curves", "x" * 200_000)
    assert len(stage.noted("curves")) == 200_000


@pytest.mark.slow
@pytest.mark.xdist_group("servers")
def test_a_server_that_is_down_is_one_sentence_or_waited_for(server: Any) -> None:
    server.stop()
    try:
        with pytest.raises(UsageError, match="cannot be opened") as caught:
            open_storage(server.url())
        assert "\n" not in str(caught.value)
        assert servers.PASSWORD not in str(caught.value)
        late = threading.Timer(2.0, server.start)
        late.start()
        open_storage(server.url(), wait=True)
        late.join()
    finally:
        server.stop()
        server.start()
    with pytest.raises(UsageError) as refused:
        open_storage(server.url("wrong-word"))
    assert "wrong-word" not in str(refused.value)
    assert PASSWORD_VARIABLE in str(refused.value)
