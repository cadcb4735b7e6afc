"""An output folder is held by one process at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reality_check.studies.output_folder import exclusive
from reality_check.utils.errors import UsageError

HOLDER = """
import sys
from pathlib import Path
from reality_check.studies.output_folder import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no such locks on Windows")
@pytest.mark.parametrize("end", ["close", "kill"])
def test_only_one_process_holds_a_folder_and_its_end_frees_it(tmp_path: Path, end: str) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match=f"process {process.pid}"), exclusive(tmp_path):
            pass
        if end == "kill":
            process.kill()
        process.stdin.close()
        process.wait(timeout=60)
    with exclusive(tmp_path):
        pass
    with exclusive(tmp_path):
        pass
