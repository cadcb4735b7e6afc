"""A Ray of one machine for tests: a head with two processors, and a token that only it knows.

Nothing of the machine's own Ray is touched: ports are free ones, and what ends is what was started
here, not what ``ray stop`` finds.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from support.asked import Asked
from support.one_machine_slurm import free_ports
from support.pace import wait_until


class OneMachineRay(Asked):
    """Starts it in a folder; :meth:`stop` ends every process again, jobs included."""

    def __init__(self, root: Path) -> None:
        self.root, self._session = root, -1
        self._dashboard, self._agent, self._client = map(str, free_ports(3))
        self.variables = {
            "RAY_ADDRESS": f"http://127.0.0.1:{self._dashboard}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def start(self) -> None:
        """Start the head, and wait until it takes jobs, which have this process's environment."""
        options = {
            "node-ip-address": "127.0.0.1",
            "dashboard-host": "127.0.0.1",
            "dashboard-port": self._dashboard,
            "dashboard-agent-listen-port": self._agent,
            "ray-client-server-port": self._client,
            "port": "0",
            "num-cpus": "2",
            "num-gpus": "0",
            "object-store-memory": "100000000",
            "temp-dir": str(self.root),
        }
        command = ["ray", "start", "--head"]
        command += [f"--{name}={value}" for name, value in options.items()]
        log = self.root / "head.log"
        with log.open("wb") as output:
            # Not --block, which ends all when a part is slow to start.
            head = subprocess.Popen(
                command,
                env={**os.environ, **self.variables},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._session = head.pid
        assert head.wait() == 0, log.read_text()

    def stop(self) -> None:
        """End the head's processes; jobs end when they miss those."""

        def ended() -> bool:
            pids = [pid for pid in _processes() if _session(pid) == self._session]
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not pids

        wait_until(ended, 60)


def _processes() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


@contextlib.contextmanager
def running() -> Iterator[OneMachineRay]:
    """A Ray in a folder of its own, until the block ends."""
    # Not pytest's folder: paths of sockets are limited to 107 bytes.
    ray = OneMachineRay(Path(tempfile.mkdtemp(prefix="rc-ray-")))
    try:
        ray.start()
        yield ray
    finally:
        ray.stop()
        shutil.rmtree(ray.root, ignore_errors=True)
