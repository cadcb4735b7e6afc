"""A SLURM of one machine for tests: pretended nodes and GPUs, accounting, all on loopback.

Partition ``main`` is a node with two GPUs, ``spread`` are two nodes of one GPU, whose jobs are
pre-empted by those of ``urgent``.

Needs root and Debian's packages slurm-wlm, slurmdbd, munge and mariadb-server. Nothing of the
machine's own SLURM or MariaDB is touched: all files and sockets lie in one folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

_PROGRAMS = ("munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd", "sbatch")

# cred_expire is also how long a requeued job waits before it starts again (default: 120).
_SLURM = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={accounting}
AccountingStoragePass={root}/munge.socket
AccountingStorageTRES=gres/gpu
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
ReturnToService=2
KillWait=5
InactiveLimit=0
MinJobAge=600
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=DEFAULT RealMemory=1000 State=UNKNOWN
NodeName=both NodeHostname={host} NodeAddr=127.0.0.1 Port={both} CPUs={cpus} Gres=gpu:fake:2
NodeName=one NodeHostname={host} NodeAddr=127.0.0.1 Port={one} CPUs={half} Gres=gpu:fake:1
NodeName=two NodeHostname={host} NodeAddr=127.0.0.1 Port={two} CPUs={half} Gres=gpu:fake:1
PartitionName=DEFAULT MaxTime=INFINITE State=UP OverSubscribe=NO
PartitionName=main Nodes=both Default=YES
PartitionName=spare Nodes=both
PartitionName=spread Nodes=one,two PriorityTier=1 GraceTime=300
PartitionName=urgent Nodes=one,two PriorityTier=10
"""

_ACCOUNTING = """
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={accounting}
SlurmUser=root
LogFile={root}/slurmdbd.log
PidFile={root}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass=slurm
StorageLoc=accounting
CommunicationParameters=NoInAddrAny
"""

_GPUS = """
NodeName=both Name=gpu Type=fake File={root}/gpu[0-1]
NodeName=one Name=gpu Type=fake File={root}/gpu0
NodeName=two Name=gpu Type=fake File={root}/gpu1
"""

_NODES = ("both", "one", "two")

_USERS = """
CREATE DATABASE accounting;
CREATE USER 'slurm'@'127.0.0.1' IDENTIFIED BY 'slurm';
CREATE USER 'slurm'@'localhost' IDENTIFIED BY 'slurm';
GRANT ALL ON *.* TO 'slurm'@'127.0.0.1';
GRANT ALL ON *.* TO 'slurm'@'localhost';
"""


