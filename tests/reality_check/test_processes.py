from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reality_check.processes import is_alive, this_process

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
SLEEP = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def test_this_process_is_alive_and_another_machines_is_taken_to_be() -> None:
    me = this_process()
    assert me["pid"] == os.getpid()
    assert is_alive(me)
    assert is_alive({**me, "host": "elsewhere", "pid": 2**22 + 1})


def test_an_ended_process_is_dead() -> None:
    with subprocess.Popen(SLEEP, stdin=subprocess.PIPE) as process:
        worker = {**this_process(), "pid": process.pid, "started": None}
        assert is_alive(worker)
        process.kill()
        process.wait()
        assert not is_alive(worker)


@linux
def test_a_zombie_is_dead() -> None:
    """A killed worker whose parent has not looked yet still has its process id."""
    with subprocess.Popen(SLEEP, stdin=subprocess.PIPE) as process:
        process.kill()
        stat = Path(f"/proc/{process.pid}/stat")
        for _ in range(600):
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                break
            time.sleep(0.05)
        worker = {**this_process(), "pid": process.pid, "started": None}
        assert not is_alive(worker)


@linux
def test_a_reused_process_id_is_not_the_worker() -> None:
    me = this_process()
    assert isinstance(me["started"], int)
    assert not is_alive({**me, "started": me["started"] - 1})


@linux
def test_a_child_dies_with_its_parent() -> None:
    child = (
        "import time; from reality_check.processes import die_with_parent; die_with_parent(); "
        "print('ready', flush=True); time.sleep(600)"
    )
    parent = (
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE)\n"
        "p.stdout.readline()\nprint(p.pid, flush=True)\ntime.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        worker = {**this_process(), "pid": int(process.stdout.readline()), "started": None}
        assert is_alive(worker)
        process.kill()
        process.wait()
        for _ in range(600):
            if not is_alive(worker):
                break
            time.sleep(0.05)
        assert not is_alive(worker)
