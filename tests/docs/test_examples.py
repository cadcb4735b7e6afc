"""Every block of code in README and docs works: Python, commands and YAML, page by page, in order.

A page's blocks run in one empty folder. A block with a title is also written to a file of that
name, so that commands find it. Commands of ours run in this process, and so do their workers. Two
marks, directly above a block: ``<!-- not run: reason -->`` leaves it out, ``<!-- run with:
arguments -->`` adds arguments, to make it fast; ``old->new`` replaces what the block says. What is
left out is a skipped subtest that prints the reason; its commands are parsed all the same, and the
experiments that they name are loaded with their overrides.
"""

from __future__ import annotations

import ast
import os
import re
import runpy
import shlex
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from html import unescape
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version
from support.blank_figures import BlankFiles
from support.in_process import visiting, workers_in_this_process
from support.paths import ROOT

import reality_check
from reality_check.cli import main as cli
from reality_check.config import Experiment, config_files, load_experiment
from reality_check.config.compose import compose
from reality_check.config.method import Method
from reality_check.config.model import Model
from reality_check.config.suite import Suite, load, load_suite
from reality_check.config.yaml_text import parse_yaml
from reality_check.report.figures import plotting

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BlocksOf = Callable[[Path], list[Any]]

#: Languages of blocks that hold what is looked at, not run.
SHOWN = {"text", "console", "html", "bibtex", "latex", "csv", "json", "sql", "toml"}

#: Commands that are not run, by what they contain.
NOT_RUN = {
    r"^(pip|python3? -m (pip|venv|build)|make|docker|apt(-get)?|git|conda)\b|-m venv": (
        "installs or builds, as .ci/run does"
    ),
    r"--launcher [sc]|^(srun|sbatch|squeue|scancel|sacct|sinfo|scontrol|salloc|module)\b": (
        "needs a cluster; the tests marked slurm start one"
    ),
    r"--processes-per-network|--devices \d|CUDA_VISIBLE_DEVICES|^torchrun": "needs GPUs",
    r"postgres|mysql|mariadb|\bp(sql|g_)|--storage |dashboard|^create(db|user)": (
        "needs a database server; tests/system/test_database_servers.py starts some"
    ),
    r"storage( serve|=server)": "needs a server; tests/system/test_storage_server.py runs one",
    r"^(ssh|scp|rsync|export|tail|sqlite3|optuna)\b|\.\.\.": "is for the reader's own machine",
    r"^python3? (benchmarks/|-m examples\.)": "takes minutes; examples/ has tests of its own",
    r"^pytest\b": "runs tests",
}
#: Commands besides ours that a page may call.
MAY_RUN = {"python", "ls", "cp", "mv", "cat", "mkdir", "cd", "head", "grep"}

#: Pages that train.
TRAINS = re.compile(
    r"^<!-- run with: |^reality-check run experiment\.yaml$|^trainer\.train\(\)", re.M
)
#: What a block imports that may be missing.
OPTIONAL = re.compile(
    r"^(?:import|from) (torchvision|sentence_transformers|lightning|accelerate|transformers)\b",
    re.M,
)

every_page = pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=page.relative_to(ROOT).as_posix(),
            marks=[
                *[pytest.mark.slow] * bool(TRAINS.search(page.read_text(encoding="utf-8"))),
                # One process of the tests imports the frameworks.
                *[pytest.mark.xdist_group("integrations")] * (page.stem == "integrations"),
            ],
        )
        for page in PAGES
    ],
)