class OneMachineSlurm:
    """Starts it in a folder with a short path; :meth:`stop` ends every process again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "slurm.conf"
        self.environment = {**os.environ, "SLURM_CONF": str(self.config)}
        self._database: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start everything, one after the other, and wait until all nodes are ready."""
        self._write()
        self._start_munge()
        self._start_database()
        self._run("slurmdbd")
        self.wait_until(lambda: self._works("sacctmgr", "-n", "show", "cluster"))
        self._run("sacctmgr", "-i", "-Q", "add", "cluster", "test")
        self._run("slurmctld", "-f", str(self.config))
        for node in _NODES:
            self._run("slurmd", "-f", str(self.config), "-N", node)
        idle = ("sinfo", "-h", "-N", "-t", "idle", "-o", "%N")
        self.wait_until(lambda: set(self.ask(*idle).split()) == set(_NODES))

    def stop(self) -> None:
        """Cancel all jobs and end everything."""
        if (self.root / "slurmctld.pid").exists():
            self.cancel_all()
        daemons = (*(f"slurmd-{node}" for node in _NODES), "slurmctld", "slurmdbd", "munged")
        pids = [self._end(name) for name in daemons]
        if self._database is not None:
            self._database.terminate()
            self._database.wait(timeout=120)
        self.wait_until(lambda: not any(pid and Path(f"/proc/{pid}").exists() for pid in pids))

    def cancel_all(self) -> None:
        """End all jobs, and wait until they are gone."""
        self._works("scancel", "--user=root")
        self.wait_until(lambda: not self.ask("squeue", "-h"))

    def wait_until(self, condition: Callable[[], object], seconds: float = 600) -> None:
        """Wait for something that comes, on a machine that may be busy."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.2)

    def ask(self, *command: str) -> str:
        """Output of a command of SLURM; empty if it fails."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False
        )
        return done.stdout if done.returncode == 0 else ""

    # -- parts ------------------------------------------------------------------------------

    def _write(self) -> None:
        for name in ("state", "mysql", *(f"spool-{node}" for node in _NODES)):
            (self.root / name).mkdir(parents=True)
        names = ("controller", "accounting", "database", *_NODES)
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        cpus = os.cpu_count() or 1
        # Whoever wants both of the two nodes has to wait for the jobs on them, or to pre-empt them.
        values = {"root": self.root, "host": _host(), "cpus": cpus, "half": max(1, cpus // 2)}
        values |= ports
        self._port = ports["database"]
        self.config.write_text(_SLURM.format(**values))
        accounting = self.root / "slurmdbd.conf"
        accounting.write_text(_ACCOUNTING.format(**values))
        accounting.chmod(0o600)
        # A GPU must be a character device: the null and the zero device stand in for two.
        for number, minor in enumerate((3, 5)):
            os.mknod(self.root / f"gpu{number}", stat.S_IFCHR | 0o600, os.makedev(1, minor))
        (self.root / "gres.conf").write_text(_GPUS.format(root=self.root))

    def _start_munge(self) -> None:
        key = self.root / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        files = {"key-file": "key", "socket": "socket", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={self.root}/munge.{name}" for option, name in files.items()]
        self._run("munged", "--force", *options, f"--pid-file={self.root}/munged.pid")

    def _start_database(self) -> None:
        data = self.root / "mysql"
        shutil.chown(data, "mysql", "mysql")
        self.root.chmod(0o755)
        self._run(
            "mariadb-install-db",
            "--no-defaults",
            "--user=mysql",
            f"--datadir={data}",
            f"--tmpdir={data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        )
        command = ["mariadbd", "--no-defaults", "--user=mysql", f"--datadir={data}"]
        command += [f"--tmpdir={data}"]
        command += [f"--socket={data}/socket", "--bind-address=127.0.0.1", f"--port={self._port}"]
        with (self.root / "mariadb.log").open("wb") as log:
            self._database = subprocess.Popen(command, stdout=log, stderr=log)
        client = ["mariadb", "--no-defaults", f"--socket={data}/socket", "-uroot", "-e"]
        self.wait_until(lambda: self._works(*client, "SELECT 1"))
        self._run(*client, _USERS)

    def _run(self, *command: str) -> None:
        log = self.root / "commands.log"
        with log.open("ab") as output:
            done = subprocess.run(
                command, env=self.environment, stdout=output, stderr=output, check=False
            )
        assert done.returncode == 0, f"{command[0]} failed: {log.read_text()[-2000:]}"

    def _works(self, *command: str) -> bool:
        done = subprocess.run(command, env=self.environment, capture_output=True, check=False)
        return done.returncode == 0

    def _end(self, name: str) -> int | None:
        try:
            pid = int((self.root / f"{name}.pid").read_text())
            os.kill(pid, signal.SIGTERM)
        except (OSError, ValueError):
            return None
        return pid


def _host() -> str:
    return socket.gethostname().partition(".")[0]


def free_ports(count: int) -> Sequence[int]:
    """Free ports of the loopback device."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


@contextlib.contextmanager
def running() -> Iterator[OneMachineSlurm]:
    """A SLURM in a folder of its own, until the block ends."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"a SLURM of our own needs root and {', '.join(missing) or 'nothing else'}")
    # Not pytest's folder: paths of sockets are limited to 107 bytes.
    slurm = OneMachineSlurm(Path(tempfile.mkdtemp(prefix="rc-slurm-")))
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()
        shutil.rmtree(slurm.root, ignore_errors=True)
