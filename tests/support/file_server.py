"""Files on a server of this machine."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Offer the files of a folder, and give its address."""
    handler = partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        options = {"poll_interval": 0.01}
        threading.Thread(target=server.serve_forever, kwargs=options, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
