"""An output folder is held by one process at a time."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from support.pace import wait_until
from support.preloaded import Started

from reality_check.studies.output_folder import exclusive
from reality_check.utils.errors import UsageError


def hold(words: tuple[str, ...]) -> int:
    """Hold the folder words[0] until it is killed."""
    with exclusive(Path(words[0])):
        (Path(words[0]) / "held").touch()
        signal.pause()
    return 0


@pytest.mark.skipif(sys.platform == "win32", reason="no such locks on Windows")
def test_only_one_process_holds_a_folder_and_its_end_frees_it(tmp_path: Path) -> None:
    process = Started(tmp_path, tmp_path / "log", str(tmp_path), program=hold, spares=0)
    try:
        wait_until((tmp_path / "held").exists, 60)
        with pytest.raises(UsageError, match=f"process {process.pid}"), exclusive(tmp_path):
            pass
    finally:
        process.kill()
    process.wait(60)
    for _ in range(2):
        with exclusive(tmp_path):
            pass
