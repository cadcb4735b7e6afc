"""Database servers from the distribution's packages, on loopback, with folders of their own."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

USER, PASSWORD, DATABASE = "tom", "se{c}r@t/pass", "studies"
#: The password as it stands in a URL.
QUOTED = "se%7Bc%7Dr%40t%2Fpass"
#: Where Debian keeps programs that are not in the path.
_PLACES = ("/usr/sbin", "/usr/lib/postgresql/*/bin")
#: Seconds that a server may take to start on a busy machine.
_PATIENCE = 120


def program(name: str) -> str | None:
    """The path of a server's program, if it is installed."""
    found = shutil.which(name)
    if found is not None:
        return found
    for place in _PLACES:
        base = Path("/")
        matches = sorted(base.glob(f"{place.lstrip('/')}/{name}"))
        if matches:
            return str(matches[-1])
    return None


class Server:
    """A server process that can be stopped and started again on the same data and port."""

    #: The programs that it needs.
    programs: tuple[str, ...] = ()
    #: The system's user that it runs as, where the tests run as root.
    account = ""
    scheme = ""
    #: Options that make it fast and forgetful when the machine fails.
    hasty: tuple[str, ...] = ()

    def __init__(self) -> None:
        # Not in pytest's folders: every session takes them away from all other users.
        self._home = Path(tempfile.mkdtemp(prefix="rc-server-"))
        self._home.chmod(0o755)
        self.folder, self.port = self._home / "data", _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.folder.mkdir()
        if os.geteuid() == 0:
            account = pwd.getpwnam(self.account)
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        self._initialise()
        self.start()
        self._make_user()

    @classmethod
    def missing(cls) -> str | None:
        """The first of its programs that is not installed."""
        return next((name for name in cls.programs if program(name) is None), None)

    def url(self, password: str | None = QUOTED, port: int | None = None) -> str:
        """Its storage, as a user writes it."""
        user = USER if password is None else f"{USER}:{password}"
        return f"{self.scheme}://{user}@127.0.0.1:{port or self.port}/{DATABASE}"

    @property
    def pid(self) -> int | None:
        """Its process, while it runs."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._as_account(self._command()), stdout=log, stderr=log
            )
        end = time.monotonic() + _PATIENCE
        while not self._answers():
            assert self._process.poll() is None, (self._home / "log").read_text()
            assert time.monotonic() < end, "the server does not answer"
            time.sleep(0.2)

    def stop(self) -> None:
        """End it; clients lose their connections."""
        if self._process is not None:
            self._end(self._process)
            self._process.wait(timeout=_PATIENCE)
            self._process = None

    def close(self) -> None:
        """End it for good."""
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def _as_account(self, command: list[str]) -> list[str]:
        if os.geteuid() != 0:
            return command
        user = [f"--reuid={self.account}", f"--regid={self.account}", "--clear-groups"]
        return ["setpriv", *user, "--", *command]

    def _call(self, command: list[str], text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._as_account(command), input=text, capture_output=True, text=True, cwd=self.folder
        )

    def _initialise(self) -> None:
        raise NotImplementedError

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError

    def _make_user(self) -> None:
        raise NotImplementedError

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()


class Postgres(Server):
    """PostgreSQL."""

    programs = ("postgres", "initdb", "psql")
    account = "postgres"
    scheme = "postgresql+psycopg"
    hasty = ("-c", "fsync=off")

    def _initialise(self) -> None:
        command = [_must("initdb"), "-D", str(self.folder / "data"), "-U", "admin"]
        made = self._call([*command, "--auth-local=trust", "--auth-host=scram-sha-256"])
        assert made.returncode == 0, made.stderr

    def _command(self) -> list[str]:
        places = ["-D", str(self.folder / "data"), "-k", str(self.folder), "-p", str(self.port)]
        return [_must("postgres"), *places, "-h", "127.0.0.1", *self.hasty]

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(2)  # "fast": do not wait until the clients leave

    def _sql(self, text: str) -> subprocess.CompletedProcess[str]:
        where = ["-h", str(self.folder), "-p", str(self.port), "-U", "admin", "-d", "postgres"]
        return self._call([_must("psql"), *where, "-v", "ON_ERROR_STOP=1"], text)

    def _answers(self) -> bool:
        return self._sql("SELECT 1").returncode == 0

    def _make_user(self) -> None:
        made = self._sql(
            f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}';"
            f"CREATE DATABASE {DATABASE} OWNER {USER};"
        )
        assert made.returncode == 0, made.stderr


class MariaDB(Server):
    """MariaDB, which speaks MySQL's protocol."""

    programs = ("mariadbd", "mariadb-install-db", "mariadb")
    account = "mysql"
    scheme = "mysql+pymysql"
    hasty = ("--innodb-flush-log-at-trx-commit=0",)

    def _initialise(self) -> None:
        command = [_must("mariadb-install-db"), "--no-defaults", "--skip-test-db"]
        where = [f"--datadir={self.folder / 'data'}", f"--tmpdir={self.folder}"]
        made = self._call([*command, *where, "--auth-root-authentication-method=normal"])
        assert made.returncode == 0, made.stdout + made.stderr

    def _command(self) -> list[str]:
        places = [f"--datadir={self.folder / 'data'}", f"--socket={self.folder / 'socket'}"]
        net = ["--bind-address=127.0.0.1", f"--port={self.port}"]
        pid = [f"--pid-file={self.folder / 'pid'}", f"--tmpdir={self.folder}"]
        return [_must("mariadbd"), "--no-defaults", *places, *net, *pid, *self.hasty]

    def _sql(self, text: str) -> subprocess.CompletedProcess[str]:
        where = ["--no-defaults", f"--socket={self.folder / 'socket'}", "-u", "root"]
        return self._call([_must("mariadb"), *where], text)

    def _answers(self) -> bool:
        return self._sql("SELECT 1").returncode == 0

    def _make_user(self) -> None:
        made = self._sql(
            f"CREATE DATABASE {DATABASE}; CREATE USER {USER}@'%' IDENTIFIED BY '{PASSWORD}';"
            f"GRANT ALL ON {DATABASE}.* TO {USER}@'%';"
        )
        assert made.returncode == 0, made.stderr


def _must(name: str) -> str:
    found = program(name)
    assert found is not None, name
    return found


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port
