"""Real database servers, which go away in the middle."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState
from support import servers
from support.preloaded import Started
from support.prepared import logs
from support.studies import open_study

from reality_check.cli.main import main
from reality_check.launch.worker import work
from reality_check.studies.output_folder import load_locked
from reality_check.studies.storage import open_storage
from reality_check.utils.errors import UsageError
from reality_check.utils.passwords import PASSWORD_VARIABLE

pytestmark = pytest.mark.usefixtures("blank_figures", "preloaded_workers")


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


def start(folder: Path, workers: int) -> Started:
    words = ["run", "tiny.yaml", "--out", "out", "--workers", str(workers)]
    return Started(folder, folder / "run.log", *words)


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
        wait_until("nobody notices", lambda: "the storage does not answer" in logs(out))
        server.start()
        assert process.wait(timeout=400) == 0, process.complaints()
    finally:
        process.kill()
        server.stop()
        server.start()
    attempts_by_stage = attempts(server.url(), out)
    wanted = {"search": 2, "reproductions": 1}
    for stage, count in wanted.items():
        trials = attempts_by_stage[f"normalized_softmax/{stage}"]
        complete = [t.user_attrs["trial_index"] for t in trials if t.state is TrialState.COMPLETE]
        assert sorted(complete) == list(range(count)), stage
        assert all(t.state.is_finished() for t in trials), stage
    (tmp_path / "tiny.yaml").unlink()  # which holds the password, as the user wrote it
    written = everything_written(tmp_path)
    assert servers.PASSWORD not in written
    assert servers.QUOTED not in written


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
    fewer = ["protocol.search.trials=1", "protocol.categories=[aggregate]"]
    for out in ("one", "two"):
        assert main(["run", "tiny.yaml", "--out", out, *fewer]) == 0
        search = attempts(server.url(), Path(out))["normalized_softmax/search"]
        assert len(search) == 1
    # Without the password in the URL it must come from elsewhere.
    capsys.readouterr()
    assert main(["report", "one"]) == 2
    assert PASSWORD_VARIABLE in capsys.readouterr().err
    monkeypatch.setenv(PASSWORD_VARIABLE, servers.PASSWORD)
    assert main(["report", "one"]) == 0
    # Another name of the host leads to the same studies.
    tunnel = server.url(None).replace("127.0.0.1", "localhost")
    assert main(["run", "tiny.yaml", f"storage={tunnel}", "--out", "one", *fewer]) == 0
    assert load_locked(Path("one")).storage == tunnel
    assert work(Path("one"), 0, storage=server.url()) == 0


@pytest.mark.xdist_group("servers")
def test_a_worker_keeps_one_connection_and_gives_that_of_its_heartbeat_back(server: Any) -> None:
    storage = open_storage(server.url())
    with storage.engine.connect(), storage.engine.connect():
        pass
    assert storage.engine.pool.checkedin() == 1  # type: ignore[attr-defined]
    storage.engine.dispose()


@pytest.mark.xdist_group("servers")
def test_long_notes_survive(server: Any) -> None:
    stage = open_study(open_storage(server.url()), "long", 1, 0, fixed=[{}])
    stage.set_attribute("curves", "x" * 200_000)
    assert len(stage.attribute("curves")) == 200_000


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
