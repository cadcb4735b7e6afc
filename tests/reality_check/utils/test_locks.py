from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from reality_check.utils import locks as _locks
from reality_check.utils.locks import locked, try_lock

FILE = _locks.__file__  # run alone: importing the package takes seconds
HOLDER = """
import runpy, sys, time
from pathlib import Path
locked = runpy.run_path(sys.argv[3])["locked"]
with locked(Path(sys.argv[1]), "works.", lambda message: None) as held:
    assert held
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def hold(path: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, str(path), str(seconds), FILE]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_free_lock_is_held_and_leaves_no_file(tmp_path: Path) -> None:
    waited: list[str] = []
    for _ in range(2):
        with locked(tmp_path / "lock", "works.", waited.append) as held:
            assert held
            assert str(os.getpid()) in (tmp_path / "lock").read_text()
        assert list(tmp_path.iterdir()) == []
    assert waited == []


def test_others_wait_until_the_holder_is_killed(tmp_path: Path) -> None:
    holder = hold(tmp_path / "lock", 600)
    waited: list[str] = []

    def kill(text: str) -> None:
        waited.append(text)
        holder.kill()

    with locked(tmp_path / "lock", "works.", kill) as held:
        assert held
        assert holder.wait() == -9
    assert len(waited) == 1
    assert waited[0].startswith(f"Waiting for process {holder.pid} of the machine ")
    assert waited[0].endswith(", which works.")


COUNT = """
import runpy, sys
from pathlib import Path
locked = runpy.run_path(sys.argv[3])["locked"]
lock, number = Path(sys.argv[1]), Path(sys.argv[2])
for _ in range(60):
    with locked(lock, "works.", lambda message: None) as held:
        assert held
        number.write_text(str(int(number.read_text()) + 1))
"""


def test_many_processes_never_hold_it_together(tmp_path: Path) -> None:
    number = tmp_path / "number"
    number.write_text("0")
    command = [sys.executable, "-c", COUNT, str(tmp_path / "lock"), str(number), FILE]
    processes = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    assert number.read_text() == "240"


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl", reason="locks are a matter of POSIX")

    def unsupported(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with locked(tmp_path / "lock", "works.", lambda message: None) as held:
        assert not held


def test_an_error_inside_frees_it(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="inside"),
        locked(tmp_path / "lock", "works.", lambda message: None),
    ):
        raise RuntimeError("inside")
    with locked(tmp_path / "lock", "works.", lambda message: None) as held:
        assert held


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with (
        pytest.raises(FileNotFoundError),
        locked(tmp_path / "absent" / "lock", "works.", lambda message: None),
    ):
        pass


# -- without waiting -----------------------------------------------------------------------------


def test_a_lock_tells_who_holds_it(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    path = tmp_path / "lock"
    path.write_text("an older and much longer name of a holder than the next one will ever have")
    me = f"process {os.getpid()} of the machine {socket.gethostname()}"
    with try_lock(path) as free:
        assert free is None
        with try_lock(path) as holder:
            assert holder == me
    with try_lock(path) as free:
        assert free is None


def test_a_file_system_without_locks_is_no_reason_to_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")

    def no_locks(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with try_lock(tmp_path / "lock") as holder:
        assert holder is None


def test_a_full_disk_does_not_keep_a_lock_from_holding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fcntl")

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with try_lock(tmp_path / "lock") as free, try_lock(tmp_path / "lock") as holder:
            assert free is None
            assert holder == "an unknown process"
