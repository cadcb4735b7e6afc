"""A Grid Engine of one machine for tests: a queue of two slots, all on loopback.

Needs root and Debian's packages gridengine-master, gridengine-exec and gridengine-client. Nothing
of the machine's own Grid Engine is touched: all files lie in one folder, and ports are free ones.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.asked import Asked
from support.one_machine_slurm import free_ports
from support.pace import wait_until

_PROGRAMS = ("sge_qmaster", "sge_execd", "qsub", "qstat", "qconf")
_LIBRARY, _SHARED = Path("/usr/lib/gridengine"), Path("/usr/share/gridengine")

_BOOTSTRAP = """
admin_user root
default_domain none
ignore_fqdn true
spooling_method classic
spooling_lib libspoolc
spooling_params {root}/default/common;{root}/spool
binary_path /usr/sbin
qmaster_spool_dir {root}/spool
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
"""

_HOST = """
hostname localhost
load_scaling NONE
complex_values NONE
user_lists NONE
xuser_lists NONE
projects NONE
xprojects NONE
usage_scaling NONE
report_variables NONE
"""
# Jobs of root run too where the smallest ids allow it.
_CONFIGURATION = {
    "execd_spool_dir": "{root}/execd",
    "mailer": "/bin/true",
    "min_uid": "0",
    "min_gid": "0",
    "load_report_time": "00:00:02",
}
_SCHEDULER = {
    "schedule_interval": "0:0:1",
    "flush_submit_sec": "1",
    "flush_finish_sec": "1",
    "job_load_adjustments": "NONE",
}
_QUEUE = {
    "qname": "main",
    "hostlist": "localhost",
    "pe_list": "NONE",
    "slots": "2",
    "load_thresholds": "NONE",
}


class OneMachineGridEngine(Asked):
    """Starts it in a folder; :meth:`stop` ends every process again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        master, execution = map(str, free_ports(2))
        self.variables = {"SGE_ROOT": str(root), "SGE_CELL": "default"}
        self.variables |= {"SGE_QMASTER_PORT": master, "SGE_EXECD_PORT": execution}

    def start(self) -> None:
        """Start everything, and wait until the queue is ready."""
        common = self.root / "default" / "common"
        for folder in (common, self.root / "spool", self.root / "execd"):
            folder.mkdir(parents=True)
        for name in ("bin", "lib", "util", "utilbin"):
            (self.root / name).symlink_to(f"/var/lib/gridengine/{name}")
        (common / "bootstrap").write_text(_BOOTSTRAP.format(root=self.root).lstrip())
        (common / "act_qmaster").write_text("localhost\n")
        (common / "host_aliases").write_text(f"localhost {os.uname().nodename}\n")
        defaults = (_SHARED / "default-configuration").read_text()
        configuration = self._changed("configuration", defaults, _CONFIGURATION)
        where = f"{common};{self.root}/spool"
        self._run(f"{_LIBRARY}/spoolinit", "classic", "libspoolc", where, "init")
        fill = f"{_LIBRARY}/spooldefaults"
        self._run(fill, "configuration", configuration)
        self._run(fill, "complexes", f"{_SHARED}/util/resources/centry")
        self._run(fill, "usersets", f"{_SHARED}/util/resources/usersets")
        self._run(fill, "managers", "root")
        self.start_master()
        self._run("qconf", "-as", "localhost")
        (self.root / "host").write_text(_HOST.lstrip())
        self._run("qconf", "-Ae", str(self.root / "host"))
        scheduler = self._changed("scheduler", self.ask("qconf", "-ssconf"), _SCHEDULER)
        self._run("qconf", "-Msconf", scheduler)
        self._run("qconf", "-Aq", self._changed("queue", self.ask("qconf", "-sq"), _QUEUE))
        self._run("sge_execd")
        wait_until(lambda: re.search(r"\d main@|main@.* 0/0/2 ", self.ask("qstat", "-f")), 600)

    def start_master(self) -> None:
        self._run("sge_qmaster")
        wait_until(lambda: self.ask("qconf", "-sh"), 600)

    def stop_master(self) -> None:
        """As if its node were gone: jobs run on, and nobody answers."""
        self._end("spool/qmaster.pid")

    def pass_on(self, *names: str) -> None:
        """Let all jobs have these variables of this process's environment, by the site."""
        pairs = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
        options = f"-v {','.join(pairs)}\n" if pairs else ""
        (self.root / "default" / "common" / "sge_request").write_text(options)

    def stop(self) -> None:
        """End all jobs and daemons."""
        self.delete_all()
        self._end("execd/localhost/execd.pid")
        self._end("spool/qmaster.pid")

    def delete_all(self) -> None:
        """End all jobs, and wait until they are gone."""

        def gone() -> bool:
            self.ask("qdel", "-u", "*")
            return not self.ask("qstat", "-u", "*")

        wait_until(gone, 600)

    def _run(self, *command: str) -> None:
        log = self.root / "commands.log"
        with log.open("ab") as output:
            environment = {**os.environ, **self.variables}
            # Jobs get it from pass_on, not from a daemon that started while another test had it.
            environment.pop("FORKED_JOBS", None)
            done = subprocess.run(
                command, env=environment, stdout=output, stderr=output, check=False
            )
        assert done.returncode == 0, f"{command[0]} failed: {log.read_text()[-2000:]}"

    def _changed(self, name: str, text: str, changes: dict[str, str]) -> str:
        """Write a file of settings with some of them changed; return its path."""
        for key, value in changes.items():
            line = f"{key} {value.format(root=self.root)}"
            text, count = re.subn(rf"^{key}\s.*$", line, text, flags=re.M)
            assert count == 1, (name, key)
        (self.root / name).write_text(text)
        return str(self.root / name)

    def _end(self, file: str) -> None:
        try:
            pid = int((self.root / file).read_text())
            os.kill(pid, signal.SIGTERM)
        except (OSError, ValueError):
            return
        stat = Path(f"/proc/{pid}/stat")

        def ended() -> bool:
            try:  # one that nobody waits for stays as a zombie
                return stat.read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                return True

        wait_until(ended, 600)


@contextlib.contextmanager
def running() -> Iterator[OneMachineGridEngine]:
    """A Grid Engine in a folder of its own, until the block ends."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"a Grid Engine of our own needs root and {', '.join(missing) or 'no more'}")
    engine = OneMachineGridEngine(Path(tempfile.mkdtemp(prefix="rc-sge-")))
    try:
        engine.start()
        yield engine
    finally:
        engine.stop()
        shutil.rmtree(engine.root, ignore_errors=True)
