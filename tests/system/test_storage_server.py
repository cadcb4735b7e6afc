"""``reality-check storage serve`` for real: as an unprivileged user, on nodes that are killed.

A node is a PID namespace, which PostgreSQL's own lock file cannot see into.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
import pytest
from optuna.trial import TrialState
from support.pace import wait_until
from support.preloaded import Started
from support.prepared import logs

from reality_check.cli.main import main
from reality_check.studies.folder_server import find_server, server_url
from reality_check.studies.output_folder import load_locked
from reality_check.studies.storage import open_storage

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.xdist_group("servers"),
    pytest.mark.usefixtures("blank_figures", "preloaded_workers"),
]
#: Seconds after which a lease is stale here.
STALE = 10.0
_SERVE = (
    "import sys; from pathlib import Path; from reality_check.launch.storage_server import serve\n"
    f"serve(Path(sys.argv[1]), workers=2, stale={STALE})"
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that all users can look into, with an output folder of an unprivileged user."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("PID namespaces and other users need root")
    made = Path(tempfile.mkdtemp(prefix="rc-serve-"))
    made.chmod(0o755)
    (made / "out").mkdir()
    nobody = pwd.getpwnam("nobody")
    os.chown(made / "out", nobody.pw_uid, nobody.pw_gid)
    yield made
    shutil.rmtree(made)


class Node:
    """A server on a node of its own."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "serve.log"
        space = ["unshare", "--pid", "--fork", "--mount-proc"]
        command = [*space, *as_user("nobody", sys.executable, "-c", _SERVE, str(folder / "out"))]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        wait_until(lambda: self._process.poll() is not None or b"Ctrl-C" in self._said(), 60)

    def _said(self) -> bytes:
        return self._log.read_bytes()

    @property
    def refusal(self) -> str:
        """Why it serves nothing; empty if it does."""
        return self._said().decode() if self._process.poll() is not None else ""

    def kill(self) -> None:
        """Kill all its processes at once, as the first one of a namespace takes all along."""
        self.stop(signal.SIGKILL)

    def stop(self, number: int = signal.SIGTERM) -> int:
        for server in children(self._process.pid) if self._process.poll() is None else ():
            os.kill(server, number)
        return self._process.wait(60)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def as_user(name: str, *command: str, reads_all: bool = True) -> list[str]:
    """A command of another user; it can read Python's packages, wherever they are."""
    may = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"] if reads_all else []
    user = pwd.getpwnam(name)
    ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    return ["setpriv", *ids, *may, "--", *command]


