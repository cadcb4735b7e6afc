"""The address of the PostgreSQL that ``reality-check storage serve`` runs for an output folder."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from sqlalchemy import URL

from reality_check.utils.errors import UsageError
from reality_check.utils.processes import ends_with_parent

#: The value of ``storage`` in experiments that use such a server, and the scheme of its URL here.
SERVER = "server"
#: The files that a server writes into its folder for the workers.
ADDRESS, PASSWORD = "address", "password"


class NoServer(UsageError):
    """No server of an output folder has written its address yet."""


def server_url(out_dir: Path) -> str:
    """Return ``server://FOLDER``, in which the server of an output folder has its files.

    The server of the folder above serves too, such as that of a suite.
    """
    folders = [folder / "storage" for folder in (out_dir.resolve(), out_dir.resolve().parent)]
    return f"{SERVER}://{next(filter(Path.is_dir, folders), folders[0])}"


def find_server(url: str) -> tuple[URL, str]:
    """Return the URL of a running server without its password, and the password.

    Args:
        url: the ``server://FOLDER`` of the server.

    Raises:
        NoServer: none was ever started.
        UsageError: its files cannot be read.
    """
    folder = Path(url.partition("://")[2])
    try:
        address = json.loads((folder / ADDRESS).read_text())
        where = {key: address[key] for key in ("host", "port", "database")}
        password = (folder / PASSWORD).read_text()
        return URL.create("postgresql+psycopg", address["user"], **where), password
    except FileNotFoundError:
        raise NoServer(f"no server was started for {folder.parent}; {how_to_start(url)}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"the server of {folder.parent} cannot be found: {type(error).__name__}: {error}; only "
            "the user who started it can use it."
        ) from None


def serve_meanwhile(url: str) -> None:
    """Run the server of an output folder until this process ends, if it has stopped.

    One that was killed left its lease, so it may still run elsewhere and is not replaced.

    Args:
        url: the ``server://FOLDER`` of the server.

    Raises:
        UsageError: it cannot run here.
    """
    folder = Path(url.partition("://")[2])
    may_serve = os.access(folder, os.W_OK) and (folder / "data").exists()
    if not may_serve or (folder / "lease").exists():
        return
    server = subprocess.Popen(
        [sys.executable, "-m", "reality_check", "storage", "serve", str(folder.parent)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # Ctrl-C is for this process, which then stops it
        preexec_fn=ends_with_parent(signal.SIGTERM),
    )
    atexit.register(_stop, server)
    said = ""
    for line in server.stdout or ():
        if "Ctrl-C stops it" in line:
            print(f"The server of {folder.parent} runs until this command ends.", file=sys.stderr)
            return
        said += line
    raise UsageError(
        f"the server of {folder.parent} has ended and cannot run here: "
        f"{said.strip().removeprefix('reality-check: ')} {how_to_start(url)}"
    )


def _stop(server: subprocess.Popen[str]) -> None:
    server.terminate()
    server.wait()


def how_to_start(url: str) -> str:
    """Return the sentence that says how to start a server."""
    folder = Path(url.partition("://")[2]).parent
    return f"to start it, in another terminal or as a job: reality-check storage serve {folder}"
