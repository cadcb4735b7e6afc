"""The page on clusters: its manifest is one that Kubernetes takes, its blocks fill in."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.paths import DOCS

from reality_check.config.command import Command
from reality_check.launch.command import CommandScheduler

PAGE = DOCS / "cluster.md"
BlocksOf = Callable[[Path], list[Any]]


def yaml_blocks(blocks_of: BlocksOf, key: str) -> list[Any]:
    data = [yaml.safe_load(block.code) for block in blocks_of(PAGE) if block.language == "yaml"]
    return [block for block in data if key in block]


def test_the_manifest_is_valid(blocks_of: BlocksOf) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    (manifest,) = yaml_blocks(blocks_of, "kind")
    validator.validate(manifest, validator.latest_version(), strict=True)
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    container["comand"] = container.pop("command")
    with pytest.raises(validator.ValidationError, match="comand"):
        validator.validate(manifest, validator.latest_version(), strict=True)


@pytest.mark.parametrize(
    ("program", "printed", "number"),
    [
        ("qsub -terse", "12\n", "12"),
        ("-l select", "12.server\n", "12.server"),
        ("ray job", "Job 'raysubmit_4Lam' submitted successfully\nNext steps\n", "raysubmit_4Lam"),
        ("sky jobs", "Managed Job ID: 3\nUseful Commands\n", "3"),
        ("kubectl", "job.batch/reality-check-x7k2p\n", "job.batch/reality-check-x7k2p"),
    ],
)
def test_the_numbers_of_jobs_are_found(
    program: str, printed: str, number: str, blocks_of: BlocksOf, tmp_path: Path
) -> None:
    blocks = (block["command"] for block in yaml_blocks(blocks_of, "command"))
    (block,) = (block for block in blocks if program in block["submit"])
    for template in ("submit", "state", "end"):
        assert not re.search(r"\{\{|\}\}", block[template]) or "json" in block[template]
    (tmp_path / "printed").write_text(printed)
    made = Command(**block | {"submit": "cat {folder}/printed; : {command}"})
    assert list(CommandScheduler(made, "tiny", tmp_path, 1).submit([0])) == [number]


def test_a_job_of_ray_has_ended_once_its_status_says_so(blocks_of: BlocksOf) -> None:
    """The words are those of Ray 2.60, which has others for jobs that run."""
    blocks = (block["command"] for block in yaml_blocks(blocks_of, "command"))
    (block,) = (block for block in blocks if "ray job" in block["submit"])
    for end in ("succeeded", "failed", "was stopped"):
        assert re.search(block["gone"], f"Job 'raysubmit_4Lam' {end}")
    for state in ("RUNNING", "PENDING"):
        assert not re.search(block["gone"], f"Status for job 'raysubmit_4Lam': {state}")