@every_page
def test_blocks_run(
    page: Path,
    blocks_of: BlocksOf,
    tmp_path: Path,
    subtests: pytest.Subtests,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if page.name == "upstream.md":
        skip_if_older(page)
    here = Here(page)
    if page.name != "results.md":  # the figures of one page's reports are drawn, and not of all
        monkeypatch.setattr(plotting.ReportFigure, "files", BlankFiles())
    with visiting(tmp_path), workers_in_this_process(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for block in blocks_of(page):
            if block.title:
                Path(block.title).write_text(block.code, encoding="utf-8")
            with subtests.test(f"{page.name} line {block.line}"):
                here.run(block)
    for report in tmp_path.glob("runs/*/report.html"):
        with subtests.test(f"{page.name}: the page on reports explains {report.parent.name}"):
            sections = set(re.findall(r"<h2[^>]*>([^<]+)</h2>", report.read_text(encoding="utf-8")))
            assert sections
            explained = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
            assert not {name for name in sections if f"**{unescape(name)}**" not in explained}


def skip_if_older(page: Path) -> None:
    """Skip a page on faults of others where a version is older than those that it is about."""
    about = re.findall(r"^\| ([\w-]+) \| (\d\S+) \|$", page.read_text(encoding="utf-8"), re.M)
    assert about
    for name, named in about:
        if Version(installed := version(name)) < Version(named):
            pytest.skip(f"{name} is {installed}, older than the page's {named}")


class Here:
    """A page while it is run: what its Python has defined, which runs it has made."""

    def __init__(self, page: Path) -> None:
        self.page = page
        self.namespace: dict[str, Any] = {"__name__": "example"}

    def run(self, block: Any) -> None:
        if block.language == "python":
            self.python(block)
        elif block.language == "sh":
            self.commands(block)
        elif block.language == "yaml":
            if block.reason:
                pytest.skip(block.reason)
            compose_block(block.code)
        else:
            assert block.language in SHOWN, f"no test knows what to do with {block.language}"

    def python(self, block: Any) -> None:
        if is_signature(block.code):
            return  # tests/docs/test_snippets.py compares it
        if block.reason:
            compile(block.code, str(self.page), "exec")
            pytest.skip(block.reason)
        for module in OPTIONAL.findall(block.code):
            needs(module)
        # Line numbers of the page in tracebacks; untrained weights in place of a download.
        code = re.sub(r'weights="\w+"', "weights=None", block.code)
        compiled = compile("\n" * (block.line - 1) + code, str(self.page), "exec")
        with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
            if block.extra:
                patch.setattr(reality_check, "load_experiment", with_overrides(block.extra))
            if "torch._dynamo.config." in code:
                # A setting for good in a page must not be one for the tests that follow. (Undoing
                # pytest's own setattr would delete it: it is not in the module's dictionary.)
                flag = "capture_dynamic_output_shape_ops"
                now = {flag: getattr(torch._dynamo.config, flag)}
                stack.enter_context(torch._dynamo.config.patch(now))
            exec(compiled, self.namespace)

    def commands(self, block: Any) -> None:
        script = "is a script for the reader" if block.code.startswith("#!") else None
        left_out = set()
        for line in lines(block.code):
            reason = block.reason or script or why_not(line, block)
            if reason:
                check_command(line)
                left_out.add(reason)
            else:
                execute(line, block.extra)
        if left_out:
            pytest.skip(f"{self.page.name} line {block.line}: {'; '.join(sorted(left_out))}")


def why_not(line: str, block: Any) -> str | None:
    """Why a command is not run; None if it is."""
    for pattern, reason in NOT_RUN.items():
        if re.search(pattern, line):
            return reason
    _, words = split(line)
    folders = [word for word in words if word.startswith("runs/")]
    if words[:2] != ["reality-check", "run"] and not all(map(os.path.exists, folders)):
        return "reads the output folder of a run"
    if words[0] != "reality-check":
        assert words[0] in MAY_RUN, f"{line}: mark the block, or teach tests/docs to run it"
        return None
    if words[1] in ("run", "check", "show") and words[2].endswith(".yaml"):
        return None if Path(words[2]).exists() else f"needs a file {words[2]} of the reader's"
    if words[1] == "run" and not block.extra:
        return "trains a whole experiment"
    if words[1] == "check" and words[2] != "quickstart":
        return "needs its images"
    return None


def is_signature(code: str) -> bool:
    body = ast.parse(code).body
    alone = len(body) == 1 and isinstance(body[0], ast.Expr)
    return alone and code.startswith("losses.") and isinstance(body[0].value, ast.Call)


def needs(module: str) -> None:
    try:
        __import__(module)
    except (ImportError, RuntimeError, AttributeError) as error:
        pytest.skip(f"{module} does not import: {error}")


def with_overrides(extra: tuple[str, ...]) -> Callable[..., Experiment]:
    def load(path: str, overrides: tuple[str, ...] = ()) -> Experiment:
        return load_experiment(path, [*overrides, *extra])

    return load


def lines(code: str) -> Iterator[str]:
    """The commands of a block, without comments, continued lines joined."""
    for line in code.replace("\\\n", " ").splitlines():
        command = re.sub(r"(^|\s)#.*$", "", line).strip()
        if command:
            yield command


def split(line: str) -> tuple[dict[str, str], list[str]]:
    """The variables that are set before a command, and its words."""
    words = shlex.split(line)
    count = 0
    while count < len(words) and re.fullmatch(r"[A-Z_]+=.*", words[count]):
        count += 1
    return dict(word.split("=", 1) for word in words[:count]), words[count:]


def execute(line: str, extra: tuple[str, ...]) -> None:
    variables, words = split(line)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        if words[0] == "reality-check":
            parse(words[1:])
            more = extra if words[1] in ("run", "check", "embed") else ()
            status = cli.main([*words[1:], *more])
        elif words[0] == "python":
            patch.setattr(sys, "argv", words[1:])
            runpy.run_path(words[1], run_name="__main__")
            return
        else:
            status = subprocess.run(["bash", "-c", line], timeout=60).returncode
    assert status == 0, f"{line}: exit status {status}"


def check_command(line: str) -> None:
    """Parse a command of ours, and load the experiment that it names, with its overrides."""
    words = shlex.split(re.split(r"\s(?:&&|\||;)\s", line)[0])
    if "reality-check" not in words or "..." in words:
        return
    options = parse(words[words.index("reality-check") + 1 :])
    name = str(getattr(options, "experiment", None) or getattr(options, "what", ""))
    if name in config_files("experiments") or Path(name).is_file():
        settings = [f"slurm.{text}" for text in getattr(options, "slurm", [])]
        settings += [f"command.{text}" for text in getattr(options, "templates", [])]
        load(name, [*options.overrides, *settings])


def parse(words: list[str]) -> Namespace:
    """What the command line understands; a failure where it does not."""
    try:
        return cli._parse(words)
    except SystemExit as end:
        if end.code:
            pytest.fail(f"reality-check {shlex.join(words)} is not understood")
        return Namespace()  # --help and --version


def compose_block(code: str) -> Experiment | Suite:
    """Validate a YAML block: an experiment, a suite, or a part of one, a model or a method."""
    data = parse_yaml(code)
    assert isinstance(data, dict), "a YAML block should be a mapping"
    if "suite" in data:
        Path("block.yaml").write_text(code, encoding="utf-8")
        return load_suite("block.yaml")
    raw: dict[str, Any] = {
        "name": "block",
        "dataset": "glyphs",
        "model": "conv4",
        "protocol": "mlrc",
        "methods": ["contrastive"],
    }
    if "trunk" in data and set(data) <= set(Model.model_fields):
        raw["model"] = {"name": "block", **data}
    elif set(data) <= {*Experiment.model_fields}:
        if isinstance(data.get("protocol"), dict):
            data["protocol"] = {"base": "mlrc", **data["protocol"]}
        raw |= data
    else:
        assert set(data) <= {*Method.model_fields, "base"}, f"keys of nothing: {sorted(data)}"
        raw["methods"] = [{"name": "block", "loss": "ContrastiveLoss", **data}]
    return compose(raw, where="block")


def test_fences_are_all_read(blocks_of: BlocksOf) -> None:
    # So that a change of the pattern cannot turn the test above into one of nothing.
    for page in PAGES:
        fences = re.findall(r"^ *```", page.read_text(encoding="utf-8"), re.M)
        assert len(fences) == 2 * len(blocks_of(page)), page


def test_marks_are_heard(
    blocks_of: BlocksOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    text = (
        "<!-- not run: needs two GPUs -->\n```python\n1 / 0\n```\n\n"
        "<!-- run with: 400->9 -->\n```python\nsteps = range(400)\n```\n\n"
        "<!-- run with: seed=3 -->\n```sh\nreality-check show quickstart  # all of it\n```\n\n"
        '```yaml title="experiment.yaml"\nseed: 1\n```\n'
    )
    page.write_text(text, encoding="utf-8")
    python, shorter, command, plain = blocks_of(page)
    assert (python.language, python.line, python.reason) == ("python", 3, "needs two GPUs")
    assert (shorter.code, shorter.extra) == ("steps = range(9)\n", ())
    assert (command.extra, plain.title) == (("seed=3",), "experiment.yaml")
    here = Here(page)
    with pytest.raises(pytest.skip.Exception, match="needs two GPUs"):
        here.run(python)
    here.run(command)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("pip install .", "installs"),
        ("reality-check run cub200_mlrc --launcher slurm", "cluster"),
        ("reality-check run sop_mlrc --processes-per-network 4", "GPUs"),
        ("reality-check run cub200_mlrc", "whole experiment"),
        ("reality-check status runs/quickstart", "output folder"),
    ],
)
def test_what_is_not_run_has_a_reason(
    line: str, reason: str, blocks_of: BlocksOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"```sh\n{line}\n```\n", encoding="utf-8")
    with pytest.raises(pytest.skip.Exception, match=reason):
        Here(page).run(*blocks_of(page))


@pytest.mark.parametrize(
    "line",
    [
        "reality-check run quickstart --folds 4",
        "reality-check run cub200_mlrc protocol.search.trails=8",
        "reality-check repeat quickstart",
        "rm -r everything",
    ],
)
def test_a_wrong_command_is_found(
    line: str, blocks_of: BlocksOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"```sh\n{line}\n```\n", encoding="utf-8")
    with pytest.raises((AssertionError, pytest.fail.Exception, reality_check.UsageError)):
        Here(page).run(*blocks_of(page))


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_commands_in_the_text_are_understood(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for command in re.findall(r"`(reality-check [^`]+)`", text):
        words = command.split()
        if len(words) == 2:
            parse([words[1], "--help"])
        elif "COMMAND" not in words:
            check_command(shlex.join(words))
    for override in re.findall(r"`(protocol(?:\.\w+)*=[^`]+)`", text):
        load_experiment("quickstart", [override.replace("\n", " ")])


def test_no_page_names_a_folder_of_this_machine() -> None:
    home = re.escape(os.path.expanduser("~"))
    for page in PAGES:
        assert not re.search(rf"/(work|tmp|opt/rc)/|{home}/", page.read_text(encoding="utf-8")), (
            page
        )