def seen(password: bytes) -> list[str]:
    """The processes in whose command a password is."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if password in file.read_bytes():
                found.append(str(file))
        except OSError:
            continue
    return found


def workers(out: Path) -> list[int]:
    return [int(pid) for pid in re.findall(r"worker \d begins: process (\d+)", logs(out))]


def wait_for_lease(out: Path) -> Node:
    """Start servers until one is not refused."""
    begun, refusals = time.monotonic(), []
    while (node := Node(out.parent)).refusal:
        refusals.append(node.refusal)
        assert time.monotonic() < begun + 120, refusals
        time.sleep(1.0)
    assert "serves this folder" in refusals[0]
    assert time.monotonic() > begun + STALE / 2
    return node


def counts(out: Path) -> dict[str, Sequence[int]]:
    """The trial indices of the complete trials of each stage."""
    prefix, storage = load_locked(out).studies, open_storage(server_url(out))
    indices = {}
    for study in storage.get_all_studies():
        trials = storage.get_all_trials(study._study_id)
        assert all(trial.state.is_finished() for trial in trials)
        done = [t.user_attrs["trial_index"] for t in trials if t.state is TrialState.COMPLETE]
        indices[study.study_name.removeprefix(f"{prefix}/")] = sorted(done)
    return indices


def test_a_server_whose_node_is_killed_has_a_successor_and_nothing_is_lost(
    folder: Path, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder / "out"
    first = Node(folder)
    assert not first.refusal
    quick = {"reality_check.studies.retries": {"LONGEST_PAUSE": 1.0}}
    words = ["run", str(tiny), "storage=server", "--out", str(out), "--workers", "2"]
    process = Started(folder, folder / "run.log", *words, settings=quick)
    second = None
    try:
        checkpoints = out / "normalized_softmax"
        wait_until(
            lambda: (
                process.poll() is not None
                or (any(checkpoints.rglob("*.pt")) and len(workers(out)) == 2)
            ),
            240,
        )
        assert process.poll() is None, process.complaints()
        training = workers(out)
        for pid in training:  # they would be done before the server is killed
            os.kill(pid, signal.SIGSTOP)
        assert "serves this folder" in Node(folder).refusal  # on another node
        here = as_user("nobody", sys.executable, "-c", _SERVE, str(out))
        refused = subprocess.run(here, capture_output=True, text=True, check=False)
        assert "serves this folder" in refused.stderr
        password = (out / "storage/password").read_bytes()
        assert seen(password) == []
        first.kill()
        for pid in training:
            os.kill(pid, signal.SIGCONT)
        second = wait_for_lease(out)
        assert process.wait(400) == 0, process.complaints()
        complete = counts(out)
        assert complete["normalized_softmax/search"] == [0, 1]
        assert complete["normalized_softmax/reproductions"] == [0]
        assert "the storage does not answer" in logs(out)
        assert json.loads((out / "storage/address").read_text())["generation"] == 2
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert [f.name for f in files if password in f.read_bytes()] == ["password"]
        assert seen(password) == []
    finally:
        process.kill()
        first.kill()
        status = None if second is None else second.stop()
    assert status == 0
    assert not (out / "storage/lease").exists()
    assert main(["status", str(out)]) == 2
    error = capsys.readouterr().err
    assert "cannot run here: PostgreSQL refuses to run as root" in error
    assert f"reality-check storage serve {out}" in error
    server = as_user("nobody", sys.executable)
    (folder / "python").write_text(f'#!/bin/sh\nexec {shlex.join(server)} "$@"\n')
    (folder / "python").chmod(0o755)
    call = f"main(['status', {str(out)!r}])"
    code = f"sys.executable = {str(folder / 'python')!r}; sys.exit({call})"
    code = f"import sys; from reality_check.cli.main import main; {code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 of 2" in done.stdout
    assert "runs until this command ends" in done.stderr
    assert not (out / "storage/lease").exists()


def test_a_command_serves_for_its_own_time_even_if_it_is_killed(folder: Path) -> None:
    node = Node(folder)
    assert node.stop() == 0
    url, lease = server_url(folder / "out"), folder / "out/storage/lease"
    code = (
        "import os; from reality_check.studies.folder_server import serve_meanwhile\n"
        f"serve_meanwhile({url!r}); print(os.path.exists({str(lease)!r}), flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    command = as_user("nobody", sys.executable, "-c", code)
    killed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (killed.returncode, killed.stdout) == (-9, "True\n"), killed.stderr
    wait_until(lambda: not lease.exists(), 30)


def test_another_user_reads_nothing_and_is_not_let_in(folder: Path) -> None:
    node = Node(folder)
    try:
        out = folder / "out"
        for file in ("password", "address", "data/PG_VERSION"):
            read = as_user("daemon", "cat", str(out / "storage" / file), reads_all=False)
            assert subprocess.run(read, capture_output=True, check=False).returncode != 0
        url, password = find_server(server_url(out))
        where = {"host": url.host, "port": url.port, "user": url.username, "dbname": url.database}
        for host in (url.host, "127.0.0.1"):
            for wrong in ("", "wrong"):
                with pytest.raises(psycopg.OperationalError, match="password"):
                    psycopg.connect(**{**where, "host": host}, password=wrong)
        with psycopg.connect(**where, password=password) as connection:
            shown = [
                connection.execute(f"SHOW {name}").fetchone()[0]  # type: ignore[index]
                for name in ("server_encoding", "max_connections", "fsync")
            ]
        assert shown == ["UTF8", "30", "on"]
    finally:
        assert node.stop() == 0


def test_a_server_ends_with_the_process_that_runs_it(folder: Path) -> None:
    """That it is killed alone, or that the lease is taken away, stops PostgreSQL at once."""
    command = as_user("nobody", sys.executable, "-c", _SERVE, str(folder / "out"))
    for end in ("kill", "lose"):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert process.stdout is not None
        assert b"serves" in process.stdout.readline()
        (server,) = children(process.pid)
        if end == "kill":
            process.kill()
        else:
            (folder / "out/storage/lease").write_text("{}")
        said = process.communicate(timeout=60)[0].decode()
        wait_until(lambda pid=server: not Path(f"/proc/{pid}").exists(), 30)
        (folder / "out/storage/lease").unlink()
    assert "another server has it" in said
