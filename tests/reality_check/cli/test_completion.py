"""Completion: what is offered for a line, and that real shells show it."""

from __future__ import annotations

import io
import os
import pty
import select
import shlex
import shutil
import sys
import time
from pathlib import Path

import pytest

from reality_check.cli.completion import LISTINGS, SHELLS, answer
from reality_check.cli.listings import print_listing
from reality_check.cli.main import build_parser, main
from reality_check.config import load_experiment
from reality_check.utils.errors import UsageError


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "runs" / "first try").mkdir(parents=True)
    (tmp_path / "runs" / "second").mkdir()
    (tmp_path / "experiment.yaml").write_text("methods: [contrastive]\n")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "configs" / "datasets").mkdir(parents=True)
    (tmp_path / "configs" / "datasets" / "birds.yaml").write_text("reader: glyphs\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def offered(*words: str) -> list[str]:
    """What a shell is given for a line whose last word is unfinished."""
    line, stream = f"reality-check {shlex.join(words[:-1])} {words[-1]}", io.StringIO()
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n"}
    asked |= {"COMP_LINE": line, "COMP_POINT": str(len(line.encode()))}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in asked.items():
            patch.setenv(name, value)
        patch.setattr(os, "fdopen", None)  # argcomplete would take a file of pytest's for its log
        with pytest.raises(SystemExit):
            answer(build_parser(), output_stream=stream, exit_method=sys.exit)
    return sorted(word.rstrip() for word in stream.getvalue().split("\n") if word)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["st"], ["status"]),
        (["--v"], ["--version"]),
        (["run", "quickst"], ["quickstart"]),
        (["run", "exp"], ["experiment.yaml"]),
        (["run", "~no_such_user_here/"], []),
        (["run", "papers/000_sgsl/figure"], ["papers/000_sgsl/figure4_cars196"]),
        (["run", "--out", "runs/s"], ["runs/second/"]),
        (["claim", "published/mlrc_cu"], ["published/mlrc_cub200"]),
        (["run", "quickstart", "--launcher", ""], ["local", "slurm"]),
        (["run", "quickstart", "--la"], ["--launcher"]),
        (["run", "--workers", ""], []),
        (["run", "--workers", "2", "quickst"], ["quickstart"]),
        (["run", "quickstart", "dataset=b"], ["dataset=birds"]),
        (["run", "quickstart", "seed=1", "dev"], ["device="]),
        (["run", "quickstart", "device=c"], ["device=cpu", "device=cuda"]),
        (["run", "quickstart", "no.key=1"], []),
        (["status", "ru"], ["runs/"]),
        (["status", "runs/"], [r"runs/first\ try/", "runs/second/"]),
        (["status", "runs/second", ""], []),
        (["show", "loss"], ["losses"]),
        (["show", "quicks"], ["quickstart"]),
        (["completion", "z"], ["zsh"]),
        (["nothing", "s"], ["score", "show", "status"]),
        (["status", "no/such/folder"], []),
    ],
)
def test_what_is_offered(words: list[str], expected: list[str]) -> None:
    assert offered(*words) == expected


def test_every_command_is_offered() -> None:
    commands = set(build_parser()._actions[-1].choices or ())
    assert set(offered("")) == commands
    assert offered("completion", "--") == ["--help"]


def test_what_is_offered_exists(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError) as caught:
        print_listing("no such thing")
    words = str(caught.value).partition("write one of ")[2].partition(", the name")[0].split(", ")
    assert sorted(words) == sorted(LISTINGS)
    values = {"protocol.search.trials": 30, "protocol.reproductions": 2, "seed": 4}
    for key in offered("run", "quickstart", ""):
        name = key.removesuffix("=")
        named = offered("run", "quickstart", key) or [f"{key}{values[name]}"]
        load_experiment("quickstart", named[:1])


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "there is no completion for 'tcsh'; write bash, zsh or fish" in capsys.readouterr().err


class Terminal:
    """An interactive shell as a person has it."""

    def __init__(self, command: list[str], folder: Path) -> None:
        programs = folder / "programs"
        programs.mkdir()
        script = programs / "reality-check"
        script.write_text(
            "#!/bin/sh\n"
            f'[ "$1" = completion ] || [ "$_ARGCOMPLETE" ] && '
            f'exec "{sys.executable}" -m reality_check "$@"\n'
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


@pytest.mark.parametrize(
    ("shell", "start"),
    [
        (["bash", "--norc", "--noprofile", "-i"], 'eval "$(reality-check completion bash)"'),
        (
            ["zsh", "-f", "-i"],
            'autoload -U compinit; compinit -u; eval "$(reality-check completion zsh)"',
        ),
        (["fish", "--no-config", "-i"], "reality-check completion fish | source"),
    ],
    ids=SHELLS,
)
def test_a_real_shell_completes(shell: list[str], start: str, here: Path) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    terminal = Terminal(shell, here)
    try:
        terminal.type(f"{start}; echo rea''dy\n")
        terminal.wait_for("ready")
        for typed, completed in (
            ("reality-check ver\t", "verdicts"),
            ("reality-check run quickst\t", "quickstart"),
            ("reality-check run quickstart protocol=appendix_d_c\t", "protocol=appendix_d_cars196"),
            ("reality-check status runs/sec\t", "runs/second/"),
        ):
            terminal.type(typed)
            time.sleep(0.2)
            terminal.type("; echo fin''ished\n")
            terminal.wait_for("finished")
            # What the shell ran shows what the line had become.
            assert (here / "called").read_text().split("|")[-2] == completed
    finally:
        terminal.close()
