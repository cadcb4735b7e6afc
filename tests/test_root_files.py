"""Files that only other programs read: they parse, and say what the Makefile says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.paths import ROOT

FILES = [
    *ROOT.glob(".github/**/*.yml"),
    ROOT / ".pre-commit-config.yaml",
    ROOT / "CITATION.cff",
]


def parse(path: Path) -> Any:
    # BaseLoader: `on` is a word in a workflow, not a truth value.
    return yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)


def steps(workflow: Any) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_they_parse() -> None:
    assert len(FILES) >= 4
    for path in FILES:
        assert isinstance(parse(path), dict), path.name


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob(".github/workflows/*")), ids=lambda path: path.stem
)
def test_a_workflow_may_only_read_and_names_major_versions(path: Path) -> None:
    workflow = parse(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())
    uses = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert uses
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", action) for action in uses)


def test_the_workflows_run_what_the_project_runs() -> None:
    runs = [
        step["run"]
        for path in ROOT.glob(".github/workflows/*")
        for step in steps(parse(path))
        if "run" in step
    ]
    assert {".ci/run", "python -m build", "make docs"} <= set(runs)
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_hooks_are_the_commands_of_make_lint() -> None:
    repos = parse(ROOT / ".pre-commit-config.yaml")["repos"]
    (local,) = [repo for repo in repos if repo["repo"] == "local"]
    hooks = {hook["id"]: hook["entry"] for hook in local["hooks"]}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for entry in hooks.values():
        assert entry.startswith(".venv/bin/")
        command = entry.removeprefix(".venv/bin/").partition(" --")[0]
        assert f"$(BIN)/{command}" in makefile


def test_the_citation_has_what_the_format_requires() -> None:
    citation = parse(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    reference = (ROOT / "configs" / "references.yaml").read_text(encoding="utf-8")
    assert citation["title"] in reference.replace("{PyTorch}", "PyTorch")
