"""Completion in shells: what is offered for a line, and that a real one shows it."""

from __future__ import annotations

import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "runs" / "second").mkdir(parents=True)
    (tmp_path / "experiment.yaml").write_text("methods: [contrastive]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["st"], ["status"]),
        (["run", "quickst"], ["quickstart"]),
        (["check", "exp"], ["experiment.yaml"]),
        (["run", "papers/000_sgsl/figure"], ["papers/000_sgsl/figure4_cars196"]),
        (["run", "quickstart", "--launcher", ""], ["local", "slurm"]),
        (["show", "quicks"], ["quickstart"]),
        (["status", "ru"], ["runs/"]),
    ],
)
def test_what_is_offered(words: list[str], expected: list[str], here: Path) -> None:
    line, answer = f"reality-check {shlex.join(words[:-1])} {words[-1]}", here / "answer"
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}
    asked |= {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
    command = [sys.executable, "-m", "reality_check"]
    subprocess.run(command, env={**os.environ, **asked}, check=True, timeout=120)
    assert [word.rstrip() for word in answer.read_text().split("\n")] == expected


class Terminal:
    """An interactive shell as a person has it."""

    def __init__(self, command: list[str], folder: Path) -> None:
        programs = folder / "programs"
        programs.mkdir()
        script = programs / "reality-check"
        script.write_text(
            "#!/bin/sh\n"
            f'[ "$_ARGCOMPLETE" ] && exec "{sys.executable}" -m reality_check "$@"\n'
            f'printf "%s|" "$@" > "{folder}/called"\n'
        )
        script.chmod(0o755)
        variables = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "TERM": "dumb",
            "HOME": str(folder),
            "INPUTRC": os.devnull,
        }
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, variables)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.file, text.encode())

    def wait_for(self, text: str, seconds: float = 60) -> None:
        """Read until a text appears behind what was read before."""
        end = time.monotonic() + seconds
        start = len(self.seen)
        while text not in self.seen[start:]:
            assert time.monotonic() < end, f"no {text!r} in {self.seen[start:]!r}"
            if select.select([self.file], [], [], 0.5)[0]:
                self.seen += os.read(self.file, 4096).decode(errors="replace")

    def close(self) -> None:
        os.close(self.file)  # the shell's terminal is gone: it ends
        os.waitpid(self.pid, 0)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_a_real_shell_completes(here: Path) -> None:
    register = f"{sys.executable} -m argcomplete.scripts.register_python_argcomplete"
    terminal = Terminal(["bash", "--norc", "--noprofile", "-i"], here)
    try:
        terminal.type(f"eval \"$({register} reality-check)\"; echo rea''dy\n")
        terminal.wait_for("ready")
        terminal.type("reality-check run quickst\t")
        time.sleep(0.2)
        terminal.type("; echo fin''ished\n")
        terminal.wait_for("finished")
        # What the shell ran shows what the line had become.
        assert (here / "called").read_text() == "run|quickstart|"
    finally:
        terminal.close()
